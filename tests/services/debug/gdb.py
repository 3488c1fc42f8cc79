"""Stops a program in GDB, and compares the output of the printers and of tdict_describe() with the expected output.

usage: gdb.py PROGRAM PRINTERS LIBRARY
The printers must be where GDB looks for printers of the shared library, as after an installation. Exits with 77 if GDB
is missing or cannot run programs here, or if the library has no debug information."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

COMMANDS = [
    "set pagination off", "set confirm off", "set width 0", "set print pretty on", "set print max-depth 30",
    "set debuginfod enabled off", "set breakpoint pending on",
    "break stop_here", "run", "next", "next", "next",
    "echo == type\\n", "ptype struct tdict_storage",
    "echo == tree\\n", "print tree",
    "echo == struct\\n", "up", "print *tree->keys", "down",
    "echo == tensor\\n", "print tensor",
    "echo == future\\n", "print future",
    "echo == error\\n", "print *error", "print copy",
    "echo == null\\n", "print none",
    "echo == raw\\n", "print /r none",
    "echo == dump\\n", "call (void)tdict_describe(tree, 0, 0)", "call (void)tdict_describe(none, 0, 0)",
    "echo == end\\n", "kill", "quit",
]
TREE = """$ = tree batch=[2] locked = {
  obs = tree batch=[2] locked = {
    state = tensor float32 [2, 2] cpu {1.5, -2, 0.1, 1e+30},
    id = tensor int64 [2, 2] cpu {-9223372036854775808, 0, 1, 9223372036854775807}
  },
  done = tensor bool [2, 2] cpu {true, false, false, true},
  half = tensor float16 [2, 2] cpu {1, -2, 0, inf},
  brain = tensor bfloat16 [2, 2] cpu {1, -2, 0, 3.14062},
  e4m3 = tensor float8_e4m3fn [2, 2] cpu {1, nan, 0.00195312, -2},
  e5m2 = tensor float8_e5m2 [2, 2] cpu {1, 0, -2, inf},
  note = object nontensor,
  moved = tree batch=[2] device=sim:0 locked = {
    obs = tree batch=[2] device=sim:0 locked = {
      state = tensor float32 [2, 2] sim:0,
      id = tensor int64 [2, 2] sim:0
    },
    done = tensor bool [2, 2] sim:0,
    half = tensor float16 [2, 2] sim:0,
    brain = tensor bfloat16 [2, 2] sim:0,
    e4m3 = tensor float8_e4m3fn [2, 2] sim:0,
    e5m2 = tensor float8_e5m2 [2, 2] sim:0,
    note = object nontensor
  }
}"""
ERROR = "$ = TDICT_ENOTFOUND obs.stat: get: 'stat' is not a key of the tree; keys: state, id"
WANTED = {
    "tree": TREE,
    "tensor": "$ = tensor int32 [2, 4] cpu {8, 6, 4, 2, 17, 15, ...}",
    "future": "$ = future ended",
    "error": ERROR + "\n" + ERROR,
    "null": "$ = (tdict_tree *) 0x0",
    "raw": "$ = (tdict_tree *) 0x0",
}
DUMPED = [
    "tree batch=[2] locked",
    "    state    float32       [2, 2] cpu   min=-2           max=1e+30        mean=2.5e+29      nan=0",
    "    id       int64         [2, 2] cpu   min=-9223372036854775808 max=9223372036854775807 mean=0",
    "  done       bool          [2, 2] cpu   true=2 of 4",
    "    done     bool          [2, 2] sim:0 not read: on sim:0",
    "14 tensors, 2 objects",
    "tree: NULL",
]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def sections(output):
    parts = re.split(r"^== (\w+)\n", output, flags=re.M)
    return {name: re.sub(r"^\$\d+ = ", "$ = ", text, flags=re.M).rstrip() for name, text in zip(parts[1::2], parts[2::2])}


def run_gdb(program, printers, library):
    flags = [flag for command in COMMANDS for flag in ("-ex", command)]
    with tempfile.TemporaryDirectory() as folder:
        beside = pathlib.Path(folder, *library.parts[1:-1])
        beside.mkdir(parents=True)
        shutil.copy(printers, beside / f"{library.name}-gdb.py")
        early = [flag for command in ("add-auto-load-safe-path", "add-auto-load-scripts-directory")
                 for flag in ("-iex", f"{command} {folder}")]
        return subprocess.run(["gdb", "-nx", "-batch", *early, *flags, program], capture_output=True, text=True,
                              timeout=100, check=False)


def main():
    program, printers, library = sys.argv[1:]
    if not shutil.which("gdb"):
        skip("gdb is not installed")
    ended = run_gdb(program, printers, pathlib.Path(library).resolve())
    if re.search(r"ptrace: Operation not permitted|Python scripting is not supported", ended.stderr):
        skip(f"gdb cannot be used here: {ended.stderr.strip()[-200:]}")
    found = sections(ended.stdout)
    if "end" not in found:
        sys.exit(f"the program did not stop:\n{ended.stdout}\n{ended.stderr}")
    if "marks" not in found["type"]:
        skip("the library has no debug information")
    wrong = 0
    for name, wanted in WANTED.items():
        if found[name] != wanted:
            wrong += 1
            print(f"{name}: found\n{found[name]}\nwanted\n{wanted}\n")
    for line in DUMPED:
        if line not in ended.stderr.splitlines():
            wrong += 1
            print(f"tdict_describe() did not print\n{line}\n")
    if wrong:
        sys.exit(f"{wrong} wrong; GDB also said:\n{ended.stderr}")
    print(f"{len(WANTED)} values and {len(DUMPED)} lines of tdict_describe() are right")


main()
