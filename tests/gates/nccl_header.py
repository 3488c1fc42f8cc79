"""Gate: the declarations of src/services/comm/nccl/nccl_api.h agree with nccl.h. Exits with 77 (skipped) without nccl.h.

usage: nccl_header.py ROOT CC
Searches for nccl.h in NCCL_HOME, in CUDA_HOME, in the toolkit of the nvcc on PATH, in /usr/local/cuda and in /usr."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import source


def folders():
    for name in ("NCCL_HOME", "CUDA_HOME"):
        if os.environ.get(name):
            yield pathlib.Path(os.environ[name]) / "include"
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield pathlib.Path(nvcc).resolve().parent.parent / "include"
    yield pathlib.Path("/usr/local/cuda/include")
    yield pathlib.Path("/usr/include")


def first_with(name):
    return next((folder for folder in folders() if (folder / name).is_file()), None)


def check_magic(header, api):
    """Compares the magic number of ncclConfig_t here, because its initializer is not a constant expression in C."""
    theirs = re.search(r"#define NCCL_CONFIG_INITIALIZER\s*\{[^}]*?(0x[0-9a-f]+)", header.read_text())
    ours = re.search(r"#define TDICT_NCCL_CONFIG_MAGIC (0x[0-9a-f]+)U", api.read_text())
    if not theirs or not ours or theirs.group(1) != ours.group(1):
        sys.exit(f"{api}: TDICT_NCCL_CONFIG_MAGIC is not the magic number of NCCL_CONFIG_INITIALIZER in {header}")


def main():
    root = source.root_argument()
    nccl, cuda = first_with("nccl.h"), first_with("cuda_runtime.h")
    if not nccl or not cuda:
        print("skipped: no nccl.h or cuda_runtime.h in NCCL_HOME, CUDA_HOME, nvcc's toolkit, /usr/local/cuda or /usr")
        sys.exit(77)
    check_magic(nccl / "nccl.h", root / "src/services/comm/nccl/nccl_api.h")
    command = [sys.argv[2], "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{root}/include",
               f"-I{root}/src", "-isystem", str(nccl), "-isystem", str(cuda), str(root / "tests/services/comm/nccl/check_nccl_header.c")]
    print(" ".join(command))
    sys.exit(subprocess.run(command).returncode)


main()
