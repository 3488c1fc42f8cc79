"""Gate: the table of folders in CONTRIBUTING.md has the folders of the tree.

usage: folders.py ROOT
The table must name every folder of the first level and every folder in those of DEEP. Each path of its first column must
exist. Hidden folders and those of builds are left out."""

import re

import source

DEEP = ("src", "tests", "bench", "packaging")
BUILT = {"build", "install", "__pycache__"}


def folders(parent):
    found = sorted(path for path in parent.glob("*/") if path.is_dir())
    return [path for path in found if path.name not in BUILT and not path.name.startswith(".")]


def main():
    root = source.root_argument()
    report = source.Report("folders")
    table = re.search(r"^\| folder \|.*\n(?:\|.*\n)+", (root / "CONTRIBUTING.md").read_text(), flags=re.M)
    rows = table.group(0).splitlines()[2:] if table else []
    named = [path for row in rows for path in re.findall(r"`([^`]+)`", row.split("|")[1])]
    for path in named:
        report.checked()
        if not (root / path).exists():
            report.fail("CONTRIBUTING.md", f"the table of folders has {path}, which is not there")
    for folder in folders(root) + [path for deep in DEEP for path in folders(root / deep)]:
        name = f"{folder.relative_to(root)}/"
        report.checked()
        if not any(path.startswith(name) for path in named):
            report.fail("CONTRIBUTING.md", f"the table of folders has no row for {name}")
    report.end()


main()
