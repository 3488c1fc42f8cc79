"""Functions that the gates share: parsing C source, and reporting errors."""

import collections
import configparser
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/site"))
import api  # noqa: E402

# Matches functions and variables that read or change the environment of the process.
ENVIRONMENT = re.compile(r"\b(?:secure_)?getenv\b|\b(?:set|unset|put|clear)env\b|\b_*environ\b")
CASE = re.compile(r"^(?:CASE|DEVICE_CASE|GPU_CASE|SIM_CASE|CUDA_CASE|MPI_CASE)\(([a-z0-9_]+)\)", re.M)
DEVICES = {"DEVICE_CASE": ["host", "sim", "cuda"], "GPU_CASE": ["sim", "cuda"], "SIM_CASE": ["sim"], "CUDA_CASE": ["cuda"],
           "MPI_CASE": ["openmpi", "mpich"]}
Function = collections.namedtuple("Function", "name begin end")


class Report:
    """Collects complaints. end() prints them and exits with status 1 if there are any, otherwise 0."""

    def __init__(self, gate):
        self.gate = gate
        self.complaints = []
        self.num_checked = 0

    def checked(self, count=1):
        self.num_checked += count

    def fail(self, where, text):
        self.complaints.append(f"{where}: {text}")

    def limit(self, where, what, figure, limit):
        """Prints a figure that is below its limit, and complains about a figure above it."""
        self.checked()
        if figure > limit:
            self.fail(where, f"{figure} {what}; at most {limit} are allowed")
        elif figure < limit:
            print(f"{where}: {figure} {what}; lower the limit of {limit} in tests/gates/limits.ini")

    def end(self):
        if self.num_checked == 0:
            self.complaints.append("there was nothing to check")
        for complaint in self.complaints:
            print(complaint)
        print(f"{self.gate}: {self.num_checked} checked, {len(self.complaints)} wrong")
        sys.exit(1 if self.complaints else 0)


def newest_clang():
    """Returns the first of clang-19, clang-18 and clang that is installed, or None. Newer ones warn more."""
    return next(filter(shutil.which, ("clang-19", "clang-18", "clang")), None)


def root_argument():
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} ROOT ...")
    return pathlib.Path(sys.argv[1]).resolve()


def limits(root, gate):
    """Returns the limits of a gate by name. If a name occurs twice, the last limit applies."""
    table = configparser.ConfigParser(strict=False)
    table.read(root / "tests/gates/limits.ini")
    return {name: int(limit) for name, limit in table[gate].items()}


def files(root, *patterns):
    found = []
    for pattern in patterns:
        found += sorted(root.glob(pattern))
    return found


def blank(text, keep_strings=False):
    """Replaces comments and, unless keep_strings, the contents of strings with spaces. Keeps line breaks."""

    def spaces(match):
        token = match.group(0)
        if token[0] in "\"'":
            return token if keep_strings else token[0] + " " * (len(token) - 2) + token[0]
        return re.sub(r"[^\n]", " ", token)

    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", spaces, text, flags=re.S)


def functions(text):
    """Returns the functions that a file defines, with the spans of their definitions. Comments must already be blanked.

    clang-format puts the head and the closing brace of a function at the start of a line."""
    found = []
    text = re.sub(r"__attribute__\(\(.*?\)\)", lambda m: "_" * len(m.group()), text)
    for match in re.finditer(r"^(?!typedef\b|enum\b|union\b|[A-Z_]+\()[A-Za-z_][^;{}#=]*?\b(\w+)\s*\([^;{}]*\)\s*\{", text, re.M):
        if text.find("\n", match.end()) != match.end():  # the whole body is on the line of its opening brace
            end = text.find("\n", match.end())
        else:
            end = re.compile(r"^\}", re.M).search(text, match.end()).end()
        found.append(Function(match.group(1), match.start(), end))
    return found


def case_entries(root):
    """Returns the names of all CTest entries of the test files, as CASE or CASE@DEVICE."""
    names = set()
    for file in files(root, "tests/test_*.c", "tests/*/**/test_*.c", "tests/hpp/test_*.cpp"):
        for kind, case in re.findall(r"^([A-Z_]*CASE)\(([a-z0-9_]+)\)", file.read_text(), re.M):
            names |= {f"{case}@{device}" for device in DEVICES.get(kind, [])} or {case}
    for file in files(root, "tests/tool/test_*.py"):
        names |= set(re.findall(r"^def (tool_[a-z0-9_]+)\(", file.read_text(), re.M))
    return names


def without_preprocessor(text):
    """Returns the text with preprocessor directives replaced by spaces. Keeps line breaks."""
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.M)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def api_functions(root):
    """Returns {name: header} of the public functions, which are marked TDICT_API."""
    return {function.name: function.header for function in api.Api(root).functions()}


def public_names(root):
    """Returns {name: header} of all functions, types, constants and macros of the public headers."""
    return api.Api(root).names()
