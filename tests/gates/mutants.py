"""Gate: every entry of tests/mutants.ini matches exactly once and names an existing case. scripts/test-mutants runs the
mutants.

usage: mutants.py ROOT
The entries of the files in OTHERS have the same form, and must match once, too. Other scripts run them."""

import configparser
import re

import source

KEYS = {"promise", "file", "function", "match", "replace", "case", "build"}
BUILDS = {"dev", "asan", "tsan"}
OTHERS = ["tests/dst/planted.ini", "tests/dst/orders/weakened.ini"]


class BadEntry(Exception):
    pass


class Mutant:
    def __init__(self, name, entry):
        unknown = set(entry) - KEYS
        missing = KEYS - {"function", "build"} - set(entry)
        if unknown or missing:
            raise BadEntry(f"{name}: unknown keys {sorted(unknown)}, missing keys {sorted(missing)}")
        self.name = name
        self.promise, self.file, self.case = entry["promise"], entry["file"], entry["case"]
        self.function = entry.get("function", "")
        self.match, self.replace = entry["match"], entry["replace"]
        self.build = entry.get("build", "dev")
        self.result = "not run"

    def apply(self, text):
        """Returns the text of the file after the mutation."""
        code = source.blank(text, keep_strings=True)
        spans, where = [(0, len(code))], self.file
        if self.function:
            spans = [(f.begin, f.end) for f in source.functions(code) if f.name == self.function]
            where = f"{self.function}() of {self.file}"
        expression = re.compile(self.match.replace(" ", r"\s+"))
        hits = [hit.span() for begin, end in spans for hit in expression.finditer(code, begin, end)]
        if len(hits) != 1:
            missing = "" if spans else ", which does not exist"
            raise BadEntry(f"{self.name}: the expression matches {len(hits)} times in {where}{missing}; wanted once")
        return text[:hits[0][0]] + self.replace + text[hits[0][1]:]


def read(root, name="tests/mutants.ini"):
    """Returns all entries, in the order of the file."""
    table = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    table.optionxform = str
    try:
        table.read_string((root / name).read_text())
    except configparser.Error as error:
        raise BadEntry(f"{name}: {error}") from error
    return [Mutant(name, table[name]) for name in table.sections()]


def check(root, mutants, has_cases=True):
    """Returns a list of error messages about the entries."""
    cases, wrong = source.case_entries(root), []
    for m in mutants:
        if has_cases and m.case not in cases:
            wrong.append(f"{m.name}: no test has the case {m.case}")
        if m.build not in BUILDS:
            wrong.append(f"{m.name}: the build is {m.build}, wanted one of {', '.join(sorted(BUILDS))}")
        try:
            m.apply((root / m.file).read_text())
        except BadEntry as error:
            wrong.append(str(error))
        except (OSError, re.error) as error:
            wrong.append(f"{m.name}: {error}")
    return wrong


def main():
    root = source.root_argument()
    report = source.Report("mutants")
    for name in ["tests/mutants.ini", *OTHERS]:
        try:
            entries = read(root, name)
            report.checked(len(entries))
            for line in check(root, entries, has_cases=name not in OTHERS):
                report.fail(name, line)
        except BadEntry as error:
            report.fail(name, str(error))
    report.end()


if __name__ == "__main__":
    main()
