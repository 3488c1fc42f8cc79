"""Gate: links and code in the pages are correct.

usage: pages.py ROOT
Relative links in *.md and docs/*.md must name existing files. The lines of C in README.md must be lines of
examples/quickstart.c, in the same order."""

import re

import source


def check_links(report, root, page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        report.checked()
        if not (page.parent / target).exists():
            report.fail(page.relative_to(root), f"links to {target}, which is not there")


def check_snippets(report, root):
    example = iter((root / "examples/quickstart.c").read_text().splitlines())
    lines = {line.strip() for line in (root / "examples/quickstart.c").read_text().splitlines()}
    for snippet in re.findall(r"```c\n(.*?)```", (root / "README.md").read_text(), flags=re.S):
        for line in filter(None, map(str.strip, snippet.splitlines())):
            report.checked()
            if line not in lines:
                report.fail("README.md", f"shows a line that examples/quickstart.c has not: {line}")
            elif not any(other.strip() == line for other in example):
                report.fail("README.md", f"shows a line of examples/quickstart.c in another order: {line}")
                return


def main():
    root = source.root_argument()
    report = source.Report("pages")
    for page in source.files(root, "*.md", "docs/*.md"):
        check_links(report, root, page)
    check_snippets(report, root)
    report.end()


main()
