"""Prepares the source folder of the site: copies docs/, writes the reference, and adapts links for the site.

usage: prepare.py ROOT SOURCE MAN"""

import pathlib
import re
import shutil
import sys

import classes
import figures
import headers
import man
import reference

PROJECT_PAGES = {"CONTRIBUTING.md": "project/contributing.md", "CHANGELOG.md": "project/changelog.md"}


def adapt(root, page, target, text):
    """Links to pages of the project lead to their copies. Links to other files of the repository become their names."""

    def link(match):
        shown, to, anchor = match.group(1), match.group(2), match.group(3) or ""
        if re.match(r"[a-z]+:", to) or to.startswith("#"):
            return match.group(0)
        file = (page.parent / to).resolve()
        name = str(file.relative_to(root)) if file.is_relative_to(root) else to
        up = "../" * (len(target.parts) - 1)
        if name in PROJECT_PAGES:
            return f"[{shown}]({up}{PROJECT_PAGES[name]}{anchor})"
        if name.startswith("docs/"):
            return f"[{shown}]({up}{name[5:]}{anchor})"
        if re.match(r"include/tdict/\w+\.h$", name):
            return f"[{shown}]({up}reference/index.rst)" if up else f"[{shown}](reference/index.rst)"
        return shown if shown.startswith("`") else f"{shown} (`{name}`)" if shown not in (name, to) else f"`{name}`"

    text = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)]*)?\)", link, text)
    return text


def link_functions(text, names):
    """Names of public functions in backticks lead to the reference. Blocks of code and links stay as they are."""

    def name(match):
        known = match.group(1) in names
        return "{c:func}`" + match.group(1) + "`" if known else match.group(0)

    parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    return "".join(part if part.startswith("```") else re.sub(r"(?<![\[{}`\w])`(tdict_\w+)(?:\(\))?`", name, part) for part in parts)


def main():
    root, source, pages = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
    for folder in (source, pages):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    all_headers = headers.Headers(root)
    for page in sorted((root / "docs").rglob("*")):
        target = page.relative_to(root / "docs")
        if page.is_dir() or target.parts[0] in ("site", "listings"):
            continue
        (source / target).parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            (source / target).write_text(link_functions(adapt(root, page, target, page.read_text()), all_headers.functions))
        else:
            shutil.copy(page, source / target)
    for name, target in PROJECT_PAGES.items():
        (source / target).parent.mkdir(exist_ok=True)
        (source / target).write_text(adapt(root, root / name, pathlib.Path(target), (root / name).read_text()))
    (source / "listings").symlink_to(root / "docs/listings")
    (source / "examples").symlink_to(root / "examples")
    figures.write_charts(root, source / "figures")
    with (source / "reference/cpp.md").open("a") as page:
        page.write("\n" + link_functions(classes.markdown(root), all_headers.functions))
    reference.write_reference(root, source / "reference", all_headers)
    man.write_pages(root, pages, all_headers)


main()
