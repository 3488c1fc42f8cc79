"""Makes mutants from rules for scripts/test-mutants --all. Each mutant is one change in a function of src/.

The rules delete a statement, negate an `if` condition, change a comparison, exchange && and ||, + and -, true and
false, add 1 to a constant, or drop a retain. They change no assertion or message, and delete no declaration."""

import pathlib
import re

import source

SWAPS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
         "true": "false", "false": "true"}
SWAPPED = re.compile(r"(?<= )(<=?|>=?|==|!=|&&|\|\||\+|-)(?=\s)|\b(?:true|false)\b")
NUMBER = re.compile(r"(?<![\w.'\"])\d+(?![\w.'\"])(?!\d*\])")
IF = re.compile(r"\bif \(")
UNCHANGED = re.compile(r"\b(?:tdict_fail\w*|TDICT_ASSERT|assert)\(")
RETAIN = re.compile(r"\btdict_\w*retain\(")
HEAD = re.compile(r"\s*(?:else\b|do\b|case [^:;]*:|default:|\w+:(?!:)|(?:if|for|while|switch) (?=\())")
DECLARATION = re.compile(r"(?:[A-Za-z_]\w*\s+)+\**\s*[A-Za-z_]\w*\s*[=;\[,]")
KEPT = re.compile(r"(?:return|break|continue|goto|const|static|struct|enum|typedef)\b|\(void\)|TDICT_ASSERT|assert"
                  r"|pthread_\w*attr_|pthread_\w+_destroy")


class RuleMutant:
    build, result = "dev", "not run"

    def __init__(self, file, text, rule, begin, end, new):
        self.file, self.begin, self.end, self.new = file, begin, end, new
        before = text[text.rfind("\n", 0, begin) + 1:begin].lstrip()[-40:]
        after = text[end:text.find("\n", end)][:40]
        old = text[begin:end] if rule in ("delete", "negate") else f"{text[begin:end]} -> {new}"
        self.name = f"{file}:{source.line_of(text, begin)}"
        self.promise = " ".join(f"{rule} {before}[{old}]{after}".split())
        self.case = ""

    def apply(self, text):
        return text[:self.begin] + self.new + text[self.end:]


def closing(code, begin):
    """Returns the position after the closing parenthesis that matches the opening one at `begin`."""
    depth = 0
    for i in range(begin, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    return len(code)


def statements(code, begin, end):
    """Yields the spans of the simple statements between two positions, excluding `if`, `for` and the like."""
    depth, start = 0, begin
    for i in range(begin, end):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth or code[i] not in ";{}":
            continue
        first, start = start, i + 1
        while code[i] == ";" and (head := HEAD.match(code, first, i)):
            first = closing(code, head.end()) if code[head.end()] == "(" else head.end()
        if code[i] == ";":
            yield first + len(code[first:i]) - len(code[first:i].lstrip()), i + 1


def changes(text, code, begin, end, with_leaks):
    """Yields the possible changes to a function as (rule, begin, end, new text). `code` has no comments or strings."""
    for first, last in statements(code, begin, end):
        old = code[first:last]
        if len(old) > 1 and not KEPT.match(old) and not DECLARATION.match(old) and (with_leaks or "free(" not in old):
            yield "delete", first, last, ";"
    alone = set()  # comparisons that are a whole condition: exchanging == and != would repeat the rule "negate"
    unchanged = [(hit.start(), closing(code, hit.end() - 1)) for hit in UNCHANGED.finditer(code, begin, end)]
    for hit in IF.finditer(code, begin, end):
        first, last = hit.end() - 1, closing(code, hit.end() - 1)
        yield "negate", first, last, f"(!{text[first:last]})"
        inside = list(SWAPPED.finditer(code, first, last))
        if len(inside) == 1 and inside[0].group() in ("==", "!="):
            alone.add(inside[0].start())
    for hit in (*SWAPPED.finditer(code, begin, end), *NUMBER.finditer(code, begin, end)):
        old = hit.group()
        if hit.start() in alone or any(first < hit.start() < last for first, last in unchanged):
            continue
        if old in SWAPS:
            yield "exchange", *hit.span(), SWAPS[old]
        else:
            yield "constant", *hit.span(), str(int(old, 8 if old[0] == "0" else 10) + 1)
    for hit in RETAIN.finditer(code, begin, end):
        last = closing(code, hit.end() - 1)
        yield "retain", hit.start(), last, text[hit.end() - 1:last]


def make(root, match, with_leaks):
    """Returns the mutants of all files of src/ whose names match. If with_leaks is true, some omit a free()."""
    made = []
    for path in source.files(root, "src/**/*.[ch]"):
        file = str(path.relative_to(root))
        if re.search(match, file):
            text = path.read_text()
            code = source.without_preprocessor(source.blank(text))
            for function in source.functions(code):
                body = code.index("{", function.begin)
                found = changes(text, code, body + 1, function.end, with_leaks)
                made += [RuleMutant(file, text, *change) for change in found]
    return made


def folder_of(file, folders):
    """Returns the folder with the tests of a source, or an empty string if there is none."""
    parents = pathlib.PurePath(file).relative_to("src").parents
    return next((str(p) if p.name else "context" for p in parents if str(p) in folders or not p.name), "")
