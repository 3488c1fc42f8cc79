"""Gate: numbers that are written to or read from files and other programs do not depend on the locale.

usage: numbers.py ROOT
In a locale with a decimal comma, "%f" writes 1,5, and strtod() stops at the point of 1.5. So src/ and include/ use
neither, except in error messages and log messages, and in the files in ALLOWED. The programs in tools/, bench/ and
examples/ must keep the locale "C" for numbers."""

import re

import source

FLOAT = re.compile(r"(?<!%)(?:%%)*%[-+ #0']*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?[lL]*[aAeEfFgG]")
CALL = re.compile(r"\b(strto(?:d|f|ld)|atof)\s*\(")
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
LOCALE = re.compile(r"\bsetlocale\s*\(\s*(LC_ALL|LC_NUMERIC)\b")
# functions whose messages are for people
MESSAGES = {"tdict_fail", "tdict_fail_native", "tdict_log_write", "SET_MESSAGE"}
ALLOWED = {
    "src/services/debug/describe.c": "summaries for people",
    "src/services/io/json/value.c": "replaces the locale's decimal point",
    "src/services/io/tensordict/names.c": "writes %2E, which is not a conversion",
    "src/core/tensor/convert_tensor.c": "a value in an error message",
    "src/core/tree/print.c": "sizes for people",
    "src/core/leaves/nontensor.c": "values for people",
}


def caller(code, position):
    """Returns the name of the function whose arguments contain the position, or None."""
    depth = 0
    for at in range(position - 1, -1, -1):
        if code[at] == ")":
            depth += 1
        elif code[at] == "(" and depth:
            depth -= 1
        elif code[at] == "(":
            name = re.search(r"(\w+)\s*$", code[:at])
            return name.group(1) if name else None
        elif code[at] in "{};" and not depth:
            return None
    return None


def main():
    root = source.root_argument()
    report = source.Report("numbers")
    for file in source.files(root, "src/**/*.[ch]", "include/**/*.h", "include/**/*.hpp"):
        name = str(file.relative_to(root))
        report.checked()
        if name in ALLOWED:
            continue
        text = source.blank(file.read_text(), keep_strings=True)
        code = source.blank(file.read_text())
        for match in LITERAL.finditer(text):
            if FLOAT.search(match.group()) and caller(code, match.start()) not in MESSAGES:
                report.fail(f"{name}:{source.line_of(text, match.start())}", f"{match.group()} depends on the locale")
        for match in CALL.finditer(code):
            report.fail(f"{name}:{source.line_of(text, match.start())}", f"{match.group(1)}() depends on the locale")
    for name in ALLOWED:
        if not (root / name).exists():
            report.fail(name, "is allowed to write numbers, but does not exist")
    for file in source.files(root, "tools/**/*.[ch]", "bench/**/*.[ch]", "examples/**/*.c", "examples/**/*.cpp"):
        code = source.blank(file.read_text())
        report.checked()
        for match in LOCALE.finditer(code):
            report.fail(f"{file.relative_to(root)}:{source.line_of(code, match.start())}",
                        f"sets {match.group(1)}: numbers for other programs would depend on the locale")
    report.end()


main()
