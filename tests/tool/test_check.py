#!/usr/bin/env python3
"""Tests of tdict convert, verify, diff and bench-load, and of the program as a whole. usage: test_check.py CASE PROGRAM"""

import json
import math
import os
import pty
import random
import re
import shlex
import signal
import struct
import subprocess

from support import SIZES, equal, main, pack, random_bytes, read_file, run, run_json, write_file
import support

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/tool.md")


def random_file(path):
    tensors = {}
    for dtype in SIZES:
        for shape in ([], [3], [2, 0], [4, 5]):
            name = f"{random.choice(['', 'a.', 'a.b.', 'model.layers.0.'])}{dtype}_{'x'.join(map(str, shape))}"
            tensors[name] = (dtype, shape, random_bytes(dtype, math.prod(shape)))
    write_file(path, tensors)
    return tensors


def tool_convert_keeps_elements():
    tensors = random_file("in.safetensors")
    equal(run("convert", "in.safetensors", "out.safetensors"), "")
    equal(read_file("out.safetensors")[0], tensors)
    run("convert", "--plain", "in.safetensors", "plain.safetensors")
    for name in ("in", "plain"):  # equal but for the text that convert adds to metadata without it
        equal(run("diff", f"{name}.safetensors", "out.safetensors", status=1), "__metadata__.format: only in B\n")
    run("diff", "in.safetensors", "plain.safetensors")
    run("convert", "--flat", "--plain", "in.safetensors", "flat.safetensors")
    equal(read_file("flat.safetensors"), (tensors, {}))
    run("convert", "out.safetensors", "out.safetensors")  # the source is replaced while it is mapped
    equal(read_file("out.safetensors")[0], tensors)


def tool_convert_selects_and_renames():
    write_file("in.safetensors", {name: ("U8", [1], bytes([i])) for i, name in enumerate(["m.a.x", "m.a.y", "m.b", "other"])})

    def names(*arguments):
        run("convert", "--plain", *arguments, "in.safetensors", "out.safetensors")
        return {name: data[0] for name, (_, _, data) in read_file("out.safetensors")[0].items()}

    equal(names("--keys", "m.a"), {"m.a.x": 0, "m.a.y": 1})
    equal(names("--keys", "m.a.y", "--keys=other"), {"m.a.y": 1, "other": 3})
    equal(names("--strip-prefix", "m"), {"a.x": 0, "a.y": 1, "b": 2, "other": 3})
    equal(names("--strip-prefix", "m", "--add-prefix", "n.o"), {"n.o.a.x": 0, "n.o.a.y": 1, "n.o.b": 2, "n.o.other": 3})
    run("convert", "--keys", "nope", "in.safetensors", "no.safetensors", status=1, stderr="nope")
    assert not os.path.exists("no.safetensors")


def tool_convert_converts_floats():
    numbers = [1.0, -2.5, 0.375, math.inf]
    write_file("in.safetensors", {"a.x": ("F32", [4], pack("F32", numbers)), "y": ("I64", [2], pack("I64", [5, 1 << 40])),
                                  "a.h": ("F16", [1], pack("F16", [0.5]))}, metadata={"who": "me"})
    for dtype, code in (("float16", "F16"), ("float64", "F64"), ("bfloat16", "BF16")):
        run("convert", "--dtype", dtype, "in.safetensors", "out.safetensors")
        tensors, metadata = read_file("out.safetensors")
        equal({name: tensor[0] for name, tensor in tensors.items()}, {"a.x": code, "y": "I64", "a.h": code})
        equal(tensors["y"][2], pack("I64", [5, 1 << 40]))
        equal(metadata["who"], "me")
        if code != "BF16":
            equal(tensors["a.x"][2], pack(code, numbers))
    run("convert", "-d", "int8", "in.safetensors", "x.safetensors", status=2, stderr="--dtype: 'int8' is unknown, wanted float64")
    assert not os.path.exists("x.safetensors")


def tool_convert_writes_shards():
    tensors = {f"t{i}": ("U8", [1000], random_bytes("U8", 1000)) for i in range(5)}
    write_file("in.safetensors", tensors, metadata={"format": "pt"})
    run("convert", "--shard-bytes", "2K", "in.safetensors", "model.safetensors.index.json")
    with open("model.safetensors.index.json") as file:
        shards = set(json.load(file)["weight_map"].values())
    equal(len(shards), 3)
    found = {}
    for shard in shards:
        found.update(read_file(shard)[0])
    equal(found, tensors)
    run("diff", "in.safetensors", "model.safetensors.index.json")
    run("diff", "in.safetensors", ".")
    os.mkdir("links")
    for name in [*shards, "model.safetensors.index.json"]:
        os.symlink(os.path.abspath(name), f"links/{name}")
    run("verify", "links", status=1, stderr="tdict: links")
    run("verify", "--follow-links", "links")


def tool_convert_reports_errors():
    random_file("in.safetensors")
    run("convert", "in.safetensors", "nowhere/out.safetensors", status=1, stderr="tdict: nowhere/out.safetensors: ")
    run("convert", "missing", "out.safetensors", status=1, stderr="tdict: missing: ")
    run("convert", "--format", "zip", "in.safetensors", "x", status=2, stderr="--format: 'zip' is unknown")
    for number in ("0", "x", "1T", "-1", "1KB", "99999999999999999999", "99999999999999999G"):
        run("convert", f"--shard-bytes={number}", "in.safetensors", "x.safetensors.index.json", status=2, stderr="--shard-bytes")
    equal(os.listdir("."), ["in.safetensors"])


def tool_convert_removes_its_files_if_it_is_interrupted():
    bytes_of = random.randbytes(64 << 20)
    write_file("in.safetensors", {name: ("U8", [64 << 20], bytes_of) for name in "abcd"})
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        for arguments in (["out.safetensors"], ["--shard-bytes=1M", "m.safetensors.index.json"], ["out/"], ["out.tdz"]):
            before = sorted(os.listdir())
            with subprocess.Popen([support.program, "convert", "in.safetensors", *arguments]) as child:
                while sorted(os.listdir()) == before:  # wait for the first file
                    assert child.poll() is None, "the program finished before the signal was sent"
                child.send_signal(number)
                equal(child.wait(), -number)
            equal(sorted(os.listdir()), before)
    with subprocess.Popen([support.program, "convert", "in.safetensors", "out.safetensors"],
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as child:
        while sorted(os.listdir()) == before:
            pass
        child.send_signal(signal.SIGHUP)  # the program ignores the signal, as with nohup
        equal(child.wait(), 0)
    equal(sorted(os.listdir()), sorted([*before, "out.safetensors"]))


def tool_convert_writes_other_formats():
    data = random_bytes("F32", 12)
    write_file("in.safetensors", {"x": ("F32", [3, 4], data)})
    run("convert", "in.safetensors", "out.npz")
    with open("out.npz", "rb") as file:
        equal(file.read(2), b"PK")
    run("convert", "--format", "npz", "in.safetensors", "other")
    with open("out.npz", "rb") as a, open("other", "rb") as b:
        equal(a.read(), b.read())
    equal(run("cat", "--raw", "out.npz", "x", text=False), data)
    run("convert", "out.npz", "back.safetensors")
    equal(read_file("back.safetensors")[0], {"x": ("F32", [3, 4], data)})


def tool_verify_accepts_good_files():
    tensors = random_file("in.safetensors")
    size = sum(len(data) for _, _, data in tensors.values())
    equal(run("verify", "in.safetensors"), f"in.safetensors: {len(tensors)} tensors, 0 values, {size} bytes: no errors\n")


def tool_verify_names_the_error():
    random_file("good.safetensors")
    with open("good.safetensors", "rb") as file:
        good = file.read()
    for name, data in {"empty": b"", "short": good[:100], "cut": good[:-1], "long": good + b"x", "text": b"hello, world!", "header": good[:8] + b"]" + good[9:]}.items():
        with open(name, "wb") as file:
            file.write(data)
        run("verify", name, status=1, stderr=f"tdict: {name}: ")
    run("verify", "missing", status=1, stderr="tdict: missing: open: missing cannot be opened: No such file or directory")
    os.mkdir("folder")
    run("verify", "folder", status=1, stderr="tdict: folder: ")


def wait_for_mapping(process, path):
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/maps") as maps:
                if os.path.realpath(path) in maps.read():
                    return True
        except ProcessLookupError:
            pass
    return False


def tool_verify_survives_a_shortened_file():
    """Truncates the file while the program reads its elements, so that the program gets a SIGBUS."""
    count = 1 << 30
    header = json.dumps({"x": {"dtype": "U8", "shape": [count], "data_offsets": [0, count]}}).encode().ljust(96)
    for _ in range(20):
        with open("sparse.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + count)
        process = subprocess.Popen([support.program, "verify", "sparse.safetensors"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if wait_for_mapping(process, "sparse.safetensors"):
            process.send_signal(signal.SIGSTOP)
            os.truncate("sparse.safetensors", 1 << 12)
            process.send_signal(signal.SIGCONT)
        output, error = process.communicate()
        if process.returncode != 0:
            equal((process.returncode, output), (1, ""))
            equal(error, "tdict: sparse.safetensors: elements cannot be read: a file was shortened, or the disk returned an error\n")
            return
    raise AssertionError("the program always finished before the file was shortened")


def tool_shows_progress_on_a_terminal():
    write_file("in.safetensors", {"x": ("U8", [1 << 20], bytes(1 << 20))})
    for arguments, word in ((["verify", "in.safetensors"], b"verify: "), (["convert", "in.safetensors", "out.safetensors"], b"convert: "),
                            (["bench-load", "--device", "cpu", "in.safetensors"], b"load: ")):
        leader, follower = pty.openpty()
        done = subprocess.run([support.program, *arguments], stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        shown = b""
        try:
            while part := os.read(leader, 100000):  # raises OSError at the end of the output
                shown += part
        except OSError:
            pass
        os.close(leader)
        equal(done.returncode, 0)
        assert word in shown and shown.endswith(b"\r\x1b[K"), (arguments, shown)


def tool_diff_finds_each_difference():
    write_file("a.safetensors", {
        "same": ("F32", [2], pack("F32", [1, math.nan])), "only.a": ("U8", [1], b"\1"), "only.b": ("U8", [1], b"\1"),
        "dtype": ("F32", [1], bytes(4)), "shape": ("U8", [2, 3], bytes(6)), "kind": ("U8", [1], b"\1"),
        "values": ("F32", [4], pack("F32", [1, 2, 3, math.nan])),
        "big": ("I64", [2], pack("I64", [-(1 << 63), 5])), "unsigned": ("U64", [1], pack("U64", [1])),
        "bool": ("BOOL", [3], b"\0\1\1"), "complex": ("C64", [1], pack("F32", [1, 1])),
    })
    write_file("b.safetensors", {
        "complex": ("C64", [1], pack("F32", [4, 5])), "bool": ("BOOL", [3], b"\1\1\0"),
        "unsigned": ("U64", [1], pack("U64", [(1 << 64) - 1])), "big": ("I64", [2], pack("I64", [(1 << 63) - 1, 5])),
        "values": ("F32", [4], pack("F32", [1, 2.5, 1, 0])), "kind.x": ("U8", [1], b"\1"), "shape": ("U8", [3, 2], bytes(6)),
        "dtype": ("I32", [1], bytes(4)), "same": ("F32", [2], pack("F32", [1, math.nan])), "only.c": ("U8", [1], b"\1"),
        "z.y": ("U8", [1], b"\1"),
    })
    equal(run("diff", "a.safetensors", "b.safetensors", status=1), """\
only.a: only in A
only.b: only in A
dtype: dtype float32 and int32
shape: shape [2, 3] and [3, 2]
kind: kind tensor and tree
values: 3 of 4 elements differ, largest difference 2, 1 with NaN
big: 1 of 2 elements differ, largest difference 1.84467e+19
unsigned: 1 of 1 elements differ, largest difference 1.84467e+19
bool: 2 of 3 elements differ, largest difference 1
complex: 1 of 1 elements differ, largest difference 5
only.c: only in B
z: only in B
""")
    found = run_json("diff", "a.safetensors", "b.safetensors", status=1)
    equal((found["a"], found["b"], found["equal"]), ("a.safetensors", "b.safetensors", False))
    by_path = {difference.pop("path"): difference for difference in found["differences"]}
    equal(by_path["values"], {"kind": "elements", "differing": 3, "elements": 4, "with_nan": 1, "max_abs_diff": 2.0})
    equal(by_path["dtype"], {"kind": "dtype", "a": "float32", "b": "int32"})
    equal(by_path["z"], {"kind": "only in B"})
    equal(len(by_path), 12)


def tool_diff_compares_every_element():
    """Changes the first or last element of a large tensor, or one at the end of the first chunk of 65536 elements."""
    count = 200000
    numbers = [random.randrange(-1000, 1000) for _ in range(count)]
    write_file("a.safetensors", {"x": ("I32", [count], pack("I32", numbers))})
    for i in (0, 65535, 65536, count - 1):
        changed = [*numbers]
        changed[i] += 7
        write_file("b.safetensors", {"x": ("I32", [count], pack("I32", changed))})
        equal(run("diff", "a.safetensors", "b.safetensors", status=1), f"x: 1 of {count} elements differ, largest difference 7\n")


def tool_diff_accepts_near_elements():
    """Compares the number of differing elements with a computation in Python, for random tolerances."""
    special = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan]
    a = [random.choice([*special, random.uniform(-9, 9), 0.5]) for _ in range(3000)]
    b = [random.choice([x, x, x + random.choice([-1, 1]) * 2.0 ** -random.randrange(1, 20), random.choice(special)]) for x in a]
    ints = ([random.randrange(-1 << 60, 1 << 60) for _ in range(500)], 10)
    near = [x + random.randrange(-ints[1], ints[1] + 1) for x in ints[0]]
    write_file("a.safetensors", {"d": ("F64", [len(a)], pack("F64", a)), "i": ("I64", [500], pack("I64", ints[0]))})
    write_file("b.safetensors", {"d": ("F64", [len(b)], pack("F64", b)), "i": ("I64", [500], pack("I64", near))})
    for rtol, atol in ((0, 0), (0, 2.0**-10), (2.0**-8, 0), (2.0**-12, 2.0**-6), (1, 100), (0, 5)):
        def differs(x, y):
            if math.isnan(x) and math.isnan(y) or struct.pack("d", x) == struct.pack("d", y):
                return False
            return not (math.isfinite(x - y) and abs(x - y) <= atol + rtol * abs(y))
        wanted = {"d": sum(map(differs, a, b)), "i": sum(abs(x - y) > atol + rtol * abs(y) for x, y in zip(ints[0], near))}
        found = run_json("diff", f"--rtol={rtol!r}", "--atol", repr(atol), "a.safetensors", "b.safetensors", status=int(any(wanted.values())))
        equal({one["path"]: one["differing"] for one in found["differences"]}, {path: n for path, n in wanted.items() if n})
    write_file("a.safetensors", {"h": ("F16", [2], pack("F16", [1, 2])), "c": ("C64", [1], pack("F32", [3, 4]))})
    write_file("b.safetensors", {"h": ("F16", [2], pack("F16", [1.001, 2])), "c": ("C64", [1], pack("F32", [3, 4.04]))})
    run("diff", "--rtol", "0.01", "a.safetensors", "b.safetensors")
    equal(run("diff", "--atol", "0.01", "a.safetensors", "b.safetensors", status=1), "c: 1 of 1 elements differ, largest difference 0.04\n")
    for text in ("-1", "x", "nan", "inf", "1e999", ""):
        run("diff", f"--rtol={text}", "a.safetensors", "b.safetensors", status=2, stderr="--rtol: ")


def leaves(batch, text, numbers, offsets):
    write_file("leaves.safetensors", {"v": ("U8", [4], bytes(range(4))), "o": ("I64", [3], pack("I64", offsets))}, {
        "batch_size": batch, "names": None, "keys": {
            "r": {"td": {"batch_size": batch, "names": None, "tdict": "ragged",
                         "keys": {"values": {"tensor": "v", "unbatched": True}, "offsets": {"tensor": "o", "unbatched": True}}}},
            "text": {"non_tensor": text}, "column": {"non_tensor": numbers, "tdict": "column", "shape": [2]}}})
    return "leaves.safetensors"


def tool_diff_compares_other_leaves():
    os.rename(leaves([2], "x", [1, "y"], [0, 1, 4]), "a.safetensors")
    run("diff", "a.safetensors", leaves([2], "x", [1, "y"], [0, 1, 4]))
    equal(run("diff", "a.safetensors", leaves([2], "xy", [2, "y"], [0, 2, 4]), status=1), """\
r: row 0 has different lengths
text: 1 of 1 value differs
column: 1 of 2 values differs
""")
    write_file("b.safetensors", {"x": ("U8", [2], bytes(2))}, {"batch_size": [2], "names": None, "keys": {"x": {"tensor": "x"}}})
    write_file("c.safetensors", {"x": ("U8", [2], bytes(2))})
    equal(run("diff", "b.safetensors", "c.safetensors", status=1), "(root): batch size [2] and []\n")


def tool_diff_statuses():
    random_file("a.safetensors")
    equal(run("diff", "a.safetensors", "a.safetensors"), "")
    equal(run_json("diff", "a.safetensors", "a.safetensors"),
          {"a": "a.safetensors", "b": "a.safetensors", "equal": True, "differences": []})
    run("diff", "a.safetensors", "missing", status=2, stderr="tdict: missing: ")
    run("diff", "missing", "a.safetensors", status=2, stderr="tdict: missing: ")
    run("diff", "a.safetensors", status=2, stderr="the argument B is missing")
    with open("/dev/full", "w") as full:
        equal(subprocess.run([support.program, "diff", "--json", "a.safetensors", "a.safetensors"], stdout=full, stderr=subprocess.DEVNULL).returncode, 2)


def tool_bench_load_measures():
    tensors = random_file("in.safetensors")
    size = sum(len(data) for _, _, data in tensors.values())
    for device, name in (("cpu", "cpu"), ("sim", "sim:0")):
        found = run_json("bench-load", "--device", device, "--repeat", "3", "--threads", "2", "in.safetensors")
        equal((found["file"], found["device"], found["bytes"], found["tensors"]), ("in.safetensors", name, size, len(tensors)))
        equal(len(found["seconds"]), 3)
        equal(found["median_seconds"], sorted(found["seconds"])[1])
        for kind in ("first", "median"):
            rate = size / 1e9 / found[f"{kind}_seconds"]
            assert math.isclose(found[f"{kind}_gb_per_second"], rate, rel_tol=1e-9), found
    text = run("bench-load", "--device=cpu", "in.safetensors")
    assert re.fullmatch(rf"in\.safetensors to cpu: {len(tensors)} tensors, {size} bytes\nfirst call +\d+\.\d{{3}} ms +\d+\.\d{{3}} GB/s\n"
                        r"median of 5 +\d+\.\d{3} ms +\d+\.\d{3} GB/s\n", text), text
    run("bench-load", "--device", "cuda:99", "in.safetensors", status=1, stderr="tdict: cuda:99 ")
    run("bench-load", "--device", "disk", "in.safetensors", status=2, stderr="--device: ")
    run("bench-load", "--repeat", "0", "in.safetensors", status=2, stderr="--repeat: '0' is not a number from 1 to 10000")
    run("bench-load", "--device", "cpu", "missing", status=1, stderr="tdict: missing: ")


def tool_refuses_wrong_usage():
    write_file("in.safetensors", {"x": ("U8", [1], b"\1")})
    for command in ("inspect", "convert", "verify", "diff", "cat", "bench-load"):
        run(command, "--unknown", status=2, stderr="unrecognized option '--unknown'")
        run(command, status=2, stderr="is missing")
        if command in ("inspect", "verify"):  # these take several paths
            assert "in.safetensors" in run(command, "in.safetensors", "x", "y", status=1, stderr="tdict: y: ")
        else:
            run(command, "in.safetensors", "x", "y", status=2, stderr="unexpected argument")
        equal(run(command, "-h"), run(command, "--help"))
        assert "Exit status: 0" in run(command, "--help"), command
        assert "\n  -h   " in run(command, "-h"), command
    run("inspect", "--sort", "size", "in.safetensors", status=2, stderr="--sort: 'size' is unknown, wanted bytes or name")
    run("cat", "--head", "-1", "in.safetensors", "x", status=2, stderr="--head")
    run("nope", status=2, stderr="unknown command 'nope'")
    run(status=2, stderr="Usage: tdict COMMAND")
    assert "Exit status: 0 success" in run("--help")
    assert re.fullmatch(r"tdict \d+\.\d+\.\d+\n", run("--version"))


def tool_page_shows_real_output():
    """Runs the commands of docs/tool.md on the files that the page uses. Times and rates are not compared."""
    small = {"obs.pixels": ("U8", [4, 8, 8], bytes(i % 251 for i in range(256))), "obs.state": ("F32", [4, 3], pack("F32", [i / 4 for i in range(12)])),
             "reward": ("F32", [4], pack("F32", [0, 0.5, math.nan, 1]))}
    root = {"batch_size": [4], "names": None, "keys": {
        "obs": {"td": {"batch_size": [4], "names": None, "keys": {"pixels": {"tensor": "obs.pixels"}, "state": {"tensor": "obs.state"}}}},
        "reward": {"tensor": "reward"}, "task": {"non_tensor": "reach"}}}
    write_file("batch.safetensors", small, root)
    other = {**small, "reward": ("F32", [4], pack("F32", [0, 0.5, 0, 1.25]))}
    write_file("other.safetensors", other, root)
    with open(PAGE) as file:
        page = file.read()
    commands = re.findall(r"^\$ tdict (.*)\n((?:(?!\$|```).*\n)*)", page, re.M)
    assert len(commands) >= 6, commands
    for arguments, wanted in commands:
        done = subprocess.run([support.program, *shlex.split(arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        blank = [re.sub(r" +\d+\.\d{3} (ms|GB/s)", r" \1", text) for text in (done.stdout, wanted)]
        equal(f"$ tdict {arguments}\n{blank[0]}", f"$ tdict {arguments}\n{blank[1]}")


if __name__ == "__main__":
    main(globals())
