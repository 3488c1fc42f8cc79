#!/usr/bin/env python3
"""Tests of the program tdict with NumPy archives and with TensorDict's directories, archives and consolidated files.
The tests read the files with Python, not with tdict. usage: test_formats.py CASE PROGRAM"""

import json
import os
import shutil
import struct
import zipfile

from support import equal, main, pack, read_file, run, run_json, write_file

TENSORS = {"obs.pixels": ("U8", [2, 3], bytes(range(100, 106))), "obs.state": ("F32", [2], pack("F32", [0.5, -1])),
           "w": ("I64", [2, 2], pack("I64", [1 << 40, -5, 7, 1 << 62]))}
ROOT = {"batch_size": [2], "names": None, "keys": {
    "obs": {"td": {"batch_size": [2], "names": None, "keys": {"pixels": {"tensor": "obs.pixels"}, "state": {"tensor": "obs.state"}}}},
    "w": {"tensor": "w"}, "text": {"non_tensor": "words"}}}
FILES = {"obs/pixels.memmap": TENSORS["obs.pixels"][2], "obs/state.memmap": TENSORS["obs.state"][2], "w.memmap": TENSORS["w"][2]}
OUTPUTS = {"memmap": "out/", "tdz": "out.tdz", "consolidated": "out.bin"}


def write_formats():
    """Writes in.safetensors, and the same tree in each format."""
    write_file("in.safetensors", TENSORS, ROOT)
    for name, path in OUTPUTS.items():
        equal(run("convert", "--format", name, "in.safetensors", path), "")


def check_metas(read):
    """Checks the files of a directory or an archive. read(NAME) returns the bytes of a file."""
    for name, data in FILES.items():
        equal(read(name), data)
    root, obs, text = (json.loads(read(f"{folder}meta.json")) for folder in ("", "obs/", "text/"))
    equal((root["shape"], obs["shape"]), ([2], [2]))
    equal((root["w"]["dtype"], root["w"]["shape"]), ("torch.int64", [2, 2]))
    equal((obs["pixels"]["dtype"], obs["state"]["dtype"]), ("torch.uint8", "torch.float32"))
    equal(text["data"], "words")


def read_plain(path):
    with open(path, "rb") as file:
        return file.read()


def tool_convert_writes_directories():
    write_formats()
    check_metas(lambda name: read_plain(f"out/{name}"))
    shutil.copytree("out", "copy")
    run("convert", "in.safetensors", "out/")  # the slash selects the directory format; the old directory is replaced
    check_metas(lambda name: read_plain(f"out/{name}"))
    run("convert", "--keys", "w", "out", "out/")  # the source is replaced while it is mapped
    equal(sorted(os.listdir("out")), ["meta.json", "w.memmap"])
    run("diff", "copy", "in.safetensors")
    os.mkdir("home")
    with open("home/letter", "w") as file:
        file.write("text")
    run("convert", "in.safetensors", "home/", status=1, stderr="tdict: home/: ")
    equal(os.listdir("home"), ["letter"])


def tool_convert_writes_archives():
    write_formats()
    with zipfile.ZipFile("out.tdz") as archive:
        equal(archive.testzip(), None)
        check_metas(archive.read)
    data = read_plain("out.bin")
    length = struct.unpack("<Q", data[-8:])[0]
    document = json.loads(data[-8 - length:-8])
    text = json.dumps(document)
    assert "torch.int64" in text and "words" in text, text
    for elements in FILES.values():
        assert elements in data[:-8 - length]
    run("convert", "in.safetensors", "other.tdz")  # the extension selects the format
    equal(zipfile.ZipFile("other.tdz").namelist(), zipfile.ZipFile("out.tdz").namelist())


def tool_convert_reads_each_format():
    write_formats()
    paths = ["in.safetensors", *OUTPUTS.values()]
    wanted = sorted(run_json("inspect", "in.safetensors")["entries"], key=lambda entry: entry["path"])
    for source in paths:
        found = run_json("inspect", source)
        equal(found["batch_size"], [2])
        equal(sorted(found["entries"], key=lambda entry: entry["path"]), wanted)
        equal(run("cat", source, "obs.state"), "0.5 -1\n")
        equal(run("cat", source, "text"), "words\n")
        run("convert", source, "back.safetensors")
        equal(read_file("back.safetensors")[0], TENSORS)
        for name, target in {**OUTPUTS, "npz": "plain.npz"}.items():
            keys = ["--keys", "obs", "--keys", "w"] if name == "npz" else []  # .npz files cannot contain text leaves
            run("convert", *keys, "--format", name, source, f"again.{target}")
            if name != "npz":
                run("diff", "in.safetensors", f"again.{target}")
        with zipfile.ZipFile("again.plain.npz") as archive:
            for name, (_, _, data) in TENSORS.items():
                assert archive.read(f"{name}.npy").endswith(data), name


def tool_verify_accepts_each_format():
    write_formats()
    size = sum(map(len, FILES.values())) + 16 + 6  # a value has 16 bytes, and a text also has its bytes and a 0 byte
    for path in ("in.safetensors", *OUTPUTS.values()):
        equal(run("verify", path), f"{path}: 3 tensors, 1 value, {size} bytes: no errors\n")


def flip(path, data):
    """Changes one bit in the first byte of `data` in a file."""
    content = bytearray(read_plain(path))
    content[content.index(data)] ^= 1
    with open(path, "wb") as file:
        file.write(content)


def tool_verify_compares_checksums():
    write_formats()
    run("convert", "--keys", "w", "in.safetensors", "out.npz")
    for path, entry in (("out.tdz", "w.memmap"), ("out.npz", "w.npy")):
        run("verify", path)
        flip(path, TENSORS["w"][2])
        run("verify", path, status=1, stderr=f"tdict: {path}: open: entry '{entry}': the checksum of the bytes is ")
        for command in (["inspect", "--stats", path], ["convert", path, "other/"], ["cat", path, "w"]):
            run(*command)
    for path, file in (("out.bin", "out.bin"), ("out/", "out/w.memmap")):
        flip(file, TENSORS["w"][2])
        run("verify", path)  # these formats have no checksums
        run("diff", path, "in.safetensors", status=1)


def tool_verify_refuses_broken_formats():
    write_formats()
    for name in ("w.memmap", "obs/meta.json", "text/meta.json", "meta.json"):
        for change in ("missing", "short"):
            shutil.rmtree("broken", ignore_errors=True)
            shutil.copytree("out", "broken")
            if change == "missing":
                os.remove(f"broken/{name}")
            else:
                os.truncate(f"broken/{name}", 5)
            run("verify", "broken", status=1, stderr="tdict: broken")
    for path in ("out.tdz", "out.bin"):
        data = read_plain(path)
        for cut in (1, 8, 20, len(data) // 2):
            with open("broken.file", "wb") as file:
                file.write(data[:-cut])
            run("verify", "broken.file", status=1, stderr="tdict: broken.file: ")
    shutil.copytree("out", "linked")
    os.rename("linked/w.memmap", "elsewhere")
    os.symlink("../elsewhere", "linked/w.memmap")
    run("verify", "linked", status=1, stderr="tdict: linked")


if __name__ == "__main__":
    main(globals())
