"""Gate: the public headers compile without warnings of clang's -Weverything and, in C++, of -Wold-style-cast.

usage: header_warnings.py ROOT CC CXX
ALLOWED lists the exceptions. Without clang, the gate checks only -Wold-style-cast, with CXX. Inside extern "C", g++
does not report this warning."""

import pathlib
import subprocess
import sys
import tempfile

import source

ALLOWED = {
    "c++98-compat": "the headers need C++11",
    "c++98-compat-pedantic": "the headers need C++11",
    "padded": "options are structs, and structs have padding",
    "unsafe-buffer-usage": "every use of a C array causes this warning",
    "weak-vtables": "a class in a header has no source file",
}
# A program that uses the macros, because a macro causes warnings only where it is used.
USES = """
#define INDEX TDICT_INDEX(TDICT_AT(0), TDICT_RANGE(0, 2, 1), TDICT_LIST(list, 2), TDICT_ALL)
extern const tdict_dtype known;
const tdict_dtype known = TDICT_DTYPE(2, 32, 1);
extern void *const unordered;
void *const unordered = TDICT_DLPACK_UNORDERED;
tdict_status uses(tdict_tree *tree, tdict_tree **out);
tdict_status uses(tdict_tree *tree, tdict_tree **out) {
  const tdict_field fields[] = {TDICT_FIELD("a", TDICT_U8, 3, 64, 64), TDICT_FIELD("b", TDICT_F32)};
  const int64_t list[] = {0, 1};
  tdict_error err;
  err.status = 0;
  TDICT_TRY_RETURN(tdict_index_get(NULL, tree, INDEX, NULL, out, &err), TDICT_EINVAL);
  TDICT_TRY(tdict_delete(tree, fields[0].path, &err));
done:
  return TDICT_OK;
}
"""


def check(report, root, headers, command):
    suffix = "cpp" if "c++" in command[1] else "c"
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / f"all.{suffix}"
        file.write_text("".join(f'#include "tdict/{header}"\n' for header in headers) + USES)
        command = [*command, "-Werror", "-fsyntax-only", f"-I{root}/include", str(file)]
        result = subprocess.run(command, capture_output=True, text=True)
    report.checked(len(headers))
    if result.returncode != 0:
        report.fail("include/tdict", f"causes warnings with {' '.join(command[:3])}:\n{result.stderr}")


def main():
    root = source.root_argument()
    report = source.Report("header_warnings")
    c_headers = [header.name for header in source.files(root, "include/tdict/*.h")]
    check(report, root, [*c_headers, "tdict.hpp"], [sys.argv[3], "-std=c++11", "-Wold-style-cast"])
    clang = source.newest_clang()  # older versions do not know all warnings in ALLOWED
    if clang is None:
        print("header_warnings: clang is not installed, so -Weverything is not checked")
    else:
        allowed = [f"-Wno-{name}" for name in ("unknown-warning-option", *ALLOWED)]
        check(report, root, c_headers, [clang, "-std=c99", "-Weverything", *allowed])
        check(report, root, [*c_headers, "tdict.hpp"], [clang, "-std=c++20", "-Weverything", *allowed])
    report.end()


main()
