"""Gate: the commands shown on pages are correct.

usage: commands.py ROOT [BUILD]
A command is code in backticks, or a line of an sh or plain-text block, in README.md, CONTRIBUTING.md and docs/. The
gate runs the program of each command with --help: tdict's programs in the folder BUILD, and scripts in ROOT. The help
must name the command's options and subcommands. The gate does not run examples and tests, because CTest does: their
options must be in their sources, and their cases must exist. Presets, CMake options, environment variables and man
pages must exist, too. If tdict or tdict-bench is not in BUILD, skips its commands and exits with 77."""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import source

PROGRAMS = {"tdict": "tools/tdict", "tdict-bench": "bench/tdict-bench", "tdict-bench-openmpi": "bench/tdict-bench-openmpi",
            "tdict-bench-mpich": "bench/tdict-bench-mpich"}
OPTIONAL = {"tdict-bench-openmpi", "tdict-bench-mpich"}  # built only if MPI is installed
PREFIXES = {"do", "sudo", "time", "nice", "mpirun", "python3"}  # the command comes after these words
OTHERS = {"--wrap", "--prefix", "--track-stream-ordered-races"}  # options of the linker, CMake and compute-sanitizer
PASSES_ON = {"scripts/test": "--test-dir -L -R -LE -j"}  # options that the script passes on to ctest
VALUES = {"--comm", "--dtype", "--format", "--sort", "--target", "--work", "--works"}  # the help lists their values
OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][a-z-]*")


def texts(page):
    """Yields the pieces of code on a page that can be commands."""
    page = page.replace("\\|", "|")
    for language, block in re.findall(r"^```([^\n]*)\n(.*?)^```", page, re.S | re.M):
        if language in ("", "sh", "text"):
            for line in re.sub(r"\\\n *", " ", block).splitlines():
                yield line.removeprefix("$ ")
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", page, flags=re.S | re.M))


def commands(text):
    """Yields each command as a list of words, without the brackets around optional words."""
    for part in re.split(r"&&|[;&]| \| ", re.sub(r"\s# .*", "", text)):
        words = re.sub(r"[\[\]'\"|]", " ", part).split()
        while words and (words[0] in PREFIXES or re.match(r"\w+=\S|-np$|-B$|\d+$", words[0])):
            words.pop(0)
        if words:
            yield words


class Checker:
    def __init__(self, report, root, build):
        self.report, self.root, self.build = report, root, build
        self.cmake = "".join(file.read_text() for file in source.files(root, "CMakeLists.txt", "cmake/*.cmake", "*/CMakeLists.txt"))
        self.entries = source.case_entries(root)
        self.cases = {entry.partition("@")[0] for entry in self.entries}
        self.seen, self.alone = set(), []

    @functools.lru_cache(None)
    def help(self, *command):
        """Returns what a program prints for --help, or None if the program fails."""
        self.report.checked()
        try:
            done = subprocess.run([*command, "--help"], cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=60, check=False, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 and done.stdout.strip() else None

    def program(self, name):
        """Returns the file of a program, or None if it is not built."""
        file = self.build / PROGRAMS[name]
        return str(file) if file.exists() else None

    def check_options(self, words, text, what):
        """Checks that the text contains the options and, for the options in VALUES, also their values."""
        known = set(OPTION.findall(text)) | {"--help"} | set(PASSES_ON.get(what, "").split())
        self.seen |= known
        for i, word in enumerate(words):
            option, _, value = word.partition("=")
            if OPTION.fullmatch(option):
                self.report.checked()
                if option not in known:
                    yield f"{what} has no option {option}"
                value = value or (words[i + 1] if i + 1 < len(words) else "")
                if option in VALUES and re.fullmatch(r"[a-z][a-z0-9,-]*", value):
                    yield from (f"{what} {option} does not know {one}" for one in value.split(",")
                                if not re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", text))

    def check_tdict(self, name, words):
        """Checks a command of one of tdict's programs. The first of `words` can be a subcommand."""
        file = self.program(name)
        if file is None:
            return
        text = self.help(file)
        if text is None:
            yield f"{name} --help fails"
            return
        if words and re.fullmatch(r"[a-z][a-z0-9-]*", words[0]) and name not in OPTIONAL:
            if words[0] not in re.findall(r"^  ([a-z][a-z0-9-]*) ", text, re.M):
                yield f"{name} has no {words[0]}"
                return
            if (text := self.help(file, words[0])) is None:
                yield f"{name} {words[0]} --help fails"
                return
            name = f"{name} {words[0]}"
        yield from self.check_options(words, text, name)

    def check_script(self, name, words):
        file = self.root / name
        if not file.exists():
            yield f"{name} is not there"
        elif os.access(file, os.X_OK):
            text = self.help(str(file))
            if text is None:
                yield f"{name} --help fails"
                return
            yield from self.check_options(words, text, name)
            if name.startswith("scripts/"):  # for example scripts/setup docs
                yield from (f"{name} --help does not name {word}" for i, word in enumerate(words)
                            if re.fullmatch(r"[a-z][a-z0-9]*", word) and not words[i - 1].startswith("-") and word not in text)

    def check_sources(self, name, words, files):
        """Checks a command of an example or a test, without running it."""
        if not files:
            yield f"there is no source of {name}"
            return
        text = "".join(file.read_text(errors="ignore") for file in files)
        yield from self.check_options(words, text, name)

    def check_test(self, name, words):
        """Checks build/dev/tests/FOLDER/test_LAYER_FILE CASE DEVICE, where LAYER is the last part of FOLDER."""
        folder, _, program = name.rpartition("tests/")[2].rpartition("/")
        if not folder:  # a replay program of tests/beside
            yield from self.check_sources(name, words, source.files(self.root, f"tests/beside/{program.removeprefix('beside_')}.c"))
            return
        file = program.removeprefix(f"test_{folder.rpartition('/')[2]}_")
        yield from self.check_sources(name, words, source.files(self.root, f"tests/{folder}/**/test_{file}.c"))
        if words and re.fullmatch(r"[a-z]\w+", words[0]) and words[0] not in self.cases:
            yield f"no test has the case {words[0]}"

    def check_ctest(self, words):
        for option, word in zip(words, words[1:]):
            if option == "-R" and not any(re.search(word, entry) for entry in self.entries):
                yield f"no case has a name like {word}"

    def check_cmake(self, words):
        presets = {one["name"] for one in json.loads((self.root / "CMakePresets.json").read_text())["configurePresets"]}
        for option, word in zip(words, words[1:]):
            if option == "--preset" and word not in presets | {"NAME"}:
                yield f"there is no preset {word}"
        for name in re.findall(r"-D(TDICT_\w+)", " ".join(words)):
            self.report.checked()
            if not re.search(rf"\b{name}\b", self.cmake):
                yield f"CMake has no option {name}"

    def check(self, words):
        """Yields what is wrong with a command."""
        name, words = words[0], words[1:]
        path = re.sub(r"^build/(\w+/)?(?=(bench|examples|tests|tools)/)", "", name)
        if path in PROGRAMS or path in PROGRAMS.values():
            yield from self.check_tdict(path.rpartition("/")[2], words)
        elif name.startswith("--"):
            self.alone.append([name, *words])
        elif re.match(r"tests/([\w/]+/test_\w+|beside_\w+)$", path):
            yield from self.check_test(name, words)
        elif re.match(r"examples/\w+$", path) or name == "train_lm":
            stem = re.sub(r"_(openmpi|mpich|sim)$", "", path.removeprefix("examples/"))
            yield from self.check_sources(path, words, source.files(self.root, f"examples/{stem}.c*", f"examples/{stem}/*.c*",
                                                                    f"examples/mpi/{stem}.c"))
        elif re.match(r"(scripts|bench|tests|tools|\.ci)/[\w./-]+$", name) and name == path and "." not in name.lstrip(".") \
                or re.match(r"(bench|tests)/[\w/]+\.py$", name):
            if not (self.root / name).is_dir():
                yield from self.check_script(name, words)
        elif path.startswith("bench/") and path != name:
            if path.removeprefix("bench/") not in self.cmake:
                yield f"no CMakeLists.txt has {path.removeprefix('bench/')}"
        elif name == "ctest":
            yield from self.check_ctest(words)
        elif name == "cmake" or name.startswith("-D"):
            yield from self.check_cmake([name, *words])
        elif name == "man" and words:
            self.report.checked()
            if words[-1] not in source.public_names(self.root) and words[-1] not in PROGRAMS:
                yield f"there is no man page {words[-1]}"

    def check_page(self, page):
        text = page.read_text()
        for shown in texts(text):
            for words in commands(shown):
                for wrong in self.check(words):
                    self.report.fail(page.relative_to(self.root), f"shows `{shown.strip()}`: {wrong}")
        used = set(re.findall(r"(?<![\w$({])(TDICT_[A-Z_]+)=\S", " ".join(texts(text))))
        for name in used:
            self.report.checked()
            if not any(name in file.read_text(errors="ignore") for file in source.files(
                    self.root, "CMakeLists.txt", "tests/**/*.[ch]", "tests/**/*.py", "scripts/*", "include/**/*.h")):
                self.report.fail(page.relative_to(self.root), f"sets {name}, which no program reads")

    def check_alone(self):
        """Checks options that a page shows without a program: a program that the pages name must have them."""
        for option, *_ in self.alone:
            self.report.checked()
            if option.partition("=")[0] not in self.seen | OTHERS:
                self.report.fail("pages", f"show the option {option}, and no program that they name has it")


def main():
    root = source.root_argument()
    report = source.Report("commands")
    checker = Checker(report, root, pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else "build").resolve())
    for page in source.files(root, "README.md", "CONTRIBUTING.md", "docs/**/*.md"):
        checker.check_page(page)
    missing = [name for name in PROGRAMS if name not in OPTIONAL and not checker.program(name)]
    if not missing:
        checker.check_alone()
    elif not report.complaints:
        print(f"commands: not built: {', '.join(missing)}")
        sys.exit(77)
    report.end()


main()
