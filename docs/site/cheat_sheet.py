"""Writes the cheat sheet: one line for each public function, by header, in the order of docs/functions.md."""

import re

import rst

LONGEST = 120  # letters of a line's text
CLAUSE = re.compile(r"[:;] |, (?:plus|and|or|but|if|so|whose|which|with)\b")
TEXT = """Every function of the C interface in one line. The headers are in the order of a program, and the functions in the
order of their header. ``err`` is always a ``tdict_error *`` or NULL. For types, errors and examples, follow the name of a
function. :download:`tdict_api.json </tdict_api.json>` has the same interface for programs."""


def first_sentence(text):
    return re.split(r"(?<=\.)\s", text)[0].rstrip(".:")


def shortened(text):
    """The first sentence. A long sentence ends before a clause, else after a word, outside of brackets and code."""
    sentence = first_sentence(text)
    if len(sentence) <= LONGEST:
        return sentence
    ends = [m.start() for m in re.finditer(r"\s", sentence[:LONGEST]) if is_outside(sentence[:m.start()])]
    clauses = [i for i in ends if CLAUSE.match(sentence, i - 1) and i > LONGEST // 3]
    if clauses or not ends:
        return sentence[:clauses[0]].rstrip(",;:") if clauses else sentence
    return sentence[:ends[-1]].rstrip(",;:") + " ..."


def is_outside(text):
    return text.count("`") % 2 == 0 and text.count("(") == text.count(")")


def call(function):
    return f"{function.name}({', '.join(name for _, name, _ in function.members)})"


def lines(api):
    """(header, [(function, text)]) of each header with functions."""
    for header in api.headers:
        rows = [(f, shortened(f.comment.text())) for f in api.functions() if f.header == header]
        if rows:
            yield header, rows


def write(folder, all_headers, names):
    out = [".. _cheat-sheet:\n", *rst.heading("Cheat sheet", "="), TEXT + "\n"]
    for header, rows in lines(all_headers.api):
        out += [*rst.heading(f"tdict/{header}", "-"), ".. list-table::", "   :class: cheat-sheet", "   :widths: 45 55", ""]
        for f, text in rows:
            out += [f"   * - :c:func:`{call(f)} <{f.name}>`", f"     - {rst.text(text, names)}"]
        out.append("")
    (folder / "cheat_sheet.rst").write_text("\n".join(out))
