"""The reference of the C++ classes: from Doxygen's XML of include/tdict/hpp, as a part of a page in Markdown."""

import pathlib
import re
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

import headers

ORDER = ["context", "tree", "tree_ref", "entry", "tensor", "tensor_ref", "future", "loader", "shape", "span", "error",
         "result", "owner", "borrowed"]
SETTINGS = """FILE_PATTERNS = *.hpp
INPUT = {root}/include/tdict/hpp
OUTPUT_DIRECTORY = {folder}
OPTIMIZE_OUTPUT_FOR_C = NO
PREDEFINED += "TDICT_HPP_BEGIN=namespace tdict {{" "TDICT_HPP_END=}}"
"""


def declaration(member):
    kind = "".join(member.find("type").itertext()) if member.find("type") is not None else ""
    args = re.sub(r"\s*noexcept(\(.*\))?", "", member.findtext("argsstring") or "")
    text = f"{'static ' if member.get('static') == 'yes' else ''}{kind} {member.findtext('name')}{args}"
    return re.sub(r"\s+", " ", text.replace("* ", "*").replace("& ", "&").replace("< ", "<").replace(" >", ">")).strip()


def members_of(compound):
    """Public functions of the class itself, without copies, moves and what is deleted."""
    own = re.sub(r"<.*", "", compound.findtext("compoundname"))
    for member in compound.iter("memberdef"):
        if member.get("prot") != "public" or member.get("kind") != "function":
            continue
        text = declaration(member)
        if not member.findtext("definition", "").find(own + "::") >= 0 or re.search(r"=\s*(delete|default)|&&|operator=", text):
            continue
        yield text, headers.comment_of(member)


def markdown(root):
    out = []
    with tempfile.TemporaryDirectory() as folder:
        text = (headers.SITE / "Doxyfile").read_text() + SETTINGS.format(root=root, folder=folder)
        subprocess.run(["doxygen", "-"], input=text, text=True, check=True, capture_output=True)
        for name in ORDER:
            files = [f for kind in ("class", "struct") for f in pathlib.Path(folder).glob(f"xml/{kind}tdict_1_1{name.replace('_', '__')}.xml")]
            compound = ElementTree.parse(files[0]).find("compounddef")
            out += [f"## tdict::{name}", "", headers.comment_of(compound), ""]
            rows = list(members_of(compound))
            if rows:
                out += ["| member | meaning |", "|---|---|"]
                out += [f"| `{t.replace('|', chr(92) + '|')}` | {c.replace('|', chr(92) + '|')} |" for t, c in rows] + [""]
    return "\n".join(out) + "\n"
