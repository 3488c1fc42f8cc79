#!/usr/bin/env python3
"""Gate: the path of one leaf from tdict_to_device() to the GPU does not grow.

usage: walk.py ROOT [--list]
Compiles the library with -O0 and -finstrument-functions, and runs tests/support/walk/leaf.c, which moves one leaf of 32
KiB to the simulated device. Counts the calls on the calling thread, their files, and how often the path returns to a
file that it has left. A call to an inline function is attributed to the header that defines the function. The simulated
device, the function that prefetches cache lines, and the functions that these call do not count. [walk] in limits.ini
has the limits. With --list, only prints the calls, indented by depth. Skipped if gcc or addr2line is missing."""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

import source

FLAGS = ["-std=gnu11", "-O0", "-g1", "-gdwarf-4", "-no-pie", "-fno-pie", "-finstrument-functions", "-DNDEBUG", "-DTDICT_STATIC",
         "-D_GNU_SOURCE", "-DTDICT_CUDA=0", "-DTDICT_NVTX=0"]  # with DWARF 5, addr2line names some wrong files
# These files are not on the path, and the program links without them.
LEFT_OUT = ("src/services/", "src/core/ops/", "src/core/schema/", "src/device/cuda/driver_cuda.c", "nvtx.c")


def calls(root, folder):
    """Yields (depth, file, function) for each call on the path."""
    program = folder / "leaf"
    sources = [str(path) for path in sorted((root / "src").rglob("*.c")) if not any(part in str(path) for part in LEFT_OUT)]
    command = ["gcc", *FLAGS, "-I", str(root / "include"), "-I", str(root / "src"),
               f'-DTDICT_KERNEL_IMAGE_FILE="{root}/src/device/kernels/kernels.ptx"', "-o", str(program),
               str(root / "tests/support/walk/leaf.c"), *sources, "-lpthread", "-ldl", "-lm"]
    if subprocess.run(command, check=False).returncode:
        sys.exit("walk: gcc failed")
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split("\n")
    rows = [line.split() for line in lines if line]
    symbols = subprocess.run(["addr2line", "-f", "-e", str(program)], input="\n".join(a for _, a in rows), check=True,
                             capture_output=True, text=True).stdout.split("\n")
    for i, (depth, _) in enumerate(rows):
        file = pathlib.Path(symbols[2 * i + 1].split(":")[0]).resolve()
        yield int(depth), str(file.relative_to(root)), symbols[2 * i]


def counted(walk):
    """Yields the calls that count: all except left-out functions and the calls that they make."""
    left_out = None  # the depth of the function that is now left out, or None
    for depth, file, function in walk:
        if left_out is None or depth <= left_out:
            left_out = depth if file.startswith("src/device/sim/") or function == "prefetch_to_read" else None
        if left_out is None:
            yield depth, file, function


def figures(walk):
    files, moves, last = set(), 0, None
    for _, file, _ in walk:
        moves += file != last
        files.add(file)
        last = file
    return {"calls": len(walk), "files": len(files), "returns": moves - len(files)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print the calls")
    options, _ = parser.parse_known_args()  # the gate selftest passes the compilers to each gate
    root = options.root.resolve()
    report = source.Report("walk")
    if not shutil.which("gcc") or not shutil.which("addr2line"):
        sys.exit(77)
    with tempfile.TemporaryDirectory() as name:
        walk = list(counted(calls(root, pathlib.Path(name))))
    if options.list:
        for depth, file, function in walk:
            print(f"{'  ' * depth}{function}  {file}")
        return
    if not walk or walk[0][2] != "tdict_to_device":
        report.fail("walk", "the first call is not tdict_to_device()")
    limits = source.limits(root, "walk")
    for what, count in figures(walk).items():
        report.limit("walk", what, count, limits[what])
    report.end()


main()
