"""Reads the public C headers: functions, structs, enums, types and macros, with their comments.

usage: api.py ROOT FILE     writes all of this to FILE as JSON
The site, the man pages, the cheat sheet and the gates use this module. The headers follow the rules of clang-format and
of docs/adding.md, so the module needs no compiler. It reads the C part of `#ifdef __cplusplus`."""

import dataclasses
import json
import pathlib
import re
import sys

TOKEN = re.compile(r'/\*.*?\*/|^[ \t]*#(?:[^\n\\/]|\\.|\\\n|/(?!\*)|/\*.*?\*/)*|"(?:\\.|[^"\\])*"|\w+|\.\.\.|\S', re.S | re.M)
MARKS = {"TDICT_API", "TDICT_NODISCARD", "TDICT_BEGIN_DECLS", "TDICT_END_DECLS"}
NO_NAMES = re.compile(r"\w+_H$|TDICT_(?:API|PRINTF|NODISCARD|BEGIN_DECLS|END_DECLS)$|.*_$")  # a guard, a mark, or a part of a macro
DOCUMENTED = ("/**", "/*!")


@dataclasses.dataclass
class Block:
    """A paragraph, a list or code of a comment. `text` has `code` between backticks."""
    kind: str  # "text", "list", "code" or "note"
    text: str = ""
    items: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Comment:
    brief: list = dataclasses.field(default_factory=list)
    blocks: list = dataclasses.field(default_factory=list)
    parameters: list = dataclasses.field(default_factory=list)  # (name, direction, text)
    result: str = ""

    def text(self):
        return " ".join(b.text or "; ".join(b.items) for b in self.brief + self.blocks)


@dataclasses.dataclass
class Declaration:
    kind: str  # "function", "struct", "enum", "type" or "macro"
    name: str
    header: str
    line: int
    text: str  # a prototype, a type, or a macro with its parameters
    comment: Comment
    returns: str = ""  # the type that a function returns
    members: list = dataclasses.field(default_factory=list)  # (declaration, name, comment): parameters, fields or values
    exported: bool = False
    value: str = ""  # what a macro expands to


def clean(text):
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r"@p ((?:->|[\w.])+\w|\w+)", r"`\1`", text).replace("``", "`")
    text = re.sub(r"\*`(\w+)`", r"`*\1`", text)
    text = re.sub(r"`(\w+)`(\[\w+\])", r"`\1\2`", text)
    return re.sub(r"(?<![\w`])#(?=[A-Z]+_)", "", text)


def comment_lines(token):
    """The lines of a comment without its marks."""
    lines = re.sub(r"^/\*[*!]?<?|\*/$", "", token).split("\n")
    return [lines[0].strip()] + [re.sub(r"^\s*\*(?: {1,2}|$)", "", line) if re.match(r"\s*\*(?: |$)", line) else line.strip() for line in lines[1:]]


def parse_comment(token):
    """Divides a comment at its commands, at empty lines and at the items of its lists."""
    found, parts, kind = Comment(), [], "text"
    for line in comment_lines(token):
        command = re.match(r"@(brief|param|return|note)\b(?:\[([a-z,]+)\])?\s*", line)
        if command:
            parts.append([command.group(1), command.group(2) or "", [line[command.end():]]])
        elif not line.strip():
            parts.append(["text", "", []])
        elif re.match(r"- ", line):
            if not parts or parts[-1][0] != "list":
                parts.append(["list", "", []])
            parts[-1][2].append(line[2:])
        elif parts and parts[-1][0] == "list" and line.startswith(" "):
            parts[-1][2][-1] += " " + line
        elif re.match(r"    ", line) and parts and parts[-1][0] in ("text", "code") and (parts[-1][0] == "code" or not parts[-1][2]):
            parts.append(["code", "", [line]]) if parts[-1][0] == "text" else parts[-1][2].append(line)
        elif not parts or parts[-1][0] in ("list", "code"):
            parts.append(["text", "", [line]])
        else:
            parts[-1][2].append(line)
    for kind, direction, lines in parts:
        add_part(found, kind, direction, lines)
    return found


def add_part(found, kind, direction, lines):
    text = clean("\n".join(lines))
    if kind == "brief":
        found.brief.append(Block("text", text))
    elif kind == "param":
        name, _, text = text.partition(" ")
        found.parameters.append((name, direction, text.strip()))
    elif kind == "return":
        found.result = " ".join(part for part in (found.result, text) if part)
    elif kind == "list":
        found.blocks.append(Block("list", items=[clean(item) for item in lines]))
    elif kind == "code":
        found.blocks.append(Block("code", "\n".join(line[4:] for line in lines).strip("\n")))
    elif text:
        found.blocks.append(Block(kind, text))


def joined(tokens):
    """The tokens of a declaration as clang-format writes them on one line."""
    text = " ".join(t for t in tokens if t not in MARKS)
    text = re.sub(r" ?([\[(]) ?", r"\1", text)
    text = re.sub(r" ([\]),;])", r"\1", text)
    text = re.sub(r"\* (?=[*\w)])", "*", text)
    return re.sub(r"(\w)\((\*)", r"\1 (\2", text)


def split_at(tokens, mark):
    """The parts of `tokens` between the marks outside of brackets."""
    parts, depth = [[]], 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if token == mark and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def is_name(token):
    return re.match(r"[A-Za-z_]\w*$", token)


def name_in(tokens):
    """The name that a declaration such as `int64_t *shape[4]` or `void (*free)(void *)` declares."""
    pointer = next((i for i in range(len(tokens) - 2) if tokens[i:i + 2] == ["(", "*"] and is_name(tokens[i + 2])), None)
    if pointer is not None:
        return tokens[pointer + 2]
    end = tokens.index("[") if "[" in tokens else len(tokens)
    names = [t for t in tokens[:end] if is_name(t)]
    return names[-1] if len(names) > 1 else ""


class Reader:
    """The declarations of one header, token by token."""

    def __init__(self, name, text):
        self.name, self.found, self.includes = name, [], re.findall(r'^#include "tdict/(\w+\.h)"', text, re.M)
        self.comment, self.tokens, self.is_skipped = None, [], []
        self.line, at, lines = 1, 0, []
        for match in TOKEN.finditer(text):
            self.line += text.count("\n", at, match.start())
            at = match.start()
            self.add(match.group(0).strip(), lines)

    def add(self, token, lines):
        if token.startswith("#"):
            self.directive(token)
        elif any(self.is_skipped):
            return
        elif token.startswith("/*"):
            if token.startswith(("/**<", "/*!<")) and not self.depth() and self.found:
                self.found[-1].comment = parse_comment(token)
            elif self.tokens:
                self.tokens.append(token)
            elif token.startswith(DOCUMENTED):
                self.comment = token
        elif token in ("TDICT_BEGIN_DECLS", "TDICT_END_DECLS"):
            self.comment = None
        else:
            if not self.tokens:
                lines[:] = [self.line]
            self.tokens.append(token)
            is_body = token == "}" and not self.depth() and self.code()[0] == "static"
            if (token == ";" and not self.depth()) or is_body:
                self.declaration(lines[0])
                self.tokens, self.comment = [], None

    def code(self):
        return [t for t in self.tokens if not t.startswith("/*")]

    def depth(self):
        code = self.code()
        return sum((t in ("(", "[", "{")) - (t in (")", "]", "}")) for t in code)

    def directive(self, token):
        words = token[1:].split()
        if words[0] in ("if", "ifdef", "ifndef"):
            self.is_skipped.append(words == ["ifdef", "__cplusplus"] or words == ["ifdef", "MPI_VERSION"])
        elif words[0] in ("else", "elif"):
            self.is_skipped[-1] = False if words[0] == "else" else self.is_skipped[-1]
        elif words[0] == "endif":
            self.is_skipped.pop()
        elif words[0] == "define" and not any(self.is_skipped):
            self.macro(token)

    def macro(self, token):
        after = re.search(r"/\*[*!]<.*?\*/", token, re.S)
        code = re.sub(r"/\*.*?\*/", "", token, flags=re.S)
        match = re.match(r"#\s*define\s+(\w+)(?:\(([^)]*)\))?\s*(.*)", code, re.S)
        name, parameters, value = match.groups()
        if NO_NAMES.match(name) or any(d.kind == "macro" and d.name == name for d in self.found):
            return
        shown = name if parameters is None else f"{name}({', '.join(p.strip() for p in parameters.split(','))})"
        comment = parse_comment(after.group(0) if after else self.comment or "")
        value = re.sub(r"\s*\\\n\s*", " ", value).strip()
        self.found.append(Declaration("macro", name, self.name, self.line, shown, comment, value=value))
        self.comment = None

    def declaration(self, line):
        tokens = [t for t in self.tokens if not t.startswith("/*")]
        comment = parse_comment(self.comment or "")
        body = re.match(r"(?:typedef )?(struct|enum) (\w+) \{", " ".join(tokens[:4]))
        if body:
            members = self.fields() if body.group(1) == "struct" else self.values()
            name = tokens[-2] if tokens[0] == "typedef" else body.group(2)
            self.found.append(Declaration(body.group(1), name, self.name, line, name, comment, members=members))
        elif tokens[0] == "typedef":
            pointer = "(" in tokens
            name = name_in(tokens[:-1]) if pointer else tokens[-2]
            self.found.append(Declaration("type", name, self.name, line, joined(tokens[1:-1]), comment))
        elif "(" in tokens:
            self.function(tokens, comment, line)

    def function(self, tokens, comment, line):
        is_inline = tokens[:2] == ["static", "inline"]
        own = [t for t in tokens[2 if is_inline else 0:] if t not in MARKS]
        begin = own.index("(")
        end = next(i for i in range(begin, len(own)) if sum((t == "(") - (t == ")") for t in own[begin:i + 1]) == 0)
        parameters = [part for part in split_at(own[begin + 1:end], ",") if part not in ([], ["void"])]
        members = [(joined(part), name_in(part), Comment()) for part in parameters]
        prototype = joined(own[:end + 1])
        returns = joined(own[:begin - 1])
        self.found.append(Declaration("function", own[begin - 1], self.name, line, prototype, comment, returns, members, "TDICT_API" in tokens))

    def body(self):
        """The tokens between the outer braces."""
        return self.tokens[self.tokens.index("{") + 1:len(self.tokens) - self.tokens[::-1].index("}") - 1]

    def fields(self):
        """Each field: (declaration, name, comment). The names of one declaration share its comment."""
        found, before, current, last = [], None, [], []
        for token in self.body():
            if token.startswith(("/**<", "/*!<")):
                for field in last:
                    field[2] = parse_comment(token)
            elif token.startswith("/*"):
                before = token if token.startswith(DOCUMENTED) else before
            elif token == ";" and sum((t in ("(", "{")) - (t in (")", "}")) for t in current) == 0:
                last = [[shown, name, parse_comment(before or "")] for shown, name in fields_of(current)]
                found += last
                current, before = [], None
            else:
                current.append(token)
        return [tuple(field) for field in found]

    def values(self):
        found, before = [], None
        for token in self.body():
            if token.startswith(("/**<", "/*!<")):
                found[-1][2] = parse_comment(token)
            elif token.startswith("/*"):
                before = token if token.startswith(DOCUMENTED) else before
            elif re.match(r"TDICT_\w+$", token) and (not found or found[-1][3]):
                found.append([token, token, parse_comment(before or ""), False])
                before = None
            elif token == ",":
                found[-1][3] = True
            else:
                found[-1][0] += f" {token}"
        return [(joined(shown.split()), name, comment) for shown, name, comment, _ in found]


def fields_of(tokens):
    """(declaration, name) of each field of a declaration such as `int32_t rank, *world_size[2]`."""
    parts = split_at(tokens, ",")
    found = [(joined(parts[0]), name_in(parts[0]))]
    kind = [t for t in parts[0][:parts[0].index(found[0][1])] if t != "*"]
    return found + [(joined(kind + part), name_in(kind + part)) for part in parts[1:]]


def first_comment(text):
    """The paragraphs of the comment at the top of a header."""
    comment = re.match(r"/\*(.*?)\*/", text, re.S).group(1).replace("#TDICT_", "TDICT_")
    comment = re.sub(r"@p (\w+)", r"`\1`", comment)
    lines = [re.sub(r"^ \* ?", "", line) for line in comment.split("\n")]
    parts = []
    for part in re.split(r"\n\s*\n", "\n".join(lines).strip()):
        if parts and part.startswith("    ") and parts[-1].startswith("    "):
            parts[-1] += "\n\n" + part  # an empty line inside code
        else:
            parts.append(part.strip("\n"))
    return parts


def header_order(root):
    """The headers in the order of a program: docs/functions.md names them. The others follow."""
    page = root / "docs/functions.md"
    table = re.search(r"^## Functions by task\n(.*?)(?=^## |\Z)", page.read_text() if page.exists() else "", re.S | re.M)
    named = re.findall(r"include/tdict/(\w+\.h)", table.group(1)) if table else []
    there = sorted(path.name for path in root.glob("include/tdict/*.h"))
    return list(dict.fromkeys([name for name in named if name in there] + there))


class Api:
    """All public C headers of a tree."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.headers, self.declarations = {}, []  # {name: paragraphs of the first comment}
        for name in header_order(self.root):
            text = (self.root / "include/tdict" / name).read_text()
            self.headers[name] = first_comment(text) if text.startswith("/*") else []
            self.declarations += Reader(name, text).found

    def of_kind(self, *kinds):
        return [d for d in self.declarations if d.kind in kinds]

    def functions(self):
        """The functions of the library, in the order of the headers; without inline functions."""
        return [d for d in self.declarations if d.kind == "function" and d.exported]

    def names(self):
        """{name: header} of everything that a program can name: also inline functions and the values of enums."""
        names = {}
        for d in self.declarations:
            if d.name.lower().startswith("tdict_") and not NO_NAMES.match(d.name):
                names.setdefault(d.name, d.header)
            names.update({name: d.header for _, name, _ in d.members if d.kind == "enum"})
        return names

    def version(self):
        value = {d.name: d.value for d in self.of_kind("macro")}
        return ".".join(value[f"TDICT_VERSION_{part}"] for part in ("MAJOR", "MINOR", "PATCH"))

    def json(self):
        headers = [{"name": name, "comment": comment} for name, comment in self.headers.items()]
        return json.dumps({"version": self.version(), "headers": headers, "declarations": [as_json(d) for d in self.declarations]}, indent=1)


def as_json(d):
    entry = {"kind": d.kind, "name": d.name, "header": d.header, "line": d.line, "declaration": d.text, **comment_json(d.comment)}
    if d.kind == "function":
        direction = {name: (way, text) for name, way, text in d.comment.parameters}
        entry["inline"], entry["returns"]["type"] = not d.exported, d.returns
        entry["parameters"] = [{"declaration": shown, "name": name, "direction": direction.get(name, ("", ""))[0],
                                "comment": direction.get(name, ("", ""))[1]} for shown, name, _ in d.members]
    elif d.kind in ("struct", "enum"):
        entry["fields" if d.kind == "struct" else "values"] = [{"declaration": shown, "name": name, "comment": comment.text()}
                                                               for shown, name, comment in d.members]
    elif d.kind == "macro":
        entry["value"] = d.value
    if d.kind != "function":
        del entry["returns"]
    return entry


def comment_json(comment):
    return {"brief": " ".join(b.text for b in comment.brief), "comment": [{"kind": b.kind, **({"items": b.items} if b.items else {"text": b.text})}
                                                                          for b in comment.blocks], "returns": {"comment": comment.result}}


def main():
    root, file = (pathlib.Path(a) for a in sys.argv[1:3])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(Api(root).json() + "\n")


if __name__ == "__main__":
    main()
