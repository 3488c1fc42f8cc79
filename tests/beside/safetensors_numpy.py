#!/usr/bin/env python3
"""Exchanges safetensors files between tdict and the package safetensors, as NumPy arrays, in both directions.
safetensors.py also compares dtypes that NumPy lacks and TensorDict's metadata, but needs torch and tensordict.

usage: safetensors_numpy.py LIBRARY
LIBRARY is libtdict.so. Exits with 77 if a package is missing."""

import json
import os
import random
import sys
import tempfile

if "--help" in sys.argv:
    sys.exit(print(__doc__))

from numpy_files import SHAPES, TYPES, np, random_array, same
from tdict_files import Tdict

# This folder has a file safetensors.py, so remove the folder from the search path.
sys.path = [folder for folder in sys.path if os.path.abspath(folder or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import safetensors
    from safetensors.numpy import load_file, save_file
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

KINDS = [kind for kind in TYPES if kind != "c16"]  # safetensors has no complex128
ODD_NAMES = ["x", "a.b.c", 'odd "key" \\ with\ttab', "é漢.sp ace/:*", "\x01\x7f", "\U0001f600", "0", "__metadata", "n" * 300]


def random_arrays():
    arrays = {}
    for kind in KINDS:
        for shape in random.sample(SHAPES, 3):
            name = f"{random.choice(['', 'model.layers.0.', 'a.b.'])}{kind.replace('?', 'b')}_{'x'.join(map(str, shape))}"
            arrays[name] = random_array(kind, shape)
    for name in random.sample(ODD_NAMES, 4):
        arrays[name] = random_array(random.choice(KINDS), random.choice(SHAPES))
    order = list(arrays)
    random.shuffle(order)
    return {name: arrays[name] for name in order}


def read(path):
    with open(path, "rb") as file:
        return file.read()


def same_arrays(path, wanted):
    found = load_file(path)
    assert set(found) == set(wanted), set(found) ^ set(wanted)
    for name, array in wanted.items():
        same(found[name], array, name)


def check_file(tdict, folder, arrays):
    """Checks that the package reads files that tdict wrote, and that tdict writes the same bytes as the package."""
    theirs, ours = f"{folder}/theirs.safetensors", f"{folder}/ours.safetensors"
    save_file(arrays, theirs)
    for flat in (False, True):
        tdict.rewrite(theirs, ours, flat=flat, without_structure=True)
        same_arrays(ours, arrays)
        assert read(ours) == read(theirs), "other bytes"
        tdict.rewrite(theirs, ours, flat=flat)  # with TensorDict's entry
        same_arrays(ours, arrays)
    tdict.rewrite(ours, f"{folder}/again.safetensors", without_structure=True)
    same_arrays(f"{folder}/again.safetensors", arrays)
    save_file(arrays, theirs, {"format": "np", "more": "text"})
    tdict.rewrite(theirs, ours, without_structure=True)
    same_arrays(ours, arrays)


def check_shards(tdict, folder, arrays):
    save_file(arrays, f"{folder}/theirs.safetensors")
    tdict.rewrite(f"{folder}/theirs.safetensors", f"{folder}/model.safetensors.index.json", flat=True, max_shard_bytes=200)
    with open(f"{folder}/model.safetensors.index.json") as file:
        index = json.load(file)
    assert set(index["weight_map"]) == set(arrays)
    for shard in set(index["weight_map"].values()):
        same_arrays(f"{folder}/{shard}", {name: arrays[name] for name in arrays if index["weight_map"][name] == shard})
    names = sorted(arrays)
    weights = {}
    for i in range(2):  # shards with the names that the package transformers uses
        part = {name: arrays[name] for name in names[i::2]}
        save_file(part, f"{folder}/other-{i + 1:05d}-of-00002.safetensors", {"format": "pt"})
        weights.update({name: f"other-{i + 1:05d}-of-00002.safetensors" for name in part})
    with open(f"{folder}/other.safetensors.index.json", "w") as file:
        json.dump({"metadata": {"total_size": 1}, "weight_map": weights}, file, indent=2)
    tdict.rewrite(f"{folder}/other.safetensors.index.json", f"{folder}/joined.safetensors", flat=True, without_structure=True)
    assert read(f"{folder}/joined.safetensors") == read(f"{folder}/theirs.safetensors"), "other bytes"


def main():
    tdict = Tdict(sys.argv[1])
    random.seed(19)
    with tempfile.TemporaryDirectory() as folder:
        check_file(tdict, folder, {})
        for kind in KINDS:
            for shape in SHAPES:
                check_file(tdict, folder, {"x": random_array(kind, shape)})
        for seed in range(20):
            random.seed(seed)
            check_file(tdict, folder, random_arrays())
            check_shards(tdict, folder, random_arrays())
    print(f"20 seeds with {len(KINDS)} dtypes; safetensors {safetensors.__version__}, NumPy {np.__version__}")


if __name__ == "__main__":
    main()
