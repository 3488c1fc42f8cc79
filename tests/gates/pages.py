"""Gate: links and code in the pages are correct.

usage: pages.py ROOT
Relative links in *.md and in the pages of docs/, paths in backticks, and included listings must name existing files.
Every program of docs/listings/ has an .out file of the same name. README.md must show
examples/first_batch.c, and has at most README_LINES lines. The table of gates in CONTRIBUTING.md must have a row for
each gate of tests/CMakeLists.txt, and no other row."""

import re

import source

README_LINES = 120


def check_links(report, root, page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        report.checked()
        chart = re.search(r"figures/(\w+)\.svg$", target)  # drawn when the site is built
        if chart and f'"{chart.group(1)}"' in (root / "docs/site/figures.py").read_text():
            continue
        if not (page.parent / target).exists():
            report.fail(page.relative_to(root), f"links to {target}, which is not there")


def check_paths(report, root, page):
    """Paths that a page names, such as `src/tree/node.c` or `tests/support/`, are there."""
    for path in re.findall(r"`((?:src|include|tests|bench|examples|cmake|scripts|docs)/[\w./-]*(?:\.\w+|/))`", page.read_text()):
        report.checked()
        if not (root / path).exists():
            report.fail(page.relative_to(root), f"names {path}, which is not there")


def check_listings(report, root, page):
    """Files that a page includes are programs of docs/listings/ and examples/, which CTest runs, or their outputs."""
    for name in re.findall(r"^```\{literalinclude\} (\S+)", page.read_text(), flags=re.M):
        report.checked()
        file = root / "docs" / name[1:] if name.startswith("/listings/") else root / name[1:]
        if not file.exists():
            report.fail(page.relative_to(root), f"shows {name}, which is not there")


def check_outputs(report, root):
    for file in source.files(root, "docs/listings/*.c"):
        report.checked()
        if not file.with_suffix(".out").exists():
            report.fail(file.relative_to(root), "no .out file has its output")


def check_program(report, root):
    """The program that README.md shows is examples/first_batch.c, which is built and run."""
    report.checked()
    lines = (root / "README.md").read_text().count("\n")
    if lines > README_LINES:
        report.fail("README.md", f"has {lines} lines, at most {README_LINES} are allowed")
    shown = re.findall(r"```c\n(.*?)```", (root / "README.md").read_text(), flags=re.S)
    if shown != [(root / "examples/first_batch.c").read_text()]:
        report.fail("README.md", "shows another program than examples/first_batch.c")


def check_gates(report, root):
    """The table in the section Gates has one row for each tdict_add_gate line."""
    gates = re.findall(r"^ *tdict_add_gate\((\w+)", (root / "tests/CMakeLists.txt").read_text(), flags=re.M)
    section = re.search(r"^## Gates\n(.*?)(?=^## |\Z)", (root / "CONTRIBUTING.md").read_text(), flags=re.S | re.M)
    rows = re.findall(r"^\| (\w+) \|", section.group(1), flags=re.M)[1:] if section else []  # without the head
    report.checked(len(gates))
    for name in gates:
        if name not in rows:
            report.fail("CONTRIBUTING.md", f"the table of gates has no row for {name}")
    for name in rows:
        if name not in gates:
            report.fail("CONTRIBUTING.md", f"the table of gates has a row for {name}, which is no gate")


def main():
    root = source.root_argument()
    report = source.Report("pages")
    check_outputs(report, root)
    for page in source.files(root, "*.md", "docs/**/*.md"):
        check_links(report, root, page)
        check_listings(report, root, page)
        if page.name != "CHANGELOG.md":  # it also names what is gone
            check_paths(report, root, page)
    check_program(report, root)
    check_gates(report, root)
    report.end()


main()
