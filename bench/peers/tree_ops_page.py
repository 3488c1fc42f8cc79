#!/usr/bin/env python3
"""Writes the tables of docs/container.md between its marks, from the record that tree_ops.py made.

usage: tree_ops_page.py [--check] RECORD.json PAGE.md"""

import json
import pathlib
import sys

BEGIN, END = "<!-- tree_ops begin -->\n", "<!-- tree_ops end -->"
ROWS = [  # what, key, the most that it may be of TensorDict's time, of the floor's, the floor's key
    ("set 1000 tensors", "set", 40, 3, "set_floor"),
    ("get a key", "get", 40, None, "get_floor"),
    ("get a path of three keys", "get_deep", 40, None, None),
    ("slice 1000 leaves", "slice", 60, None, None),
    ("shallow clone of 1000 leaves", "clone", 60, None, None),
    ("flatten_keys of 1000 leaves in 100 trees", "flatten_keys", 20, None, None),
    ("stack 32 samples of 7 leaves", "stack", None, 1.2, "stack_floor"),
    ("the same into an existing tree", "stack_into", None, 1.2, "stack_into_floor"),
    ("index_get by a list: 512 of 8192 rows of 5 leaves", "gather", None, 2, "gather_floor"),
    ("by a mask", "gather_mask", None, 2, "gather_floor"),
    ("by a list, into an existing tree", "gather_into", None, 2, "gather_floor"),
    ("index_set by a list", "scatter", None, 2, "gather_floor"),
    ("by a mask", "scatter_mask", None, 2, "gather_floor"),
    ("fetch_batch of tdict_dataset_from_tree()", "fetch", None, 2, "gather_floor"),
]


def seconds(value):
    return f"{value * 1e9:.1f} ns" if value < 1e-6 else f"{value * 1e6:.1f} µs" if value < 1e-3 else f"{value * 1e3:.2f} ms"


def verdict(value, limit):
    return "" if limit is None else " (met)" if value <= limit else " (**not met**)"


def table(record):
    ours, theirs = record["tdict"], record["TensorDict"]
    lines = [
        f"{record['machine']}; {record['date']}; TensorDict {record['tensordict']}, PyTorch {record['torch']}; medians of "
        f"{record['rounds']} runs of each in turn, the smallest time of a run; `{record['command']}`", "",
        "| | tdict | TensorDict | TensorDict / tdict | at least | floor | tdict / floor | at most |", "|---|---|---|---|---|---|---|---|"]
    for what, key, peer, floor, floor_key in ROWS:
        mine, other = ours[key], theirs.get(key)
        base = ours.get(floor_key) if floor_key else None
        lines.append(
            f"| {what} | {seconds(mine)} | {seconds(other) if other else '-'} | {f'{other / mine:.1f}' if other else '-'} | "
            f"{f'{peer}{verdict(-other / mine, -peer)}' if peer and other else '-'} | {seconds(base) if base else '-'} | "
            f"{f'{mine / base:.2f}' if base else '-'} | {f'{floor}{verdict(mine / base, floor)}' if floor and base else '-'} |")
    lines += ["", "| keys | set, a key | the floor's | get, a key | bytes of the tree, a key |", "|---|---|---|---|---|"]
    for n in (10, 100, 1000, 10000, 100000):
        lines.append(f"| {n} | {seconds(ours[f'set_{n}'] / n)} | {seconds(ours[f'set_floor_{n}'] / n)} | {seconds(ours[f'get_{n}'])} | {ours[f'bytes_{n}'] / n:.1f} |")
    lines += ["", f"An empty tree takes {ours['bytes_empty']:.0f} bytes of the heap; the stack moves "
              f"{ours['stack_bytes'] / 1e6:.2f} MB. Bytes are those of `mallinfo2`, tensors not counted. The floor is plain C for the "
              "same work: a table with open addressing whose keys are copied, `memcpy` for stack, and for rows a loop of `memcpy` over rows "
              "of 68, 24, 4, 4 and 1 bytes into existing memory; what is cleverer can be below it.", ""]
    return "\n".join(lines)


def main():
    check = sys.argv[1] == "--check"
    record, page = sys.argv[1 + check:]
    text = pathlib.Path(page).read_text()
    head, rest = text.split(BEGIN)
    new = head + BEGIN + table(json.loads(pathlib.Path(record).read_text())) + rest[rest.index(END):]
    if not check:
        pathlib.Path(page).write_text(new)
    elif new != text:
        sys.exit(f"{page} is not what {record} gives: run bench/peers/tree_ops_page.py")


main()
