"""Gate: links and code in the pages are correct.

usage: pages.py ROOT
Relative links in *.md and in the pages of docs/, paths in backticks, and included listings must name existing files.
No page may contain git's conflict markers. Every program of docs/listings/ must have an .out file of the same name.
README.md must have at most README_LINES lines, and show the code of the function train_step of
docs/listings/train_step.c in at most PROGRAM_LINES lines. The table of gates in docs/testing.md must have a row for each
gate of tests/CMakeLists.txt, and no other row."""

import re

import source

README_LINES, PROGRAM_LINES = 90, 20


def check_links(report, root, page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        report.checked()
        if not (page.parent / target).exists():
            report.fail(page.relative_to(root), f"links to {target}, which does not exist")


def check_paths(report, root, page):
    """Checks that paths on a page exist, such as `src/core/tree/node.c` or `tests/support/`."""
    for path in re.findall(r"`((?:src|include|tests|bench|examples|cmake|scripts|docs)/[\w./-]*(?:\.\w+|/))`", page.read_text()):
        report.checked()
        if not (root / path).exists():
            report.fail(page.relative_to(root), f"names {path}, which does not exist")


def check_listings(report, root, page):
    """Checks that the listings that a page includes exist."""
    for name in re.findall(r"^```\{literalinclude\} (\S+)", page.read_text(), flags=re.M):
        report.checked()
        file = root / "docs" / name[1:] if name.startswith("/listings/") else root / name[1:]
        if not file.exists():
            report.fail(page.relative_to(root), f"shows {name}, which does not exist")


def check_conflicts(report, root, page):
    for mark in re.findall(r"^(?:<{7}|>{7}) .*", page.read_text(), flags=re.M):
        report.fail(page.relative_to(root), f"has the mark of a conflict: {mark}")


def check_outputs(report, root):
    for file in source.files(root, "docs/listings/*.c", "docs/listings/*.cpp"):
        report.checked()
        if not file.with_suffix(".out").exists():
            report.fail(file.relative_to(root), "no .out file has its output")


def code_of(text):
    """The code of `text` without comments and white space. README.md may have longer lines than a listing."""
    return re.sub(r"/\*.*?\*/|\s", "", text, flags=re.S)


def check_program(report, root):
    """Checks that README.md shows a function of a listing that CTest builds and runs."""
    report.checked()
    page = (root / "README.md").read_text()
    if page.count("\n") > README_LINES:
        report.fail("README.md", f"has {page.count(chr(10))} lines, at most {README_LINES} are allowed")
    shown = re.findall(r"```c\n(.*?)```", page, flags=re.S)
    listing = (root / "docs/listings/train_step.c").read_text()
    wanted = re.findall(r"^static int train_step.*?^}\n", listing, flags=re.S | re.M)
    if [code_of(code) for code in shown] != [code_of(code) for code in wanted]:
        report.fail("README.md", "shows another program than train_step of docs/listings/train_step.c")
    elif shown[0].count("\n") > PROGRAM_LINES:
        report.fail("README.md", f"shows a program of more than {PROGRAM_LINES} lines")


def check_gates(report, root):
    """Checks that the table in the section Gates has one row for each tdict_add_gate line."""
    gates = re.findall(r"^ *tdict_add_gate\((\w+)", (root / "tests/CMakeLists.txt").read_text(), flags=re.M)
    section = re.search(r"^## Gates\n(.*?)(?=^## |\Z)", (root / "docs/testing.md").read_text(), flags=re.S | re.M)
    rows = re.findall(r"^\| (\w+) \|", section.group(1), flags=re.M)[1:] if section else []  # without the header row
    report.checked(len(gates))
    for name in gates:
        if name not in rows:
            report.fail("docs/testing.md", f"the table of gates has no row for {name}")
    for name in rows:
        if name not in gates:
            report.fail("docs/testing.md", f"the table of gates has a row for {name}, which is no gate")


def main():
    root = source.root_argument()
    report = source.Report("pages")
    check_outputs(report, root)
    for page in source.files(root, "*.md", "docs/**/*.md"):
        check_conflicts(report, root, page)
        check_links(report, root, page)
        check_listings(report, root, page)
        if page.name != "CHANGELOG.md":  # the changelog also names things that were removed
            check_paths(report, root, page)
    check_program(report, root)
    check_gates(report, root)
    report.end()


main()
