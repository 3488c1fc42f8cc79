#!/usr/bin/env python3
"""Tests of tdict inspect and tdict cat. usage: test_show.py CASE PROGRAM"""

import json
import math
import os
import random
import struct
import subprocess
import time

from support import CODES, equal, main, pack, random_bytes, run, run_json, write_file
import support


def write_small():
    write_file("small.safetensors", {
        "obs.pixels": ("U8", [2, 3], bytes(range(6))),
        "w": ("F32", [3], pack("F32", [0.1, math.nan, 1e10])),
        "obs.flag": ("BOOL", [2], b"\1\0"),
        "none": ("F32", [2, 0], b""),
        "z": ("C64", [1], pack("F32", [1, -2])),
    })


def write_leaves():
    """Writes a file with text, numbers, a column, a ragged leaf and a leaf without batch dimensions. A value takes 16
    bytes. A text of n bytes takes n + 1 more, for its bytes and a final 0 byte."""
    write_file("leaves.safetensors", {
        "a": ("I32", [2], pack("I32", [7, 8])),
        "b": ("F32", [5], pack("F32", [1, 2, 3, 4, 5])),
        "v": ("U8", [3, 2], bytes(range(6))),
        "o": ("I64", [3], pack("I64", [0, 0, 3])),
    }, {"batch_size": [2], "names": None, "keys": {
        "a": {"tensor": "a"},
        "b": {"tensor": "b", "unbatched": True},
        "r": {"td": {"batch_size": [2], "names": None, "tdict": "ragged",
                     "keys": {"values": {"tensor": "v", "unbatched": True}, "offsets": {"tensor": "o", "unbatched": True}}}},
        "text": {"non_tensor": "line one\nline \x1b two"},
        "number": {"non_tensor": -5}, "real": {"non_tensor": 0.1}, "yes": {"non_tensor": True}, "null": {"non_tensor": None},
        "list": {"non_tensor": [1, {"k": []}]},
        "column": {"non_tensor": ["x", 2], "tdict": "column", "shape": [2]},
        "k.ey": {"td": {"batch_size": [2], "names": None, "keys": {}}},
    }})


def tool_inspect_prints_a_tree():
    write_small()
    equal(run("inspect", "small.safetensors"), """\
small.safetensors
  obs
    pixels  uint8      [2, 3]   6
    flag    bool       [2]      2
  w         float32    [3]     12
  none      float32    [2, 0]   0
  z         complex64  [1]      8
5 tensors, 12 elements, 28 bytes
""")
    write_leaves()
    equal(run("inspect", "leaves.safetensors"), """\
leaves.safetensors  batch=[2]
  a       int32    [2]         8
  b       float32  [5]        20
  r       uint8    [2, *, 2]  30
  text    text                36  line one\\x0aline \\x1b two
  number  integer             16  -5
  real    real                16  0.1
  yes     bool                16  true
  null    null                16
  list    json                29  [1,{"k":[]}]
  column  values   [2]        34
  k\\.ey  batch=[2]
3 tensors, 7 values, 13 elements, 221 bytes
""")


def tool_inspect_sorts():
    write_small()
    lines = run("inspect", "--sort", "bytes", "small.safetensors").splitlines()
    equal([line.split()[0] for line in lines[1:-1]], ["w", "z", "obs.pixels", "obs.flag", "none"])
    lines = run("inspect", "--sort=name", "small.safetensors").splitlines()
    equal([line.split()[0] for line in lines[1:-1]], ["none", "obs.flag", "obs.pixels", "w", "z"])


def statistics(dtype, numbers):
    if dtype == "BOOL":
        return {"true": sum(numbers), "false": len(numbers) - sum(numbers)}
    valid = [number for number in numbers if not math.isnan(number)]
    wanted = {"nan": len(numbers) - len(valid)}
    if valid:
        wanted.update(min=min(valid), max=max(valid), mean=math.fsum(valid) / len(valid))
    return wanted


def same_statistics(found, wanted, dtype):
    equal(sorted(found), sorted(wanted))
    for name, number in wanted.items():
        value = found[name]
        if isinstance(value, str):
            value = float(value)
        if name == "mean" or dtype == "U64" and number >= 1 << 63:  # the program prints these as floats
            assert math.isclose(value, number, rel_tol=1e-9, abs_tol=1e-9) or str(value) == str(number), (dtype, name, value, number)
        else:
            equal(value, number)


def tool_inspect_computes_statistics():
    tensors = {}
    for dtype in CODES:
        for count in (1, 5, 1000):
            data = random_bytes(dtype, count)
            if dtype[0] == "F" and count == 1000:  # small numbers, so that Python's sum does not overflow
                data = pack(dtype, [random.choice([random.uniform(-9, 9), math.nan]) for _ in range(count)])
            elif dtype[0] == "F":
                data = pack(dtype, [random.choice([1.5, -2.0, math.nan, math.inf]) for _ in range(count)])
            tensors[f"{dtype}_{count}"] = (dtype, [count], data)
    write_file("numbers.safetensors", tensors)
    entries = {entry["path"]: entry for entry in run_json("inspect", "--stats", "numbers.safetensors")["entries"]}
    for name, (dtype, shape, data) in tensors.items():
        numbers = struct.unpack(f"<{shape[0]}{CODES[dtype]}", data)
        same_statistics(entries[name]["stats"], statistics(dtype, numbers), dtype)
    write_small()
    lines = run("inspect", "--stats", "small.safetensors").splitlines()
    assert lines[2].endswith("min=0 max=5 mean=2.5"), lines
    assert lines[3].endswith("true=1 false=1"), lines
    assert lines[4].endswith("min=0.1 max=1e+10 mean=5e+09 nan=1"), lines
    assert lines[5].endswith("empty") and lines[6].endswith("nan=0"), lines


def tool_inspect_summarizes_large_tensors():
    """A tensor of more than 2^23 elements is read in parts."""
    half = 1 << 23
    parts = {"I32": ([7] * half, [-3] * (half // 2) + [9]), "F32": ([math.nan] * half, [0.5, 1.5, math.nan]),
             "U64": ([1 << 63] * half, [2]), "BOOL": ([1] * half, [0, 1])}
    for dtype, (first, last) in parts.items():
        write_file("large.safetensors", {"x": (dtype, [len(first) + len(last)], pack(dtype, first) + pack(dtype, last))})
        entry, = run_json("inspect", "--stats", "large.safetensors")["entries"]
        same_statistics(entry["stats"], statistics(dtype, first + last), dtype)


def tool_inspect_shows_shards():
    os.mkdir("model")
    os.mkdir("cache")
    names = ["a-00001-of-00002.safetensors", "a-00002-of-00002.safetensors"]
    for name, keys in zip(names, (["x", "n.y"], ["z"])):
        write_file(f"cache/{name}.blob", {key: ("U8", [3], b"abc") for key in keys})
        os.symlink(os.path.abspath(f"cache/{name}.blob"), f"model/{name}")
    with open("model/model.safetensors.index.json", "w") as file:
        json.dump({"weight_map": {"x": names[0], "n.y": names[0], "z": names[1]}}, file)
    wanted = {"x": names[0], "n.y": names[0], "z": names[1]}
    for path in ("model", "model/model.safetensors.index.json"):
        entries = run_json("inspect", "--follow-links", "--sort=name", path)["entries"]
        equal({entry["path"]: entry["shard"] for entry in entries}, wanted)
    lines = run("inspect", "-L", "--stats", "model").splitlines()
    equal([line.split("  ")[-2] for line in lines if "uint8" in line], [wanted["x"], wanted["n.y"], wanted["z"]])
    os.chdir("model")
    assert names[1] in run("inspect", "-L", "model.safetensors.index.json")
    assert "shard" not in run("inspect", "--json", names[0])  # one file


def tool_inspect_takes_several_paths():
    write_small()
    write_file("b.safetensors", {"q": ("U8", [1], b"x")})
    both = run("inspect", "small.safetensors", "b.safetensors")
    equal(both, run("inspect", "small.safetensors") + "\n" + run("inspect", "b.safetensors"))
    found = run_json("inspect", "small.safetensors", "none", "b.safetensors", status=1, stderr="tdict: none: ")
    equal(found, [run_json("inspect", "small.safetensors"), run_json("inspect", "b.safetensors")])
    equal(run("verify", "b.safetensors", "small.safetensors"), run("verify", "b.safetensors") + run("verify", "small.safetensors"))


def tool_inspect_json():
    write_leaves()
    found = run_json("inspect", "leaves.safetensors")
    equal(found["batch_size"], [2])
    equal(found["totals"], {"tensors": 3, "values": 7, "elements": 13, "bytes": 221})
    entries = {entry["path"]: entry for entry in found["entries"]}
    equal(list(entries), ["a", "b", "r", "text", "number", "real", "yes", "null", "list", "column", "k\\.ey"])
    equal(entries["a"], {"path": "a", "kind": "tensor", "dtype": "int32", "shape": [2], "bytes": 8})
    equal(entries["b"]["kind"], "unbatched")
    equal((entries["r"]["kind"], entries["r"]["rows"], entries["r"]["shape"]), ("ragged", 2, [3, 2]))
    equal(entries["k\\.ey"], {"path": "k\\.ey", "kind": "tree", "batch_size": [2]})
    wanted = {"text": "line one\nline \x1b two", "number": -5, "real": 0.1, "yes": True, "null": None, "list": [1, {"k": []}]}
    equal({key: entries[key]["value"] for key in wanted}, wanted)
    equal((entries["column"]["kind"], entries["column"]["shape"]), ("values", [2]))


def tool_inspect_escapes_keys():
    names = ['qu"ote\\ \n\x1b[31m', "é漢.sp ace/:*", "tab\t\x7f\x80"]
    write_file("odd.safetensors", {name: ("U8", [1], b"\1") for name in names})
    text = run("inspect", "--sort", "name", "odd.safetensors")
    equal([line.split("  ")[1] for line in text.splitlines()[1:-1]],
          ['qu"ote\\\\ \\x0a\\x1b[31m', "tab\\x09\\x7f\\xc2\\x80", "é漢.sp ace/:*"])
    entries = run_json("inspect", "odd.safetensors", "--sort=name")["entries"]
    equal([entry["path"] for entry in entries], ['qu"ote\\\\ \n\x1b[31m', "tab\t\x7f\x80", "é漢.sp ace/:*"])
    for entry in entries:
        equal(run("cat", "odd.safetensors", entry["path"]), "1\n")
    run("cat", "odd.safetensors", "no\nkey\x1b", status=1, stderr="'no\\x0akey\\x1b' is not a key")


def tool_inspect_is_quick():
    count = 5 << 28  # 5 GiB of float32 in a sparse file
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, 4 * count]}}).encode()
    header += b" " * (-len(header) % 8)
    with open("sparse.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(8 + len(header) + 4 * count)
    start = time.monotonic()
    totals = run_json("inspect", "sparse.safetensors")["totals"]
    seconds = time.monotonic() - start
    equal(totals["bytes"], 4 * count)
    assert seconds < 2, seconds
    equal(run("cat", "--head", "3", "sparse.safetensors", "w"), "0 0 0\n")


def parse_number(text, dtype):
    if dtype == "BOOL":
        return {"true": True, "false": False}[text]
    return float(text) if dtype[0] == "F" else int(text)


def tool_cat_prints_elements():
    tensors = {dtype: (dtype, [20, 5], random_bytes(dtype, 100)) for dtype in CODES}
    write_file("random.safetensors", tensors)
    for dtype, (_, _, data) in tensors.items():
        lines = run("cat", "random.safetensors", dtype).splitlines()
        equal([len(line.split(" ")) for line in lines], [5] * 20)
        found = [parse_number(text, dtype) for line in lines for text in line.split(" ")]
        wanted = struct.unpack(f"<100{CODES[dtype]}", data)
        for a, b in zip(found, wanted):
            assert math.isnan(a) and math.isnan(b) if b != b else pack(dtype, [a]) == pack(dtype, [b]), (dtype, a, b)
    write_small()
    equal(run("cat", "small.safetensors", "w"), "0.1 nan 1e+10\n")
    equal(run("cat", "small.safetensors", "z"), "1-2j\n")
    equal(run("cat", "small.safetensors", "none"), "")
    write_file("scalar.safetensors", {"bf16": ("BF16", [], b"\x80\x3f"), "f8": ("F8_E4M3", [2], b"\x38\xb8")})
    equal(run("cat", "scalar.safetensors", "bf16"), "1\n")
    equal(run("cat", "scalar.safetensors", "f8"), "1 -1\n")


def tool_cat_limits_elements():
    write_file("long.safetensors", {"x": ("I32", [100, 3000], pack("I32", range(300000)))})
    text = run("cat", "long.safetensors", "x", stderr="tdict: 1000 of 300000 elements shown; --all shows all\n")
    equal(text, " ".join(map(str, range(1000))) + "\n")
    equal(run("cat", "--all", "long.safetensors", "x"), "".join(
        " ".join(map(str, range(row * 3000, row * 3000 + 3000))) + "\n" for row in range(100)))
    equal(run("cat", "-n", "3001", "long.safetensors", "x"), " ".join(map(str, range(3000))) + "\n3000\n")
    equal(run("cat", "--head=0", "long.safetensors", "x"), "")


def tool_cat_writes_bytes():
    data = random_bytes("F32", 5000)
    write_file("raw.safetensors", {"x": ("F32", [5000], data)})
    equal(run("cat", "--raw", "raw.safetensors", "x", text=False), data)
    equal(run("cat", "--raw", "-n2", "raw.safetensors", "x", text=False), data[:8])
    write_leaves()
    equal(run("cat", "--raw", "leaves.safetensors", "text"), "line one\nline \x1b two")
    run("cat", "--raw", "leaves.safetensors", "column", status=1, stderr="column: --raw needs a tensor, or a single text")
    run("cat", "--raw", "leaves.safetensors", "number", status=1, stderr="number: --raw needs a tensor, or a single text")


def tool_cat_prints_values():
    write_leaves()
    for key, text in {"text": "line one\nline \x1b two\n", "number": "-5\n", "real": "0.1\n", "yes": "true\n", "null": "null\n",
                      "list": '[1,{"k":[]}]\n', "column": "x\n2\n", "b": "1 2 3 4 5\n", "r": "\n0 1 2 3 4 5\n"}.items():
        equal(run("cat", "leaves.safetensors", key), text)
    equal(run("cat", "--head", "1", "leaves.safetensors", "column"), "x\n")
    equal(run("cat", "--head", "2", "leaves.safetensors", "r"), "\n0 1\n")
    run("cat", "leaves.safetensors", "k\\.ey", status=1, stderr="leaves.safetensors: k\\.ey: the entry is a tree")
    run("cat", "leaves.safetensors", "k.ey", status=1, stderr="tdict: leaves.safetensors: ")


def tool_cat_ends_with_its_reader():
    write_file("long.safetensors", {"x": ("I32", [100000, 3], pack("I32", range(300000)))})
    reader = subprocess.Popen([support.program, "cat", "--all", "long.safetensors", "x"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    equal(reader.stdout.readline(), b"0 1 2\n")
    reader.stdout.close()
    equal((reader.stderr.read(), reader.wait()), (b"", -13))
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w") as full:
            done = subprocess.run([support.program, "cat", "long.safetensors", "x"], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "standard output: No space left on device" in done.stderr, done


if __name__ == "__main__":
    main(globals())
