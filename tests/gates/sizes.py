"""Gate: files, functions and parameter lists stay small.

usage: sizes.py ROOT
Files have at most 600 lines (public headers 400), lines of C and C++ 120 columns, functions 60 lines, parameter lists 6
parameters. Collective operations of communicators, which follow NCCL and MPI, may have 8 parameters, and so may
tdict_visit() and tdict_apply(), which take a callback. tdict_create_from(), which takes two arrays with their lengths,
may have 7. MPI functions that a test replaces may have any number."""

import re

import source

FILE_LINES, HEADER_LINES, COLUMNS, FUNCTION_LINES, PARAMETERS = 600, 400, 120, 60, 6
COLLECTIVE = re.compile(r"(?:.*_)?(?:broadcast|all_gather|all_reduce|send|receive)(?:_host)?"
                        r"|nccl(?:Broadcast|AllGather|AllReduce|Send|Recv)|tdict_(?:visit|apply)")
COLLECTIVE_PARAMETERS = 8
TWO_ARRAYS = {"tdict_create_from": 7}


def closing(text, start, pair):
    """Returns the position of the closing bracket that matches the opening one at `start`."""
    depth = 0
    for match in re.compile(f"[{re.escape(pair)}]").finditer(text, start):
        depth += 1 if match.group() == pair[0] else -1
        if depth == 0:
            return match.start()
    return len(text) - 1


def parameter_count(inside):
    depth, commas = 0, 0
    for letter in inside:
        depth += (letter in "([{") - (letter in ")]}")
        commas += letter == "," and depth == 0
    return commas + 1 if inside.strip() not in ("", "void") else 0


LISTS = (re.compile(r"\b(\w+)\s*\((?!\s*\*)"), re.compile(r"\(\s*\*\s*(\w+)\s*\)\s*\("))
NO_LISTS = ("__attribute__", "format", "defined", "sizeof", "if", "while", "for", "switch", "return")


def check_parameters(report, where, text, head, offset):
    """Checks each parameter list in a declaration: NAME(...) and (*NAME)(...)."""
    for match in [match for pattern in LISTS for match in pattern.finditer(head)]:
        name = match.group(1)
        if name in NO_LISTS:
            continue
        count = parameter_count(head[match.end():closing(head, match.end() - 1, "()")])
        report.checked()
        if name.startswith("MPI_"):
            continue
        most = COLLECTIVE_PARAMETERS if COLLECTIVE.fullmatch(name) else TWO_ARRAYS.get(name, PARAMETERS)
        if count > most:
            line = source.line_of(text, offset + match.start())
            report.fail(f"{where}:{line}", f"{name} has {count} parameters, at most {most} are allowed")


def check_code(report, where, text):
    """Checks all declarations. At the top level, the text before a `;` or `{` is the head of a declaration."""
    start = 0
    while match := re.compile(r"[;{]").search(text, start):
        i = match.start()
        head = text[start:i]
        end = i
        if match.group() == ";":
            if "=" not in head:
                check_parameters(report, where, text, head, start)
        else:
            end = closing(text, i, "{}")
            if ")" in head and "=" not in head:
                check_parameters(report, where, text, head, start)
                first = source.line_of(text, start + len(head) - len(head.lstrip()))
                lines = source.line_of(text, end) - first + 1
                name = re.search(r"(\w+)\s*\(", head).group(1)
                report.checked()
                if lines > FUNCTION_LINES:
                    report.fail(f"{where}:{first}", f"{name} has {lines} lines, at most {FUNCTION_LINES} are allowed")
            else:  # members of a struct are declarations, but initializers of a table are not
                for member in [] if "=" in head else re.finditer(r"[^;]+;", text[i + 1:end]):
                    check_parameters(report, where, text, member.group(0)[:-1], i + 1 + member.start())
        start = end + 1


def check_columns(report, where, text):
    for number, line in enumerate(text.splitlines(), 1):
        report.checked()
        if len(line) > COLUMNS:
            report.fail(f"{where}:{number}", f"has {len(line)} columns, at most {COLUMNS} are allowed")


def main():
    root = source.root_argument()
    report = source.Report("sizes")
    code = source.files(root, "include/**/*.h", "include/**/*.hpp", "src/**/*.[ch]", "tests/**/*.[ch]", "tests/**/*.cpp", "bench/**/*.[ch]",
                        "examples/**/*.[ch]", "examples/**/*.cpp", "tools/**/*.[ch]", "docs/listings/*.[ch]",
                        "docs/listings/*.cpp")
    others = source.files(root, "tests/**/*.py", "scripts/*", "cmake/*", ".ci/*", "**/CMakeLists.txt")
    checked_code = set(code)
    others = [file for file in others if "build" not in file.relative_to(root).parts]
    for file in code + [file for file in others if file.is_file()]:
        where = file.relative_to(root)
        text = file.read_text()
        limit = HEADER_LINES if where.parts[0] == "include" else FILE_LINES
        lines = len(text.splitlines())
        report.checked()
        if lines > limit:
            report.fail(where, f"has {lines} lines, at most {limit} are allowed")
        if file in checked_code:
            check_columns(report, where, text)
            check_code(report, where, source.without_preprocessor(source.blank(text)))
    report.end()


main()
