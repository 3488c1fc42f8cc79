"""Writes reStructuredText: paragraphs, lists, tables and links to what the public headers declare."""

import pathlib
import re

import headers

# "Lifetime." at the beginning of a line that begins a sentence, or "Thread rule:" at the beginning of any sentence.
TOPIC = re.compile(r"(?:^|(?<=[.:]\s))(Thread rule|Ownership|Cost[\w ]*):(?=\s)|(?:^|(?<=[.:]\n))([A-Za-z][\w,'-]*(?: [\w,'-]+){0,6})\.(?=\s)")
# Beginnings of short sentences that are no topics.
SENTENCE = re.compile(r"(Declares|Converts|Joins|Exchanges|Indexes|Each|All?|An|No|The|Shapes|Trees of|Ownership of|TDICT_|DLManaged|and)\b")
WIDTH = 115  # of the text of a comment
TOKEN = re.compile(r"`[^`]+`|\*\*[^*]+\*\*|\bdocs/[\w/]+\.md\b|\btdict/\w+\.h\b|\btdict_\w+(?:\(\))?|\bTDICT_\w+\b(?:\(\))?")


class Names:
    """What a text may link to: functions, types, macros and enumerators, headers, and pages."""

    def __init__(self, all_headers, labels):
        self.roles = {name: "func" for name in all_headers.functions}
        self.roles.update({name: "type" for name in all_headers.types if name not in all_headers.enums})
        self.roles.update({name: "struct" for name in all_headers.structs})
        self.roles.update({name: "enum" for name in all_headers.enums})
        self.roles.update({name: "macro" for name in all_headers.macros if all_headers.macros[name][2]})
        self.roles.update({value: "enumerator" for _, _, values in all_headers.enums.values() for value, _ in values})
        self.labels, self.docs = labels, all_headers.root / "docs"

    @classmethod
    def none(cls):
        """Names without links."""
        made = cls.__new__(cls)
        made.roles, made.labels, made.docs = {}, {}, pathlib.Path("docs")
        return made

    def link(self, name):
        """A link to the declaration of `name`, or the name as code."""
        role = self.roles.get(name.removesuffix("()"))
        if role is None or (name.endswith("()") and role != "func"):
            return f"``{name}``"
        return f":c:{role}:`{name.removesuffix('()')}`"

    def header(self, name):
        """A link to the rules of a header such as "tdict/tree.h"."""
        return f":ref:`{name} <{self.labels[name]}>`" if name in self.labels else name

    def page(self, name):
        """A link to a page of docs/, with its title. A page that is not there stays a name."""
        file = self.docs.parent / name
        return f":doc:`{title_of(file)} </{name[5:-3]}>`" if file.exists() else name


def title_of(page):
    return re.search(r"^# (.*)$", pathlib.Path(page).read_text(), re.M).group(1)


def text(words, names):
    """A paragraph with `code`, **bold** and names, as reStructuredText."""

    def token(match):
        word = match.group(0)
        if word.startswith("**"):
            return word
        if word.startswith("`"):
            inside = word[1:-1].strip()
            made = names.link(inside) if re.fullmatch(r"(tdict|TDICT)_\w+(\(\))?", inside) else f"``{inside or ' '}``"
        elif word.startswith("docs/"):
            made = names.page(word)
        elif word.startswith("tdict/"):
            made = names.header(word)
        else:
            made = names.link(word)
        before, after = words[max(0, match.start() - 1):match.start()], words[match.end():match.end() + 1]
        return ("\\ " if before and not re.match(r"[\s'\"(\[{<\-/:]", before) else "") + made + (
            "\\ " if after and not re.match(r"[\s'\")\]}>\-/\\:.,;!?]", after) else "")

    pieces, at = [], 0
    for match in TOKEN.finditer(words):
        pieces += [re.sub(r"([\\*|_`])", r"\\\1", words[at:match.start()]), token(match)]
        at = match.end()
    return "".join(pieces) + re.sub(r"([\\*|_`])", r"\\\1", words[at:])


def download(file):
    """A link to a program that the site has a copy of, or its name."""
    copy = re.sub(r"^docs/", "", file)
    return f":download:`{file} </{copy}>`" if copy.startswith(("listings/", "examples/")) else f"``{file}``"


def indented(lines, by):
    return "\n".join(" " * by + line if line.strip() else "" for line in lines.split("\n"))


def bullet_list(items, names):
    return [f"* {text(item, names)}" for item in items]


def table(rows, names, widths=None, targets=None):
    """A table. `targets` has a name for the first cell of each row, or None. Links and the search can lead to these."""
    lines = [".. list-table::", "   :header-rows: 1"] + ([f"   :widths: {widths}"] if widths else []) + [""]
    for row, target in zip(rows, targets or [None] * len(rows)):
        for i, cell in enumerate(row):
            mark = "   * - " if i == 0 else "     - "
            lines += [f"{mark}.. _{target}:\n", "       " + text(cell, names)] if target and i == 0 else [mark + text(cell, names)]
    return "\n".join(lines)


def blocks(found, names):
    """The blocks of a comment."""
    for block in found:
        if block.kind in ("text", "note"):
            yield text(block.text, names) + "\n"
        elif block.kind == "list":
            yield "\n".join(bullet_list(block.items, names)) + "\n"
        elif block.kind == "code":
            yield ".. code-block:: c\n\n" + indented(block.text, 3) + "\n"
        elif block.kind == "table":
            yield table(block.items, names) + "\n"


def heading(title, line):
    return [title, line * len(title), ""]


def capital(words):
    """`words` with a capital letter. The name of a function keeps its letters."""
    return words if re.match(r"\w+_|tdict", words) else words[:1].upper() + words[1:]


def topics(part):
    """Divides a paragraph at its topic words, such as "Lifetime.": [(topic or "", text, column where the text begins)]."""
    found, at, topic, column = [], 0, "", 0
    for match in TOPIC.finditer(part):
        name = match.group(1) or match.group(2)
        if not match.group(1) and SENTENCE.match(name):
            continue
        found.append((topic, part[at:match.start()].strip(), column))
        topic, at, column = name, match.end(), match.end() - part.rfind("\n", 0, match.end())
    found.append((topic, part[at:].strip(), column))
    return [one for one in found if one[0] or one[1]]


def comment(parts, names, line):
    """The comment at the top of a header. Its topic words become headings, underlined with `line`."""
    out = []
    for part in parts:
        if is_code(part):
            out += ["::\n", part, ""]
            continue
        for topic, words, column in topics(part):
            out += heading(topic, line) if topic else []
            out += [paragraph(capital(words) if topic else words, names, column), ""]
    return out


def is_code(part):
    return all(line.startswith("    ") for line in part.split("\n") if line)


def paragraph(part, names, column):
    """A paragraph of a header's comment, whose first line began at `column`: text or a list."""
    items = re.split(r"^- ", part, flags=re.M)
    head = [line for words in broken(items[0], column) for line in (text(headers.clean(words), names), "")]
    return "\n".join(head + bullet_list(map(headers.clean, items[1:]), names))


def broken(part, column):
    """Divides a paragraph where a line ends early, although the next word would fit."""
    found, end, length = [], ".", WIDTH
    for line in part.strip().split("\n"):
        if not found or (end in ".:" and length + 1 + len(line.split()[0]) <= WIDTH):
            found.append([])
        found[-1].append(line)
        end, length, column = line[-1:], column + len(line), 0
    return ["\n".join(lines) for lines in found if any(line.strip() for line in lines)]
