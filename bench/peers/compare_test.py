"""Tests bench/peers/compare, bench/peers/check and the tables of bench/peers/plot on the simulated device. Prints OK if
all tests pass. Usage: compare_test.py TDICT_BENCH [NAME...]"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import compare_tables
import records
from contest import Contender, Worker

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = sys.argv[1] if __name__ == "__main__" else None
RATE = 40_000_000
ROW = "^batches/38.5 MB of 1 leaf$"

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
        answer["settings"] = ["slow", "fast", "broken"] if do == "h2d" else ["first", "broken"] if do == "first" else []
    elif op == "verify":
        answer["verified_bytes"] = 1
        if request["setting"] == "broken":
            answer = {"ok": False, "error": "it is broken"}
    elif op == "run":
        answer["seconds"] = [{"slow": 3, "fast": 2, "first": 0.1, "broken": 10}[request["setting"]]] * request["count"]
    elif op == "finish":
        answer["more"] = {"steady_seconds": 0.05}
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
        self.assertEqual(scenarios, set(compare_tables.TITLES))
        for row in record["rows"]:
            turns = row["results"]["tdict"]["turns"]
            self.assertEqual(len(turns), 3)
            self.assertEqual(row.get("sittings", 1), 1)
            self.assertEqual(row["results"]["tdict"]["verified_bytes"], records.total_bytes(row))
        self.assertTrue(json.loads(out.with_suffix(".trace.json").read_text()))
        fresh = next(row for row in record["rows"] if row["row"].startswith("first transfer"))["results"]["tdict"]
        self.assertGreater(fresh["steady_seconds"], 0)
        self.assertGreater(fresh["allocation_seconds"], 0)
        auto = next(row for row in record["rows"] if row["row"] == "auto")["results"]["tdict"]
        self.assertEqual(len(auto["cpu_seconds"]), 3)
        self.assert_order(record["rows"])
        section = "\n".join(compare_tables.section(record))
        self.assertIn("SIMULATED", section)
        self.assertNotIn("PyTorch", section)

    def assert_order(self, rows):
        """Asserts that rows of the lowest priority come last, and that rows with the same sources follow each other."""
        least = [row["worth"] == 3 for row in rows]
        self.assertEqual(least, sorted(least))
        changes = []
        for row in rows:
            sources = (least[rows.index(row)], json.dumps(row["work"]["groups"]), row["work"]["source"], row["processes"],
                       row["cpus"])
            if not changes or changes[-1] != sources:
                changes.append(sources)
        again = [one for one in changes if changes.count(one) > 1 and not one[3]]
        self.assertLess(len(again), len(changes) / 2)  # rows of different sizes can have the same size when reduced

    def test_few_processors(self):
        out, _ = self.compare("few.json", "--match", "^(cpus|fresh)/", "--turns", 3, "--samples", 1, peers={"fake": FAKE_PEER})
        rows = {row["row"]: row for row in records.load(out)["rows"]}
        self.assertEqual(rows["250 x 4 MB on 1 processor"]["results"]["fake"]["setting"], "fast")
        first = rows["first transfer, 1000 x 4 MB"]["results"]
        self.assertEqual(first["fake"]["turns"], [[0.1]] * 3)  # each in its own process
        self.assertEqual(first["fake"]["steady_seconds"], 0.05)
        self.assertEqual(first["fake"]["broken"], {"broken": "it is broken"})
        self.assertEqual(len(first["tdict"]["turns"]), 3)

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
        self.assertEqual(records.verdict(rows["pageable, best"], "fake"), "ahead")
        self.assertNotIn("fake", rows["pin"]["results"])
        self.assertIn("fake 2000 ms", text)

    def test_small_rows_have_two_sittings(self):
        """Checks that second sittings come after all first ones, with the same settings and number of repetitions."""
        out, text = self.compare("twice.json", "--match", "^(pin|batches)/(pageable|1.1 MB of|10,000)", "--turns", 7,
                                 "--samples", 4, peers={"fake": FAKE_PEER})
        record = records.load(out)
        lines = [line.split(":")[0:2] for line in text.splitlines() if ": tdict " in line]
        self.assertEqual([line[0] == "again" for line in lines], [False] * len(record["rows"]) + [True] * len(record["rows"]))
        for row in record["rows"]:
            self.assertEqual(row["sittings"], 2)
            self.assertGreaterEqual(len(row["line"]["turns"]), 11)
            for who, result in records.measured(row).items():
                # fewer turns are chosen if the first repetition is slow
                counts = [len(turn) for turn in result["turns"]]
                self.assertIn(counts, [[result["repetitions"]] * turns for turns in (7, 5, 3)], (row["row"], who))
        rows = {row["row"]: row for row in record["rows"]}
        self.assertEqual(rows["pageable, best"]["results"]["fake"]["setting"], "fast")
        self.assertIn(rows["1.1 MB of 3 leaves, paused"]["results"]["tdict"]["repetitions"], (1, 2, 3))

    def test_a_peer_that_fails_in_the_second_sitting(self):
        for op in ("prepare", "run"):  # run 8 is the warm-up of the second sitting
            times = {"prepare": 2, "run": 8}[op]
            peer = FAKE_PEER.replace('    elif op == "finish":', f"""
    if op == "{op}":
        asked = globals().get("asked", 0) + 1
        if asked >= {times}:
            answer = {{"ok": False, "error": "no more"}}
    elif op == "finish":""")
            out, _ = self.compare("second.json", "--match", "^pin/pageable, best", "--turns", 6, peers={"fake": peer})
            row = records.load(out)["rows"][0]
            self.assertEqual(row["results"]["fake"].get("failed"), "no more", op)
            self.assertEqual(row["sittings"], 2, op)
            # fewer turns are chosen if the first repetition is slow
            self.assertIn(len(row["results"]["tdict"]["turns"]), (3, 5, 6), op)

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
        lines = compare_tables.section(records.load(first))
        self.assertIn("- container, walk 1000 leaves: not reached: the time was spent", lines)
        other = json.loads(second.read_text())
        other["device"]["name"] = "another"
        (self.folder / "other.json").write_text(json.dumps(other))
        self.call(HERE / "compare", "--merge", first, self.folder / "other.json", "--out", merged, code=2)


def made_up(kind, tdict, torch, spread=0.0, date="2025-01-02T03:04:05Z"):
    """Returns a record with one row. Times are in seconds."""
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


class Tables(unittest.TestCase):
    def test_ahead_needs_more_than_both_spreads(self):
        for torch, spread, wanted in ((1.2, 0.05, "ahead"), (1.2, 0.2, "even"), (0.8, 0.05, "behind")):
            row = made_up("cuda", 1.0, torch, spread)["rows"][0]
            self.assertEqual(records.verdict(row, "torch"), wanted)

    def test_rows_behind_are_listed(self):
        page = "\n".join(compare_tables.section(made_up("cuda", 1.0, 0.5)))
        self.assertIn("- behind PyTorch: pin, pageable: 2.00 times its time", page)
        self.assertIn("| pageable | 1000 ±0 | 1500 ±0 | 500 ±0 (to) | failed | 50.0 % | **behind PyTorch**; ahead of plain", page)
        self.assertIn("- pin, pinned: not reached: the time was spent", page)
        self.assertIn("- pin, pageable: JAX failed: device_put: no memory", page)

    def test_rows_of_an_earlier_run_are_marked(self):
        first, second = made_up("cuda", 1.0, 0.5), made_up("cuda", 0.9, 0.5, 0.0, "2025-01-03T03:04:05Z")
        second["rows"][0].update(row="pinned")
        second["rows"][1].update(row="pageable")
        merged = records.merge([first, second])
        self.assertEqual([(row["row"], row["run"]) for row in merged["rows"]], [("pageable", 0), ("pinned", 1)])
        page = "\n".join(compare_tables.section(merged))
        self.assertIn("\n| pageable (run 1) | 1000 ±0 |", page)
        self.assertIn("\n| pinned | 900 ±0 |", page)
        self.assertIn("- behind PyTorch: pin, pageable (run 1): 2.00 times its time", page)
        self.assertIn("Run 1, 1 of the rows below: made 2025-01-02 with", page)
        self.assertIn("Run 2, 1 of the rows below: made 2025-01-03 with", page)

    def test_slow_contenders_take_fewer_turns_spread_over_all(self):
        contender = Contender("one", None, {})
        for wall, turns, count in ((0.001, 11, 10), (0.09, 11, 1), (0.15, 7, 1), (0.3, 5, 1), (0.5, 3, 1), (7, 3, 1)):
            contender.plan(wall, 10)
            contender.sit_down(0, 1)
            taken = [turn for turn in range(11) if contender.has_turn(turn, 11)]
            self.assertEqual((len(taken), contender.count), (turns, count))
            self.assertEqual(taken[-1], 10)

    def test_turns_of_two_sittings_come_to_what_one_has(self):
        for wall, taken in ((0.001, [6, 5]), (0.15, [4, 3]), (0.3, [3, 2]), (7, [2, 1])):
            contender = Contender("one", None, {})
            contender.plan(wall, 10)
            for sitting, turns in enumerate((6, 5)):
                contender.sit_down(sitting, 2)
                mine = [turn for turn in range(turns) if contender.has_turn(turn, turns)]
                self.assertEqual(len(mine), taken[sitting], wall)
                contender.turns += [[wall]] * len(mine)

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
