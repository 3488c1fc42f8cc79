"""Functions for testing the program tdict: read and write safetensors files with Python, run tdict, and run a case."""

import json
import os
import random
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8, "U32": 4, "U16": 2,
         "U8": 1, "BOOL": 1, "C64": 8}
CODES = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I16": "h", "I8": "b", "U64": "Q", "U32": "I", "U16": "H", "U8": "B",
         "BOOL": "?"}
program = None  # the path of tdict


def pack(dtype, numbers):
    return struct.pack(f"<{len(numbers)}{CODES[dtype]}", *numbers)


def write_file(path, tensors, root=None, metadata=None):
    """Writes a file. `tensors` is {name: (dtype, shape, bytes)}, and `root` the root in TensorDict's metadata entry."""
    header, offset = {}, 0
    entries = dict(metadata or {})
    if root:
        entries["tensordict"] = json.dumps({"version": 1, "root": root})
    if entries:
        header["__metadata__"] = entries
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def read_file(path):
    """Returns the tensors of a safetensors file as {name: (dtype, shape, bytes)}, and its metadata."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length:]
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}, metadata


def random_bytes(dtype, count):
    if dtype == "BOOL":
        return bytes(random.randrange(2) for _ in range(count))
    return random.randbytes(count * SIZES[dtype])


def run(*arguments, status=0, stderr="", text=True):
    """Runs tdict and returns its output. Checks the exit status and the error output, which must contain `stderr`, or
    be empty if `stderr` is empty."""
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=text, stdin=subprocess.DEVNULL)
    error = done.stderr if text else done.stderr.decode()
    assert done.returncode == status, f"{arguments}: exit status {done.returncode}, wanted {status}: {error}"
    assert stderr in error if stderr else not error, f"{arguments}: wanted the error {stderr!r}, found {error!r}"
    return done.stdout


def run_json(*arguments, **wanted):
    return json.loads(run(*arguments, "--json", **wanted))


def help_options(text):
    """Returns the options in a --help, such as "-j, --json" and "--sort=ORDER", without the hidden ones."""
    found = re.findall(r"^  (?:(-\S), |    )(--[a-z][a-z-]*)(\[?=?[A-Z|]*\]?)", text, re.M)
    return {f"{letter}, {name}{value}" if letter else f"{name}{value}" for letter, name, value in found} - {"-?, --help", "--usage"}


def man_options(page):
    """Returns the options in each part of the section OPTIONS of a man page, as help_options() returns them. The key ""
    has the options before the first part."""
    text = page.read_text().partition("\n.SH OPTIONS\n")[2].partition("\n.SH ")[0]
    parts = {}
    for name, part in zip([""] + re.findall(r"^\.SS (.*)", text, re.M), re.split(r"^\.SS .*\n", text, flags=re.M)):
        heads = re.findall(r"^\.TP\n\.BR? (.*)", part, re.M)
        options = {"".join(shlex.split(re.sub(r"\\fI|\\fR|\\(?=-)", "", head))) for head in heads}
        parts[name.replace("\\", "")] = options - {"-h, -?, --help", "--usage"}
    return parts


def lint_man_page(page):
    """Fails if mandoc, or else man, reports a problem in a page."""
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, page.name)
        with open(copy, "w") as file:
            file.write(page.read_text().replace("@DATE@", "2000-01-01").replace("@VERSION@", "0.0.0"))
        for command in (["mandoc", "-Tlint", "-Wwarning", copy], ["man", "--warnings", "-Tutf8", "-l", copy]):
            if shutil.which(command[0]):
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                equal((done.returncode, done.stderr, done.stdout if command[0] == "mandoc" else ""), (0, "", ""))
                return


def equal(found, wanted):
    assert found == wanted, f"found\n{found}\nwanted\n{wanted}"


def main(cases):
    """Runs the case that the command line names, in an empty folder. usage: CASE PROGRAM"""
    global program
    program = os.path.abspath(sys.argv[2])
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random.seed(seed)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        cases[sys.argv[1]]()
        os.chdir("/")
