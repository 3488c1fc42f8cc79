#!/usr/bin/env python3
"""Counts the instructions of transfers and other operations on simulated devices with callgrind, and compares them with
limits.

usage: bench/costs/device_limits.py PROGRAM

PROGRAM is `tdict-costs-device`, built with optimization. Each call is counted with two trees: transfers with 1000 and
2000 tensors, other calls with 200 and 400.
The difference per added tensor is the calling thread's cost. The limits are 10 % above the highest cost measured with
GCC 12 on x86-64. The cost of split-two varies by 25 %, because library threads release the sources at the same time.

Exit status: 0 success, 1 a limit is exceeded or a program failed, 2 wrong usage, 77 valgrind is not installed.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

TRANSFERS, LEAVES, WORK_LEAVES = ("block", "separate", "split"), 1000, 200
LIMITS = {"block": 58, "block-narrow": 58, "separate": 255, "split-one": 255, "split-two": 815, "get": 933,
          "get-on-stream": 1044, "into": 1051, "into-on-stream": 1105, "copy": 867, "fill": 622, "fill-on-stream": 1293,
          "clone": 832, "clone-on-stream": 1515, "to-dtype": 877, "stack": 3561, "stack-on-stream": 5856, "cat": 3444}


def count(program, name, leaves):
    """Returns how many instructions the main thread executes in cost_call()."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--toggle-collect=cost_call", "--separate-threads=yes",
                   f"--callgrind-out-file={folder}/out", program, name, str(leaves)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"device_limits: {' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        text = pathlib.Path(folder, "out-01").read_text()
    return int(re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE).group(1))


def main():
    if sys.argv[1:] == ["--help"]:
        print(__doc__)
        return 0
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if not shutil.which("valgrind"):
        print("device_limits: valgrind is not installed; scripts/setup installs it")
        return 77
    exceeded = 0
    print(f"{'call':<18} {'instructions per tensor':>26} {'limit':>8}")
    for name, limit in LIMITS.items():
        leaves = LEAVES if name.startswith(TRANSFERS) else WORK_LEAVES  # making leaves is slow under valgrind
        each = (count(sys.argv[1], name, 2 * leaves) - count(sys.argv[1], name, leaves)) / leaves
        exceeded += not 0 < each <= limit
        print(f"{name:<18} {each:>26.1f} {limit:>8}")
    print(f"{exceeded} limits are exceeded" if exceeded else "no limit is exceeded")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
