"""Prepares the source folder of the site: copies docs/, writes the reference, and adapts links for the site. Writes
tdict_api.json beside this folder.

usage: prepare.py ROOT SOURCE MAN"""

import pathlib
import re
import shutil
import sys

import classes
import headers
import man
import reference
import rst

PROJECT_PAGES = {"CONTRIBUTING.md": "project/contributing.md", "CHANGELOG.md": "project/changelog.md"}
DARK = {"#ffffff": "#131416", "#222222": "#d8d8d8", "#555555": "#a8a8a8", "#cccccc": "#3c3f44", "#111111": "#ffffff",
        "#1b6ca8": "#4f9fdc", "#7f7f7f": "#8f8f8f", "#d1495b": "#e0667a"}  # colors of a chart, and those of its dark copy
IMAGE = "```{{image}} {}.svg\n:alt: {}\n:class: only-{}\n```\n"


def charts_of_both_themes(text):
    """Replaces each chart with a light and a dark copy. The theme shows one of them."""

    def both(match):
        alt, chart = match.groups()
        return IMAGE.format(chart, alt, "light") + "\n" + IMAGE.format(f"{chart}-dark", alt, "dark")

    return re.sub(r"^!\[([^\]]*)\]\((\S*figures/\w+)\.svg\)$", both, text, flags=re.M)


def write_dark_copies(folder):
    """Writes NAME-dark.svg beside each chart, for readers who prefer dark pages."""
    for chart in sorted(folder.glob("*.svg")):
        text = re.sub(r"#[0-9a-f]{6}\b", lambda m: DARK.get(m.group(0), m.group(0)), chart.read_text())
        chart.with_name(f"{chart.stem}-dark.svg").write_text(text)


def program(shown, name):
    return f"{{download}}`{shown} </{name.removeprefix('docs/')}>`"


def adapt(root, page, target, text, labels):
    """Links to pages of the project lead to their copies, and have the titles of these pages. Links to headers lead to
    the reference, and links to programs to copies. Links to other files of the repository become their names."""

    def link(match):
        shown, to, anchor = match.group(1), match.group(2), match.group(3) or ""
        if re.match(r"[a-z]+:", to) or not to:  # another site, or this page
            return match.group(0)
        file = (page.parent / to).resolve()
        name = str(file.relative_to(root)) if file.is_relative_to(root) else to
        up = "../" * (len(target.parts) - 1)
        if name in PROJECT_PAGES:
            return f"[{shown}]({up}{PROJECT_PAGES[name]}{anchor})"
        if name.startswith("docs/") and name.endswith(".md"):
            shown = rst.title_of(file) if shown.strip("`").endswith(".md") and file.exists() else shown
            return f"[{shown}]({up}{name[5:]}{anchor})"
        if re.match(r"include/tdict/\w+\.h$", name) and name[8:] in labels:
            return f"{{ref}}`{shown.strip('`')} <{labels[name[8:]]}>`"
        if re.match(r"(docs/listings|examples)/[\w/]+\.\w+$", name) and file.exists():
            return program(shown.strip("`"), name)
        return shown if shown.startswith("`") else f"{shown} (`{name}`)" if shown not in (name, to, file.name) else f"`{name}`"

    def page_link(match):
        up = "../" * (len(target.parts) - 1)
        return f"[{rst.title_of(root / match.group(0))}]({up}{match.group(1)})" if (root / match.group(0)).exists() else match.group(0)

    text = charts_of_both_themes(text)
    text = re.sub(r"(?<!!)\[([^\]]+)\]\(([^)#\s]*)(#[^)]*)?\)", link, text)
    return re.sub(r"(?<![\w`/(\[])docs/([\w/]+\.md)\b", page_link, text)


def link_names(text, names):
    """Names of functions, types and macros in backticks lead to the reference, and names of programs to copies. Blocks
    of code and links stay as they are."""

    def name(match):
        known = names.roles.get(match.group(1))
        return f"{{c:{known}}}`{match.group(1)}`" if known and (known == "func" or not match.group(2)) else match.group(0)

    def file(match):
        return program(match.group(1), match.group(1)) if (names.docs.parent / match.group(1)).is_file() else match.group(0)

    def link(part):
        part = re.sub(r"(?<![\[{}`\w])`((?:tdict|TDICT)_\w+)(\(\))?`", name, part)
        return re.sub(r"(?<![\[{}`\w])`((?:docs/listings|examples)/[\w/]+\.\w+)`", file, part)

    parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    return "".join(part if part.startswith("```") else link(part) for part in parts)


def main():
    root, source, pages = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
    for folder in (source, pages):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    all_headers = headers.Headers(root)
    labels = reference.labels_of(reference.read_tasks(root, all_headers), all_headers)
    names = rst.Names(all_headers, labels)
    for page in sorted((root / "docs").rglob("*")):
        target = page.relative_to(root / "docs")
        if page.is_dir() or target.parts[0] in ("site", "listings", "man"):
            continue
        (source / target).parent.mkdir(parents=True, exist_ok=True)
        if page.suffix == ".md":
            (source / target).write_text(link_names(adapt(root, page, target, page.read_text(), labels), names))
        else:
            shutil.copy(page, source / target)
    for name, target in PROJECT_PAGES.items():
        (source / target).parent.mkdir(exist_ok=True)
        (source / target).write_text(adapt(root, root / name, pathlib.Path(target), (root / name).read_text(), labels))
    (source / "listings").symlink_to(root / "docs/listings")
    (source / "examples").symlink_to(root / "examples")
    write_dark_copies(source / "figures")
    with (source / "reference/cpp.md").open("a") as page:
        page.write("\n" + link_names(classes.markdown(root), names))
    reference.write_reference(root, source / "reference", all_headers)
    man.write_pages(root, pages, all_headers)
    (source.parent / "tdict_api.json").write_text(all_headers.api.json() + "\n")
    (source / "tdict_api.json").symlink_to(source.parent / "tdict_api.json")


main()
