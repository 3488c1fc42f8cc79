"""Gate: the CUDA declarations of src/device/cuda/driver_cuda.c agree with cuda.h. Exits with 77 (skipped) if no toolkit
is found.

usage: cuda_header.py ROOT CC
Searches for cuda.h in CUDA_HOME, in the toolkit of the nvcc on PATH, and in /usr/local/cuda."""

import os
import pathlib
import shutil
import subprocess
import sys

import source


def toolkits():
    if os.environ.get("CUDA_HOME"):
        yield pathlib.Path(os.environ["CUDA_HOME"])
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield pathlib.Path(nvcc).resolve().parent.parent
    yield pathlib.Path("/usr/local/cuda")


def main():
    root = source.root_argument()
    check = root / "tests/device/cuda/check_cuda_header.c"
    folders = [folder / "include" for folder in toolkits() if (folder / "include/cuda.h").is_file()]
    if not folders:
        print("skipped: no cuda.h in CUDA_HOME, in nvcc's toolkit or in /usr/local/cuda")
        sys.exit(77)
    command = [sys.argv[2], "-std=c11", "-D_GNU_SOURCE", "-DTDICT_CUDA=1", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
               f"-I{root}/include", f"-I{root}/src", "-isystem", str(folders[0]), str(check)]
    print(" ".join(command))
    sys.exit(subprocess.run(command).returncode)


main()
