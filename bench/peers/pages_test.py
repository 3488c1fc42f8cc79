"""Tests condense.py and figure_pages.py with made-up records. Prints OK at the end of a good run."""
import json
import unittest

import compare_test
import condense
import figure_pages

PAGE = "# A page\n\nRows.[^one]\n\n<!-- figures: summary -->\n<!-- end -->\n\n<!-- figures: note -->\n<!-- end -->\n"


class Pages(compare_test.Case):
    def add_machine(self, name, commit, kind="cuda"):
        """Condenses a record of one row, in which tdict is faster than PyTorch."""
        record = compare_test.made_up(kind, 1.0, 2.0)
        about = {"commit": commit, "date": "2026-01-02", "commands": {"compare": "bench/peers/compare --out x"},
                 "status": {"compare": 0}}
        (self.folder / "compare.json").write_text(json.dumps(record))
        (self.folder / "about.json").write_text(json.dumps(about))
        text = condense.text_of(condense.condense(self.folder, False))
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

    def test_machines_of_two_commits_are_found(self):
        self.add_machine("two", "12345678")
        self.assertEqual(self.reasons(), [])
        self.add_machine("two", "87654321")
        self.assertIn("has figures of different commits: one of 12345678, two of 87654321", self.reasons())

    def test_wrong_records_are_refused(self):
        with self.assertRaisesRegex(condense.Mistake, "is from a simulated device"):
            self.add_machine("two", "12345678", "sim")
        self.page.write_text(PAGE.replace("summary", "absent"))
        with self.assertRaisesRegex(condense.Mistake, "README.md: there is no table absent"):
            figure_pages.write(self.folder)


if __name__ == "__main__":
    unittest.main()
