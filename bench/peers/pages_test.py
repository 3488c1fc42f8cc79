"""Tests bench/peers/pages with made-up records and commands. Prints OK at the end of a good run."""
import json
import re
import shlex
import sys
import time
import unittest

import compare_test
import condense
import figure_pages
import figure_tables
import measure

PAGE = "# A page\n\nRows.[^one]\n\n<!-- figures: summary -->\n<!-- end -->\n\n<!-- figures: note -->\n<!-- end -->\n"


class Pages(compare_test.Case):
    def add_machine(self, name, commit, kind="cuda"):
        """Condenses a record of one row, in which tdict is faster than PyTorch."""
        record = compare_test.made_up(kind, 1.0, 2.0)
        about = {"commit": commit, "date": "2026-01-02", "commands": {"compare": "bench/peers/compare --out x"},
                 "status": {"compare": 0}}
        (self.folder / "compare.json").write_text(json.dumps(record))
        (self.folder / "about.json").write_text(json.dumps(about))
        text = condense.text_of(condense.condense(self.folder, False)[0])
        (self.folder / f"docs/figures/{name}.json").write_text(text)

    def setUp(self):
        super().setUp()
        (self.folder / "docs/figures").mkdir(parents=True)
        self.page = self.folder / "README.md"
        self.page.write_text(PAGE)
        self.add_machine("one", "12345678")
        figure_pages.write(self.folder)

    def reasons(self):
        return [reason for _, reason in figure_pages.differences(self.folder)]

    def test_pages_are_filled(self):
        text = self.page.read_text()
        self.assertIn("| PyTorch | 1 | 0 | 0 |", text)
        self.assertRegex(text, r"\[\^one\]: .*\n?.*commit\s+12345678, 2026-01-02")
        self.assertEqual(self.reasons(), [])

    def test_other_figures_are_found(self):
        text = self.page.read_text()
        self.page.write_text(text.replace("| PyTorch | ", "| PyTorch | 1"))
        self.assertEqual(len(self.reasons()), 1)
        self.assertIn("does not show the figures", self.reasons()[0])
        for more, words in (("commit 7654321", "different commits: 1234567, 7654321"), ("tdict 0.0.9", "different versions"),
                            ("2025-01-02", "different dates: 2025-01-02")):
            self.page.write_text(f"{text}\n{more}\n")
            self.assertEqual(len(self.reasons()), 1, self.reasons())
            self.assertIn(words, self.reasons()[0])
        self.page.write_text(f"{text}\n2026-01-02, commit 12345678\n")
        self.assertEqual(self.reasons(), [])

    def test_slower_rows_of_devices_come_first(self):
        figures = figure_pages.Figures(self.folder)
        ways = {"tdict: fill": [3e-4, 1e-6], "torch: fill": [1e-4, 1e-6], "TensorDict: fill": [2e-4, 1e-6]}
        figures.machines["one"]["records"]["device"] = {"rows": {"RL batch: fill": ways}}
        self.assertIn("| fill, RL batch | PyTorch | 3.00 |", figure_tables.behind(figures))
        ways["tdict: fill"] = [1e-4, 1e-6]
        self.assertNotIn("fill, RL batch", figure_tables.behind(figures))

    def test_machines_of_two_versions_are_found(self):
        self.add_machine("two", "87654321")
        self.assertEqual(self.reasons(), [])
        file = self.folder / "docs/figures/two.json"
        file.write_text(file.read_text().replace('"0.1.0"', '"0.1.1"'))
        self.assertIn("has figures of different versions: one of 0.1.0, two of 0.1.1", self.reasons())

    def test_wrong_records_are_refused(self):
        with self.assertRaisesRegex(condense.Mistake, "is from a simulated device"):
            self.add_machine("two", "12345678", "sim")
        self.page.write_text(PAGE.replace("summary", "absent"))
        with self.assertRaisesRegex(condense.Mistake, "README.md: there is no table absent"):
            figure_pages.write(self.folder)

    def test_records_that_are_missing_are_said(self):
        about = json.loads((self.folder / "about.json").read_text())
        about["commands"].update(load="bench/peers/compare-load --out x", device="bench/peers/compare-device --out x")
        (self.folder / "about.json").write_text(json.dumps(about))
        (self.folder / "device.json").write_text("{")
        figures, missing = condense.condense(self.folder, False)
        self.assertEqual(list(figures["records"]), ["compare"])
        self.assertRegex("\n".join(missing), r"load.json is missing: `bench.*\n.*device.json: no record: JSONDecodeError")

    def test_own_copies_have_a_row_for_each_limit(self):
        turns = [{"p50": 1e-4, "p99": 2e-4, "transfer_seconds": 0.1}] * 3
        row = {"row": "own copies, pageable", "work": {"work": "own_copies"}, "alone": {"p50": 1e-5, "p99": 2e-5},
               "limits": {"-1": turns, "8388608": turns}, "lines": [0.02] * 3, "line_bytes": 1 << 30, "total_bytes": 4 << 30}
        figures = figure_pages.Figures(self.folder)
        figures.machines["one"]["records"]["device"] = {"rows": condense.device({"rows": [row]})}
        text = figure_tables.own_copies(figures)
        self.assertIn("| no transfer | 10 us | 20 us | - |", text)
        self.assertIn("| 8 MiB | 100 us | 200 us | 80.0 % |", text)
        self.assertNotIn("default", text)

    def test_copies_to_two_devices_have_all_sides(self):
        def copies(work, devices, milliseconds):
            return {"work": work, "devices": devices, "delivered_bytes": 4e9, "samples": [1e-3 * milliseconds] * 3,
                    "plain_samples": [0.08] * 3, "torch_samples": [0.09] * 3}

        record = {"devices": 2, "plain_1": {"lines": 5e10},
                  "rows": [copies("replicate, pinned", 1, 70), copies("replicate, pinned", 2, 40), copies("split, pinned", 2, 38)],
                  "comm": [{"work": "send", "leaves": 1000, "bytes": 1000 * size, "samples": [5e-9 * size] * 3,
                            "one_buffer_samples": [4e-9 * size] * 3, "leaf_by_leaf_samples": [0.01] * 3} for size in (4000, 1000000)]}
        figures = figure_pages.Figures(self.folder)
        figures.machines["one"]["records"]["devices"] = {"rows": condense.devices(record)}
        text = figure_tables.devices(figures)
        self.assertIn("| replicate, 4 GB, pinned | 40 | 80 | 90 |", text)
        self.assertIn("to one GPU takes 80 ms", text)
        self.assertIn("| `tdict_comm_send_async` | 5 | 4 | 10 | 0.02 | 0.016 | 10 |", figure_tables.comm(figures))
        self.assertNotIn("broadcast", figure_tables.comm(figures))


class Asked(dict):
    """Stands for figure_pages.Figures without rows, and keeps the names of the rows of bench/peers/compare that tables ask for."""
    mark = about = str

    def row(self, record, key):
        self[record, key] = 1
        return {}

    def rows(self, _):
        return {}


class Measure(compare_test.Case):
    def test_all_rows_that_pages_show_are_measured(self):
        asked = Asked()
        for table in figure_tables.TABLES.values():
            table(asked)
        keys = [key for record, key in asked if record == "compare" and key]
        self.assertGreater(len(keys), 40)
        words = shlex.split(measure.MEASUREMENTS["compare"][1])
        match = words[words.index("--match") + 1]
        self.assertEqual([key for key in keys if not re.search(match, key)], [])

    def test_a_command_that_takes_too_long_is_stopped(self):
        log, begin = self.folder / "log.txt", time.monotonic()
        late = "import time\ntry: time.sleep(60)\nfinally: print('ended')"
        self.assertNotEqual(measure.run_one([sys.executable, "-c", late], 3, log), 0)
        self.assertEqual(measure.run_one([sys.executable, "-c", "print('fast')"], 9, log), 0)
        self.assertRegex(log.read_text(), r"(?s)ended.*fast")
        self.assertLess(time.monotonic() - begin, 50)


if __name__ == "__main__":
    unittest.main()
