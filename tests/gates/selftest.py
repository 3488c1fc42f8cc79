"""Gate: the other gates can fail. Plants faults in a copy of the tree, and runs the gates that must find them.

usage: selftest.py ROOT CC CXX BUILD
A fault consists of text that is added to one or more files, and of words that the gate must print. A gate takes seconds
to run, so faults in different files are planted together. For each fault, the gate must print a separate line with its
words. The gates also run on the unchanged tree, and must not print such a line there."""

import pathlib
import shutil
import subprocess
import sys
import tempfile

import source

GATES = pathlib.Path(__file__).resolve().parent
LONG_FUNCTION = "\nvoid tdict_planted(void);\nvoid tdict_planted(void) {\n" + "  ;\n" * 59 + "}\n"
SEVEN = "\nint tdict_planted(int a, int b, int c, int d, int e, int f, int g);\n"
MANY = [f"src/core/base/many/planted_{i}.c" for i in range(21)]
FALLIBLE = "\n/** @brief Planted. */\nTDICT_API TDICT_NODISCARD tdict_status tdict_planted(void);\n"
MUTANT = ("\n[planted_{name}]\npromise = none\nfile = src/core/base/checked.h\nfunction = tdict_round_up\nmatch = {match}\n"
          "replace =\ncase = {case}\n")
CXX = ("namespace tdict {\nclass planted_class {};\nvoid planted_function();\ntypedef int planted_type;\n/** Planted. */\n"
       "class planted_get { public: int get() const; };\n/** Planted. */\nstruct planted_data { int size; };\n}\n"
       "#define TDICT_PLANTED(x) x\n")
OTHER_LIBRARIES = "comm_mpi.h"  # the functions of this header are in separate libraries
LONG_TAIL = " word" * 31
LEAF = '#include <stdio.h>\nvoid planted(void) {}\nint main(void) { printf("1 %p\\n", (void *)planted); }\n'
COMMANDS = {  # wrong commands that are added to a page, and what the gate `commands` must report
    "scripts/format --planted": "scripts/format has no option --planted",
    "scripts/setup planted": "scripts/setup --help does not name planted",
    "scripts/planted": "scripts/planted is not there",
    "cmake --preset planted": "there is no preset planted",
    "cmake -DTDICT_PLANTED_OPTION=ON": "CMake has no option TDICT_PLANTED_OPTION",
    "build/dev/examples/train_lm --planted-too": "examples/train_lm has no option --planted-too",
    "build/dev/tests/services/share/test_share_ring_trainer planted_case host": "no test has the case planted_case",
    "man tdict_planted": "there is no man page tdict_planted",
}
PROGRAMS = {  # likewise, if the programs are built
    "tdict-bench planted": "tdict-bench has no planted",
    "tdict-bench loader --planted-option": "tdict-bench loader has no option --planted-option",
    "tdict inspect --sort planted": "tdict inspect --sort does not know planted",
    "--planted-alone": "show the option --planted-alone, and no program",
}
FAULTS = [
    ("layers", "src/core/base/error.c", '#include "core/tree/node.h"\n', "base must not see tree"),
    ("layers", "src/device/driver.h", '#include "core/tensor/tensor.h"\n', "device must not see tensor"),
    ("layers", "src/core/tensor/tensor.h", '#include "device/driver.h"\n', "tensor must not see device",
     "device/driver.h lies in a room above core"),
    ("layers", "src/core/tree/node.h", "#include <tdict/transfer.h>\n", "tree must not see engine"),
    ("layers", "include/tdict/memory.h", '#include "tdict/tree.h"\n', "memory must not see tree"),
    ("layers", "src/engine/engine.h", '#include "context.h"\n', "engine must not see context"),
    ("layers", "include/tdict/planted.h", "\n", "include/tdict/planted.h: has no layer"),
    ("layers", "src/elsewhere/planted.c", "\n", "src/elsewhere/planted.c: lies in no layer's folder"),
    ("layers", "src/core/tree/name.h", '#include "core/tree/keys.h"\n', "include cycle keys -> name -> keys: src/core/tree/keys.h:"),
    ("layers", "src/core/tree/path.c", '#include "core/tree/place.h"\n', "include cycle place -> path -> place: src/core/tree/place.h:"),
    ("layers", "src/core/tree/deep/planted.h", '#include "device/driver.h"\n', "tree must not see device"),
    ("layers", MANY, "\n", "src/core/base/many: has 21 units"),
    ("sizes", "src/core/base/error.c", "\n" * 600, "src/core/base/error.c: has"),
    ("sizes", "include/tdict/status.h", "\n" * 400, "include/tdict/status.h: has"),
    ("sizes", "include/tdict/status.h", "/* " + "x" * 115 + " */\n", "has 121 columns"),
    ("sizes", "src/core/base/error.c", "/* " + "x" * 116 + " */\n", "has 122 columns"),
    ("sizes", "tests/support/test.h", "/* " + "x" * 117 + " */\n", "has 123 columns"),
    ("sizes", "tools/tdict.c", "/* " + "x" * 118 + " */\n", "has 124 columns"),
    ("sizes", "bench/program/demo.c", "/* " + "x" * 119 + " */\n", "has 125 columns"),
    ("sizes", "examples/replay.c", "/* " + "x" * 120 + " */\n", "has 126 columns"),
    ("sizes", "src/core/base/error.c", LONG_FUNCTION, "tdict_planted has 61 lines"),
    ("sizes", "src/core/base/error.h", SEVEN, "tdict_planted has 7 parameters"),
    ("sizes", "src/core/base/error.h", "struct s { void (*planted)(int, int, int, int, int, int, int); };\n", "planted has 7 parameters"),
    ("headers", "include/tdict/tdict.h", '#include "tdict/arrow.h"\n', "and its comment names others"),
    ("headers", "include/tdict/status.h", "size_t planted(tdict_tree *td);\n", "status.h: does not compile alone as c99"),
    ("cxx_headers", "include/tdict/hpp/result.hpp", "inline void planted() { throw 1; }\n", "c++11 -fno-exceptions"),
    ("header_warnings", "include/tdict/tdict.hpp", "inline int planted(double x) { return (int)x; }\n", "old-style-cast]"),
    ("snippets", "editors/tdict.snippets", 'snippet planted "Planted"\nplanted\nendsnippet\n', "has other snippets"),
    ("headers", "include/tdict/arrow.h", "static inline int planted(int class) { return class; }\n",
     "arrow.h: does not compile alone as c++11"),
    ("headers", "include/tdict/status.h", "typedef struct tdict_planted_struct {\n  int a;\n#if 0\n  int b;\n#endif\n} tdict_planted_struct;\n",
     "reads ['a', 'b'] in tdict_planted_struct"),
    ("headers", "include/tdict/replay.h", "#ifndef __cplusplus\n#include <stdatomic.h>\n#endif\n", "holds atomics"),
    ("headers", "include/tdict/io.h", "#if 0\n#include <cuda.h>\n#endif\n", "holds a CUDA header"),
    ("headers", "include/tdict/debug.h", "#define TDICT_PLANTED 1\n", "does not use TDICT_PLANTED"),
    ("headers", "include/tdict/devices.h", "extern int tdict_planted;\n", "docs/site/api.py does not read tdict_planted"),
    ("headers", "include/tdict/clone.h", "#if 0\nTDICT_API void tdict_planted_absent(void);\n#endif\n", "reads names that do not compile as c99"),
    ("promises", "tests/promises.txt", "  planted: planted_without_case\n", "no test has a case planted_without_case"),
    ("promises", "tests/promises.txt", "tdict_planted\n  planted: tree_reference_counts\n", "write.h has no public name tdict_planted"),
    ("promises", "tests/promises.txt", "tdict_get\n  planted: tree_reference_counts\n", "write.h has no public name tdict_get"),
    ("promises", "tests/promises.txt", "[planted.h]\n(header)\n  planted: tree_reference_counts\n", "there is no include/tdict/planted.h"),
    ("promises", "tests/promises.txt", "tdict_indices\n", "tdict_indices is listed without a promise"),
    ("promises", "tests/promises.txt", "tdict_write\n", "tdict_write of write.h is listed twice"),
    ("promises", "tests/promises.txt", "  planted:\n", "a promise of tdict_update names no case"),
    ("promises", "tests/promises.txt", "  planted without cases\n", "is no header, no name and no promise"),
    ("promises", "include/tdict/status.h", FALLIBLE, "tdict_planted can fail, and tests/promises.txt has no promise"),
    ("promises", "include/tdict/status.h", "/* [T:tree_reference_counts] */\n", "holds a tag [T:"),
    ("promises", "tests/core/base/test_planted.c", "CASE(planted_twice) {}\nCASE(planted_twice) {}\n", "planted_twice is in"),
    ("promises", "tests/core/base/test_planted.c", "  CASE(planted_indented) {}\n", "not at the start of its line"),
    ("promises", "docs/container.md", "<!-- cases begin -->\n| row | `planted_in_a_page` |\n<!-- cases end -->\n", "no test has a case planted_in_a_page"),
    ("mutants", "tests/mutants.ini", MUTANT.format(name="often", match="return", case="checked_round_up")
     + MUTANT.format(name="never", match="no such text", case="checked_round_up")
     + MUTANT.format(name="untested", match="step - 1", case="planted_case"),
     "planted_often: the expression matches", "planted_never: the expression matches 0 times", "no test has the case planted_case"),
    ("numbers", "src/core/base/error.c", 'void tdict_planted(char *t) { snprintf(t, 9, "%+8.3f", 1.5); }\n', '"%+8.3f" depends on the locale'),
    ("numbers", "src/core/base/file.c", "double tdict_planted(const char *t) { return strtod(t, NULL); }\n", "strtod() depends on the locale"),
    ("numbers", "tools/tdict.c", 'void planted(void) { setlocale(LC_ALL, ""); }\n', "sets LC_ALL"),
    ("process", "src/core/base/error.c", 'int planted(void) { return getenv("HOME") != NULL; }\n', "uses getenv: make it an option"),
    ("process", "include/tdict/status.h", 'static inline void planted(void) { setenv("A", "B", 1); }\n', "uses setenv: make it"),
    ("process", "src/core/sched/pool.c", "extern char **environ;\n", "uses environ: make it an option"),
    ("process", "src/services/io/saving.c", "void planted(void) { tdict_thread_create(0, 0, 0); }\n",
     "starts threads in 2 places, and names threads in 1"),
    ("process", "src/services/io/open.c", "void planted(void) { pthread_create(0, 0, 0, 0); }\n", "calls pthread_create()"),
    ("orders", "src/core/base/error.c", "int planted(_Atomic(int) *w) { return atomic_load_explicit(&w[f(1, 2)], memory_order_acquire); }\n",
     "src/core/base/error.c: uses load acquire for w,"),
    ("orders", "src/core/base/file.c", "enum { PLANTED = memory_order_relaxed };\n", "src/core/base/file.c: names 1 memory orders outside"),
    ("orders", "docs/testing.md", "\n| word | files |\n|---|---|\n| `count` | `core/sched/latch.c`, `core/sched/planted.c` | `load relaxed` | No. |\n"
     "| `planted` | all files | `load relaxed` | No. |\n| `count` | `core/sched/latch.c` | `add acquire` | No. |\n| `planted_row` |\n",
     "names src/core/sched/planted.c, which is gone", "names planted, which is gone", "names add acquire, which is gone",
     "the row | `planted_row` | does not have"),
    ("sentences", "include/tdict/status.h", f"/* The planted{LONG_TAIL}. */\n", "33 words, at most 25 are allowed: The planted"),
    ("sentences", "docs/loader.md", f"\nThe planted{LONG_TAIL}.\n", "33 words, at most 32 are allowed: The planted"),
    ("sentences", "README.md", f"\n| a table |\n|---|\n| The planted{LONG_TAIL} |\n\nThe `a b` planted{LONG_TAIL}.\n", "34 words, at most 32 are allowed: The `code` planted"),
    ("circles", "src/core/sched/latch.c", "void tdict_planted(void) {\n  tdict_parallel_for(0, 0, 0, 0, 0);\n}\n",
     "src/core: 2 files call each other in a circle: sched/latch sched/parallel;"),
    ("circles", "tests/gates/limits.ini", "[circles]\nplanted = 2\n", "names src/planted, which does not exist"),
    ("fields", "src/engine/planted.h", "struct planted {\n  int a, *b;\n  tdict_cut c;\n};\n"),
    ("fields", "tests/gates/limits.ini", "[fields]\nplanted = 2\nplanted.flat = 5\nabsent = 1\n", "planted: 3 fields;",
     "planted: 7 fields in the flat count;", "names struct absent, which src/engine does not have"),
    ("interface", "include/tdict/status.h", "typedef struct tdict_planted_options {\n  const tdict_stream *planted;\n} tdict_planted_options;\n",
     "default: tdict_planted_options", "stream: tdict_planted_options has const tdict_stream *planted"),
    ("interface", "include/tdict/devices.h", "TDICT_API void tdict_planted(const tdict_tree *src, tdict_tree *dst, tdict_error *out);\n",
     "get: tdict_planted(tdict_error *out)", "dst: tdict_planted"),
    ("interface", "include/tdict/sim.h", f"/* The planted{LONG_TAIL}. */\n", "33 words in the longest sentence"),
    ("interface", "tests/gates/limits.ini", "[interface]\ncomment_percent = 1\nc_lines = 1\ninclude_lines = 1\n", "are comment; at most 1 are allowed",
     "lines in the C headers; at most 1", "lines in include/; at most 1"),
    ("walk", "tests/gates/limits.ini", "[walk]\ncalls = 0\nfiles = 0\nreturns = -1\n", "1 calls; at most 0 are allowed",
     "1 files; at most 0 are allowed", "0 returns; at most -1 are allowed", "the first call is not tdict_to_device()"),
    ("words", "src/engine/planted.h", "int num_runs, part_planted;\n", "num_runs has the word 'runs': say 'stretch'",
     "part_planted: 'part' is a word of", "planted: 'planted' is no word"),
    ("kernels", "src/device/kernels/kernels.ptx", ".version 8.5\n.target sm_90\nfma.rn.f32 %f1, %f2, %f3, %f4;\n",
     ".version is ['8.0', '8.5'], wanted 8.0 once", ".target is ['sm_75', 'sm_90'], wanted sm_75 once", "contains fma.rn.f32"),
    ("kernels", "src/device/kernels/body.h", "/* planted */\n", "was made from other sources"),
    ("kernels", "src/device/kernels/kernels.cu", "// planted\n", "was made from other sources"),
    ("reference", "include/tdict/status.h", FALLIBLE, "tdict_planted says no errors", "tdict_planted has no example"),
    ("reference", "include/tdict/replay.h", "\nTDICT_API void tdict_planted_mute(void);\n", "tdict_planted_mute has no description"),
    ("reference", "include/tdict/sampler.h", f"\n/** @brief Planted`{LONG_TAIL}`. */\nTDICT_API void tdict_planted_long(void);\n", "tdict_planted_long has no line of at most"),
    ("reference", "include/tdict/planted.h", "/* Declares. */\n/** @brief Planted. */\nTDICT_API void tdict_planted_alone(void);\n",
     "tdict_planted_alone has no thread rule", "tdict_planted_alone is on no page"),
    ("cxx_reference", "include/tdict/hpp/tree.hpp", CXX, "planted_class has no comment", "void planted_function() has no comment",
     "planted_type = int has no comment", "planted_get: int get() const has no comment", "planted_data: int size has no comment",
     "TDICT_PLANTED(x) has no comment"),
    ("pages", "docs/learn/trees.md", "[planted](planted.md)\n", "links to planted.md"),
    ("pages", "docs/learn/trees.md", "```{literalinclude} /listings/planted.c\n```\n", "shows /listings/planted.c"),
    ("pages", "docs/listings/planted.c", "int main(void) { return 0; }\n", "docs/listings/planted.c: no .out file"),
    ("sentences", "docs/learn/trees.md", f"\nThe planted{LONG_TAIL}.\n", "33 words, at most 32 are allowed: The planted"),
    ("pages", "docs/learn/trees.md", "<" * 7 + " planted\n", "has the mark of a conflict"),
    ("pages", "CHANGELOG.md", "[planted](docs/planted.md)\n", "links to docs/planted.md"),
    ("pages", "README.md", "```c\nplanted();\n```\n", "shows another program"),
    ("pages", "README.md", "\n" * 120, "README.md: has"),
    ("folders", "src/planted/planted.c", "\n", "has no row for src/planted/"),
    ("figures", "docs/figures/first.svg", "<!-- planted -->\n", "docs/figures/first.svg: does not show the figures"),
    ("figures", "docs/tuning.md", "Measured on 2020-01-01 with commit 0123abc.\n", "docs/tuning.md: shows figures of different commits",
     "docs/tuning.md: shows figures of different dates"),
    ("figures", "docs/container.md", "Measured with tdict 0.0.1.\n", "docs/container.md: shows figures of different versions"),
    ("pages", "tests/CMakeLists.txt", "tdict_add_gate(planted)\n", "has no row for planted"),
]
if source.newest_clang():
    FAULTS += [
        ("header_warnings", "include/tdict/status.h", "static inline double planted(float x) { return x; }\n", "-Wdouble-promotion]"),
        ("header_warnings", "include/tdict/status.h", "static inline int planted(double x) { return (int)x; }\n", "old-style-cast]"),
    ]


def command_fault(build):
    shown = COMMANDS | (PROGRAMS if (build / "bench/tdict-bench").exists() and (build / "tools/tdict").exists() else {})
    return "commands", "docs/loader.md", "\n" + "\n".join(f"`{one}`" for one in shown) + "\n", *shown.values()


def run_gate(name, *arguments):
    command = [sys.executable, "-B", str(GATES / f"{name}.py"), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.returncode, result.stdout + result.stderr


def plant(file, planted):
    """Adds the text to the file. Returns the file's previous text, or None if there was no file."""
    before = file.read_text() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    # Plant the text inside a header's include guard, so that it is compiled once.
    head, endif, tail = (before or "").rpartition("\nTDICT_END_DECLS")
    file.write_text(head + "\n" + planted + endif + tail if endif else (before or "") + planted)
    return before


def rounds_of(faults):
    """Splits the faults into groups, so that no two faults of a group are in the same file."""
    rounds = []
    for gate, names, planted, *words in faults:
        names = {names} if isinstance(names, str) else set(names)
        found = next((one for one in rounds if not names & one[0]), None)
        if found is None:
            rounds.append(found := (set(), []))
        found[0].update(names)
        found[1].append((names, planted, words))
    return [group for _, group in rounds]


def check_round(report, copy, gate, group):
    before = [(copy / name, plant(copy / name, planted)) for names, planted, _ in group for name in names]
    code, text = run_gate(gate, copy, *(sys.argv[4:5] if gate == "commands" else sys.argv[2:4]))
    for file, own in before:
        if own is None:
            file.unlink()
        else:
            file.write_text(own)
    wanted = [words for _, _, listed in group for words in listed]
    lines = text.splitlines()
    for words in wanted:
        report.checked()
        others = [other for other in wanted if other != words]
        if code != 1 or not any(words in line and not any(other in line for other in others) for line in lines):
            report.fail(f"gate {gate}", f"for a planted fault, wanted {words!r} and status 1, not {code}:\n{text}")


def check_symbols(report, root, folder):
    """Runs the gate `symbols` on small libraries. The first has the public functions. The others have faults."""
    functions = source.api_functions(root)
    stub = "".join(f"void {name}(void) {{}}\n" for name, header in functions.items() if header != OTHER_LIBRARIES)
    faults = [
        ("", "", None),
        ("void planted(void) {}\n", "", "exports planted"),
        ("", "void tdict_version(void) {}\n", "does not export tdict_version"),
        ("__attribute__((visibility(\"hidden\"))) void planted(void) {}\n", "", "planted does not begin with tdict_"),
        ("static int planted; int *tdict_version2(void); __attribute__((visibility(\"hidden\"))) int *tdict_version2(void) "
         "{ return &planted; }\n", "", "planted is a mutable global"),
        ("__attribute__((visibility(\"hidden\"))) int tdict_planted = 1;\n", "", "tdict_planted is a mutable global"),
        ("char *getenv(const char *); __attribute__((visibility(\"hidden\"))) char *tdict_planted(void) { return getenv(\"A\"); }\n",
         "", "stub.o uses getenv"),
    ]
    for added, removed, words in faults:
        (folder / "stub.c").write_text(stub.replace(removed, "") + added)
        commands = (["-fPIC", "-c", "stub.c", "-o", "stub.o"], ["-shared", "stub.o", "-o", "stub.so"])
        for arguments in commands:
            subprocess.run([sys.argv[2], *arguments], cwd=folder, check=True)
        (folder / "stub.a").unlink(missing_ok=True)
        subprocess.run(["ar", "rc", "stub.a", "stub.o"], cwd=folder, check=True)
        code, text = run_gate("symbols", root, folder / "stub.so", folder / "stub.a", OTHER_LIBRARIES)
        report.checked()
        if (code != 0) if words is None else (code != 1 or words not in text):
            report.fail("gate symbols", f"wanted {words!r} (None: no complaint); printed:\n{text}")
    copy = folder / "symbols"
    shutil.copytree(root / "include", copy / "include")
    (copy / "debian").mkdir()
    for file in root.glob("debian/*.symbols"):
        lines = file.read_text().replace(" tdict_version@", " tdict_planted@")
        (copy / "debian" / file.name).write_text(lines)
        code, text = run_gate("symbols", copy, folder / "stub.so", folder / "stub.a", OTHER_LIBRARIES)
        report.checked()
        if code != 1 or "tdict_version is missing" not in text or "tdict_planted is listed in vain" not in text:
            report.fail("gate symbols", f"did not find the wrong symbol list of the Debian package; printed:\n{text}")


def main():
    root = source.root_argument()
    report = source.Report("selftest")
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name) / "copy"
        for part in ("include", "src", "tests", "tools", "examples", "docs", "scripts", "editors", "bench", "cmake"):
            shutil.copytree(root / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (*root.glob("*.md"), *root.glob("CMake*")):
            shutil.copy(file, copy)
        walked = pathlib.Path(name) / "walked"  # the gate `walk` compiles the library, so it gets a tree without one
        (walked / "tests/support/walk").mkdir(parents=True)
        (walked / "tests/support/walk/leaf.c").write_text(LEAF)
        faults = [*FAULTS, command_fault(pathlib.Path(sys.argv[4]))]
        for gate in sorted({fault[0] for fault in faults}):
            if gate == "cxx_reference" and not shutil.which("doxygen"):
                continue  # the gate is skipped without doxygen
            for group in rounds_of([fault for fault in faults if fault[0] == gate]):
                check_round(report, walked if gate == "walk" else copy, gate, group)
        check_symbols(report, root, pathlib.Path(name))
    report.end()


main()
