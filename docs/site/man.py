"""Writes the man pages: section 3 from the headers (functions, structs, enums, types and macros), section 7 from pages of
docs/, and section 1 from docs/man/, where only the date and the version are missing.

usage: man.py ROOT FOLDER"""

import os
import pathlib
import re
import sys
import time

import headers
import reference

PAGES = [  # (section, name, summary, page)
    (7, "tdict", "trees of tensors, and their transfer to GPUs", "learn/trees.md"),
    (7, "tdict-ownership", "who releases what", "learn/ownership.md"),
    (7, "tdict-streams", "streams and order", "learn/streams.md"),
    (7, "tdict-pinned", "pinned memory", "learn/pinned_memory.md"),
    (7, "tdict-errors", "errors", "learn/errors.md"),
]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    parts = re.split(r"(`[^`]+`)", text)  # a star in code is a pointer
    parts[::2] = [re.sub(r"(?<![\w*])\*(?![\s*])([^*]+)(?<!\s)\*(?![\w*])", r"\\fI\1\\fR", part) for part in parts[::2]]
    text = "".join(parts)
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fR", text)
    text = re.sub(r"\*\*([^*]+)\*\*", r"\\fB\1\\fR", text)
    text = re.sub(r"\b(tdict_\w+)\(\)", r"\\fB\1\\fR(3)", text)
    lines = re.sub(r"(?<=[.:])\s+(?=[A-Z])", "\n", text.strip()).split("\n")
    return "\n".join("\\&" + line if line[:1] in ".'" else line for line in lines)


def code(text):
    lines = [line.replace("\\", "\\e").replace("-", "\\-") for line in text.split("\n")]
    return ".PP\n.nf\n.RS 4\n" + "\n".join("\\&" + line if line[:1] in ".'" else line for line in lines) + "\n.RE\n.fi"


def head(name, section, version):
    """`version` is the version of the library and the date of the build."""
    number, date = version
    return f'.TH {name.upper()} {section} "{date}" "tdict {number}" "tdict"'


def synopsis(prototype):
    """The prototype on lines of at most 78 columns."""
    lines, column = [], prototype.index("(") + 1
    indent = " " * column if column < 40 else " " * 8
    for part in re.split(r"(?<=,) ", prototype + ";"):
        if lines and len(lines[-1]) + 1 + len(part) <= 78:
            lines[-1] += " " + part
        else:
            lines.append((indent if lines else "") + part)
    return "\n".join(line.replace("-", "\\-") for line in lines)


def finish(out):
    """Joins the parts. A heading needs no paragraph after it."""
    return re.sub(r"^(\.S[HS] .*)\n(?:\.PP\n)+", r"\1\n", "\n".join(out), flags=re.M) + "\n"


def function_page(f, task, version):
    brief = f.brief[0].text if f.brief else ""
    summary = re.split(r"(?<=\.)\s", brief)[0].rstrip(".")
    out = [head(f.name, 3, version), ".SH NAME", f"{f.name} \\- {roff(summary[:1].lower() + summary[1:]).replace(chr(10), ' ')}",
           ".SH LIBRARY", "tdict (libtdict, \\-ltdict)", ".SH SYNOPSIS", ".nf",
           f".B #include <tdict/{f.header}>", ".PP", synopsis(f.prototype), ".fi", ".SH DESCRIPTION"]
    out += body(f.brief + f.blocks)
    if f.parameters:
        out += [".SH PARAMETERS"] + [part for name, _, text in f.parameters for part in (".TP", f".I {name}", roff(text) or "See above.")]
    if f.errors:
        out.append(".SH RETURN VALUE")
        for status, text in f.errors:
            out += [".TP", f".B {status}", roff(text[:1].upper() + text[1:] + ".") if text else "See tdict\\-errors(7)."] if status else [".PP", roff(text + ".")]
    elif f.result:
        out += [".SH RETURN VALUE", roff(f.result[:1].upper() + f.result[1:])]
    if f.common_errors:
        out += [".SH ERRORS OF THE HEADER"] + body(f.common_errors)
    if f.thread:
        out += [".SH THREADS", roff(f.thread)]
    if f.example:
        out += [".SH EXAMPLE", f"From {f.example[0]}:".replace("-", "\\-"), code(f.example[1])]
    near = sorted(g.name for g in task.functions if g.header == f.header and g is not f)[:12]
    out += [".SH SEE ALSO", ",\n".join([f".BR {name} (3)" for name in near] + [".BR tdict (7)"]).replace(",\n", " ,\n").replace("(3) ,", '"(3)," ')]
    return finish(out)


def body(blocks):
    """The blocks of a comment."""
    out = []
    for block in blocks:
        if block.kind == "list":
            out += [part for item in block.items for part in (".IP \\(bu 2", roff(item))]
        elif block.kind == "code":
            out.append(code(block.text))
        else:
            out += ([".PP"] if out else []) + [roff(block.text)]
    return out


def shown_type(d):
    """The declaration of a struct, an enum, a type or a macro, on lines of code."""
    if d.kind in ("struct", "enum"):
        end = ";" if d.kind == "struct" else ","
        return [f"typedef {d.kind} {d.name} {{"] + [f"    {shown}{end}" for shown, _, _ in d.members] + [f"}} {d.name};"]
    return [f"#define {d.text}" if d.kind == "macro" else f"typedef {d.text};"]


def summary_of(d, users):
    """The first sentence of the comment. A struct of options without a comment is named by the function that takes it."""
    blocks = d.comment.brief + d.comment.blocks
    if blocks and blocks[0].text:
        summary = re.split(r"(?<=\.)\s", blocks[0].text)[0].rstrip(".:")
        return summary[:1].lower() + summary[1:] if re.match(r"[A-Z][a-z]|A ", summary) else summary
    if d.name.endswith("_options") and users:
        return f"options of {users[0].name}()"
    return f"{'an opaque type' if d.kind == 'type' else 'a struct' if d.kind == 'struct' else 'an enum'} of tdict/{d.header}"


def type_page(d, all_headers, version):
    """The page of a struct, an enum, a type or a macro."""
    users = [f for f in all_headers.api.functions() if re.search(rf"\b{d.name}\b", f.text)]
    lines = [f"#include <tdict/{d.header}>", ""] + shown_type(d)
    default = f"{d.name}_default"
    if default in all_headers.defaults:
        lines += ["", f"{d.name} {default}(void);"]
    out = [head(d.name, 3, version), ".SH NAME", f"{d.name} \\- {roff(summary_of(d, users))}".replace("\n", " "), ".SH LIBRARY",
           "tdict (libtdict, \\-ltdict)", ".SH SYNOPSIS", code("\n".join(lines)), ".SH DESCRIPTION"]
    described = body(d.comment.brief + d.comment.blocks)
    if default in all_headers.defaults:
        described += ([".PP"] if described else []) + [roff(f"{default}() returns the defaults.").replace("(3)", "()")]
    named = sorted({f.name for f in users})[:12]
    out += described or [roff(f"See {'the functions below and ' if named else ''}the comment of tdict/{d.header}.")]
    members = dtypes_of(all_headers) if d.name == "tdict_dtype" else d.members
    if members:
        out.append(".SH FIELDS" if d.kind == "struct" else ".SH VALUES")
    for shown, _, comment in members:
        out += [".TP", ".B " + shown.replace("\\", "\\e").replace("-", "\\-")]
        out += body(comment.brief + comment.blocks) or ["\\&"]
    out += [".SH SEE ALSO", ",\n".join([f".BR {name} (3)" for name in named] + [".BR tdict (7)"]).replace(",\n", " ,\n").replace("(3) ,", '"(3)," ')]
    return finish(out)


def dtypes_of(all_headers):
    return [(d.text, d.name, d.comment) for d in all_headers.api.of_kind("macro") if headers.is_dtype(d.value)]


def has_page(d):
    """The page of tdict_dtype has the dtypes. A macro without a comment, and names of other projects, have no page."""
    if d.kind == "macro":
        return bool(d.comment.text()) and not headers.is_dtype(d.value) and d.name.startswith("TDICT_")
    return d.kind in ("struct", "enum", "type") and d.name.startswith("tdict_")


def described_types(api):
    """{name: declaration} of the structs, enums, types and macros that have a page. The fields of a struct go before its
    forward declarations, and a declaration with a comment goes before one without."""
    found = {}
    for d in filter(has_page, api.declarations):
        old = found.get(d.name)
        if not old or (d.kind == "struct", bool(d.comment.text())) > (old.kind == "struct", bool(old.comment.text())):
            found[d.name] = d
    return found


def markdown_page(name, section, summary, text, version):
    """The part of Markdown that the pages use: headings, paragraphs, lists, tables, code."""
    out = [head(name, section, version), ".SH NAME", f"{name} \\- {summary}".replace("tdict-", "tdict\\-"), ".SH DESCRIPTION"]
    text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"(Figure: \1)", text)
    text = re.sub(r"\[([^\]]+)\]\(([^)]*)\)", r"\1", text)
    blocks = re.split(r"(^(?:```|:::).*?^(?:```|:::)\s*$)|\n\s*\n", text, flags=re.S | re.M)
    for block in [b.strip("\n") for b in blocks if b and b.strip()]:
        heading = re.match(r"(#+) (.*)", block)
        if block.startswith(("```", ":::")):
            if not block.startswith(("```{", ":::{")):
                out.append(code("\n".join(block.split("\n")[1:-1])))
        elif heading:
            if heading.group(1) != "#":
                out.append((".SH " if len(heading.group(1)) == 2 else ".SS ") + roff(heading.group(2)).replace("\n", " "))
            rest = block.split("\n", 1)[1:]
            out += [roff(headers.clean(rest[0]))] if rest and rest[0].strip() else []
        elif block.startswith("|"):
            for line in [l for l in block.split("\n") if not re.match(r"\|[-:| ]+\|$", l)][1:]:
                cells = [c.strip() for c in line.strip("|").split(" | ")]
                out += [".TP", roff(cells[0]).replace("\n", " ") or "\\&", roff("; ".join(c for c in cells[1:] if c)) or "\\&"]
        elif re.match(r"(?:[-*]|\d+\.) ", block):
            out += [part for item in re.split(r"^(?:[-*]|\d+\.) ", block, flags=re.M)[1:] for part in (".IP \\(bu 2", roff(headers.clean(item)))]
        else:
            out += ([] if out[-1].startswith((".SH", ".SS")) else [".PP"]) + [roff(headers.clean(block))]
    return finish(out)


def write_pages(root, folder, all_headers):
    number = ".".join(re.findall(r"#define TDICT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", (root / "include/tdict/tdict.h").read_text()))
    version = (number, time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))))
    for section in (1, 3, 7):
        (folder / f"man{section}").mkdir(parents=True, exist_ok=True)
    for task in reference.read_tasks(root, all_headers):
        for f in task.functions:
            (folder / "man3" / f"{f.name}.3").write_text(function_page(f, task, version))
    for name, d in described_types(all_headers.api).items():
        (folder / "man3" / f"{name}.3").write_text(type_page(d, all_headers, version))
    for page in (root / "docs/man").glob("*.1"):
        (folder / "man1" / page.name).write_text(page.read_text().replace("@VERSION@", version[0]).replace("@DATE@", version[1]))
    for section, name, summary, page in PAGES:
        text = (root / "docs" / page).read_text()
        (folder / f"man{section}" / f"{name}.{section}").write_text(markdown_page(name, section, summary, text, version))


if __name__ == "__main__":
    write_pages(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), headers.Headers(sys.argv[1]))
