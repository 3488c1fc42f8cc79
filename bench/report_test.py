"""Tests of report.py: made-up records go into a made-up page. Prints OK at the end of a good run."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

import report

MACHINE = {"cpu": "A CPU", "cores": 2, "kernel": "Linux 6"}
PAGE = """# Page
<!-- begin: to-device cuda -->
old
<!-- end -->
between
<!-- begin: to-device sim -->
<!-- end -->
<!-- begin: host-costs -->
<!-- end -->
"""


def run_of(kind):
    def samples(scale, size):
        return {"seconds": [scale * 3, scale, scale * 2], "bytes": size}
    stats = {"pin_path": "register", "peak_pinned_bytes": 0}
    rows = [dict(samples(scale, 4 * 10**9), way=way, threads_asked=asked, threads_worked=8,
                 peak_staging_bytes=2**26, stats=stats)
            for way, asked, scale in (("blocking", None, 0.5), ("non_blocking_pin", -1, 0.1))]
    record = {"format": 1, "scenario": "to-device", "date": "2025-01-02T03:04:05Z", "library_version": "0.1.0",
              "command": ["tdict-bench", "to-device"], "machine": MACHINE, "simulated": kind == "sim",
              "device": {"kind": kind, "text": kind + ":0", "name": "A GPU", "driver_version": 13000},
              "work": {"leaves": 1000, "leaf_bytes": 4000000, "total_bytes": 4 * 10**9, "repeats": 3, "warmups": 2},
              "verified": {"bytes": 4 * 10**9, "ways": 2}, "rows": rows}
    if kind == "cuda":
        record["raw_loop"] = samples(0.4, 4 * 10**9)
        record["raw_line"] = samples(0.02, 10**9)
    return record


COSTS = {"format": 1, "scenario": "host-costs", "date": "2025-01-02T03:04:05Z", "library_version": "0.1.0",
         "command": ["scripts/costs"], "machine": MACHINE, "counter": "callgrind", "build": "Release",
         "rows": [{"what": "get", "unit": "key", "units": 1000, "instructions": 120040, "each": 120.0,
                   "atomics_each": 1.5, "system_calls": 0}]}


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.page = self.folder / "page.md"
        self.page.write_text(PAGE)

    def call(self, *records, check=False):
        paths = []
        for i, record in enumerate(records):
            path = self.folder / f"{i}.json"
            path.write_text(record if isinstance(record, str) else json.dumps(record))
            paths.append(str(path))
        text = io.StringIO()
        with contextlib.redirect_stderr(text), contextlib.redirect_stdout(text):
            code = report.main((["--check"] if check else []) + paths + ["--into", str(self.page)])
        return code, text.getvalue()

    def test_sections_are_replaced(self):
        self.assertEqual(self.call(run_of("cuda"), COSTS), (0, ""))
        page = self.page.read_text()
        self.assertNotIn("old", page)
        self.assertIn("| blocking | - | 8 | 1000.00 | 1000.00 | 4.00 | 1.00 | 1.25 | 16.0 % | 64.0 + 0.0 | register |",
                      page)
        self.assertIn("| non_blocking_pin | auto | 8 | 200.00 | 200.00 | 20.00 | 0.20 | 0.25 | 80.0 % |", page)
        self.assertIn("| pinned line | - | 1 | 40.00 | 40.00 | 25.00 | 0.16 | 0.20 | 100.0 % |", page)
        self.assertIn("| get | key | 1,000 | 120,040 | 120 | 1.5 | 0 |", page)
        self.assertIn(report.NOTHING, page)
        self.assertIn("\nbetween\n", page)
        self.assertEqual(self.call(run_of("cuda"), COSTS, check=True), (0, ""))

    def test_simulated_runs_stay_apart(self):
        self.assertEqual(self.call(run_of("sim"), run_of("cuda"))[0], 0)
        gpu, sim = self.page.read_text().split("\nbetween\n")
        self.assertNotIn("SIMULATED", gpu)
        self.assertIn("SIMULATED", sim)
        self.assertNotIn("raw loop", sim)

    def test_lying_records_are_refused(self):
        for change in ({"simulated": True}, {"verified": {"bytes": 1, "ways": 1}}, {"format": 2}, {"rows": []},
                       {"scenario": "other"}, {"raw_line": None}):
            code, text = self.call(dict(run_of("cuda"), **change))
            self.assertEqual(code, 2, change)
            self.assertIn("plot: ", text)
            self.assertEqual(self.page.read_text(), PAGE)
        self.assertEqual(self.call("{")[0], 2)

    def test_edited_pages_are_found(self):
        self.call(run_of("cuda"))
        self.page.write_text(self.page.read_text().replace("1000.00", "900.00"))
        code, text = self.call(run_of("cuda"), check=True)
        self.assertEqual(code, 1)
        self.assertIn("+| blocking | - | 8 | 1000.00", text)

    def test_broken_pages_are_refused(self):
        for page in (PAGE.replace("<!-- end -->", "", 1), PAGE + "<!-- end -->\n", "# Page\n"):
            self.page.write_text(page)
            self.assertEqual(self.call(run_of("cuda"))[0], 2, page)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
