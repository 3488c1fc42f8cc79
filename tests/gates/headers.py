"""Gate: every public header compiles alone as C99, C++11 and C++17.

usage: headers.py ROOT CC CXX
Compiles each header with warnings as errors. No header may contain atomics or include a CUDA header. The comment of
tdict.h has a line for each header that tdict.h does not include. docs/site/api.py must read every name of the headers
correctly: a program with each function and type that api.py finds must compile in both languages, and the compilers
must find the same struct fields and enum values. tests/headers/client.c must use every macro and inline function. Other
CTest entries compile and run client.c in both languages."""

import re
import subprocess
import sys
import tempfile

import source
from source import api

WARNINGS = ["-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-fsyntax-only"]


def compile_alone(report, root, header, compiler, standard):
    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/alone.{'cpp' if '+' in standard else 'c'}"
        with open(file, "w") as out:
            # Include the header twice, to test the include guard.
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


def compiled_fields(file):
    """Returns {name: fields or values} of the structs and enums, read from a compiler's debug information."""
    text = subprocess.run(["readelf", "--debug-dump=info", "--wide", file], capture_output=True, text=True, check=True).stdout
    found, fields = {}, []
    for kind, entry in re.findall(r"\(DW_TAG_(\w+)\)\n(.*?)(?=^ <|\Z)", text, re.M | re.S):
        name = re.search(r"DW_AT_name\s*:.*?(\w+)\s*$", entry, re.M)
        if kind in ("structure_type", "enumeration_type"):
            fields = found.setdefault(name.group(1), []) if name and "DW_AT_declaration" not in entry else []
        elif kind in ("member", "enumerator"):
            fields.append(name.group(1))
    return found


def check_names(report, root, public):
    """Compiles a program that uses all names that api.py found, and then looks for names that api.py missed."""
    lines = [f'#include "tdict/{header}"' for header in public.headers]
    fields = {}
    for i, d in enumerate(public.declarations):
        report.checked()
        tag = f"{d.kind} " if d.kind in ("struct", "enum") else ""
        if d.kind == "function" and d.name.lower().startswith("tdict_"):
            lines.append(f"void (*name_{i}(void))(void);\nvoid (*name_{i}(void))(void) {{ return (void (*)(void))&{d.name}; }}")
        elif d.kind != "macro":
            lines.append(f"{tag}{d.name} *name_{i};")
        if d.kind in ("struct", "enum"):
            fields[d.name] = [name for _, name, _ in d.members]
    for compiler, standard in ((sys.argv[2], "c99"), (sys.argv[3], "c++11")):
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/names.{'cpp' if '+' in standard else 'c'}"
            with open(file, "w") as out:
                out.write("\n".join(lines) + "\n")
            command = [compiler, f"-std={standard}", "-g", f"-I{root}/include", "-c", file, "-o", f"{folder}/names.o"]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode != 0:
                report.fail("docs/site/api.py", f"reads names that do not compile as {standard}:\n{result.stderr}")
                continue
            seen = compiled_fields(f"{folder}/names.o")
        for name, own in fields.items():
            report.checked()
            if own != seen.get(name):
                report.fail("docs/site/api.py", f"reads {own} in {name}; the {standard} compiler reads {seen.get(name)}")
    known = public.names()
    for header in public.headers:
        code = source.without_preprocessor(source.blank((root / "include/tdict" / header).read_text()))
        for name in sorted(set(re.findall(r"(?<!struct )\b(?:tdict|TDICT)_\w+", code)) - set(known)):
            report.checked()
            if not api.NO_NAMES.match(name):
                report.fail(f"include/tdict/{header}", f"docs/site/api.py does not read {name}")


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
    public = api.Api(root)
    for d in public.declarations:
        report.checked()
        if (d.kind == "macro" or (d.kind == "function" and not d.exported)) and d.name.lower().startswith("tdict_") and d.name not in used:
            report.fail("tests/headers/client.c", f"does not use {d.name} of {d.header}")
    check_names(report, root, public)
    report.end()


main()
