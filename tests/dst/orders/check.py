#!/usr/bin/env python3
"""Runs the models of this folder with the model checker GenMC, which explores all executions that the
memory model of C11 allows.

usage: check.py [--genmc PROGRAM] [--match REGEX] ROOT

The models include the sources of ROOT. First each model runs on the sources as they are, and must find no error. Each
entry of weakened.ini then changes a copy of a source, and the model that the entry names must find an error. If the
entry names no model, no model may find an error.

  --genmc PROGRAM  the GenMC program (default: genmc from PATH)
  --match REGEX    runs only entries whose name matches

Exit status: 0 if all results are as expected, 1 if not, 77 if GenMC is not installed.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1] / "gates"))
import mutants  # noqa: E402

OPTIONS = ["--rc11", "--check-liveness", "--disable-estimation", "--unroll=9"]
# spin-assume is off, so GenMC treats only the loop that ring.c marks as a waiting loop. Instruction caching is off
# because with it GenMC 0.11 wrongly reports accesses to freed local variables of functions called in a loop.
RING = ["--disable-spin-assume", "--disable-instruction-caching"]


def latch(reader, opens):
    return "latch.c", [], {"READER": reader, "OPENS": opens}


def ring(slots, workers, batches, is_closed=0):
    return "ring.c", RING, {"NUM_SLOTS": slots, "NUM_WORKERS": workers, "NUM_BATCHES": batches, "IS_CLOSED": is_closed}


MODELS = {
    "latch_waits": [latch("WAITS", 0), latch("WAITS", 1)],
    "latch_polls": [latch("POLLS", 0), latch("POLLS", 1)],
    "latch_reads": [latch("READS_COUNT", 0), latch("READS_COUNT", 1)],
    "ring_one": [ring(1, 1, 1)],
    "ring_closed": [ring(1, 1, 2, is_closed=1)],
    "ring_reuse": [ring(1, 1, 2)],
    "ring_two_slots": [ring(2, 1, 2)],
}


def run(genmc, root, changed, model):
    """Returns the error that GenMC finds in a model (or None) and the number of executions explored."""
    executions, error = 0, None
    for file, options, values in MODELS[model]:
        command = [genmc, *OPTIONS, *options, "--", "-w", "-D_GNU_SOURCE", *(f"-D{n}={v}" for n, v in values.items()),
                   f"-I{FOLDER}", f"-I{changed / 'src'}", f"-I{root / 'src'}", f"-I{root / 'include'}"]
        source = changed / "tests/dst/orders" / file
        done = subprocess.run([*command, str(source if source.exists() else FOLDER / file)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        executions += sum(map(int, re.findall(r"executions (?:explored|seen): (\d+)", done.stdout)))
        if "No errors were detected" not in done.stdout:
            found = re.search(r"Error: (.*)|(Non-terminating spinloop)|(Assertion violation)", done.stdout)
            if not found:
                sys.exit(f"check: {file} did not run:\n{done.stdout[-2000:]}")
            error = error or found.group(0)
    return error, executions


def attempt(genmc, root, entry):
    """Runs the models on a copy of the sources with the entry's change. Returns true if the result is as expected."""
    models = MODELS if entry.case == "none" else [entry.case]
    models = [m for m in models if m.startswith("latch") == ("latch" in entry.file)]
    with tempfile.TemporaryDirectory() as name:
        file = pathlib.Path(name) / entry.file
        file.parent.mkdir(parents=True)
        file.write_text(entry.apply((root / entry.file).read_text()))
        errors = [error for error, _ in (run(genmc, root, pathlib.Path(name), m) for m in models) if error]
    print(f"{entry.name}: {errors[0] if errors else 'no error'} ({entry.case})", flush=True)
    return bool(errors) == (entry.case != "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--genmc", default=shutil.which("genmc"))
    parser.add_argument("--match", default="")
    parser.add_argument("root", type=pathlib.Path)
    options = parser.parse_args()
    if not options.genmc:
        print("check: GenMC is not installed, so the models of the memory orders were not run")
        return 77
    root, good = options.root.resolve(), True
    for model in MODELS:
        error, executions = run(options.genmc, root, root, model)
        print(f"{model}: {error or 'no error'}, {executions} executions", flush=True)
        good &= error is None
    for entry in mutants.read(root, "tests/dst/orders/weakened.ini"):
        if re.search(options.match, entry.name):
            good &= attempt(options.genmc, root, entry)
    print("check: " + ("all as expected" if good else "not as expected"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
