"""The reference of the C++ classes: from Doxygen's XML of include/tdict/hpp, as a part of a page in Markdown.

The gate `cxx_reference` uses this module, too."""

import dataclasses
import pathlib
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

from api import Block, clean

SITE = pathlib.Path(__file__).resolve().parent

# The page begins with these classes. All other classes follow.
ORDER = ["context", "tree", "tree_ref", "entry", "tensor", "tensor_ref", "future", "dataset", "loader", "replay", "shape", "span", "error",
         "result", "owner", "borrowed"]
SETTINGS = """FILE_PATTERNS = *.hpp
INPUT = {root}/include/tdict/hpp
OUTPUT_DIRECTORY = {folder}
OPTIMIZE_OUTPUT_FOR_C = NO
PREDEFINED += "TDICT_HPP_BEGIN=namespace tdict {{" "TDICT_HPP_END=}}" TDICT_HPP_EXCEPTIONS=1
"""
# Only the headers themselves use these macros.
OTHER_MACROS = re.compile(r"TDICT_HPP_\w+$")


@dataclasses.dataclass
class Member:
    file: str
    declaration: str
    comment: str


@dataclasses.dataclass
class Class:
    name: str  # without the namespace: "loader::iterator"
    file: str
    comment: str
    members: list


@dataclasses.dataclass
class Reference:
    classes: list
    functions: list
    types: list
    macros: list

    def documented(self):
        """All that needs a comment: (file, name, comment). A specialization of a class shares the comment of the class."""
        for c in self.classes:
            if "<" not in c.name:
                yield c.file, c.name, c.comment
            yield from ((m.file, f"{c.name}: {m.declaration}", m.comment) for m in c.members)
        yield from ((m.file, m.declaration, m.comment) for m in self.functions + self.types + self.macros)


def inline(node):
    """The text of a paragraph, with code in backticks. Blocks inside the paragraph are left out."""
    parts = [node.text or ""]
    for child in node:
        if child.tag in ("computeroutput", "verbatim") and not has_lines(child):
            parts.append("`" + "".join(child.itertext()) + "`")
        elif child.tag == "bold":
            parts.append("**" + "".join(child.itertext()) + "**")
        elif child.tag == "emphasis":
            parts.append("`" + "".join(child.itertext()) + "`")
        elif child.tag == "sp":
            parts.append(" ")
        elif child.tag not in ("simplesect", "parameterlist", "itemizedlist", "programlisting", "verbatim", "table"):
            parts.append(inline(child))
        parts.append(child.tail or "")
    return "".join(parts)


def has_lines(node):
    return "\n" in "".join(node.itertext()).strip()


def blocks_of(node):
    found = []
    for para in node.findall("para"):
        text = clean(inline(para))
        if text:
            found.append(Block("text", text))
        for child in para:
            if child.tag == "itemizedlist":
                found.append(Block("list", items=[clean(" ".join(inline(p) for p in item.findall("para"))) for item in child]))
            elif child.tag in ("programlisting", "verbatim") and has_lines(child):
                found.append(Block("code", "".join(child.itertext()).strip("\n")))
            elif child.tag == "table":
                rows = [[clean(" ".join(inline(p) for p in cell.findall("para"))) for cell in row] for row in child.findall("row")]
                found.append(Block("table", items=rows))
            elif child.tag == "simplesect" and child.get("kind") == "note":
                found += [Block("note", clean(inline(p))) for p in child.findall("para")]
    return found


def comment_of(node):
    text = [b for tag in ("briefdescription", "detaileddescription") if node.find(tag) is not None for b in blocks_of(node.find(tag))]
    return " ".join(b.text or "; ".join(map(str, b.items)) for b in text)


def have_doxygen():
    return shutil.which("doxygen") is not None


def text_of(node):
    return "".join(node.itertext()) if node is not None else ""


def declaration(member):
    if member.get("kind") == "define":
        return f"{member.findtext('name')}({', '.join(p.findtext('defname') for p in member.findall('param'))})"
    if member.get("kind") == "typedef":
        text = f"{member.findtext('name')} = {text_of(member.find('type'))} {member.findtext('argsstring') or ''}"
    else:
        args = re.sub(r"\s*(noexcept(\(.*\))?|=\s*default)", "", member.findtext("argsstring") or "")
        text = f"{'static ' if member.get('static') == 'yes' else ''}{text_of(member.find('type'))} {member.findtext('name')}{args}"
    text = re.sub(r"([*&]) (?=\w|\(|operator)", r"\1", text.replace("< ", "<").replace(" >", ">"))
    return re.sub(r"\s+", " ", text).strip().removeprefix("class ")


def file_of(node):
    return pathlib.Path(node.find("location").get("file")).name


def is_shown(member, own):
    """False for members of base classes, for copies and moves, and for what is deleted or private to a union."""
    name, args = member.findtext("name"), member.findtext("argsstring") or ""
    if member.get("prot") != "public" or f"{own}::" not in re.sub(r"<.*?>", "", member.findtext("definition") or ""):
        return False
    if member.get("kind") == "variable":
        return not name.endswith("_")
    is_copy = name == "operator=" or (name == own and re.match(rf"\((const )?{own}\b[^,]*&", args))
    return member.get("kind") == "function" and not is_copy and not re.search(r"=\s*delete", args)


def member_of(node):
    return Member(file_of(node), declaration(node), comment_of(node))


def read_class(compound):
    name = compound.findtext("compoundname").removeprefix("tdict::").replace("< ", "<").replace(" >", ">")
    own = re.sub(r"<.*", "", name).rpartition("::")[2]
    nodes = [] if "<" in name and compound.get("kind") == "struct" else compound.iter("memberdef")
    return Class(name, file_of(compound), comment_of(compound),
                 sorted((member_of(m) for m in nodes if is_shown(m, own)), key=lambda m: not m.declaration.startswith("static ")))


def read(root):
    found = Reference([], [], [], [])
    with tempfile.TemporaryDirectory() as folder:
        text = (SITE / "Doxyfile").read_text() + SETTINGS.format(root=root, folder=folder)
        subprocess.run(["doxygen", "-"], input=text, text=True, check=True, capture_output=True)
        for file in sorted(pathlib.Path(folder).glob("xml/*.xml")):
            compound = ElementTree.parse(file).find("compounddef")
            name, kind = (compound.findtext("compoundname"), compound.get("kind")) if compound is not None else ("", "")
            if kind in ("class", "struct") and not name.startswith("tdict::detail"):
                found.classes.append(read_class(compound))
            elif name == "tdict" and kind == "namespace":
                found.functions += [member_of(m) for m in compound.iter("memberdef") if m.get("kind") == "function"]
                found.types += [member_of(m) for m in compound.iter("memberdef") if m.get("kind") == "typedef"]
            elif kind == "file":
                found.macros += [member_of(m) for m in compound.iter("memberdef") if m.get("kind") == "define"
                                 and not OTHER_MACROS.match(m.findtext("name"))]
    found.classes.sort(key=lambda c: (ORDER.index(c.name) if c.name in ORDER else len(ORDER), c.name))
    return found


def linked(comment):
    """The comment with the names of the C interface in backticks, which prepare.py turns into links."""
    parts = re.split(r"(`[^`]*`)", comment)
    return "".join(p if p.startswith("`") else re.sub(r"#?\b(TDICT_\w+|tdict_\w+(?:\(\))?)(?![\w/])", r"`\1`", p) for p in parts)


def table(head, members):
    def cell(text):
        return text.replace("|", "\\|")

    rows = [f"| `{cell(m.declaration)}` | {cell(linked(m.comment))} |" for m in members]
    return [f"| {head} | meaning |", "|---|---|", *rows, ""] if rows else []


def markdown(root):
    found = read(root)
    out = ["## Functions", "", *table("function", found.functions + found.macros)]
    for c in found.classes:
        if c.comment or c.members:
            out += ["## tdict::" + c.name.replace("<", "\\<"), "", linked(c.comment), "", *table("member", c.members)]
    return "\n".join([*out, "## Other types", "", *table("type", found.types)]) + "\n"
