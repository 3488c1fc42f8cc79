"""Tests bench/peers/compare, bench/peers/check and bench/peers/plot on the simulated device. Prints OK if
all tests pass. Usage: compare_test.py TDICT_BENCH [NAME...]"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import records
from contest import Contender, Worker

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = sys.argv[1] if __name__ == "__main__" else None
RATE = 40_000_000
ROW = "^batches/38.5 MB of 1 leaf$"
SCENARIOS = {"tensordict", "synergies", "batches", "d2h", "non-blocking", "pin", "latency", "cpus", "overlap",
             "bandwidth", "threads", "alloc", "container", "dlpack"}

# The source of a peer that does no work and replies with made-up times. Its setting "broken" fails.
FAKE_PEER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    op, answer = request["op"], {"ok": True}
    if op == "hello":
        answer.update(versions={"fake": "1.0"}, device="cpu")
    elif op == "settings":
        do = request["work"]["do"]
        answer["settings"] = ["slow", "fast", "broken"] if do == "h2d" else []
    elif op == "verify":
        answer["verified_bytes"] = 1
        if request["setting"] == "broken":
            answer = {"ok": False, "error": "it is broken"}
    elif op == "run":
        answer["seconds"] = [{"slow": 3, "fast": 2, "broken": 10}[request["setting"]]] * request["count"]
    print(json.dumps(answer), flush=True)
    if op == "quit":
        break
"""


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def call(self, *command, code=0):
        done = subprocess.run([sys.executable, "-B", *map(str, command)], capture_output=True, text=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def compare(self, name, *options, code=0, peers=None):
        """Runs bench/peers/compare. `peers` maps the names of made-up peers to their source code."""
        out = self.folder / name
        for peer, source in (peers or {}).items():
            (self.folder / f"{peer}_peer.py").write_text(source)
        options += ("--peers", ",".join(peers), "--peers-folder", self.folder) if peers else ()
        text = self.call(HERE / "compare", "--program", PROGRAM, "--device", "sim", "--out", out, *options, code=code)
        return out, text


def check(recorded, new):
    return subprocess.run([sys.executable, "-B", HERE / "check", "--recorded", recorded, "--new", new], capture_output=True,
                          text=True)


class Times(Case):
    """These tests compare times, so they can fail if other programs run on the machine at the same time."""

    def test_a_delay_is_found(self):
        options = ["--match", ROW, "--turns", 5, "--samples", 1, "--sim-rate", RATE]
        for attempt in range(5):  # other programs on this machine can disturb a run
            recorded, _ = self.compare("recorded.json", *options)
            again, _ = self.compare("again.json", *options)
            late, _ = self.compare("late.json", *options, "--delay-percent", 10)
            found = [check(recorded, new) for new in (again, late)]
            if [done.returncode for done in found] == [0, 1]:
                break
        self.assertIn("1 ratios, 0 fell behind", found[0].stdout)
        self.assertIn("BEHIND batches/38.5 MB of 1 leaf to line", found[1].stdout)
        self.call(HERE / "check", "--recorded", recorded, "--new", late, "--match", "no such row", code=2)

    def test_a_turn_begins_with_repetitions_that_are_not_counted(self):
        """A "paused" row sleeps for 5 ms before each repetition, so the elapsed time shows that uncounted repetitions
        ran, too. In a "cold" row, emptying the caches takes over 30 ms of CPU time, and a repetition less than 1 ms."""
        worker = Worker("tdict", [PROGRAM, "worker", "--device", "sim", "--small"])
        self.addCleanup(worker.close)
        worker.ask(op="prepare", scenario="batches", row="1.1 MB of 3 leaves, paused")
        begin = time.monotonic()
        self.assertEqual(len(worker.ask(op="run", who="tdict", warm=20, count=2)["seconds"]), 2)
        self.assertGreater(time.monotonic() - begin, 22 * 0.005)
        worker.ask(op="prepare", scenario="batches", row="1.1 MB of 3 leaves, cold")
        self.assertLess(worker.ask(op="run", who="tdict", warm=0, count=3)["cpu_seconds"], 3 * 0.015)


class Compare(Case):
    def test_every_row_is_reached_and_verified(self):
        out, text = self.compare("all.json", "--turns", 3, "--samples", 1)
        record = records.load(out)
        self.assertTrue(record["simulated"])
        self.assertIn("SIMULATED", text)
        self.assertEqual([row for row in record["rows"] if not row["reached"]], [])
        scenarios = {row["scenario"] for row in record["rows"]}
        self.assertEqual(scenarios, SCENARIOS)
        for row in record["rows"]:
            turns = row["results"]["tdict"]["turns"]
            self.assertEqual(len(turns), 3)
            self.assertEqual(row["results"]["tdict"]["verified_bytes"], records.total_bytes(row))
        self.assertTrue(json.loads(out.with_suffix(".trace.json").read_text()))
        auto = next(row for row in record["rows"] if row["row"] == "auto")["results"]["tdict"]
        self.assertEqual(len(auto["cpu_seconds"]), 3)
        self.assert_order(record["rows"])
        page = self.call(HERE / "plot", out)
        self.assertIn("SIMULATED", page)
        self.assertIn("\n| auto | ", page)
        self.assertNotIn("ahead", page)

    def assert_order(self, rows):
        """Asserts that rows of the lowest priority come last, and that rows with the same sources follow each other."""
        least = [row["worth"] == 3 for row in rows]
        self.assertEqual(least, sorted(least))
        changes = []
        for row in rows:
            sources = (least[rows.index(row)], json.dumps(row["work"]["groups"]), row["work"]["source"], row["cpus"])
            if not changes or changes[-1] != sources:
                changes.append(sources)
        again = [one for one in changes if changes.count(one) > 1]
        self.assertLess(len(again), len(changes) / 2)  # rows of different sizes can have the same size when reduced

    def test_few_processors(self):
        out, _ = self.compare("few.json", "--match", "^cpus/", "--turns", 3, "--samples", 1, peers={"fake": FAKE_PEER})
        rows = {row["row"]: row for row in records.load(out)["rows"]}
        self.assertEqual(rows["250 x 4 MB on 1 processor"]["results"]["fake"]["setting"], "fast")

    def test_peers_take_turns_with_their_best_setting(self):
        out, text = self.compare("peers.json", "--match", "^pin/", "--turns", 3, "--samples", 1,
                                 peers={"fake": FAKE_PEER, "gone": "import nothing_of_that_name"})
        record = records.load(out)
        self.assertIn("gone", record["absent"])
        rows = {row["row"]: row for row in record["rows"]}
        fake = rows["pageable, best"]["results"]["fake"]
        self.assertEqual(fake["setting"], "fast")
        self.assertEqual(fake["tried"], {"slow": 3, "fast": 2})
        self.assertEqual(fake["broken"], {"broken": "it is broken"})
        self.assertEqual(fake["turns"], [[2]] * 3)
        self.assertNotIn("fake", rows["pin"]["results"])
        self.assertIn("fake 2000 ms", text)

    def test_a_peer_that_fails_in_a_turn(self):
        peer = FAKE_PEER.replace("    print", """
    if op == "run":
        asked = globals().get("asked", 0) + 1
        if asked >= 8:
            answer = {"ok": False, "error": "no more"}
    print""")
        out, _ = self.compare("turns.json", "--match", "^pin/pageable, best", "--turns", 6, peers={"fake": peer})
        row = records.load(out)["rows"][0]
        self.assertEqual(row["results"]["fake"].get("failed"), "no more")
        # fewer turns are chosen if the first repetition is slow
        self.assertIn(len(row["results"]["tdict"]["turns"]), (3, 5, 6))

    def test_rows_beyond_the_budget_are_said(self):
        out, text = self.compare("first.json", "--match", "^container/", "--budget-seconds", 0, code=1)
        self.assertEqual(len(re.findall("not reached", text)), 3)
        self.assertIn("Not measured: container/walk 1000 leaves: not reached: the time was spent", self.call(HERE / "plot", out))


def made_up(kind, tdict, torch, spread=0.0, date="2025-01-02T03:04:05Z"):
    """Returns a record with one row. Times are in seconds."""
    def turns(middle):
        return [[middle - spread], [middle], [middle + spread]]
    work = {"do": "h2d", "groups": [[1, 4000]], "source": "pageable", "cache": "warm", "result": "device",
            "calls": "blocking", "statistic": "time", "kernel_seconds": 0}
    results = {"tdict": {"turns": turns(tdict), "verified_bytes": 4000},
               "driver": {"turns": turns(tdict * 1.5)},
               "torch": {"turns": turns(torch), "verified_bytes": 4000, "setting": "to"},
               "tensordict": {"failed": "default: no memory"}}
    row = {"scenario": "pin", "row": "pageable", "worth": 1, "peers": "all", "work": work, "reached": True,
           "results": results, "line": {"bytes": 8000, "turns": turns(1.0)}}
    missed = {"scenario": "pin", "row": "pinned", "worth": 1, "peers": "all", "work": work, "reached": False,
              "why": "not reached: the time was spent"}
    machine = {"cpu": "A CPU", "cores": 2, "kernel": "Linux 6"}
    return {"format": 1, "scenario": "compare", "date": date, "library_version": "0.1.0",
            "simulated": kind == "sim", "device": {"kind": kind, "text": kind + ":0", "name": "A GPU"}, "full": True,
            "contenders": {"tdict": {"version": "0.1.0"}, "torch": {"torch": "2.0"}}, "absent": {},
            "runs": [{"date": date, "machine": machine, "library_version": "0.1.0", "turns": 3,
                      "budget_seconds": 480, "seconds": 100, "delay_percent": 0}], "rows": [row, missed]}


class Check(Case):
    def test_what_may_grow_by_how_much(self):
        for slower, spread, fallen in ((1.01, 0, False), (1.03, 0, True), (1.04, 0.03, False), (1.10, 0, True),
                                       (1.06, 0.3, True), (0.5, 0, False)):
            paths = [self.folder / "0.json", self.folder / "1.json"]
            for path, times in zip(paths, (1.0, slower)):
                record = made_up("cuda", times, 2.0, spread)
                record["rows"][0]["results"].pop("driver")  # made_up() derives the driver's time from the library's
                path.write_text(json.dumps(record))
            done = check(*paths)
            self.assertEqual(done.returncode, int(fallen), (slower, spread, done.stdout + done.stderr))


class Tables(Case):
    def plot(self, record, *options, code=0):
        path = self.folder / "record.json"
        path.write_text(record if isinstance(record, str) else json.dumps(record))
        return self.call(HERE / "plot", *options, path, code=code)

    def test_ahead_needs_more_than_both_spreads(self):
        for torch, spread, words in ((1.2, 0.05, "1 | 0 | 0"), (1.2, 0.2, "0 | 1 | 0"), (0.8, 0.05, "0 | 0 | 1")):
            self.assertIn(f"| PyTorch | {words} |", self.plot(made_up("cuda", 1.0, torch, spread)))

    def test_rows_behind_are_listed(self):
        page = self.plot(made_up("cuda", 1.0, 0.5))
        self.assertIn("| pin: pageable | PyTorch | 2.00 |", page)
        self.assertIn("| pageable | 1000 | 1500 | 500 | - | 50.0 % | |", page)
        self.assertIn("Not measured: pin/pinned: not reached: the time was spent", page)

    def test_charts_are_drawn(self):
        folder = self.folder / "charts"
        self.plot(made_up("cuda", 1.0, 0.5), "--charts", folder)
        self.assertIn(">pin: pageable<", (folder / "record.svg").read_text())
        self.assertIn("record.svg", (folder / "index.html").read_text())

    def test_wrong_records_are_refused(self):
        for change in ({"simulated": True}, {"format": 2}, {"scenario": "other"}, {"rows": [{}]}, {"device": None}):
            self.assertIn("plot: ", self.plot(dict(made_up("cuda", 1.0, 0.5), **change), code=2))
        self.plot("{", code=2)

    def test_slow_contenders_take_fewer_turns_spread_over_all(self):
        contender = Contender("one", None, {})
        for wall, turns, count in ((0.001, 11, 10), (0.09, 11, 1), (0.15, 7, 1), (0.3, 5, 1), (0.5, 3, 1), (7, 3, 1)):
            contender.plan(wall, 10)
            contender.sit_down()
            taken = [turn for turn in range(11) if contender.has_turn(turn, 11)]
            self.assertEqual((len(taken), contender.count), (turns, count))
            self.assertEqual(taken[-1], 10)

    def test_what_a_turn_begins_with(self):
        contender = Contender("one", None, {})
        for wall, cache, warm, count in ((0.001, "warm", 4, 10), (0.007, "warm", 2, 1), (0.03, "warm", 0, 1),
                                         (0.001, "cold", 0, 10), (0.006, "paused", 0, 3), (0.04, "paused", 0, 1)):
            contender.plan(wall, 10, cache)
            self.assertEqual((contender.warm, contender.count), (warm, count), (wall, cache))

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
