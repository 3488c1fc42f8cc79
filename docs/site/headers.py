"""Reads the public headers: the XML that Doxygen makes of them, their first comments, and the compiled examples.

The site, the man pages and the gate `reference` use this module."""

import dataclasses
import pathlib
import re
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ElementTree

SITE = pathlib.Path(__file__).resolve().parent
STATUS = re.compile(r"\bTDICT_E[A-Z]+\b")
DEFINED = re.compile(r"^(?!typedef\b|enum\b|union\b|#)[A-Za-z_][^;{}#=]*?\b(\w+)\s*\([^;{}]*\)\s*\{", re.M)
LONGEST_EXAMPLE = 32
# What a status means if the comment says nothing more.
USUAL = {"TDICT_OK": "success", "TDICT_ENOMEM": "memory is exhausted", "TDICT_EDEVICE": "the driver failed",
         "TDICT_ELOST": "the device was lost", "TDICT_EFORKED": "the process is a fork of the process that made the context",
         "TDICT_EREADONLY": "the storage is read-only"}


@dataclasses.dataclass
class Block:
    """A paragraph, a list or code of a comment. `text` has `code` between backticks."""
    kind: str  # "text", "list", "code" or "note"
    text: str = ""
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Function:
    name: str
    header: str
    prototype: str
    returns: str
    brief: list
    blocks: list
    parameters: list  # (name, direction, text)
    result: str
    errors: list = dataclasses.field(default_factory=list)  # (text, what follows)
    common_errors: str = ""
    thread: str = ""
    example: tuple = ()  # (file, text)


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


def clean(text):
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"\*`(\w+)`", r"`*\1`", text)
    text = re.sub(r"`(\w+)`(\[\w+\])", r"`\1\2`", text)
    return text.replace("``", "`")


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


def result_of(node):
    return " ".join(clean(inline(p)) for sect in node.iter("simplesect") if sect.get("kind") == "return" for p in sect.findall("para"))


def parameters_of(node):
    found = []
    for item in node.iter("parameteritem"):
        name = item.find("parameternamelist/parametername")
        text = " ".join(clean(inline(p)) for p in item.findall("parameterdescription/para"))
        found.append(("".join(name.itertext()), name.get("direction", ""), text))
    return found


def split_errors(result):
    """Divides the text of @return at semicolons, and before "Also TDICT_E": (status or "", meaning)."""
    found = []
    for part in re.split(r";\s+|(?<=\.)\s+Also (?=TDICT_E)", result):
        match = re.match(r"(TDICT_OK|TDICT_E[A-Z]+)([,:.]?)\s*(.*)$", part, re.S)
        if match and not re.match(r"(and |or )?TDICT_", match.group(3)):
            status, mark, meaning = match.groups()
            usual = USUAL.get(status, "")
            meaning = f"{usual}. {meaning}" if mark == "." and meaning and usual else meaning or usual
            found.append((status, meaning.rstrip(".")))
        else:
            found.append(("", part.rstrip(".")))
    return found


def prototype_of(member):
    params = []
    for param in member.findall("param"):
        kind, name = "".join(param.find("type").itertext()), param.findtext("declname") or ""
        array = param.findtext("array") or ""
        if "(*" in kind:
            params.append(kind + array)
        else:
            params.append(f"{kind}{'' if kind.endswith('*') else ' '}{name}{array}".strip())
    kind = re.sub(r"\b(TDICT_API|TDICT_NODISCARD)\b\s*", "", "".join(member.find("type").itertext())).strip()
    args = member.findtext("argsstring") or ""
    return kind, f"{kind}{'' if kind.endswith('*') else ' '}{member.findtext('name')}{args.strip()}"


def first_comment(path):
    """The paragraphs of the comment at the top of a header."""
    comment = re.match(r"/\*(.*?)\*/", path.read_text(), re.S).group(1).replace("#TDICT_", "TDICT_")
    comment = re.sub(r"@p (\w+)", r"`\1`", comment)
    lines = [re.sub(r"^ \* ?", "", line) for line in comment.split("\n")]
    parts = []
    for part in re.split(r"\n\s*\n", "\n".join(lines).strip()):
        if parts and part.startswith("    ") and parts[-1].startswith("    "):
            parts[-1] += "\n\n" + part  # an empty line inside code
        else:
            parts.append(part.strip("\n"))
    return parts


def sentences(text):
    return re.split(r"(?<=[.:])\s+(?=[A-Z`])", clean(text))


def thread_rule(paragraphs):
    text = " ".join(paragraphs)
    match = re.search(r"Thread rule: (.*)", clean(text))
    if match:
        rule = sentences(match.group(1))
        more = [i for i, s in enumerate(rule) if i > 0 and not re.search(r"thread|no call|call on", s)]
        rule = " ".join(rule[:more[0]] if more else rule)
        return rule if rule.startswith("tdict_") else rule[:1].upper() + rule[1:]
    found = [s for s in sentences(text) if re.search(r"thread-safe|thread rules?\b", s, re.I)]
    return " ".join(found)


def common_errors(paragraphs):
    """The sentences about errors, if the comment says the errors of all functions of the header."""
    listed = [m.group() for p in paragraphs if (m := re.search(r"\bErrors\s+of\s+all\s+functions.*", p, re.S))]
    if listed:
        return " ".join(" ".join(listed).split())
    found = [s for p in paragraphs for s in sentences(p) if STATUS.search(s)]
    return " ".join(found) if any(re.match(r"(All|The) functions", s) for s in found) else ""


def run_doxygen(root, folder):
    text = (SITE / "Doxyfile").read_text() + f"INPUT = {root}/include/tdict\nOUTPUT_DIRECTORY = {folder}\n"
    subprocess.run(["doxygen", "-"], input=text, text=True, check=True, capture_output=True)
    return pathlib.Path(folder) / "xml"


def definitions(text):
    """(name, text) of each function that a C file defines; clang-format closes a function with a brace in column 0."""
    for match in DEFINED.finditer(text):
        end = text.find("\n}", match.end())
        if end > 0:
            start = text.rfind("\n\n", 0, match.start()) + 2
            between = text[start:match.start()]
            yield match.group(1), text[start if between.startswith("/*") else match.start():end + 2]


def excerpt(body, name):
    """The lines of a long function around the call of `name`."""
    lines = body.split("\n")
    at = next(i for i, line in enumerate(lines) if re.search(rf"\b{name}\b", line))
    begin, end = max(1, at - 4), min(len(lines) - 1, at + 5)
    blank = [i for i in range(begin, at) if not lines[i].strip()]
    begin = blank[-1] + 1 if blank else begin
    blank = [i for i in range(at, end) if not lines[i].strip()]
    end = blank[0] if blank else end
    chosen = lines[begin:end]
    indent = min((len(line) - len(line.lstrip()) for line in chosen if line.strip()), default=0)
    return "\n".join(line[indent:] for line in chosen)


def find_examples(root):
    """For each public function, the shortest compiled function that calls it: of docs/listings, else of examples/,
    else an excerpt of a long one, at last of tests/headers."""
    best = {}
    sources = [(0, sorted((root / "docs/listings").glob("*.c"))), (1, sorted([*(root / "examples").glob("*.c"), *(root / "examples/mpi").glob("*.c")])),
               (4, sorted((root / "tests/headers").glob("client*")))]
    for rank, files in sources:
        for file in files:
            for _, body in definitions(file.read_text()):
                length = body.count("\n")
                code = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
                for name in set(re.findall(r"\b(tdict_\w+)\b(?=\s*[(,)])", code)):
                    long = length > LONGEST_EXAMPLE
                    key = (rank + (2 if long else 0), length)
                    if name not in best or key < best[name][0]:
                        best[name] = (key, file.relative_to(root), excerpt(body, name) if long else body)
    return {name: (str(file), text) for name, (_, file, text) in best.items()}


class Headers:
    """All public headers of a tree."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.comments = {p.name: first_comment(p) for p in sorted(self.root.glob("include/tdict/*.h"))}
        self.functions, self.structs, self.enums, self.macros, self.types = {}, {}, {}, {}, {}
        with tempfile.TemporaryDirectory() as folder:
            xml = run_doxygen(self.root, folder)
            for header in self.comments:
                self.read_file(ElementTree.parse(xml / f"{header[:-2].replace('_', '__')}_8h.xml"), header)
            for file in sorted(xml.glob("struct*.xml")):
                self.read_struct(ElementTree.parse(file))
        examples = find_examples(self.root)
        for function in self.functions.values():
            function.example = examples.get(function.name, ())

    def read_file(self, tree, header):
        api = set(re.findall(r"TDICT_API[^;{(]*?\b(\w+)\s*\(", re.sub(r"/\*.*?\*/", "", (self.root / "include/tdict" / header).read_text(), flags=re.S)))
        for member in tree.iter("memberdef"):
            kind, name = member.get("kind"), member.findtext("name")
            if kind == "function" and (name in api or is_inline(member)):
                self.read_function(member, header)
            elif kind == "enum":
                values = [(v.findtext("name"), comment_of(v)) for v in member.findall("enumvalue")]
                self.enums[name] = (header, comment_of(member), values)
            elif kind == "define" and name.startswith("TDICT_") and not name.endswith("_H"):
                params = [p.findtext("defname") for p in member.findall("param")]
                shown = f"{name}({', '.join(params)})" if params else name
                self.macros[name] = (header, shown, comment_of(member), "".join(member.find("initializer").itertext()) if member.find("initializer") is not None else "")
            elif kind == "typedef":
                self.types[name] = (header, typedef_of(member), comment_of(member))

    def read_function(self, member, header):
        brief, detail = member.find("briefdescription"), member.find("detaileddescription")
        returns, prototype = prototype_of(member)
        result = result_of(detail)
        blocks = blocks_of(detail)
        f = Function(member.findtext("name"), header, prototype, returns, [b for b in blocks_of(brief)], blocks, parameters_of(detail), result)
        f.errors = split_errors(result) if returns == "tdict_status" and result else []
        everything = " ".join(b.text for b in f.brief + blocks)
        safe = [s for s in sentences(everything + " " + result) if re.search(r"thread-safe|any thread", s, re.I)]
        f.thread = " ".join(safe) or thread_rule(self.comments[header])
        if returns == "tdict_status":
            f.common_errors = common_errors(self.comments[header])
        self.functions[f.name] = f

    def read_struct(self, tree):
        compound = tree.find("compounddef")
        name = compound.findtext("compoundname")
        location = pathlib.Path(compound.find("location").get("file")).name
        members = []
        for member in compound.iter("memberdef"):
            shown = "".join(member.find("type").itertext()) + " " + member.findtext("name") + (member.findtext("argsstring") or "")
            members.append((re.sub(r"\* ", "*", shown), comment_of(member)))
        self.structs[name] = (location, comment_of(compound), members)

    def says_errors(self, function):
        """True if the function's comment says its errors, or the header's comment says those of all functions."""
        text = " ".join([b.text for b in function.brief + function.blocks] + [function.result])
        return bool(STATUS.search(text) or re.search(r"\berrors\b", text, re.I) or STATUS.search(function.common_errors))


def typedef_of(member):
    definition, args = member.findtext("definition"), member.findtext("argsstring") or ""
    return definition if "(*" in definition and definition.endswith(args[1:]) else definition + args


def comment_of(node):
    text = [b for tag in ("briefdescription", "detaileddescription") if node.find(tag) is not None for b in blocks_of(node.find(tag))]
    return " ".join(b.text or "; ".join(map(str, b.items)) for b in text)


def is_inline(member):
    """True for an inline function with a comment. The pages of structs name the functions that return the defaults."""
    return member.get("inline") == "yes" and comment_of(member) != "" and not member.findtext("name").endswith("_default")


def is_dtype(value):
    """True if `value`, what a macro expands to, is a dtype."""
    return value.startswith("TDICT_DTYPE(")


def have_doxygen():
    return shutil.which("doxygen") is not None
