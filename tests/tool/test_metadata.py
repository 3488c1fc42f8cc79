"""Tests of the program tdict: the metadata of safetensors files, names that are not paths, and messages that name options."""

import os

from support import equal, main, random_bytes, read_file, run, run_json, write_file

METADATA = {"format": "pt", "part": "0", "a.b\n": "x" * 50}


def write_pair():
    tensors = {"x": ("U8", [4], random_bytes("U8", 4))}
    write_file("a.safetensors", tensors, metadata=METADATA)
    write_file("b.safetensors", tensors, metadata={"format": "np", "more": ""})
    write_file("none.safetensors", tensors)


def tool_inspect_shows_metadata():
    write_pair()
    lines = run("inspect", "a.safetensors").splitlines()
    equal(lines[-3:], ["metadata format: pt", "metadata part: 0", "metadata a.b\\x0a: " + "x" * 40 + "..."])
    equal(run_json("inspect", "a.safetensors")["metadata"], {"format": "pt", "part": "0", "a.b\n": "x" * 50})
    equal(run_json("inspect", "none.safetensors")["metadata"], {})
    run("convert", "none.safetensors", "x.npz")
    assert "metadata" not in run_json("inspect", "x.npz")


def tool_convert_keeps_metadata():
    write_pair()
    for name in ("a", "b", "none"):
        tensors, wanted = read_file(f"{name}.safetensors")
        for options in ((), ("--flat",), ("--plain",), ("--flat", "--plain")):
            run("convert", *options, f"{name}.safetensors", "out.safetensors")
            found, metadata = read_file("out.safetensors")
            assert ("tensordict" in metadata) == ("--plain" not in options)
            metadata.pop("tensordict", None)
            adds_format = name == "none" and "--plain" not in options
            equal((found, metadata), (tensors, {"format": "pt"} if adds_format else wanted))
            equal(run("diff", f"{name}.safetensors", "out.safetensors", status=int(adds_format)),
                  "__metadata__.format: only in B\n" if adds_format else "")
    run("convert", "--shard-bytes", "1", "a.safetensors", "out.safetensors.index.json")
    equal(run_json("inspect", "out.safetensors.index.json")["metadata"], run_json("inspect", "a.safetensors")["metadata"])
    run("convert", "a.safetensors", "a.npz", stderr="a.npz: the metadata is left out")
    run("convert", "a.npz", "from_npz.safetensors")
    equal(read_file("from_npz.safetensors")[1].pop("format"), "pt")
    run("convert", "from_npz.safetensors", "again.npz")  # no warning, because the metadata has only the format


def tool_convert_adds_format_to_metadata():
    """transformers 4 refuses files whose metadata lacks "format"."""
    write_file("a.safetensors", {"x": ("U8", [1], b"1")}, metadata={"step": "5"})
    run("convert", "a.safetensors", "out.safetensors")
    metadata = read_file("out.safetensors")[1]
    equal((metadata["format"], metadata["step"]), ("pt", "5"))
    run("convert", "--plain", "a.safetensors", "out.safetensors")
    equal(read_file("out.safetensors")[1], {"step": "5"})
    run("convert", "--shard-bytes", "1", "a.safetensors", "out.safetensors.index.json")
    equal(run_json("inspect", "out.safetensors.index.json")["metadata"], {"format": "pt", "step": "5"})


def tool_diff_compares_metadata():
    write_pair()
    lines = run("diff", "a.safetensors", "b.safetensors", status=1).splitlines()
    equal(sorted(lines), ["__metadata__.a\\.b\\x0a: only in A", "__metadata__.format: 1 of 1 value differs",
                          "__metadata__.more: only in B", "__metadata__.part: only in A"])
    found = run_json("diff", "b.safetensors", "none.safetensors", status=1)
    equal([d["path"] for d in found["differences"]], ["__metadata__.format", "__metadata__.more"])
    run("convert", "b.safetensors", "b.npz", stderr="metadata is left out")
    equal(run("diff", "b.safetensors", "b.npz"), "")  # equal, because a .npz file cannot contain metadata


def tool_convert_needs_a_format():
    write_pair()
    for out in ("y.gguf", "y.pt", "x.nzp", "y", "y.json"):
        run("convert", "a.safetensors", out, status=2, stderr=f"the end of '{out}' names no format; use --format")
        assert not os.path.exists(out)
    run("convert", "--format", "safetensors", "a.safetensors", "y.json")
    equal(read_file("y.json")[0], read_file("a.safetensors")[0])
    equal(run("diff", "a.safetensors", "y.json"), "")


def tool_reads_names_that_are_no_path():
    names = {name: ("U8", [1], bytes([i])) for i, name in enumerate(["a", "a.b", ".c", "d..e"])}
    write_file("x.safetensors", names)
    equal([e["path"] for e in run_json("inspect", "x.safetensors")["entries"]], ["a", "a\\.b", "\\.c", "d\\.\\.e"])
    run("verify", "x.safetensors")
    equal(run("diff", "x.safetensors", "x.safetensors"), "")
    for i, name in enumerate(names):
        key = name if name == "a" else name.replace(".", "\\.")
        equal(run("cat", "x.safetensors", key), f"{i}\n")
    write_file("y.safetensors", {"m.a": names["a"]})
    for command in ("inspect", "verify"):
        run(command, "--flat", "y.safetensors")
    for key in ("m.a", "m\\.a"):  # the name in the file, and the path that inspect prints
        equal(run("cat", "--flat", "y.safetensors", key), "0\n")
    run("cat", "--flat", "y.safetensors", "m.b", status=1, stderr="'m.b' is not a key")
    write_file("z.safetensors", {"m.a": names["a"], "m\\.a": names["a.b"]})
    equal(run("cat", "--flat", "z.safetensors", "m.a"), "0\n")
    equal(run("cat", "--flat", "z.safetensors", "m\\.a"), "1\n")  # the name goes before the path
    equal(run("cat", "--flat", "z.safetensors", "m\\\\\\.a"), "1\n")
    run("convert", "--flat", "--plain", "--keys", "m.a", "z.safetensors", "out.safetensors")
    equal(list(read_file("out.safetensors")[0]), ["m.a"])
    equal(run("diff", "--flat", "y.safetensors", "y.safetensors"), "")
    equal([e["path"] for e in run_json("inspect", "--flat", "y.safetensors")["entries"]], ["m\\.a"])


def tool_messages_name_its_options():
    write_file("blob", {"x": ("U8", [1], b"1")})
    os.mkdir("m")
    os.symlink("../blob", "m/model.safetensors")
    run("inspect", "m", status=1, stderr="the option --follow-links opens links")
    run("inspect", "--follow-links", "m")
    write_file("old.safetensors", {}, metadata={"tensordict": "{\"version\":2}"})
    run("verify", "old.safetensors", status=1, stderr="the option --flat ignores the entry")
    run("verify", "--flat", "old.safetensors")
    with open("x.gguf", "wb") as file:
        file.write(b"GGUF\3" + bytes(100))
    run("inspect", "x.gguf", status=1, stderr="the file is a GGUF file")
    write_file("a.safetensors", {"x": ("U8", [1], b"1")})
    for options, path, text in ((["--plain"], "a.npz", "--plain is set, but only safetensors"),
                                (["--shard-bytes=1K"], "a.npz", "--shard-bytes is set, but only safetensors"),
                                (["--strip-prefix=q"], "b.safetensors", "--strip-prefix 'q' matches no key"),
                                (["--add-prefix=q."], "b.safetensors", "--add-prefix 'q.' ends with a dot")):
        run("convert", *options, "a.safetensors", path, status=1, stderr=f": {text}")
    write_file("empty.safetensors", {"": ("U8", [1], b"1")})
    run("inspect", "empty.safetensors", status=1, stderr="the options --flat and --add-prefix of tdict convert accept the name")


if __name__ == "__main__":
    main(globals())
