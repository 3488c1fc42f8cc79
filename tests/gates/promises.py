"""Gate: every promise of a public header has a test.

usage: promises.py ROOT
tests/promises.txt lists public names, with promises and the cases that test them. The cases must exist, and each name
must be declared in the header under which it is listed. Every public function that returns a tdict_status must have a
promise. Public headers must not contain a tag [T:case]. On a page, a table between "<!-- cases begin -->" and "<!--
cases end -->" must name existing cases in its last column. The name of a case must be unique in the repository, and its
macro must begin a line."""

import re

import source
from source import api

LIST = "tests/promises.txt"
WHOLE_HEADER = "(header)"


def read_cases(report, root):
    cases = {}
    for file in source.files(root, "tests/test_*.c", "tests/*/**/test_*.c", "tests/hpp/test_*.cpp"):
        where = file.relative_to(root)
        text = source.blank(file.read_text())
        for name in source.CASE.findall(text):
            report.checked()
            if name in cases:
                report.fail(where, f"the case {name} is in {cases[name]} already")
            cases[name] = where
        for match in re.finditer(r"^[ \t]+(?:CASE|DEVICE_CASE|GPU_CASE|SIM_CASE|CUDA_CASE)\(", text, re.M):
            report.fail(f"{where}:{source.line_of(text, match.start())}", "the case is not at the start of its line: it would not be run")
    return cases


def read_promises(report, root):
    """Returns {(header, name): (where, promises)}. `promises` has (where, cases) for each promise."""
    promises, header, current = {}, None, None
    lines = (root / LIST).read_text().splitlines()
    for number, line in enumerate(lines, 1):
        where = f"{LIST}:{number}"
        if line.startswith("#") or not line:
            continue
        if match := re.fullmatch(r"\[(\w+\.h)\]", line):
            header, current = match.group(1), None
        elif header and re.fullmatch(r"\w+|\(header\)", line):
            if (header, line) in promises:
                report.fail(where, f"{line} of {header} is listed twice")
            current = promises.setdefault((header, line), (where, []))[1]
        elif current is not None and (match := re.fullmatch(r"  \S.*:((?: \w+)*)", line)):
            current.append((where, match.group(1).split()))
        elif current and lines[number - 2].endswith(":") and re.fullmatch(r"    \w+(?: \w+)*", line):
            current[-1][1].extend(line.split())
        else:
            report.fail(where, f"{line!r} is no header, no name and no promise with its cases")
    return promises


def check_promises(report, root, cases, promises):
    public = source.public_names(root)
    words = {file.name: set(re.findall(r"\w+", source.blank(file.read_text())))
             for file in source.files(root, "include/tdict/*.h")}
    for (header, name), (where, of_name) in promises.items():
        report.checked()
        if header not in words:
            report.fail(where, f"there is no include/tdict/{header}")
        elif name != WHOLE_HEADER and (name not in public or name not in words[header]):
            report.fail(where, f"{header} has no public name {name}")
        if not of_name:
            report.fail(where, f"{name} is listed without a promise")
        for place, named in of_name:
            report.checked()
            if not named:
                report.fail(place, f"a promise of {name} names no case")
            for case in named:
                if case not in cases:
                    report.fail(place, f"no test has a case {case}")


def check_headers(report, root, promises):
    for file in source.files(root, "include/tdict/*.h"):
        text = file.read_text()
        for match in re.finditer(r"\[T:", text):
            report.fail(f"{file.relative_to(root)}:{source.line_of(text, match.start())}", f"holds a tag [T:; cases are listed in {LIST}")
    for function in api.Api(root).functions():
        if function.returns == "tdict_status":
            report.checked()
            if (function.header, function.name) not in promises:
                report.fail(f"include/tdict/{function.header}:{function.line}", f"{function.name} can fail, and {LIST} has no promise of it")


def check_pages(report, root, cases):
    for file in source.files(root, "docs/*.md"):
        text = file.read_text()
        for table in re.finditer(r"<!-- cases begin -->(.*?)<!-- cases end -->", text, re.S):
            for row in re.finditer(r"^\|.*\|([^|]*)\|$", table.group(1), re.M):
                for name in re.findall(r"`(\w+)`", row.group(1)):
                    report.checked()
                    if name not in cases:
                        where = f"{file.relative_to(root)}:{source.line_of(text, table.start(1) + row.start())}"
                        report.fail(where, f"no test has a case {name}")


def main():
    root = source.root_argument()
    report = source.Report("promises")
    cases = read_cases(report, root)
    promises = read_promises(report, root)
    check_promises(report, root, cases, promises)
    check_headers(report, root, promises)
    check_pages(report, root, cases)
    report.end()


main()
