"""Gate: the reference of every public function is complete.

usage: reference.py ROOT
Each public function must have a description. If the function returns a status, its comment or the comment of its header
must list the errors. One of the comments must say which threads may call the function. A program of docs/listings/,
examples/ or tests/headers/ must call the function, as an example. docs/functions.md must name its header."""

import pathlib
import re
import sys

import source

SITE = pathlib.Path(__file__).resolve().parents[2] / "docs/site"
sys.path.insert(0, str(SITE))
import cheat_sheet  # noqa: E402
import headers  # noqa: E402
import man  # noqa: E402
import reference  # noqa: E402


def check_sheet(report, public):
    """Checks that each function has one short line of whole words on the cheat sheet."""
    lines = [(f, text) for _, rows in cheat_sheet.lines(public.api) for f, text in rows]
    for f in public.api.functions():
        report.checked()
        texts = [text for other, text in lines if other is f]
        words, own = (texts[0] if texts else "").removesuffix(" ...").split(), f.comment.text().split()
        short = [w.rstrip(".,:;") for w in words] == [w.rstrip(".,:;") for w in own[:len(words)]]
        if len(texts) != 1 or not words or not short or len(texts[0]) > cheat_sheet.LONGEST + 4:
            report.fail(f"include/tdict/{f.header}:{f.line}", f"{f.name} has no line of at most {cheat_sheet.LONGEST} letters on the cheat sheet")


def check_types(report, public):
    """Checks that the man page of each struct or enum lists its fields or values, also if another header only names it."""
    chosen = man.described_types(public.api)
    for d in filter(man.has_page, public.api.declarations):
        page = man.type_page(chosen[d.name], public, ("0.0.0", "2000-01-01"))
        report.checked()
        for shown, name, _ in d.members:
            if not re.search(rf"^\.B .*\b{name}\b", page, re.M):
                report.fail(f"include/tdict/{d.header}:{d.line}", f"the man page of {d.name} does not list {name}")


def main():
    root = source.root_argument()
    report = source.Report("reference")
    public = headers.Headers(root)
    tasks = reference.read_tasks(root, public)
    placed = {f.name for task in tasks for f in task.functions}
    for name, header in source.api_functions(root).items():
        where = f"include/tdict/{header}"
        report.checked()
        function = public.functions.get(name)
        if function is None or not (function.brief or function.blocks):
            report.fail(where, f"{name} has no description")
            continue
        if function.returns == "tdict_status" and not public.says_errors(function):
            report.fail(where, f"{name} says no errors: add @return")
        if not function.thread:
            report.fail(where, f"{name} has no thread rule, and neither has the comment of its header")
        if not function.example:
            report.fail(where, f"{name} has no example: call the function in a program of docs/listings/")
        if name not in placed:
            report.fail(where, f"{name} is on no page: name its header in docs/functions.md")
    check_sheet(report, public)
    check_types(report, public)
    report.end()


main()
