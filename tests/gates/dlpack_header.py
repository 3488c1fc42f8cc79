"""Gate: the library's DLPack declarations agree with DLPack's own header. Exits with 77 (skipped) if no such header is
found.

usage: dlpack_header.py ROOT CC CXX
Uses the files in DLPACK_HEADERS (separated by colons), and the headers in /usr/include (the package libdlpack-dev), in
/usr/local/include, and in an installed PyTorch. Compiles tests/services/interop/dlpack/check_header.c with each header,
as C11 and C++11, and with DLPack's header before and after tdict/dlpack.h."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import source


def headers():
    for name in filter(None, os.environ.get("DLPACK_HEADERS", "").split(":")):
        yield pathlib.Path(name)
    for folder in ("/usr/include", "/usr/local/include"):
        yield pathlib.Path(folder, "dlpack/dlpack.h")
    torch = importlib.util.find_spec("torch")
    if torch and torch.origin:
        yield pathlib.Path(torch.origin).parent / "include/ATen/dlpack.h"


def version(header):
    text = header.read_text()
    numbers = re.findall(r"#define DLPACK_(?:MAJOR_|MINOR_)?VERSION (\d+)", text)
    return ".".join(numbers) or "without a number"


def main():
    root = source.root_argument()
    found = list(dict.fromkeys(header for header in headers() if header.is_file()))
    if not found:
        print("skipped: no dlpack.h in DLPACK_HEADERS, /usr/include, /usr/local/include or PyTorch")
        sys.exit(77)
    check = root / "tests/services/interop/dlpack/check_header.c"
    languages = ([sys.argv[2], "-std=c11"], [sys.argv[3], "-std=c++11", "-x", "c++"])
    for header in found:
        print(f"{header}: DLPack {version(header)}")
        for language in languages:
            for order in (1, 2):
                command = [*language, "-D_GNU_SOURCE", f"-DDLPACK_ORDER={order}", f'-DDLPACK_HEADER="{header}"', "-Wall",
                           "-Wextra", "-Werror", "-fsyntax-only", f"-I{root}/include",
                           f"-I{root}/src", str(check)]
                if subprocess.run(command).returncode:
                    print(" ".join(command))
                    sys.exit(1)


main()
