"""Gate: every public header compiles alone as C99, C++11 and C++17.

usage: headers.py ROOT CC CXX
Compiles each header with warnings as errors. No header may contain atomics or include a CUDA header. The comment of
tdict.h has a line for each header that tdict.h does not include. tests/headers/client.c must use every public name. Other CTest
entries compile and run it in both languages."""

import re
import subprocess
import sys
import tempfile

import source

WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]


def compile_alone(report, root, header, compiler, standard):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/alone.{'cpp' if '+' in standard else 'c'}"
        with open(file, "w") as out:
            # Twice, so that the include guard is seen to work.
            out.write(f'#include "tdict/{header.name}"\n#include "tdict/{header.name}"\nextern int not_empty;\n')
        command = [compiler, f"-std={standard}", *WARNINGS, f"-I{root}/include", file]
        result = subprocess.run(command, capture_output=True, text=True)
        report.checked()
        if result.returncode != 0:
            report.fail(f"include/tdict/{header.name}", f"does not compile alone as {standard}:\n{result.stderr}")


def check_umbrella(report, root):
    said = set(re.findall(r"^ \* - tdict/(\w+\.h): \w", (root / "include/tdict/tdict.h").read_text(), re.M))
    included, rest = set(), ["tdict.h"]
    while rest:
        name = rest.pop()
        if name not in included:
            included.add(name)
            rest += re.findall(r'^#include "tdict/(\w+\.h)"', (root / "include/tdict" / name).read_text(), re.M)
    left_out = {header.name for header in source.files(root, "include/tdict/*.h")} - included | {"config.h"}  # made by the build
    report.checked()
    if said != left_out:
        report.fail("include/tdict/tdict.h", f"does not include {', '.join(sorted(left_out))}, and its comment names others")


def main():
    root = source.root_argument()
    report = source.Report("headers")
    for header in source.files(root, "include/tdict/*.h"):
        for compiler, standard in ((sys.argv[2], "c99"), (sys.argv[3], "c++11"), (sys.argv[3], "c++17")):
            compile_alone(report, root, header, compiler, standard)
        text = source.blank(header.read_text(), keep_strings=True)
        for what, pattern in (("atomics", r"_Atomic|stdatomic|<atomic>"), ("a CUDA header", r"#\s*include\s*[<\"](cuda|driver_types)")):
            if re.search(pattern, text):
                report.fail(f"include/tdict/{header.name}", f"holds {what}")
    check_umbrella(report, root)
    client = "".join(source.blank(part.read_text()) for part in sorted((root / "tests/headers").glob("client*")))
    used = set(re.findall(r"\w+", client))
    for name, header in sorted(source.public_names(root).items()):
        report.checked()
        if name not in used:
            report.fail("tests/headers/client.c", f"does not use {name} of {header}")
    report.end()


main()
