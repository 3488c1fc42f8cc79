"""Tests the scheduler with the programs in cases.c.

usage: check.py TEST LIBRARY PROGRAM PROGRAM_ATOMIC
       check.py unit_cases LIBRARY TEST_PROGRAM...
PROGRAM is compiled without a sanitizer. PROGRAM_ATOMIC is compiled with -fsanitize=thread and linked with LIBRARY."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TEST, LIBRARY, PROGRAMS = sys.argv[1], pathlib.Path(sys.argv[2]), list(map(pathlib.Path, sys.argv[3:]))
PROGRAM, PROGRAM_ATOMIC = (PROGRAMS + PROGRAMS)[:2]
SUMMARY = re.compile(r"^dst: (?:passed|failed) seed \d+ hash (\w+) decisions (\d+)", re.M)


def run(case, seed, program=PROGRAM, library=LIBRARY, **more):
    """Returns the exit status and the output of a run."""
    environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(library), "DST_CASE": case, "DST_REPORT": "1", **more}
    done = subprocess.run([program, str(seed)], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=60, text=True)
    return done.returncode, done.stdout


def need(condition, message, output=""):
    if not condition:
        sys.exit(f"{TEST}: {message}\n{output}")


def hash_of(output):
    found = SUMMARY.search(output)
    need(found, "the run printed no hash", output)
    return found.group(1), re.findall(r"^mixed \w+", output, re.M)


def test_repeats():
    """Runs with the same seed have the same decisions, times and addresses. A different seed changes the decisions."""
    for program in (PROGRAM, PROGRAM_ATOMIC):
        for policy in ("random", "pct"):
            found = [hash_of(run("repeats", 7, program, DST_POLICY=policy)[1]) for _ in range(3)]
            need(found[0][1] and found == found[:1] * 3, f"{program.name}, {policy}: three runs differ: {found}")
            need(hash_of(run("repeats", 8, program, DST_POLICY=policy)[1]) != found[0], "two seeds led to the same run")
        atomic = hash_of(run("repeats", 7, program, DST_ATOMIC="0")[1]) != hash_of(run("repeats", 7, program)[1])
        need(atomic == (program == PROGRAM_ATOMIC), f"{program.name}: DST_ATOMIC has the wrong effect")


def test_repeats_elsewhere():
    """The run of a seed does not depend on the program's folder or on environment variables."""
    with tempfile.TemporaryDirectory() as folder:
        for program in (PROGRAM, PROGRAM_ATOMIC):
            there = pathlib.Path(folder) / "a-folder-with-a-longer-name" / program.name
            there.parent.mkdir(exist_ok=True)
            shutil.copy(program, there)
            shutil.copy(LIBRARY, there.parent)
            for seed in (1, 2, 3):
                here = hash_of(run("repeats", seed, program)[1])
                other = hash_of(run("repeats", seed, there, there.parent / LIBRARY.name, OTHER="x" * 5000 * seed)[1])
                need(here == other, f"{program.name}, seed {seed}: {here} here, {other} there")


def seeds_that_find(case, text, program=PROGRAM, **more):
    outputs = [run(case, seed, program, **more) for seed in range(1, 21)]
    for code, output in outputs:
        need(code == 0 or text in output, f"{case} failed otherwise", output)
    return sum(code != 0 for code, _ in outputs)


def test_planted():
    """Some seeds find each planted error."""
    need(seeds_that_find("spurious_wakeup", "the wait ended too early", DST_RARITY_spurious="5") >= 5,
         "fewer than 5 of 20 seeds found the wait that does not recheck its condition")
    need(seeds_that_find("spurious_wakeup", "", DST_OFF="spurious") == 0, "spurious wakeups cannot be switched off")
    need(seeds_that_find("lost_wakeup", "all threads sleep for ever", DST_OFF="spurious") >= 3,
         "fewer than 3 of 20 seeds found the lost wakeup")


def test_planted_atomic():
    """Threads can switch between two atomic accesses only if atomic accesses are decisions."""
    need(seeds_that_find("lost_update", "an update was lost", PROGRAM_ATOMIC, DST_POLICY="random") >= 10, "not found")
    need(seeds_that_find("lost_update", "", PROGRAM_ATOMIC, DST_ATOMIC="0") == 0, "found without switches")


def test_deadlock():
    """The report of a deadlock names the threads, their locks, and the calls."""
    reports = [run("deadlock", seed, DST_POLICY="random") for seed in range(1, 21)]
    found = [text for code, text in reports if code != 0]
    need(found, "no seed found the deadlock")
    for text in found:
        need("dst: error: all threads sleep for ever" in text, "no reason", text)
        need(len(re.findall(r"waits for a mutex 0x\w+, thread \d+ holds the lock, after pthread_mutex_lock", text)) == 2,
             "the report does not say which threads hold the mutexes", text)
        need("waits for the end of a thread: thread 1" in text, "the joining thread is missing", text)
        need(re.search(r"^dst: +\d+ [\d.]+ +\d+ \(\S+\) pthread_mutex_lock at \S+\+0x\w+ -> \d+", text, re.M),
             "the decisions are missing", text)
    code, text = run("sleeps_for_ever", 1, DST_OFF="spurious")
    need(code != 0 and "waits for a condition" in text, "a thread that waits forever was not reported", text)


def counts(output):
    line = re.search(r"^spurious .*", output, re.M)
    need(line, "no counts", output)
    words = line.group().split()
    return dict(zip(words[::2], map(int, words[1::2])))


def test_misfortunes():
    """With frequent misfortunes, every kind occurs in the run of seed 1, unless that kind is switched off."""
    often = {f"DST_RARITY_{kind}": "3" for kind in ("spurious", "early_timeout", "alloc", "thread", "driver", "io")}
    found = counts(run("misfortunes", 1, **often)[1])
    need(all(found.values()), f"some kinds never happened: {found}")
    need(found["faults"] == found["alloc"] + found["thread"] + found["driver"], f"the number of faults is wrong: {found}")
    for kind in ("spurious", "alloc", "thread", "driver", "io"):
        off = counts(run("misfortunes", 1, DST_OFF=kind, **often)[1])
        need(off[kind] == 0 and sum(off.values()) > 0, f"{kind} happened although it was off: {off}")
    nothing = counts(run("misfortunes", 1, DST_OFF="all", **often)[1])
    need(not any(nothing.values()), f"with all kinds off: {nothing}")
    early = [re.search(r"early_timeout (\d+) alloc", run("misfortunes", 1, **more)[1]) for more in (often, {**often, "DST_OFF": "early_timeout"})]
    need(int(early[0].group(1)) > 0 and int(early[1].group(1)) == 0, "early timeouts cannot be switched off")


def test_crash():
    """A crash damages a file only if its bytes were not flushed."""
    need(seeds_that_find("crash", "the file is neither old nor new") >= 10, "fewer than 10 of 20 seeds damaged a file")
    need(seeds_that_find("crash", "", DST_SYNCS="1") == 0, "a crash lost bytes that were flushed")


def test_refusals():
    """A run that opens a real file or starts a process fails with a message."""
    code, text = run("real_file", 1)
    need(code != 0 and "the real file /etc/hostname is refused" in text, "the file was not refused", text)
    code, text = run("other_process", 1)
    need(code != 0 and "fork: the simulation has one process" in text, "the process was not refused", text)


def test_destructors():
    """Runs with the same seed are equal even if threads are detached or have destructors of thread-specific data."""
    found = [hash_of(run("destructors", 3)[1]) for _ in range(5)]
    need(found == found[:1] * 5, f"five runs differ: {found}")


def test_replay():
    """Replaying a recorded list of choices repeats the run. With an empty list, threads switch only at waits."""
    with tempfile.TemporaryDirectory() as folder:
        choices = pathlib.Path(folder) / "choices"
        for program in (PROGRAM, PROGRAM_ATOMIC):
            first = hash_of(run("repeats", 5, program, DST_RECORD=str(choices), DST_POLICY="pct")[1])[0]
            again = run("repeats", 5, program, DST_REPLAY=str(choices), DST_POLICY="pct")[1]
            need(choices.stat().st_size > 0, "no choices were recorded")
            need(hash_of(run("repeats", 5, program, DST_POLICY="pct")[1])[0] == first, "recording changes the run")
            need(hash_of(again)[0] == first, f"{program.name}: replaying the choices leads to a different run")
            choices.write_text("")
            need(run("lost_update", 5, program, DST_REPLAY=str(choices))[0] == 0, "threads switched without a choice")


def test_unit_cases():
    """Test cases of the library also pass under the scheduler."""
    count = 0
    cases = next(folder / "cases.txt" for folder in PROGRAMS[0].parents if (folder / "cases.txt").exists())
    for line in cases.read_text().splitlines():
        path, *names, device = line.split()
        name = names[0] if names else ""
        program = next((one for one in PROGRAMS if path.endswith("/" + one.name)), None)
        if not program or device == "cuda":
            continue
        environment = {"PATH": os.environ["PATH"], "LD_PRELOAD": str(LIBRARY), "DST_SEED": str(count), "DST_REPORT": "1"}
        done = subprocess.run([program, name, device], env=environment, capture_output=True, text=True, timeout=60)
        need(done.returncode == 0 and SUMMARY.search(done.stderr), f"{name} on {device} fails with DST_SEED={count}",
             done.stdout + done.stderr)
        count += 1
    need(count > 50, f"only {count} cases ran")


globals()[f"test_{TEST}"]()
