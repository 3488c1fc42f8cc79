"""Tests what the programs print for wrong and unusual command lines, on the cpu and the simulated device. Usage:
programs_test.py TDICT_BENCH."""
import csv
import json
import os
import pathlib
import pty
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench/peers"))
sys.path.insert(0, str(ROOT / "tests/tool"))
import compare_test  # noqa: E402
import support  # noqa: E402

PROGRAM = pathlib.Path(sys.argv[1]).resolve()


class Case(compare_test.Case):
    def run_it(self, command, stdout=subprocess.PIPE):
        """Runs a command in a temporary folder, for at most a minute."""
        return subprocess.run(command, cwd=self.folder, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60)

    def expect(self, words, status, text, program=PROGRAM):
        done = self.run_it([program, *words.split()])
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout}{done.stderr}")
        self.assertIn(text, done.stdout + done.stderr, words)
        return done


class Options(Case):
    def test_numbers_name_their_option(self):
        for words, text in (
                ("pin --repeat 0", "--repeat: '0' is not a number from 1 to 10000"),
                ("to-device --warmup x", "--warmup: 'x' is not a number from 0 to 10000"),
                ("tune --repeat 1001", "--repeat: '1001' is not a number from 1 to 1000"),
                ("advise --leaves -1", "--leaves: '-1' is not a number from 1"),
                ("stress --count 1.5", "--count: '1.5' is not a number from 0"),
                ("worker --delay-percent 1001", "--delay-percent: '1001' is not a number from 0 to 1000"),
                ("loader --seconds inf", "--seconds: 'inf' is not a number of seconds")):
            self.expect(words, 2, text)

    def test_loader_cuts_no_number(self):
        for words, most in (("--workers 4294967297", 1024), ("--prefetch 4294967297", 1048576),
                            ("--tokens 2147483648", 2147483647)):
            self.expect(f"loader {words}", 2, f"to {most}")

    def test_only_overlap_has_a_timeline(self):
        self.expect("pin --timeline x", 2, "only overlap has a timeline")
        self.expect("overlap --device sim --repeat 1 --match same --timeline x", 0, "verified")
        self.assertTrue(json.loads((self.folder / "x").read_text()))

    def test_repetitions_by_default(self):
        for word, count in (("to-device", 7), ("pin", 11)):
            self.expect(f"{word} --help", 0, f"measured repetitions (default {count})")

    def test_loader_takes_nothing_that_does_nothing(self):
        for words, text in (
                ("--digest --json x", "--json is for measurements"), ("--digest --seconds 1", "--seconds is for measurements"),
                ("--epochs 3", "are for a --digest"), ("--stop 3", "are for a --digest"), ("--state x", "are for a --digest"),
                ("--work samples --shard x", "are for --work tokens"), ("--tokens 3000 -w samples", "are for --work tokens"),
                ("--samples 3", "is for --work samples")):
            self.expect(f"loader {words}", 2, text)

    def test_loader_ends_where_no_batch_comes(self):
        wanted = "batch_size is {}, but the dataset has {} samples"
        for words, batch, samples in (("-w samples --samples 3", 256, 3), ("-w samples --samples 3 --workers 0 --batch 4", 4, 3),
                                      ("--tokens 3000 -f new.bin", 64, 2), ("-w samples --samples 3 --digest", 256, 3)):
            self.expect(f"loader {words} --device cpu", 1, wanted.format(batch, samples))
        self.expect("loader -w samples --samples 4 --batch 4 --device cpu --seconds 0.05", 0, "batches/s")

    def test_loader_says_what_it_ran_on(self):
        words = "loader -w samples --samples 4 --batch 4 --seconds 0.05 --device"
        self.expect(f"{words} sim", 0, "SIMULATED device")
        self.assertNotIn("SIMULATED", self.expect(f"{words} cpu", 0, "").stdout)


class Devices(Case):
    WORDS = ("to-device", "pin", "container", "tune", "advise --leaves 4 --leaf-bytes 400", "stress", "doctor", "loader", "worker")

    def test_no_device_is_wrong_use(self):
        for words in self.WORDS:
            for option in ("-d gpu", "--device=cuda:x"):
                done = self.expect(f"{words} {option}", 2, "--device: ")
                self.assertEqual(done.stdout, "", words)

    def test_auto_is_the_same_everywhere(self):
        found = {}
        for name, words in SHORT.items():
            words = words.replace("--device cpu", "--device auto").replace("--device sim", "--device auto")
            record = json.loads(self.expect(f"{words} --json -", 0, "").stdout)
            device = record.get("transfers", record)["device"]
            found[name] = device["text"] if isinstance(device, dict) else device
        self.assertEqual(len(set(found.values())), 1, found)
        self.assertNotIn("cpu", found.values())


class Output(Case):
    def ways(self):
        words = ["--help", "--version", "pin --help", "stress --device sim --count 1 --max-bytes 1000",
                 "loader --device cpu --work samples --samples 8 --batch 4 --digest", *SHORT.values()]
        return [(PROGRAM, one) for one in words + [f"{one} --json -" for one in SHORT.values()]] + [
            (PROGRAM.with_name("tdict-costs"), "--help"), (PROGRAM.with_name("tdict-tree-ops"), "--help"),
            (PROGRAM.with_name("tdict-tree-ops"), "")]

    def test_a_full_device_is_a_failure(self):
        for program, words in self.ways():
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = self.run_it([program, *words.split()], full)
            self.assertEqual(done.returncode, 1, f"{program.name} {words}: {done.stderr}")
            self.assertIn("standard output", done.stderr, words)

    def test_a_closed_output_is_a_failure(self):
        for program, words in self.ways():
            done = self.run_it(["sh", "-c", f'exec "$0" {words} >&-', program], None)
            self.assertEqual(done.returncode, 1, f"{program.name} {words}: {done.stderr}")
            self.assertIn("standard output", done.stderr, words)

    def test_wrong_use_stays_wrong_use(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.run_it([PROGRAM, "pin", "--unknown"], full)
        self.assertEqual(done.returncode, 2)


def shown(written):
    """Returns the lines that a terminal would show after all this output."""
    lines, column = [""], 0
    for part in re.findall(r"\r|\n|\x1b\[K|[^\r\n\x1b]+", written):
        if part == "\r":
            column = 0
        elif part == "\n":
            lines.append("")
            column = 0
        elif part == "\x1b[K":
            lines[-1] = lines[-1][:column]
        else:
            lines[-1] = lines[-1][:column].ljust(column) + part + lines[-1][column + len(part):]
            column += len(part)
    return lines


class Terminal(Case):
    def run_there(self, words):
        """Runs a program on a pseudoterminal. Returns everything that it writes, output and progress."""
        there, here = pty.openpty()
        with subprocess.Popen([PROGRAM, *words.split()], cwd=self.folder, stdout=here, stderr=here) as process:
            os.close(here)
            written = b""
            while True:
                try:
                    part = os.read(there, 65536)
                except OSError:  # the program has closed the terminal
                    break
                if not part:
                    break
                written += part
        os.close(there)
        self.assertEqual(process.returncode, 0, words)
        return written.decode()

    def test_progress_is_gone_at_the_end(self):
        for words in [*SHORT.values(), "tune --device sim --repeat 1 --max-bytes 3000000",
                      "stress --device sim --count 20 --max-bytes 100000"]:
            text = self.run_there(words)
            for line in shown(text):
                self.assertNotRegex(line, r"filling \d|reading back|verifying way|repetition \d|warm-up \d|, setting \d|tree \d+, |^way \d",
                                    words)

    def test_bar_and_time_left_after_two_seconds(self):
        text = self.run_there("stress --device sim --seconds 4 --max-bytes 100000")
        bars = re.findall(r"\[(#*)(-*)\] +(\d+) %, (\d+) s left: tree \d+, (\d+) of 4 s", text)
        self.assertTrue(bars, text)
        for done, rest, percent, left, seconds in bars:
            self.assertEqual(len(done) + len(rest), 20)
            self.assertGreaterEqual(int(percent), 50)  # at least two of four seconds have passed
            self.assertAlmostEqual(len(done), int(percent) / 5, delta=0.62)
            self.assertLessEqual(int(left), 2)
        self.assertNotRegex(self.run_there("stress --device sim --count 20 --max-bytes 100000"), r"s left")

    def test_stress_redraws_seldom(self):
        self.assertLess(len(re.findall(r"tree \d+, ", self.run_there("stress --device sim --count 60 --max-bytes 10000"))), 20)

    def test_tune_says_how_long(self):
        text = self.run_there("tune --device sim --repeat 1 --max-bytes 3000000")
        self.assertIn("takes about 60 s at most (--seconds)", text)
        self.assertRegex(text, r"size 2 of \d, \d+ of at most 60 s")

    def test_tune_keeps_its_time_limit(self):
        text = self.expect("tune --device sim --max-bytes 40000000 --seconds 1", 0, "the time limit has ended the search of").stdout
        self.assertLess(int(re.search(r"settings tried in (\d+) s", text).group(1)), 15)


class Texts(Case):
    def test_lines_fit(self):
        for words in [*SHORT.values(), "demo --device sim", "--help", "stress --device sim --count 3 --max-bytes 1000",
                      "fresh --device sim --repeat 1 --match pin", "batches --device sim --repeat 1", "d2h --device sim --repeat 1"]:
            for line in self.expect(words, 0, "").stdout.splitlines():
                self.assertLessEqual(len(line), 100, f"{words}: {line}")

    def test_demo(self):
        text = self.expect("demo --device sim", 0, "all elements are equal").stdout
        self.assertEqual(text.count("tree batch=[128]\n"), 2)  # the tree on the host and its child
        self.assertEqual(text.count("tree batch=[128] device=sim:0\n"), 2)
        table, chart = re.search(r"\nway .*\n((?:.*\n){4})\nGB/s\n((?:.*\n){5})", text).groups()
        rates = [float(line.split()[-2]) for line in table.splitlines()]
        bars = [line.count("#") for line in chart.splitlines()]
        last = float(chart.splitlines()[-1].split()[2])
        for rate, line, bar in zip(rates, chart.splitlines(), bars):
            self.assertIn(f" {rate:.2f} ", line)
            rounding = bar * (0.005 / rate + 0.005 / last)  # the printed rates have two decimal places
            self.assertAlmostEqual(bar, rate * bars[-1] / last, delta=1.1 + rounding)
        self.assertEqual(max(bars), 60)

    def test_foot_says_what_holds(self):
        for words, there, absent in (
                ("pin --device sim --match pageable", ("on 4 trees in turn", "Line: "), ("To driver:", "nothing is moved")),
                ("container --device cpu", ("nothing is moved",), ("trees in turn", "result was verified", "Line:")),
                ("fresh --device sim --match pin", ("context of its own",), ("warm-ups", "trees in turn", "Line:"))):
            text = self.expect(f"{words} --repeat 1", 0, "Median, p10 and p90 of 1").stdout
            for one in there:
                self.assertIn(one, text, words)
            for one in absent:
                self.assertNotIn(one, text, words)

    def test_doctor_speaks_no_json(self):
        text = self.expect("doctor --device cpu", 0, "ways: none on the cpu; --device sim shows").stdout
        self.assertNotRegex(text, r'[{}"]')
        self.assertNotIn("why", text.partition("transfers")[2])
        text = self.expect("doctor --device sim", 0, "transfers that were tried").stdout
        self.assertRegex(text, r"\n1 x 4096 bytes, ordinary memory +\w+ +\w+ +\d+ +\d+ +\d+ +\d+\n")
        self.assertNotRegex(text, r"; *\n {0,5}\S")  # a wrapped line continues with a larger indent
        self.assertRegex(text, r"threads_on_processors +[0-9,-]+: [0-9]+")

    def test_advise_counts_threads(self):
        text = self.expect("advise --device sim --leaves 4 --leaf-bytes 400", 0, "by 1 thread,").stdout
        self.assertRegex(text, r"mode +num_threads +worked +processors")
        self.assertRegex(text, r"non_blocking_pin +0 +1 +\d+\.\d\d ")

    def test_threads_are_told(self):
        words = "to-device --leaves 1000 --leaf-bytes 4000 --mode non_blocking_pin --threads 0,1,2,4,8"
        rows = json.loads(self.expect(f"{words} --device sim --repeat 1 --json", 0, "").stdout)["rows"]
        for asked, row in zip((0, 1, 2, 4, 8), rows, strict=True):
            self.assertEqual(row["num_threads"], asked)
            self.assertTrue(1 <= row["threads_used"] <= max(asked, 1), row)
            self.assertGreater(row["library"]["processors_used"], 0)


class Batches(Case):
    """to-device --batch, and the outputs of tables."""
    TEXT = "obs:u8[4,3,8,8] a.b:i64[300] done:bool[7]"

    def record(self, *words):
        done = self.run_it([PROGRAM, "to-device", "--device", "sim", "--repeat", "1", "--json", *words])
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_text_file_and_json_are_the_same_batch(self):
        found = self.record("--batch", self.TEXT)
        self.assertEqual((found["work"]["leaves"], found["work"]["batch"]), (3, self.TEXT))
        self.assertEqual({row["total_bytes"] for row in found["rows"]}, {4 * 3 * 64 + 2400 + 7})
        self.assertEqual(len(found["rows"]), 9)
        header = {"obs": {"dtype": "U8", "shape": [4, 3, 8, 8], "data_offsets": [0, 768]},
                  "a.b": {"dtype": "I64", "shape": [300], "data_offsets": [768, 3168]},
                  "done": {"dtype": "BOOL", "shape": [7], "data_offsets": [3168, 3175]}}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (self.folder / "x.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\1" * 3175)
        entries = [{"path": path, "kind": "tensor", "dtype": dtype, "shape": header[path]["shape"]}
                   for path, dtype in (("obs", "uint8"), ("a.b", "int64"), ("done", "bool"))]
        (self.folder / "x.json").write_text(json.dumps({"entries": [{"path": "a", "kind": "tree", "batch_size": []}, *entries]}))
        for name in ("x.safetensors", "x.json"):
            other = self.record("--batch", name)
            self.assertEqual((other["work"]["leaves"], other["rows"][0]["total_bytes"]), (3, 3175))

    def test_lists_are_all_pairs(self):
        rows = self.record("--batch", self.TEXT, "--mode", "blocking,auto", "--threads", "auto,0,2")["rows"]
        self.assertEqual([(row["mode"], row["num_threads"]) for row in rows],
                         [(mode, n) for mode in ("blocking", "auto") for n in (-1, 0, 2)])
        rows = self.record("--batch", self.TEXT, "--threads=1")["rows"]
        self.assertEqual([row["row"] for row in rows], ["auto, 1 thread"])
        rows = self.record("--batch", self.TEXT, "--mode=non_blocking")["rows"]
        self.assertEqual([row["row"] for row in rows], ["non_blocking"])

    def test_narrow_sends_fewer_bytes(self):
        for words, most in (((), 24), (("--narrow",), 24 / 7)):
            row, = self.record("--batch", "x:i64[300000]", "--max-value", "255", "--threads", "0", *words)["rows"]
            self.assertAlmostEqual(row["wire_bytes"] / 1e5, most, delta=0.6)

    def test_outputs_have_the_same_rows(self):
        done = self.run_it([PROGRAM, "to-device", "--device=sim", "--repeat=3", "--batch", self.TEXT, "--csv", "--markdown", "x.md",
                            "--json=x.json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = list(csv.DictReader(done.stdout.splitlines()))
        lines = (self.folder / "x.md").read_text().splitlines()
        record = json.loads((self.folder / "x.json").read_text())["rows"]
        self.assertEqual((len(rows), len(lines), len(record)), (9, 11, 9))
        self.assertEqual([cell.strip() for cell in lines[0].strip("|").split("|")], list(rows[0]))
        for row, line, one in zip(rows, lines[2:], record):
            self.assertEqual(line.split(" | ")[:3], [f"| {row['mode']}", row["threads"], row["used"]])
            for title, key in (("median ms", "median_seconds"), ("p10 ms", "p10_seconds"), ("p90 ms", "p90_seconds")):
                self.assertAlmostEqual(float(row[title]) / 1e3, one["library"][key], places=9)
            seconds = sorted(one["library"]["seconds"])
            self.assertEqual([one["library"][f"{name}_seconds"] for name in ("p10", "median", "p90")], seconds)
            self.assertAlmostEqual(float(row["GB/s"]), 3175e-9 / seconds[1], places=5)
            self.assertEqual(row["to driver"], "")

    def test_cells_with_commas_are_quoted(self):
        text = self.expect("batches --device sim --repeat 1 --match cold --csv", 0, "").stdout
        names = [row["row"] for row in csv.DictReader(text.splitlines())]
        rows = json.loads(self.expect("batches --device sim --repeat 1 --match cold --json", 0, "").stdout)["rows"]
        self.assertEqual([row["name"] for row in rows], names)
        self.assertEqual(rows[1]["row"], "10.9 MB of 7 leaves, cold")
        self.assertEqual(names, ["1.1 MB of 3 leaves, cold", "2.76 MB of 7 leaves, cold", "2.41 MB of 1 leaf, cold", "100 x 31.25 KB, cold"])
        self.expect("bandwidth --device sim --repeat 1 --full --match=16", 0, "\nin, pageable, 16 MiB")
        self.assertIn("\n2 MiB, again", self.expect("alloc --device sim --repeat 1 --match again", 0, "").stdout)

    def test_reduced_rows_have_different_names(self):
        for words, size in (("bandwidth --match=pageable", "in, pageable, 2 MiB"), ("alloc --match=none", "2 MiB, none kept")):
            done = self.expect(f"{words} --device sim --small --repeat 1 --json", 0, "")
            names = [row["name"] for row in json.loads(done.stdout)["rows"]]
            self.assertIn(size, names)
            self.assertEqual(len(names), len(set(names)), names)
        done = self.run_it([PROGRAM, "bandwidth", "--match=in, pageable, 1 GiB", "--device=sim", "--small", "--repeat=1", "--json"])
        self.assertEqual([row["name"] for row in json.loads(done.stdout)["rows"]], ["in, pageable, 2 MiB"])

    def test_every_table_has_every_form(self):
        for name in ("container", "pin", "tune", "advise", "pinning", "loader", "load"):
            for option, start in (("--csv", r"\w+[\w ]*,"), ("--markdown", r"\| \w+")):
                text = self.expect(f"{SHORT[name]} {option}", 0, "").stdout
                self.assertRegex(text, start, name)
                counts = {len(row) for row in csv.reader(text.splitlines())} if option == "--csv" else {
                    line.count("|") for line in text.splitlines()}
                self.assertEqual(len(counts), 1, f"{name}: {text}")

    def test_wrong_use(self):
        for words, status, text in (
                ("--mode fast", 2, "--mode: 'fast' is not one of the values in --help"),
                ("--threads 1,x", 2, "--threads: 'x' is not one of the values in --help"),
                ("--threads 4000 --leaves 1", 1, "num_threads is 4000, wanted -1 to"),
                ("--batch x:f32[2] --leaves 3", 2, "describe another tree than --batch"),
                ("--batch x:f33[2]", 1, "wanted a dtype such as f32 at 'f33[2]'"),
                ("--batch x:f32[0]", 1, "has no tensor with elements"),
                ("--batch none.safetensors", 1, "none.safetensors"),
                ("--batch none.json", 1, "none.json"),
                ("--batch wrong.json", 1, "the entry 'x' has no path, known dtype or shape"),
                ("--batch list.json", 1, 'has no list "entries"'),
                ("--csv --json", 1, "only one of --json, --csv and --markdown can go to standard output"),
                ("--csv x y", 2, "unexpected argument 'y'"),
                ("y", 2, "unexpected argument 'y'")):
            (self.folder / "wrong.json").write_text('{"entries": [{"path": "x", "dtype": "f32", "shape": [1]}]}')
            (self.folder / "list.json").write_text("[]")
            self.expect(f"to-device --device sim --repeat 1 --leaf-bytes 4 {words}" if "--batch" not in words or "--leaves" in words
                        else f"to-device --device sim --repeat 1 {words}", status, text)

    def test_a_failure_writes_no_table(self):
        self.expect("to-device --device sim --repeat 1 --corrupt --batch a:f32[4] --csv x.csv --markdown", 3, "differs")
        self.expect("pin --device cpu --csv x.csv", 1, "needs a device")
        self.expect("pin --device cuda:99 --csv x.csv", 1, "ENODEVICE")
        self.assertEqual(list(self.folder.iterdir()), [])
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = self.run_it([PROGRAM, *SHORT["pin"].split(), "--csv"], full)
        self.assertEqual((done.returncode, "standard output" in done.stderr), (1, True))

    def test_a_wrong_byte_of_a_batch_is_found(self):
        self.expect("to-device --device sim --repeat 1 --corrupt --batch a:f32[4] --threads 0", 3, 'leaf "a" differs at offset 10')

    def test_help_lists_no_tools_of_scripts(self):
        listed = re.findall(r"^  (\w[\w-]*) ", self.expect("--help", 0, "").stdout, re.M)
        self.assertIn("doctor", listed)
        self.assertFalse({"device", "worker"} & set(listed))

    def test_man_page_has_every_option(self):
        page = ROOT / "docs/man/tdict-bench.1"
        parts = support.man_options(page)
        common = parts.pop("") | parts.pop("Common options")
        names = re.findall(r"^  ([a-z]\S*) ", self.expect("--help", 0, "").stdout.split("Options:")[0], re.M)
        text = page.read_text().replace("\\-", "-")
        self.assertEqual(re.findall(r"^\.TP\n\.B (\S+)", text[text.index("SH SCENARIOS"):text.index("SH OPTIONS")], re.M), names)
        self.assertLessEqual(set(parts), set(names))
        seen = set()
        for name in names:
            found = support.help_options(self.expect(f"{name} --help", 0, "").stdout)
            found -= {"--timeline=FILE"} if name != "overlap" else set()
            self.assertEqual(found - common, parts.get(name, set()) - common, name)
            seen |= found
        self.assertLessEqual(common, seen)
        support.lint_man_page(page)

    def test_short_help(self):
        for words in ("", "to-device ", "doctor "):
            self.assertEqual(self.expect(f"{words}-h", 0, "\n  -h").stdout, self.expect(f"{words}--help", 0, "").stdout)


class Commands(Case):
    def test_small_programs_take_no_arguments(self):
        for name in ("tdict-costs", "tdict-tree-ops"):
            program = PROGRAM.with_name(name)
            self.assertEqual(self.expect("--help", 0, f"usage: {name}", program).stderr, "")
            self.assertEqual(self.expect("--unknown", 2, f"usage: {name}", program).stdout, "")

    def test_documented_commands_can_be_run(self):
        found = 0
        for line in (ROOT / "docs/testing.md").read_text().splitlines():
            for word in re.findall(r"`([\w./-]*/[\w.-]+)", line.split("|")[1]) if line.startswith("| `") else []:
                if (ROOT / word).is_file() and not word.startswith(("build/", "src/")):
                    found += 1
                    self.assertTrue(os.access(ROOT / word, os.X_OK), word)
                    self.assertTrue((ROOT / word).read_bytes().startswith(b"#!"), word)
        self.assertGreater(found, 10)


SHORT = {  # arguments for a short run of each program that writes a record
    "to-device": "to-device --device sim --leaves 4 --leaf-bytes 400 --repeat 1 --warmup 0",
    "container": "container --device cpu --repeat 1",
    "pin": "pin --device sim --repeat 1 --match pin",
    "tune": "tune --device sim --repeat 1 --max-bytes 1",
    "advise": "advise --device sim --leaves 4 --leaf-bytes 400",
    "pinning": "pinning --device sim --bytes 4096",
    "doctor": "doctor --device cpu",
    "loader": "loader --work samples --samples 8 --batch 4 --workers 0 --device cpu --seconds 0.01",
    "load": "load --device sim --folder . --work even --divide 100000 --repeat 1 --contexts 1",
}


class Loads(Case):
    WORDS = "load --device sim --folder . --small --repeat 2 --contexts 2"

    def test_every_work_has_its_rows(self):
        record = json.loads(self.expect(f"{self.WORDS} --json -", 0, "").stdout)
        rows = {row["row"]: row for row in record["rows"]}
        wanted = {f"{work}, {row}" for work in ("even", "mixed", "many") for row in ("first call", "steady", "open", "line")}
        wanted |= {"save, tdict", "save, plain write"}
        wanted |= {f"save_async, {row}" for row in ("device, first", "device", "host, first", "host")}
        self.assertLessEqual(wanted, set(rows))
        self.assertEqual("cold, tdict" in rows, not record["is_tmpfs"])
        self.assertTrue(record["simulated"])
        for name, count in (("first call", 2), ("steady", 2)):
            self.assertEqual(len(rows[f"mixed, {name}"]["library"]["seconds"]), count)
            self.assertIn("host_bytes", rows[f"mixed, {name}"]["memory"])
        self.assertEqual(record["verified_bytes"], sum(rows[name]["total_bytes"] for name in (
            "even, steady", "mixed, steady", "many, steady", *["save, tdict"] * 3)))
        self.assertEqual(list(self.folder.iterdir()), [])

    def make(self, work, divide):
        self.expect(f"load --device sim --folder . --make --work {work} --divide {divide}", 0, "tensors")
        return self.folder / f"tdict-load-{work}.safetensors"

    def test_files_are_safetensors(self):
        for work, count, least, most in (("even", 256, 33552, 33560), ("mixed", 290, 8, 98304), ("many", 18000, 8, 3000)):
            content = self.make(work, 1000).read_bytes()
            length = int.from_bytes(content[:8], "little")
            begin, end = 8 + length, 0
            entries = json.loads(content[8:begin])
            self.assertEqual((len(entries), begin % 8), (count, 0))
            sizes = []
            for entry in entries.values():
                low, high = entry["data_offsets"]
                self.assertEqual((low, entry["shape"]), (end, [(high - low) // {"F32": 4, "BF16": 2}[entry["dtype"]]]))
                end = high
                sizes.append(high - low)
            self.assertEqual(len(content), begin + end)
            self.assertTrue(least <= min(sizes) and max(sizes) <= most, (work, min(sizes), max(sizes)))
            for at in range(begin, len(content), 8 * 9973):
                word = (at // 8 + 1) * 0x9E3779B97F4A7C15 % 2**64
                self.assertEqual(int.from_bytes(content[at:at + 8], "little"), word)

    def test_a_file_that_is_there_is_used_and_stays(self):
        path = self.make("even", 100000)
        before = path.stat()
        words = "load --device sim --folder . --work even --repeat 1 --contexts 1 --divide"
        self.expect(f"{words} 100000", 0, "verified: ")
        self.assertEqual(path.stat().st_mtime_ns, before.st_mtime_ns)
        self.expect(f"{words} 1000", 1, f"has {before.st_size} bytes, wanted")
        self.assertEqual(path.stat().st_size, before.st_size)

    def test_a_wrong_byte_is_found(self):
        path = self.make("mixed", 10000)
        with open(path, "r+b") as file:
            file.seek(-3, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-3, os.SEEK_END)
            file.write(bytes([byte ^ 1]))
        self.expect("load --device sim --folder . --work mixed --repeat 1 --divide 10000", 3,
                    '"norm" differs from the file at byte 0')

    def test_wrong_use(self):
        for words, text in (("--work even,odd", "--work: 'odd' is not even, mixed, many, cold or save"),
                            ("--divide 0", "--divide: '0' is not a number from 1"),
                            ("--contexts 0", "--contexts: '0' is not a number from 1")):
            self.expect(f"load {words}", 2, text)
        self.expect("load --device sim --folder ./absent", 1, "cannot be created")

    def test_comparison_names_what_it_cannot_measure(self):
        (self.folder / "out").mkdir()
        done = self.run_it([sys.executable, "-B", ROOT / "bench/peers/compare-load", "--program", PROGRAM, "--device", "sim",
                            "--folders", "out", "--works", "even", "--alone", "save", "--peers", "absent", "--small",
                            "--rounds", "2", "--repeat", "2", "--out", "record.json"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for text in ("even in out, line ", "\ntdict ", "absent               not measured: load.py: error: argument way", "host memory of a load: ",
                     "save, plain write ", "of the best plain way"):
            self.assertIn(text, done.stdout)
        record = json.loads((self.folder / "record.json").read_text())
        self.assertEqual([len(record["files"][0]["sides"]["tdict"]), len(record["alone"])], [2, 1])
        self.assertEqual(list((self.folder / "out").iterdir()), [])


class Files(Case):
    def test_loader_leaves_no_shard(self):
        temporary = self.folder / "temporary"
        temporary.mkdir()
        os.environ["TMPDIR"] = str(temporary)
        self.addCleanup(os.environ.pop, "TMPDIR")
        done = self.expect("loader --device cpu --tokens 300000 --seconds 0.05", 0, "random tokens in ")
        self.assertIn(f"{temporary}/tdict-bench-", done.stdout)
        self.assertEqual([*temporary.iterdir(), *(one for one in self.folder.iterdir() if one != temporary)], [])
        self.expect("loader --device cpu --tokens 300000 --seconds 0.05 --shard mine", 0, "mine is written and stays")
        self.assertTrue((self.folder / "mine").exists())
        os.environ["TMPDIR"] = str(self.folder / "no")
        self.expect("loader --device cpu --tokens 300000", 1, "no temporary folder for the shard: No such file")

    def test_plot_draws_records(self):
        plot = [sys.executable, "-B", ROOT / "bench/peers/plot", "--charts", "charts"]
        for name in ("to-device", "container", "pin", "tune"):
            self.expect(f"{SHORT[name]} --json {name}.json", 0, "")
        done = self.run_it([*plot, "to-device.json", "pin.json", "container.json", "tune.json", "pin.json"])
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, text in (("to-device", "non_blocking_pin"), ("pin", "SIMULATED"), ("container", ">walk 1000<"), ("tune", "out_new"),
                           ("pin-2", "SIMULATED")):
            self.assertIn(text, (self.folder / "charts" / f"{name}.svg").read_text())
            self.assertIn(f"{name}.svg", (self.folder / "charts" / "index.html").read_text())
        self.expect(f"{SHORT['doctor']} --json doctor.json", 0, "")
        for words, text in ((["doctor.json"], "a record of 'doctor' has no rows"), (["none.json"], "No such file"), ([], "arguments are required")):
            done = self.run_it([*plot, *words])
            self.assertEqual(done.returncode, 2)
            self.assertIn(text, done.stderr)

    def test_json_on_standard_output_is_alone(self):
        for name, words in SHORT.items():
            done = self.expect(f"{words} --json -", 0, "")
            self.assertEqual(json.loads(done.stdout)["scenario"], name, words)
            self.assertFalse((self.folder / "-").exists(), words)

    def test_what_cannot_be_written_is_said_at_once(self):
        for words in [f"{words} --json no/file" for words in SHORT.values()] + [
                "to-device --device sim --trace no/file", "overlap --device sim --timeline no/file",
                "tune --device sim --output no/file", "stress --device sim --record no/file",
                "loader --device cpu --digest --stop 1 --state no/file"]:
            done = self.expect(words, 1, "no/file cannot be written: No such file or directory")
            self.assertEqual(done.stdout, "", words)  # fails before a measurement begins
        self.expect("loader --device cpu --shard no/file", 1, "the shard no/file cannot be written: No such file")

    def test_only_json_goes_to_standard_output(self):
        for words in ("to-device --device sim --trace -", "overlap --device sim --timeline -",
                      "tune --device sim --output -", "stress --device sim --record -"):
            done = self.expect(words, 1, "- is standard output for --json alone")
            self.assertEqual(done.stdout, "", words)
            self.assertFalse((self.folder / "-").exists(), words)

    def test_asking_leaves_what_is_there(self):
        (self.folder / "kept").write_text("old")
        self.expect("to-device --device cuda:99 --json kept --trace new", 1, "ENODEVICE")
        self.assertEqual((self.folder / "kept").read_text(), "old")
        self.assertFalse((self.folder / "new").exists())
        self.expect("doctor --device cpu --json .", 1, "Is a directory")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
