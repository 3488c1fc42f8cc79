"""Runs the comparisons whose figures the pages show, for bench/peers/pages. Needs only the standard library.

bench/peers/compare runs last and gets the time that is left, because it writes its record after each row. In a command,
words in capitals are replaced before it runs."""
import datetime
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time

import records

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILE_BYTES = 10 << 30  # free space that the folder of loaded files needs
LAST = 20              # seconds that bench/peers/compare may need after its budget
STOP = 5               # seconds that a command may need to end after an interrupt
OUT = {"pinning": "--json", "costs": "--json"}  # the option for the record, if it is not --out
WHOLE = ("pinning", "costs", "devices")         # have no option --small
NAMED = ("costs", "devices")  # measured only if --only names them: one needs valgrind, the other needs two GPUs
COMPARED = ("tensordict/(auto|blocking|non-blocking)$", "synergies/pin and copy, non", "batches/(?!.*cold|1000 x 4000 B, paused)",
            "d2h/(4 GB|10.9 MB of 7 leaves, fresh)", "non-blocking/best", "latency/(call|own copies m)", "cpus/", "container/",
            "bandwidth/(?!.*1 GiB)", "threads/(?!1000 x 4000)")  # the rows of bench/peers/compare that pages show
MEASUREMENTS = {       # limit in seconds, command
    "load": (105, "bench/peers/compare-load --program PROGRAM --folders FOLDER --works even --alone '' --rounds 1 --repeat 5 "
                 "--peers safetensors,fastsafetensors,instanttensor-mmap,tensordict,pin-loop --budget-seconds 90"),
    "loader": (90, "bench/peers/compare-loader --program PROGRAM --works samples,tokens --workers 0,8 --rounds 3 "
                   "--seconds 0.7 --trial 0.3"),
    "device": (185, "bench/peers/compare-device --program PROGRAM --turns 5 --budget-seconds 140 "
                    "--match '^[abceij]|^f locked block, 1000 x 4000 B, pageable|^g own copies, pageable'"),
    "pinning": (35, "bench/costs/pinning --program PROGRAM --repeat 5 --budget-seconds 25"),
    "costs": (120, "scripts/costs BUILD"),
    "devices": (300, "bench/peers/compare-devices --program PROGRAM --devices 2"),
    "compare": (330, "bench/peers/compare --program PROGRAM --peers torch,tensordict --turns 7 --budget-seconds LEFT "
                     f"--match '^({'|'.join(COMPARED)})'"),
}


def folder():
    """Returns a folder in memory for the loaded files, or one on a disk if the memory is too small."""
    for place in ("/dev/shm", "/var/tmp"):
        if pathlib.Path(place).is_dir() and shutil.disk_usage(place).free >= FILE_BYTES:
            return place
    return "/var/tmp"


def run_one(command, limit, log):
    """Runs a command and appends its output to a file. Returns the exit status, or None if it was killed."""
    with open(log, "a", encoding="utf-8") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        for word in (signal.SIGINT, signal.SIGKILL):  # after an interrupt, a command removes its files
            try:
                return process.wait(max(1, limit))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, word)
                limit = STOP
        process.wait()
        return None


def commit_of(options):
    if options.commit:
        return options.commit[:8]
    asked = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=8", "--exclude", "*"],
                           capture_output=True, text=True)
    if asked.returncode != 0 or asked.stdout.strip().endswith("-dirty"):
        raise records.Mistake("the tree has changes: commit them, or name the commit of the program with --commit")
    return asked.stdout.strip()


def run(options):
    """Runs the chosen measurements and writes their records to options.measure. Returns 1 if one of them failed."""
    target, start = options.measure.resolve(), time.monotonic()
    chosen = options.only.split(",") if options.only else [name for name in MEASUREMENTS if name not in NAMED]
    target.mkdir(parents=True, exist_ok=True)
    about = {"format": records.FORMAT, "commit": commit_of(options), "commands": {}, "status": {},
             "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")}
    words = {"PROGRAM": str(options.program.resolve()), "BUILD": str(options.program.resolve().parents[1]), "FOLDER": folder()}
    shown = {"PROGRAM": "tdict-bench", "BUILD": "build/release"}
    for name in chosen:
        limit, text = MEASUREMENTS[name]
        limit = min(limit, options.seconds - (time.monotonic() - start) - STOP)
        words["LEFT"] = str(int(limit - LAST))
        parts = shlex.split(text)
        about["commands"][name] = " ".join(shlex.quote(shown.get(part, words.get(part, part))) for part in parts)
        command = [sys.executable, str(ROOT / parts[0]), *(words.get(part, part) for part in parts[1:]),
                   OUT.get(name, "--out"), str(target / f"{name}.json")]
        if options.small and name not in WHOLE:
            command.append("--small")
        begin = time.monotonic()
        about["status"][name] = run_one(command, limit, target / "log.txt")
        print(f"{name}: status {about['status'][name]}, {time.monotonic() - begin:.0f} s", flush=True)
        (target / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return 1 if any(status != 0 for status in about["status"].values()) else 0
