#!/usr/bin/env python3
"""Records random jagged tensors of PyTorch, for tests/beside/ragged_replay.c.

usage: make_ragged.py COUNT SEED FILE
Each case has random rows. The script records their lengths, then `values()`, `offsets()`, `to_padded_tensor()` and
`unbind()` of the nested tensor that torch.nested makes from the rows, and one row, selected by an index. All numbers
are small integers."""

import random
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import torch


def numbers(tensor):
    return " ".join(str(int(x)) for x in tensor.reshape(-1).tolist())


def record(r, file):
    count, width = r.randrange(1, 8), r.randrange(1, 4)
    lengths = [r.randrange(0, 6) for _ in range(count)]
    if not any(lengths):
        lengths[0] = 1
    rows = [torch.tensor([[r.randrange(-99, 100) for _ in range(width)] for _ in range(n)], dtype=torch.float64)
            .reshape(n, width) for n in lengths]
    nested = torch.nested.nested_tensor(rows, layout=torch.jagged)
    fill, at = r.randrange(-9, 10), r.randrange(count)
    padded = nested.to_padded_tensor(float(fill))
    print(f"rows {count} {width} {' '.join(map(str, lengths))}", file=file)
    for row in rows:
        print("given", numbers(row), file=file)
    print("values", nested.values().shape[0], numbers(nested.values()), file=file)
    print("offsets", numbers(nested.offsets()), file=file)
    print("padded", fill, padded.shape[1], numbers(padded), file=file)
    for row in nested.unbind():
        print("row", row.shape[0], numbers(row), file=file)
    print("index", at, nested[at].shape[0], numbers(nested[at]), file=file)


def main():
    count, seed, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    r = random.Random(seed)
    with open(path, "w", encoding="utf-8") as file:
        print(f"# PyTorch {torch.__version__}, {count} cases, seed {seed}", file=file)
        for _ in range(count):
            record(r, file)


main()
