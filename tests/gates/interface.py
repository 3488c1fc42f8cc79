#!/usr/bin/env python3
"""Gate: the public interface does not break its rules in more places, and its headers do not grow.

usage: interface.py ROOT [--list]
Prints the number of functions in each header. Counts violations of these rules of docs/adding.md:
  default    a struct that begins with struct_size, or whose name ends with _options, has a function _default()
  stream     a stream is passed as a tdict_stream by value, not by a pointer; output parameters for new streams are allowed
  get        a function that fills a caller's struct, or returns something borrowed, has `get` in its name
  dst        `dst` comes before other arguments of the same type
Measures the lines of the C headers and of include/, the percentage of comment lines in the C headers, and the longest
sentence of their comments in words. [interface] in limits.ini has the limits; WANTED has the goals. --list prints
violations."""

import argparse
import collections
import pathlib
import re

import sentences
import source
from source import api

WANTED = {"comment_percent": 45, "c_lines": 4600, "include_lines": 5800, "sentence_words": 25}
UNITS = {"comment_percent": "percent of the lines of the C headers are comment", "c_lines": "lines in the C headers",
         "include_lines": "lines in include/", "sentence_words": "words in the longest sentence of the public headers"}
MAKES = re.compile(r"_(?:create|parse|import|export|begin|receive|write|take|read)(?:_|$)")  # new or exported


def without_default(public):
    functions = {d.name for d in public.of_kind("function")}
    for d in public.of_kind("struct"):
        sized = d.members and d.members[0][1] == "struct_size"
        if d.name.startswith("tdict_") and (sized or d.name.endswith("_options")) and f"{d.name}_default" not in functions:
            yield d, d.name


def stream_pointers(public):
    """Yields pointers to streams, including those in function pointers of structs and in function types."""
    for d in public.declarations:
        for shown in [d.text] if d.kind == "type" else [shown for shown, _, _ in d.members if d.kind in ("function", "struct")]:
            for found in re.findall(r"const tdict_stream \*\w+|void \*\w*stream\b", shown):
                yield d, f"{d.name} has {found}"


def without_get(public):
    structs = {d.name for d in public.of_kind("struct")}
    for d in public.functions():
        if re.search(r"_get(?:_|$)", d.name) or MAKES.search(d.name):
            continue
        borrowed = {name for name, _, text in d.comment.parameters if re.match(r"(?:.*\b)?[Bb]orrowed from", text)}
        for shown, name, _ in d.members:
            fills = re.match(r"(tdict_\w+) \*out$", shown)
            if (fills and fills.group(1) in structs) or (re.search(r"\*\*out$", shown) and name in borrowed):
                yield d, f"{d.name}({shown})"


def dst_not_first(public):
    for d in public.functions():
        kinds = [(name, re.sub(r"\bconst ", "", shown[:shown.rindex(name)]) if name else shown) for shown, name, _ in d.members]
        place = next((i for i, (name, _) in enumerate(kinds) if name == "dst"), None)
        if place is not None and any(kind == kinds[place][1] for _, kind in kinds[:place]):
            yield d, d.name


RULES = {"default": (without_default, "structs have no _default()"), "stream": (stream_pointers, "streams are pointers"),
         "get": (without_get, "functions have no get in their names"), "dst": (dst_not_first, "functions have dst after another argument of its type")}


def comment_lines(text):
    """Returns the number of lines that contain only comments. A comment after code does not count."""
    code = source.blank(text, keep_strings=True).split("\n")
    return sum(bool(line.strip()) and not code[i].strip() for i, line in enumerate(text.split("\n")))


def figures(root):
    texts = [file.read_text() for file in source.files(root, "include/tdict/*.h")]
    every = source.files(root, "include/**/*.h", "include/**/*.hpp")
    lines = sum(text.count("\n") for text in texts)
    words = [sentences.count_words(sentence) for file in every for _, part in sentences.parts_of_source(file.read_text())
             for sentence in sentences.sentences(part)]
    return {"comment_percent": round(100 * sum(map(comment_lines, texts)) / lines), "c_lines": lines,
            "include_lines": sum(file.read_text().count("\n") for file in every), "sentence_words": max(words)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--list", action="store_true", help="print what breaks the rules")
    options, _ = parser.parse_known_args()  # the gate selftest passes the compilers to each gate
    root = options.root.resolve()
    report, public = source.Report("interface"), api.Api(root)
    limits = source.limits(root, "interface")
    counts = collections.Counter(d.header for d in public.functions())
    print("functions: " + ", ".join(f"{header} {count}" for header, count in sorted(counts.items())) + f"; {sum(counts.values())} in all")
    for rule, (find, text) in RULES.items():
        found = list(find(public))
        for d, what in found if options.list or len(found) > limits[rule] else []:
            print(f"include/tdict/{d.header}:{d.line}: {rule}: {what}")
        report.limit(rule, text, len(found), limits[rule])
    for name, figure in figures(root).items():
        print(f"{name}: {figure}, wanted at most {WANTED[name]}")
        report.limit(name, UNITS[name], figure, limits[name])
    report.end()


main()
