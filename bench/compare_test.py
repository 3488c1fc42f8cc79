"""Tests of bench/compare, bench/check and the pages made of them, on the simulated device. Usage: compare_test.py TDICT_BENCH
[NAME...]. Prints OK at the end of a good run."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import compare_tables
import records

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = sys.argv[1] if __name__ == "__main__" else None
RATE = 40_000_000
ROW = "^batches/38.5 MB of 1 leaf$"

# A peer that needs nothing: it says how long it takes. Settings named "broken" fail.
FAKE_PEER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    op, answer = request["op"], {"ok": True}
    if op == "hello":
        answer.update(versions={"fake": "1.0"}, device="cpu")
    elif op == "settings":
        answer["settings"] = ["slow", "fast", "broken"] if request["work"]["do"] == "h2d" else []
    elif op == "verify":
        answer["verified_bytes"] = 1
        if request["setting"] == "broken":
            answer = {"ok": False, "error": "it is broken"}
    elif op == "run":
        answer["seconds"] = [{"slow": 0.3, "fast": 0.2}[request["setting"]]] * request["count"]
    print(json.dumps(answer), flush=True)
    if op == "quit":
        break
"""


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, *command, code=0):
        done = subprocess.run([sys.executable, "-B", *map(str, command)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def compare(self, name, *options, code=0):
        out = self.folder / name
        text = self.call(HERE / "compare", "--program", PROGRAM, "--device", "sim", "--out", out, *options, code=code)
        return out, text

    def test_every_row_is_reached_and_verified(self):
        out, text = self.compare("all.json", "--turns", 3, "--samples", 1)
        record = records.load(out)
        self.assertTrue(record["simulated"])
        self.assertIn("SIMULATED", text)
        self.assertEqual([row for row in record["rows"] if not row["reached"]], [])
        scenarios = {row["scenario"] for row in record["rows"]}
        self.assertEqual(scenarios, set(compare_tables.TITLES))
        for row in record["rows"]:
            self.assertEqual(len(row["results"]["tdict"]["turns"]), 3)
            self.assertEqual(row["results"]["tdict"]["verified_bytes"], records.total_bytes(row))
        self.assertTrue(json.loads(out.with_suffix(".trace.json").read_text()))
        worths = [row["worth"] for row in record["rows"]]
        self.assertEqual(worths, sorted(worths))
        section = "\n".join(compare_tables.section([record]))
        self.assertIn("SIMULATED", section)
        self.assertNotIn("PyTorch", section)
        self.assertEqual(compare_tables.figures([record]), {})

    def test_a_delay_is_found(self):
        options = ["--match", ROW, "--turns", 5, "--samples", 1, "--sim-rate", RATE]
        for attempt in range(5):  # other programs on this machine can spoil a run
            recorded, _ = self.compare("recorded.json", *options)
            again, _ = self.compare("again.json", *options)
            late, _ = self.compare("late.json", *options, "--delay-percent", 10)
            found = [subprocess.run([sys.executable, "-B", HERE / "check", "--recorded", recorded, "--new", new],
                                    capture_output=True, text=True) for new in (again, late)]
            if [done.returncode for done in found] == [0, 1]:
                break
        self.assertIn("1 ratios, 0 fell behind", found[0].stdout)
        self.assertIn("BEHIND batches/38.5 MB of 1 leaf to line", found[1].stdout)
        self.call(HERE / "check", "--recorded", recorded, "--new", late, "--match", "no such row", code=2)

    def test_peers_take_turns_with_their_best_setting(self):
        (self.folder / "fake_peer.py").write_text(FAKE_PEER)
        (self.folder / "gone_peer.py").write_text("import nothing_of_that_name")
        out, text = self.compare("peers.json", "--match", "^pin/", "--turns", 3, "--samples", 1, "--peers", "fake,gone",
                                 "--peers-folder", self.folder)
        record = records.load(out)
        self.assertIn("gone", record["absent"])
        rows = {row["row"]: row for row in record["rows"]}
        fake = rows["pageable, best"]["results"]["fake"]
        self.assertEqual(fake["setting"], "fast")
        self.assertEqual(fake["tried"], {"slow": 0.3, "fast": 0.2})
        self.assertEqual(fake["broken"], {"broken": "it is broken"})
        self.assertEqual(fake["turns"], [[0.2]] * 3)
        self.assertEqual(records.verdict(rows["pageable, best"], "fake"), "ahead")
        self.assertNotIn("fake", rows["pin"]["results"])
        self.assertIn("fake 200 ms", text)

    def test_rows_beyond_the_budget_are_said_and_merged_later(self):
        first, text = self.compare("first.json", "--match", "^container/", "--budget-seconds", 0, code=1)
        self.assertEqual(len(re.findall("not reached", text)), 3)
        second, _ = self.compare("second.json", "--match", "^container/", "--turns", 3)
        merged = self.folder / "merged.json"
        self.call(HERE / "compare", "--merge", first, second, "--out", merged)
        record = records.load(merged)
        self.assertEqual([(row["reached"], row["run"]) for row in record["rows"]], [(True, 1)] * 3)
        self.call(HERE / "compare", "--merge", second, first, "--out", merged)
        self.assertEqual([row["run"] for row in records.load(merged)["rows"]], [0] * 3)
        lines = compare_tables.section([records.load(first)])
        self.assertIn("- container, walk 1000 leaves: not reached: the time was spent", lines)
        other = json.loads(second.read_text())
        other["device"]["name"] = "another"
        (self.folder / "other.json").write_text(json.dumps(other))
        self.call(HERE / "compare", "--merge", first, self.folder / "other.json", "--out", merged, code=2)


def made_up(kind, tdict, torch, spread=0.0):
    """A record of one row; times in seconds."""
    def turns(middle):
        return [[middle - spread], [middle], [middle + spread]]
    work = {"do": "h2d", "groups": [[1, 4000]], "source": "pageable", "cache": "warm", "result": "device",
            "calls": "blocking", "statistic": "time", "kernel_seconds": 0}
    results = {"tdict": {"turns": turns(tdict), "verified_bytes": 4000},
               "driver": {"turns": turns(tdict * 1.5)},
               "torch": {"turns": turns(torch), "verified_bytes": 4000, "setting": "to"},
               "jax": {"failed": "device_put: no memory"}}
    row = {"scenario": "pin", "row": "pageable", "worth": 1, "peers": "all", "work": work, "reached": True, "run": 0,
           "results": results, "line": {"bytes": 8000, "turns": turns(1.0)}}
    missed = {"scenario": "pin", "row": "pinned", "worth": 1, "peers": "all", "work": work, "reached": False, "run": 0,
              "why": "not reached: the time was spent"}
    machine = {"cpu": "A CPU", "cores": 2, "kernel": "Linux 6"}
    return {"format": 1, "scenario": "compare", "date": "2025-01-02T03:04:05Z", "library_version": "0.1.0",
            "simulated": kind == "sim", "device": {"kind": kind, "text": kind + ":0", "name": "A GPU"}, "full": True,
            "contenders": {"tdict": {"version": "0.1.0"}, "torch": {"torch": "2.0"}}, "absent": {},
            "runs": [{"date": "2025-01-02T03:04:05Z", "machine": machine, "library_version": "0.1.0", "turns": 3,
                      "budget_seconds": 480, "seconds": 100, "delay_percent": 0}], "rows": [row, missed]}


class Check(unittest.TestCase):
    def test_what_may_grow_by_how_much(self):
        for slower, spread, fallen in ((1.01, 0, False), (1.03, 0, True), (1.04, 0.03, False), (1.10, 0, True),
                                       (1.06, 0.3, True), (0.5, 0, False)):
            with tempfile.TemporaryDirectory() as name:
                paths = []
                for i, times in enumerate((1.0, slower)):
                    paths.append(pathlib.Path(name) / f"{i}.json")
                    record = made_up("cuda", times, 2.0, spread)
                    record["rows"][0]["results"].pop("driver")  # it grows with the library in made-up records
                    paths[-1].write_text(json.dumps(record))
                done = subprocess.run([sys.executable, "-B", HERE / "check", "--recorded", paths[0], "--new", paths[1]],
                                      capture_output=True, text=True)
                self.assertEqual(done.returncode, int(fallen), (slower, spread, done.stdout + done.stderr))


class Tables(unittest.TestCase):
    def test_ahead_needs_more_than_both_spreads(self):
        for torch, spread, wanted in ((1.2, 0.05, "ahead"), (1.2, 0.2, "even"), (0.8, 0.05, "behind")):
            row = made_up("cuda", 1.0, torch, spread)["rows"][0]
            self.assertEqual(records.verdict(row, "torch"), wanted)

    def test_rows_behind_stand_in_the_page(self):
        page = "\n".join(compare_tables.section([made_up("cuda", 1.0, 0.5)]))
        self.assertIn("- behind PyTorch: pin, pageable: 2.00 times its time", page)
        self.assertIn("| pageable | 1000 ±0 | 1500 ±0 | 500 ±0 (to) | failed | 50.0 % | **behind PyTorch**; ahead of plain", page)
        self.assertIn("- pin, pinned: not reached: the time was spent", page)
        self.assertIn("- pin, pageable: JAX failed: device_put: no memory", page)
        self.assertIn("![One tensor of a million floats](figures/compare-cuda-pin.svg)", page)

    def test_two_runs_are_held_against_each_other(self):
        page = "\n".join(compare_tables.section([made_up("cuda", 1.0, 0.5, 0.01), made_up("cuda", 1.0, 0.505, 0.01)]))
        self.assertIn("3 ratios are inside their spreads, 0 are not.", page)
        page = "\n".join(compare_tables.section([made_up("cuda", 1.0, 0.5, 0.01), made_up("cuda", 1.0, 0.7, 0.01)]))
        self.assertIn("- pin, pageable, to PyTorch: 2.000, now 1.429", page)

    def test_lying_records_are_refused(self):
        lies = [made_up("cuda", 1.0, 0.5) for _ in range(3)]
        lies[0]["simulated"] = True
        del lies[1]["rows"][0]["results"]["torch"]["verified_bytes"]
        del lies[2]["rows"][0]["results"]["tdict"]
        for lie in lies:
            with self.assertRaises(records.Mistake):
                records.check(lie)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
