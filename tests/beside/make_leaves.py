#!/usr/bin/env python3
"""Records chains of random operations on TensorDict's classes NonTensorData, NonTensorStack and UnbatchedTensor.

usage: make_leaves.py COUNT SEED FILE [--load]
A line is a batch size, the operations, "|", and the result: its batch size, the values of `s` and of `w` for each element
in C order, and the elements of `u`. tests/beside/leaves_replay.c repeats the operations with tdict. Operations that
TensorDict refuses are not recorded. In some operations, tdict saves a tree and opens the file. With --load, TensorDict
also saves trees, to the folder FILE.files, for tdict to open. Keep this folder with the record."""

import os
import random
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import tensordict
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict, UnbatchedTensor


FILES = ["", 0]  # the folder for files that TensorDict saves, and how many it has saved


def column(shape, first):
    """Returns the texts "<first>", "<first + 1>" and so on, in a stack of the given shape."""
    if not shape:
        return NonTensorData(str(first))
    step = 1
    for size in shape[1:]:
        step *= size
    return NonTensorStack(*(column(shape[1:], first + i * step) for i in range(shape[0])))


def make(shape, first):
    """Returns a tree with a column, a value for the whole tree and an unbatched tensor."""
    td = TensorDict({"x": torch.zeros(shape)}, batch_size=shape)
    td.set("s", column(shape, first))
    td.set("w", NonTensorData(f"w{first}", batch_size=shape))
    td.set("u", UnbatchedTensor(torch.arange(5)))
    return td


def flat(value):
    return [x for part in value for x in flat(part)] if isinstance(value, (list, tuple)) else [value]


def values(td, key):
    """Returns the values of a leaf, one for each element."""
    leaf = td._get_str(key, None)
    if isinstance(leaf, NonTensorData):
        return [leaf.data] * td.numel()
    return flat(leaf.tolist())


def dump(td):
    unbatched = td.get("u")
    unbatched = unbatched.data if isinstance(unbatched, UnbatchedTensor) else unbatched
    sizes = ",".join(map(str, td.batch_size)) or "-"
    return " ".join([sizes, ",".join(values(td, "s")), ",".join(values(td, "w")), ",".join(map(str, unbatched.tolist()))])


def factor(n, rng):
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    a = rng.choice(divisors)
    return [a, n // a]


def step(td, rng):
    """Runs a random operation. Returns its words for the record and the result."""
    ndim = td.ndim
    d = rng.randrange(ndim)
    size = td.shape[d]
    before = (slice(None),) * d
    kinds = "at range list stack stack2 cat cat2 reshape permute unsqueeze squeeze expand unbind split save load"
    kind = rng.choice(kinds.split())
    if kind == "save":  # tdict saves the tree and opens the file
        return f"save {rng.choice(['safetensors', 'memmap', 'td', 'tdz'])}", td
    if kind == "load" and not FILES[0]:
        return step(td, rng)
    if kind == "load":  # TensorDict saves the tree, and tdict opens the file
        FILES[1] += 1
        name = f"{FILES[1]}.{rng.choice(['memmap', 'tdz'])}"
        os.makedirs(FILES[0], exist_ok=True)
        td.exclude("u").clone().save(f"{FILES[0]}/{name}")  # TensorDict refuses to save unbatched tensors
        return f"load {name}", td
    if kind == "at":
        i = rng.randrange(size)
        return f"at {d} {i}", td[before + (i,)]
    if kind == "range":
        a = rng.randrange(size)
        b = rng.randint(a + 1, size)
        s = rng.randint(1, 2)
        return f"range {d} {a} {b} {s}", td[before + (slice(a, b, s),)]
    if kind == "list":
        at = [rng.randrange(size) for _ in range(rng.randint(1, 3))]
        return f"list {d} {','.join(map(str, at))}", td[before + (torch.tensor(at),)]
    if kind in ("stack", "stack2"):
        other = td if kind == "stack" else make(tuple(td.shape), 100)
        d = rng.randint(0, ndim)
        return f"{kind} {d}", torch.stack([td, other], d)
    if kind in ("cat", "cat2"):
        other = td if kind == "cat" else make(tuple(td.shape), 100)
        return f"{kind} {d}", torch.cat([td, other], d)
    if kind == "reshape":
        shape = factor(td.numel(), rng)
        return f"reshape {shape[0]},{shape[1]}", td.reshape(*shape)
    if kind == "permute":
        order = rng.sample(range(ndim), ndim)
        return f"permute {','.join(map(str, order))}", td.permute(*order)
    if kind == "unsqueeze":
        d = rng.randint(0, ndim)
        return f"unsqueeze {d}", td.unsqueeze(d)
    if kind == "squeeze":
        return "squeeze", td.squeeze()
    if kind == "expand":
        return "expand 2", td.expand(2, *td.shape)
    if kind == "unbind":
        i = rng.randrange(size)
        return f"unbind {d} {i}", td.unbind(d)[i]
    every = rng.randint(1, size)
    i = rng.randrange((size + every - 1) // every)
    return f"split {d} {every} {i}", td.split(every, d)[i]


def main():
    count, seed, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    rng = random.Random(seed)
    FILES[0] = name + ".files" if "--load" in sys.argv else ""
    refused = 0
    with open(name, "w") as out:
        out.write(f"# TensorDict {tensordict.__version__}, PyTorch {torch.__version__}, seed {seed}\n")
        while count:
            shape = tuple(rng.randint(1, 3) for _ in range(rng.randint(1, 2)))
            td, texts = make(shape, 0), []
            try:
                while td.ndim and td.ndim < 4 and td.numel() < 30 and len(texts) < 3:
                    text, td = step(td, rng)
                    texts.append(text)
                line = f"{','.join(map(str, shape))} ; {' ; '.join(texts)} | {dump(td)}\n"
            except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, NotImplementedError, KeyError) as error:
                refused += 1
                print(" ; ".join(texts), type(error).__name__, str(error)[:100], file=sys.stderr)
                continue
            out.write(line)
            count -= 1
    print(refused, "chains refused by TensorDict", file=sys.stderr)


main()
