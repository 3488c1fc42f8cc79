"""Tests of report.py with made-up records. Prints OK at the end of a good run."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

import report

MACHINE = {"cpu": "A CPU", "cores": 2, "kernel": "Linux 6"}


def record_of(kind):
    work = {"do": "h2d", "groups": [[1, 4000]], "statistic": "time"}
    row = {"scenario": "pin", "row": "pageable", "worth": 1, "work": work, "reached": True, "run": 0,
           "results": {"tdict": {"turns": [[1.0], [1.0]], "verified_bytes": 4000},
                       "driver": {"turns": [[2.0], [2.0]]}}, "line": {"bytes": 4000, "turns": [[0.5]]}}
    run = {"date": "2025-01-02T03:04:05Z", "machine": MACHINE, "library_version": "0.1.0", "turns": 2,
           "budget_seconds": 480, "seconds": 100, "delay_percent": 0}
    return {"format": 1, "scenario": "compare", "date": run["date"], "library_version": "0.1.0",
            "simulated": kind == "sim", "device": {"kind": kind, "text": kind + ":0", "name": "A GPU"}, "full": True,
            "contenders": {"tdict": {"version": "0.1.0"}}, "absent": {}, "runs": [run], "rows": [row]}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, *records, options=()):
        paths = []
        for i, record in enumerate(records):
            path = self.folder / f"{i}.json"
            path.write_text(record if isinstance(record, str) else json.dumps(record))
            paths.append(str(path))
        text = io.StringIO()
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            code = report.main([*options, *paths])
        return code, text.getvalue()

    def test_tables_are_printed_or_written(self):
        code, text = self.call(record_of("cuda"), record_of("sim"))
        self.assertEqual(code, 0)
        self.assertIn("| pageable | 1000 ±0 | 2000 ±0 | 50.0 % | ahead of plain driver calls |", text)
        gpu, sim = text.split("**SIMULATED device")
        self.assertNotIn("SIMULATED", gpu)
        self.assertNotIn("plain driver calls", sim)
        out = self.folder / "report.md"
        self.assertEqual(self.call(record_of("cuda"), record_of("sim"), options=["--out", str(out)]), (0, ""))
        self.assertEqual(out.read_text(), text)

    def test_wrong_records_are_refused(self):
        for change in ({"simulated": True}, {"format": 2}, {"scenario": "other"}, {"rows": [{}]}, {"device": None}):
            code, text = self.call(dict(record_of("cuda"), **change))
            self.assertEqual(code, 2, change)
            self.assertIn("plot: ", text)
        self.assertEqual(self.call("{")[0], 2)

    def test_charts_are_drawn(self):
        folder = self.folder / "charts"
        self.assertEqual(self.call(record_of("cuda"), options=["--charts", str(folder)])[0], 0)
        self.assertIn(">pin: pageable<", (folder / "0.svg").read_text())
        self.assertIn("0.svg", (folder / "index.html").read_text())


if __name__ == "__main__":
    unittest.main()
