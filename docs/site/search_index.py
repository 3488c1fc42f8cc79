"""Writes search_index.js for the search of the site: the sections of all pages, and the functions, types and fields of the
reference. Sphinx's own index knows only pages, and reads the texts of its results from a server."""

import json
import pathlib
import re

from docutils import nodes
from sphinx import addnodes

MAINTAINERS = re.compile(r"For (maintainers|users of tdict\. This page uses the format of Keep)\b")
LOWER = 0.3  # the weight of pages for maintainers


def words(node):
    return re.sub(r"\s+", " ", node.astext()).strip()


def own_text(section):
    """The text of a section without its title, its subsections and the declarations of the reference."""
    parts = []
    for child in section.children:
        if not isinstance(child, (nodes.section, nodes.title, addnodes.desc, addnodes.toctree, nodes.comment)):
            parts += list(child.findall(lambda n: isinstance(n, (nodes.paragraph, nodes.term, nodes.literal_block))))
    parts.sort(key=lambda part: isinstance(part, nodes.literal_block))  # results show a sentence rather than code
    return " ".join(map(words, parts))


def sections(tree):
    for section in tree.findall(nodes.section):
        title = words(next(section.findall(nodes.title)))
        yield (section["ids"][0] if section.parent is not tree else "", title, "", own_text(section))


def declarations(tree):
    for desc in tree.findall(addnodes.desc):
        for signature in desc.findall(addnodes.desc_signature):
            if signature.parent is desc and signature["ids"]:
                text = " ".join(words(p) for p in desc.findall(nodes.paragraph))
                yield (signature["ids"][0], signature["ids"][-1].split(".")[-1], desc["objtype"], text)


def fields(tree):
    """The fields in the tables of structs. docs/site/reference.py writes a target such as tdict_run.stream into each row."""
    for entry in tree.findall(nodes.entry):
        for node in entry.children:
            name = next((n for n in node.get("names", []) if re.fullmatch(r"tdict_\w+\.\w+", n)), None)
            if name:
                meaning = entry.parent.children[entry.parent.index(entry) + 1]
                yield (node["ids"][0], name, "field", f"{words(entry)}: {words(meaning)}")


def write(app, error):
    if error or app.builder.name != "html":
        return
    pages, found = [], []
    for name in sorted(app.env.found_docs):
        tree = app.env.get_doctree(name)
        first = next(tree.findall(nodes.paragraph), None)
        weight = LOWER if first is not None and MAINTAINERS.match(words(first)) else 1
        pages.append([app.builder.get_target_uri(name), app.env.titles[name].astext(), weight])
        for entry in (*sections(tree), *declarations(tree), *fields(tree)):
            found.append([len(pages) - 1, *entry])
    text = json.dumps({"pages": pages, "entries": found}, ensure_ascii=False, separators=(",", ":"))
    pathlib.Path(app.outdir, "search_index.js").write_text(f"const SEARCH_INDEX = {text};\n")
