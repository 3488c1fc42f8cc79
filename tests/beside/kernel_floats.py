#!/usr/bin/env python3
"""Compares the kernels' conversions between floats with PyTorch's, bit by bit. All NaNs count as equal.

usage: kernel_floats.py PROGRAM DEVICE [COUNT] [SEED]
PROGRAM is tests/device/test_device_convert_patterns of a build folder, and DEVICE is sim or cuda. The program converts
every bit pattern of the 8-bit and 16-bit floats to float32, and COUNT (default 1000000) random bit patterns of float32
to each of these floats. compare_dtypes.py describes the exception for numbers too large for float8_e4m3fn. If PyTorch
has no 8-bit floats, they are left out. Exit status: 0 equal, 1 different, 77 if PyTorch or the device is missing."""

import pathlib
import subprocess
import sys
import tempfile

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import compare_dtypes as floats  # exits with 77 if PyTorch is missing
import torch


def read(file, dtype):
    return torch.frombuffer(bytearray(file.read_bytes()), dtype=floats.INTEGERS[floats.CODES[dtype][1]]).view(dtype)


def main():
    program, device = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
    count = sys.argv[3] if len(sys.argv) > 3 else "1000000"
    seed = sys.argv[4] if len(sys.argv) > 4 else "1"
    names = {dtype: str(dtype).removeprefix("torch.") for dtype in floats.CODES}
    pairs = [(torch.float32, small) for small in floats.SMALL] + [(small, torch.float32) for small in floats.SMALL]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([program, "kernel_converts_bit_patterns_of_floats", device, "--patterns", count, "--seed", seed,
                              "--out", folder], capture_output=True, text=True)
        if run.returncode != 0:
            print(run.stdout + run.stderr)
            return run.returncode
        for source, target in pairs:
            before = read(pathlib.Path(folder) / names[source], source)
            after = read(pathlib.Path(folder) / f"{names[source]}-{names[target]}", target)
            differ = floats.count_differences(before, after)
            print(f"{names[source]} to {names[target]}: {before.numel()} elements, {differ} differ")
            wrong += differ
    if len(floats.SMALL) < 4:
        print("this PyTorch lacks 8-bit floats, so they were not compared")
    print(f"PyTorch {torch.__version__}; elements that it clamped to the largest float8_e4m3fn: {floats.saturated[0]}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
