#!/usr/bin/env python3
"""Compares the times of operations on whole trees in tdict, in TensorDict and in plain C (the floor). Prints a table.

usage: tree_ops.py TDICT_TREE_OPS [ROUNDS]
Runs TDICT_TREE_OPS (the program tdict-tree-ops) and the same operations with TensorDict alternately, ROUNDS times
(default 5). TensorDict must be installed for this Python. The table shows the median of the rounds' shortest times."""

import datetime
import json
import os
import statistics
import subprocess
import sys
import time

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import tensordict
import torch
from tensordict import TensorDict

torch.set_num_threads(1)
LEAVES, SAMPLES, SAMPLE_LEAVES, SIDE = 1000, 32, 7, 64
ROWS, PICKED = 8192, 512


def best(fn, rounds=15):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        fn()
        times.append(time.perf_counter() - begin)
    return min(times)


def peer():
    keys = [f"key{i}" for i in range(LEAVES)]
    leaves = [torch.zeros(8) for _ in keys]
    flat = TensorDict(dict(zip(keys, leaves)), [8])
    deep = TensorDict({}, [8])
    deep.set(("next", "obs", "pixels"), leaves[0])
    nested = TensorDict({f"g{i}": {f"k{j}": leaves[10 * i + j] for j in range(10)} for i in range(100)}, [8])
    samples = [TensorDict({keys[i]: torch.zeros(SIDE, SIDE) for i in range(SAMPLE_LEAVES)}, []) for _ in range(SAMPLES)]
    path = ("next", "obs", "pixels")

    def build():
        td = TensorDict({}, [8])
        for key, leaf in zip(keys, leaves):
            td.set(key, leaf)

    def get():
        for key in keys:
            flat.get(key)

    def get_deep():
        for _ in keys:
            deep.get(path)

    table = TensorDict({"a": torch.zeros(ROWS, 17), "b": torch.zeros(ROWS, 6), "c": torch.zeros(ROWS), "d": torch.zeros(ROWS),
                        "e": torch.zeros(ROWS, dtype=torch.bool)}, [ROWS])
    picked = torch.arange(PICKED) * 5003 % ROWS
    mask = torch.zeros(ROWS, dtype=torch.bool)
    mask[picked] = True
    part = table[picked]

    def scatter():
        table[picked] = part

    def scatter_mask():
        table[mask] = part

    return {
        "gather": best(lambda: table[picked], 100),
        "gather_mask": best(lambda: table[mask], 100),
        "scatter": best(scatter, 100),
        "scatter_mask": best(scatter_mask, 100),
        "set": best(build),
        "get": best(get) / LEAVES,
        "get_deep": best(get_deep) / LEAVES,
        "slice": best(lambda: flat[2:5]),
        "clone": best(lambda: flat.clone(recurse=False)),
        "flatten_keys": best(lambda: nested.flatten_keys(".")),
        "stack": best(lambda: torch.stack(samples)),
    }


def machine():
    with open("/proc/cpuinfo") as info:
        name = next((line.split(":", 1)[1].strip() for line in info if line.startswith("model name")), "?")
    return f"{name}, {os.cpu_count()} CPUs"


OPERATIONS = [  # title, key in the program's output, key of the floor
    ("set 1000 tensors", "set", "set_floor"),
    ("get a key", "get", "get_floor"),
    ("get a path of three keys", "get_deep", None),
    ("slice 1000 leaves", "slice", None),
    ("shallow clone of 1000 leaves", "clone", None),
    ("flatten_keys of 1000 leaves in 100 trees", "flatten_keys", None),
    ("stack 32 samples of 7 leaves", "stack", "stack_floor"),
    ("the same into an existing tree", "stack_into", "stack_into_floor"),
    ("index_get by a list: 512 of 8192 rows of 5 leaves", "gather", "gather_floor"),
    ("index_get by a mask", "gather_mask", "gather_floor"),
    ("index_get by a list, into an existing tree", "gather_into", "gather_floor"),
    ("index_set by a list", "scatter", "gather_floor"),
    ("index_set by a mask", "scatter_mask", "gather_floor"),
    ("fetch_batch of tdict_dataset_from_tree()", "fetch", "gather_floor"),
    ("index_into by a list: 65536 of 1,000,000 rows of 512 bytes", "large_into_0", "large_floor"),
    ("the same with 1 pool thread", "large_into_1", "large_floor"),
    ("the same with 2 pool threads", "large_into_2", "large_floor"),
    ("index_set by the same list", "large_set_0", "large_floor"),
    ("the same with 1 pool thread", "large_set_1", "large_floor"),
    ("the same with 2 pool threads", "large_set_2", "large_floor"),
]


def seconds(value):
    return f"{value * 1e9:.1f} ns" if value < 1e-6 else f"{value * 1e6:.1f} us" if value < 1e-3 else f"{value * 1e3:.2f} ms"


def print_table(ours, theirs):
    print("| operation | tdict | TensorDict | TensorDict / tdict | floor | tdict / floor |")
    print("|---|---|---|---|---|---|")
    for what, key, floor_key in OPERATIONS:
        mine, other, floor = ours[key], theirs.get(key), ours.get(floor_key)
        peer = f"{seconds(other)} | {other / mine:.1f}" if other else "- | -"
        print(f"| {what} | {seconds(mine)} | {peer} | {f'{seconds(floor)} | {mine / floor:.2f}' if floor else '- | -'} |")
    print("\n| keys | set, a key | the floor's | get, a key | bytes of the tree, a key |\n|---|---|---|---|---|")
    for n in (10, 100, 1000, 10000, 100000):
        print(f"| {n} | {seconds(ours[f'set_{n}'] / n)} | {seconds(ours[f'set_floor_{n}'] / n)} | "
              f"{seconds(ours[f'get_{n}'])} | {ours[f'bytes_{n}'] / n:.1f} |")


def main():
    program = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout))
        theirs.append(peer())
    middle = lambda runs: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    print(f"{machine()}; {datetime.date.today().isoformat()}; TensorDict {tensordict.__version__}, PyTorch "
          f"{torch.__version__}; medians of {rounds} rounds\n")
    print_table(middle(ours), middle(theirs))


main()
