"""Tests report.py with made-up records. Prints OK if all tests pass."""
import contextlib
import io
import json
import unittest

import compare_test
import report


def record_of(kind):
    """Returns a record with one row, which was measured with tdict and with plain driver calls."""
    record = compare_test.made_up(kind, 1.0, 0.5)
    row = record["rows"][0]
    row["results"] = {who: row["results"][who] for who in ("tdict", "driver")}
    row["results"]["driver"]["turns"] = [[2.0]] * 3
    return dict(record, rows=[row], contenders={"tdict": {"version": "0.1.0"}})


class Report(compare_test.Case):
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
