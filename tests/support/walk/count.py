#!/usr/bin/env python3
"""Counts how a reader moves between files who follows one leaf from tdict_set() to the GPU.

usage: tests/support/walk/count.py [--list]

Compiles the library with -finstrument-functions and runs leaf.c, which moves one leaf of 32 KiB to the simulated device.
A move is a call of a function of another file than the function called before; a return is a move to a file that was
entered before. --list prints the calls, indented by depth, in place of the figures only.
"""
import argparse
import pathlib
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
FLAGS = ["-std=gnu11", "-O0", "-g1", "-no-pie", "-fno-pie", "-finstrument-functions", "-DNDEBUG", "-DTDICT_STATIC", "-D_GNU_SOURCE",
         "-I", str(ROOT / "include"), "-I", str(ROOT / "src"), "-DTDICT_CUDA=0", "-DTDICT_NVTX=0",
         f'-DTDICT_KERNEL_IMAGE_FILE="{ROOT}/src/kernel/kernels.ptx"']
LEFT_OUT = ("src/io/", "src/mpi/", "src/device/driver_cuda.c", "nvtx.c")  # need other libraries, and are not on the path


def calls(folder):
    """(depth, file, function) of each call."""
    program = folder / "leaf"
    sources = [str(path) for path in sorted((ROOT / "src").rglob("*.c")) if not any(part in str(path) for part in LEFT_OUT)]
    subprocess.run(["gcc", *FLAGS, "-o", str(program), str(HERE / "leaf.c"), *sources, "-lpthread", "-ldl", "-lm"], check=True)
    lines = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.split("\n")
    rows = [line.split() for line in lines if line]
    symbols = subprocess.run(["addr2line", "-f", "-e", str(program)], input="\n".join(a for _, a in rows), check=True,
                             capture_output=True, text=True).stdout.split("\n")
    for i, (depth, _) in enumerate(rows):
        file = pathlib.Path(symbols[2 * i + 1].split(":")[0]).resolve()
        yield int(depth), str(file.relative_to(ROOT)), symbols[2 * i]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        walk = list(calls(pathlib.Path(name)))
    if options.list:
        for depth, file, function in walk:
            print(f"{'  ' * depth}{function}  {file}")
    files, moves, last = set(), 0, None
    for _, file, _ in walk:
        moves += file != last
        files.add(file)
        last = file
    functions = len({(file, function) for _, file, function in walk})
    print(f"{len(walk)} calls of {functions} functions in {len(files)} files; {moves} moves between files, of which "
          f"{moves - len(files)} return to a file entered before")


if __name__ == "__main__":
    main()
