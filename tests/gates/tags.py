"""Gate: every promise of a public header has its test.

usage: tags.py ROOT
A tag [T:case] names a case of tests/*/test_*.c, and so does each name in the last column of a page's table between
"<!-- cases begin -->" and "<!-- cases end -->"; the comment of every public function that answers a tdict_status has
at least one tag; a case's name is used once in the whole repository and its macro stands at the start of a line."""

import re

import source


def read_cases(report, root):
    cases = {}
    for file in source.files(root, "tests/**/test_*.c"):
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


def check_tags(report, root, cases):
    for file in source.files(root, "include/tdict/*.h", "src/**/*.h"):
        text = file.read_text()
        for match in re.finditer(r"\[T:([^\]]*)\]", text):
            report.checked()
            if match.group(1) not in cases:
                where = f"{file.relative_to(root)}:{source.line_of(text, match.start())}"
                report.fail(where, f"no test has a case {match.group(1)}")


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


def check_functions(report, root):
    for file in source.files(root, "include/tdict/*.h"):
        text = file.read_text()
        code = source.without_preprocessor(source.blank(text))
        for match in re.finditer(r"\bTDICT_API\b[^;{(]*\btdict_status\s+(\w+)\s*\(", code):
            report.checked()
            # The comment that ends nearest above; a blank line between would make it another's.
            above = text[:match.start()]
            end = above.rfind("*/")
            comment = above[above.rfind("/*", 0, end):end] if end >= 0 and "\n\n" not in above[end:] else ""
            if "[T:" not in comment:
                where = f"{file.relative_to(root)}:{source.line_of(text, match.start())}"
                report.fail(where, f"{match.group(1)} can fail, and its comment has no tag [T:case]")


def main():
    root = source.root_argument()
    report = source.Report("tags")
    cases = read_cases(report, root)
    check_tags(report, root, cases)
    check_pages(report, root, cases)
    check_functions(report, root)
    report.end()


main()
