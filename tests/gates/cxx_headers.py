"""Gate: every C++ header compiles alone as C++11, and tdict.hpp as C++11, C++17 and C++20, with and without exceptions.

usage: cxx_headers.py ROOT [CC] CXX
Warnings are errors."""

import subprocess
import sys
import tempfile

import source

WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]


def compile_alone(report, root, header, *options):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/alone.cpp"
        with open(file, "w") as out:
            # Include the header twice, to test the include guard.
            out.write(f'#include "{header}"\n#include "{header}"\nextern int not_empty;\n')
        result = subprocess.run([sys.argv[-1], *options, *WARNINGS, f"-I{root}/include", file], capture_output=True, text=True)
        report.checked()
        if result.returncode != 0:
            report.fail(header.relative_to(root), f"does not compile alone with {' '.join(options)}:\n{result.stderr}")


def main():
    root = source.root_argument()
    report = source.Report("cxx_headers")
    for header in source.files(root, "include/tdict/hpp/*.hpp"):
        compile_alone(report, root, header, "-std=c++11")
    for standard in ("c++11", "c++17", "c++20"):
        for more in ([], ["-fno-exceptions"]):
            compile_alone(report, root, root / "include/tdict/tdict.hpp", f"-std={standard}", *more)
    report.end()


main()
