#!/usr/bin/env python3
"""Exchanges safetensors files between tdict and the packages safetensors, torch and tensordict, in both directions.

usage: safetensors.py LIBRARY
LIBRARY is libtdict.so. Exits with 77 if a package is missing."""

import json
import os
import random
import sys
import tempfile

if "--help" in sys.argv:
    sys.exit(print(__doc__))

from tdict_files import Tdict

# This script has the same name as the package, so remove its folder from the search path.
sys.path = [folder for folder in sys.path if os.path.abspath(folder or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import safetensors
    import safetensors.torch
    import tensordict
    import torch
    from tensordict import NonTensorData, TensorDict, UnbatchedTensor, from_safetensors, to_safetensors
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DTYPES = {"bool": torch.bool, "u8": torch.uint8, "i8": torch.int8, "i16": torch.int16, "u16": torch.uint16, "f16": torch.float16,
          "bf16": torch.bfloat16, "i32": torch.int32, "u32": torch.uint32, "f32": torch.float32, "c64": torch.complex64,
          "f64": torch.float64, "i64": torch.int64, "u64": torch.uint64, "f8e4m3": torch.float8_e4m3fn, "f8e5m2": torch.float8_e5m2}


def elements(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def random_tensor(dtype, shape):
    count = int(torch.Size(shape).numel()) * torch.empty((), dtype=dtype).element_size()
    data = bytes(random.randrange(2) if dtype == torch.bool else random.randrange(256) for _ in range(count))
    tensor = torch.frombuffer(bytearray(data), dtype=dtype) if count else torch.empty(0, dtype=dtype)
    return tensor.reshape(shape)


def random_tensors():
    tensors = {}
    for name, dtype in DTYPES.items():
        for shape in random.sample([[], [0], [3], [2, 0, 4], [2, 3], [1, 1, 5], [7, 2]], 3):
            tensors[f"{random.choice(['', 'model.layers.0.', 'a.b.'])}{name}_{'x'.join(map(str, shape))}"] = random_tensor(dtype, shape)
    tensors['odd "key" \\ with\ttab'] = random_tensor(torch.float32, [2])
    tensors["é漢.sp ace/:*"] = random_tensor(torch.float32, [2])
    return tensors


def same_tensors(found, wanted):
    assert set(found) == set(wanted), set(found) ^ set(wanted)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        assert elements(found[name]) == elements(tensor), name


def random_td(depth=0, batch=(2,)):
    td = TensorDict({}, batch_size=list(batch))
    for name, dtype in random.sample(list(DTYPES.items()), 4):
        td[name] = random_tensor(dtype, [*batch, *random.choice([[], [3], [0], [2, 2]])])
    td["unbatched"] = UnbatchedTensor(random_tensor(torch.float32, [5]))
    for key, value in {"text": "é \" \\ \n", "int": -3, "big": 2**62, "real": 0.1, "one": 1.0, "yes": True, "none": None,
                       "list": [1, [2.5, "x"]], "dict": {"a": {"b": []}}}.items():
        td.set_non_tensor(key, value)
    if depth < 3:
        td["child"] = random_td(depth + 1, random.choice([batch, (*batch, 3)]))
        td["dots.in.key"] = random_tensor(torch.int64, batch)
    td["empty"] = TensorDict({}, batch_size=list(batch))
    return td


def same_tds(found, wanted, path=""):
    assert found.batch_size == wanted.batch_size, (path, found.batch_size, wanted.batch_size)
    assert list(found.keys()) == list(wanted.keys()), (path, list(found.keys()), list(wanted.keys()))
    for key in wanted.keys():
        a, b = found.get(key), wanted.get(key)
        if isinstance(b, NonTensorData):
            assert type(a.data) is type(b.data) and a.data == b.data, (path, key, a.data, b.data)
        elif isinstance(b, UnbatchedTensor):
            assert isinstance(a, UnbatchedTensor) and elements(a._base_tensor()) == elements(b._base_tensor()), (path, key)
        elif isinstance(b, TensorDict):
            same_tds(a, b, f"{path}.{key}")
        else:
            assert a.dtype == b.dtype and a.shape == b.shape and elements(a) == elements(b), (path, key)


def header_of(file):
    data = open(file, "rb").read()
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length])


def check_plain(tdict, folder):
    """Checks that tdict reads files that the package safetensors wrote, and writes exactly the same bytes."""
    tensors = random_tensors()
    safetensors.torch.save_file(tensors, f"{folder}/theirs.safetensors")
    tdict.rewrite(f"{folder}/theirs.safetensors", f"{folder}/ours.safetensors", without_structure=True)
    same_tensors(safetensors.torch.load_file(f"{folder}/ours.safetensors"), tensors)
    assert open(f"{folder}/ours.safetensors", "rb").read() == open(f"{folder}/theirs.safetensors", "rb").read(), "other bytes"
    tdict.rewrite(f"{folder}/theirs.safetensors", f"{folder}/full.safetensors")
    same_tensors(safetensors.torch.load_file(f"{folder}/full.safetensors"), tensors)


def check_shards(tdict, folder):
    tensors = random_tensors()
    safetensors.torch.save_file(tensors, f"{folder}/theirs.safetensors")
    tdict.rewrite(f"{folder}/theirs.safetensors", f"{folder}/model.safetensors.index.json", max_shard_bytes=200)
    index = json.load(open(f"{folder}/model.safetensors.index.json"))
    found = {}
    for file in set(index["weight_map"].values()):
        with safetensors.safe_open(f"{folder}/{file}", framework="pt") as shard:
            assert all(index["weight_map"][name] == file for name in shard.keys())
            found.update({name: shard.get_tensor(name) for name in shard.keys()})
    same_tensors(found, tensors)
    assert len(set(index["weight_map"].values())) > 1
    assert index["metadata"]["total_size"] == sum(len(elements(t)) for t in tensors.values())
    # Shards with the names that the package transformers uses.
    names = sorted(tensors)
    parts = [names[: len(names) // 2], names[len(names) // 2 :]]
    weights = {}
    for i, part in enumerate(parts):
        file = f"other-{i + 1:05d}-of-00002.safetensors"
        safetensors.torch.save_file({name: tensors[name] for name in part}, f"{folder}/{file}", metadata={"format": "pt"})
        weights.update({name: file for name in part})
    json.dump({"metadata": {"total_size": 1}, "weight_map": weights}, open(f"{folder}/other.safetensors.index.json", "w"), indent=2)
    tdict.rewrite(f"{folder}/other.safetensors.index.json", f"{folder}/joined.safetensors", without_structure=True)
    assert open(f"{folder}/joined.safetensors", "rb").read() == open(f"{folder}/theirs.safetensors", "rb").read(), "other bytes"


def check_tensordict(tdict, folder):
    td = random_td()
    to_safetensors(td, f"{folder}/td.safetensors")
    tdict.rewrite(f"{folder}/td.safetensors", f"{folder}/again.safetensors")
    same_tds(from_safetensors(f"{folder}/again.safetensors"), td)
    a, b = header_of(f"{folder}/td.safetensors"), header_of(f"{folder}/again.safetensors")
    assert json.loads(a.pop("__metadata__")["tensordict"]) == json.loads(b.pop("__metadata__")["tensordict"])
    assert list(a.items()) == list(b.items())
    # A lazy stack is read as one TensorDict.
    stack = TensorDict.lazy_stack([TensorDict({"x": torch.rand(3)}, []) for _ in range(2)])
    to_safetensors(stack, f"{folder}/stack.safetensors")
    tdict.rewrite(f"{folder}/stack.safetensors", f"{folder}/dense.safetensors")
    dense = from_safetensors(f"{folder}/dense.safetensors")
    assert dense.batch_size == stack.batch_size and torch.equal(dense["x"], stack["x"])


def check_marks(tdict, folder):
    """Checks that TensorDict reads ragged leaves and columns that tdict wrote, and that tdict keeps their structure."""
    marked = {"batch_size": [2], "names": None, "tdict": "ragged",
              "keys": {"values": {"tensor": "r.values", "unbatched": True}, "offsets": {"tensor": "r.offsets", "unbatched": True}}}
    column = {"non_tensor": ["x", None], "tdict": "column", "shape": [2]}
    root = {"batch_size": [2], "names": None, "keys": {"r": {"td": marked}, "c": column}}
    tensors = {"r.values": torch.rand(5, 3), "r.offsets": torch.tensor([0, 4, 5])}
    safetensors.torch.save_file(tensors, f"{folder}/a.safetensors", {"tensordict": json.dumps({"version": 1, "root": root})})
    tdict.rewrite(f"{folder}/a.safetensors", f"{folder}/b.safetensors")
    found = from_safetensors(f"{folder}/b.safetensors")
    assert found.batch_size == torch.Size([2]) and found.get("c").data == ["x", None]
    same_tensors({f"r.{k}": v._base_tensor() for k, v in found["r"].items()}, tensors)
    assert json.loads(header_of(f"{folder}/b.safetensors")["__metadata__"]["tensordict"])["root"] == root


def main():
    tdict = Tdict(sys.argv[1])
    for seed in range(20):
        random.seed(seed)
        with tempfile.TemporaryDirectory() as folder:
            check_plain(tdict, folder)
            check_shards(tdict, folder)
            check_tensordict(tdict, folder)
            check_marks(tdict, folder)
    print(f"20 seeds, {len(DTYPES)} dtypes; safetensors {safetensors.__version__}, torch {torch.__version__}, tensordict {tensordict.__version__}")


if __name__ == "__main__":
    main()
