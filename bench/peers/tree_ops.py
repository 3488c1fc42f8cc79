#!/usr/bin/env python3
"""What operations on whole trees cost, tdict beside TensorDict and a plain C floor, measured in turn.

usage: tree_ops.py TDICT_TREE_OPS FILE.json [ROUNDS]
Runs the program tdict-tree-ops and the same work with TensorDict (which must be installed for this Python) one after the
other, ROUNDS times (5), and keeps the median of each one's smallest times, so that a machine that is busy at times is as
unkind to both. docs/container.md shows the file; bench/peers/tree_ops_page.py writes its table."""

import datetime
import json
import os
import statistics
import subprocess
import sys
import time

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


def main():
    program, name = sys.argv[1], sys.argv[2]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(json.loads(subprocess.run([program], capture_output=True, text=True, check=True).stdout))
        theirs.append(peer())
    middle = lambda runs: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
    record = {
        "command": "bench/peers/tree_ops.py build/release/bench/tdict-tree-ops docs/container.json",
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "tensordict": tensordict.__version__,
        "torch": torch.__version__,
        "rounds": rounds,
        "tdict": middle(ours),
        "TensorDict": middle(theirs),
    }
    with open(name, "w") as out:
        json.dump(record, out, indent=1)
        out.write("\n")


main()
