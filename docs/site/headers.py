"""Completes what api.py reads from the public headers: errors, thread rules, and the compiled examples of functions.

The site, the man pages and the gate `reference` use this module."""

import dataclasses
import pathlib
import re

import api

clean = api.clean
STATUS = re.compile(r"\bTDICT_E[A-Z]+\b")
DEFINED = re.compile(r"^(?!typedef\b|enum\b|union\b|#)[A-Za-z_][^;{}#=]*?\b(\w+)\s*\([^;{}]*\)\s*\{", re.M)
LONGEST_EXAMPLE = 32
EXAMPLE_COLUMNS = 88  # of a box of code
# What a status means if the comment says nothing more.
USUAL = {"TDICT_OK": "success", "TDICT_ENOMEM": "memory is exhausted", "TDICT_EDEVICE": "the driver failed",
         "TDICT_ELOST": "the device was lost", "TDICT_EFORKED": "the process is a fork of the process that made the context",
         "TDICT_EREADONLY": "the storage is read-only"}


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
    common_errors: list = dataclasses.field(default_factory=list)  # blocks
    thread: str = ""
    example: tuple = ()  # (file, text)


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
    """The blocks about errors, if the comment says the errors of all functions of the header."""
    listed = [m.group() for p in paragraphs if (m := re.search(r"\bErrors\s+of\s+all\s+functions.*", p, re.S))]
    if listed:
        lines = "\n\n".join(listed).split("\n")
        return api.parse_comment("\n * ".join(["/**", *lines]) + "\n */").blocks
    found = [s for p in paragraphs for s in sentences(p) if STATUS.search(s)]
    return [api.Block("text", " ".join(found))] if any(re.match(r"(All|The) functions", s) for s in found) else []


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


def narrow(code):
    """`code` with at most EXAMPLE_COLUMNS columns: puts comments above their lines, and breaks after commas and operators."""
    found = []
    for line in code.split("\n"):
        indent = re.match(r" *", line).group(0)
        comment = re.fullmatch(r"( *\S.*\S) +(/\* .* \*/)", line)
        if len(line) > EXAMPLE_COLUMNS and comment:
            found.append(indent + comment.group(2))
            line = comment.group(1)
        while len(line) > EXAMPLE_COLUMNS:
            ends = [m.end() for m in re.finditer(r"(?:[,;)+*]|&&|\|\||==) ", line) if len(indent) < m.end() <= EXAMPLE_COLUMNS]
            if not ends:
                break
            found.append(line[:ends[-1]].rstrip())
            line = f"{indent}    {line[ends[-1]:]}"
        found.append(line)
    return "\n".join(found)


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
    return {name: (str(file), narrow(text)) for name, (_, file, text) in best.items()}


class Headers:
    """All public headers of a tree."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.api = api.Api(self.root)
        self.comments = self.api.headers
        self.functions, self.structs, self.enums, self.macros, self.types = {}, {}, {}, {}, {}
        for d in self.api.declarations:
            self.add(d)
        self.defaults = {d.name for d in self.api.of_kind("function") if d.name.endswith("_default")}
        examples = find_examples(self.root)
        for function in self.functions.values():
            function.example = examples.get(function.name, ())

    def add(self, d):
        text = d.comment.text()
        if d.kind == "function" and (d.exported or (text and not d.name.endswith("_default"))):
            self.add_function(d)  # an inline function only with a comment; the page of a struct names its defaults
        elif d.kind == "struct":
            self.structs[d.name] = (d.header, text, [(shown, comment.text()) for shown, _, comment in d.members])
        elif d.kind == "enum":
            self.enums[d.name] = (d.header, text, [(name, comment.text()) for _, name, comment in d.members])
        elif d.kind == "macro" and d.name.startswith("TDICT_"):
            self.macros[d.name] = (d.header, d.text, text, d.value)
        elif d.kind == "type":
            self.types[d.name] = (d.header, d.text, text)

    def add_function(self, d):
        f = Function(d.name, d.header, d.text, d.returns, d.comment.brief, d.comment.blocks, d.comment.parameters, d.comment.result)
        f.errors = split_errors(f.result) if f.returns == "tdict_status" and f.result else []
        everything = " ".join(b.text for b in f.brief + f.blocks)
        safe = [s for s in sentences(everything + " " + f.result) if re.search(r"thread-safe|any thread", s, re.I)]
        f.thread = " ".join(safe) or thread_rule(self.comments[f.header])
        if f.returns == "tdict_status":
            f.common_errors = common_errors(self.comments[f.header])
        self.functions[f.name] = f

    def says_errors(self, function):
        """True if the function's comment says its errors, or the header's comment says those of all functions."""
        text = " ".join([b.text for b in function.brief + function.blocks] + [function.result])
        common = " ".join(text for b in function.common_errors for text in (b.text, *b.items))
        return bool(STATUS.search(text) or re.search(r"\berrors\b", text, re.I) or STATUS.search(common))


def is_dtype(value):
    """True if `value`, what a macro expands to, is a dtype."""
    return value.startswith("TDICT_DTYPE(")
