#!/usr/bin/env python3
"""Records random operations on TensorDict's lazy stacks, for tests/beside/lazy_replay.c.

usage: make_lazy_stack.py COUNT SEED FILE
Each line is an operation on a lazy stack of int64 trees, `|`, and then the result or `fails`. Operations in which tdict
intentionally differs from TensorDict (see tdict/lazy_stack.h) are not recorded."""

import random
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import tensordict
import torch
from tensordict import TensorDict, lazy_stack

KEYS = ["x", "y", "c\\.d", "n.x", "n.y", "n.m.y"]
EPISODE = 25


def split(path):
    keys = tuple(key.replace("\0", ".") for key in path.replace("\\.", "\0").split("."))
    return keys if len(keys) > 1 else keys[0]


def join(key):
    keys = (key,) if isinstance(key, str) else key
    return ".".join(key.replace(".", "\\.") for key in keys)


def numbers(values):
    return ",".join(map(str, values))


def tensor(t):
    return f"({numbers(t.shape)}){numbers(t.flatten().tolist())}"


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.first = 1

    def values(self, shape):
        count = 1
        for n in shape:
            count *= n
        t = torch.arange(self.first, self.first + count, dtype=torch.int64).reshape(shape)
        self.first += max(count, 1)
        return t

    def item(self, batch):
        """Returns a new item and its recorded words. Usually uses the episode's shapes, so that many operations
        succeed."""
        item, words = TensorDict({}, batch), []
        for path in KEYS:
            if self.r.random() < 0.08:
                continue
            more = list(self.common[path])
            if more and self.r.random() < 0.15:
                more[self.r.randrange(len(more))] = self.r.randrange(4)
            elif self.r.random() < 0.03:
                more.append(1)
            words.append(f"{path}={self.first}:{numbers(more)}")
            item.set(split(path), self.values(list(batch) + more))
        return item, " ".join(words)

    def leaves(self, td):
        found = [(join(k), v) for k, v in td.items(True, True)]
        return " ".join(f"{path}={tensor(v)}" for path, v in sorted(found))

    def order(self, stack):
        return numbers(next(i for i, known in enumerate(self.known) if known is item) for item in stack.tensordicts)

    def episode(self):
        self.batch = [self.r.randrange(1, 3) for _ in range(self.r.randrange(3))]
        self.common = {path: [self.r.randrange(1, 4) for _ in range(self.r.randrange(3))] for path in KEYS}
        self.known = []
        yield f"reset {numbers(self.batch) or '-'}", None
        for i in range(self.r.randrange(1, 4)):
            item, text = self.item(self.batch)
            self.known.append(item)
            yield f"item {text}", None
        self.stack = lazy_stack(self.known, 0)
        for _ in range(EPISODE):
            yield from getattr(self, "do_" + self.r.choice(
                ["keys", "shape", "get", "list", "range", "pick", "set", "append", "insert", "pad", "dense", "tree", "lock"]))()

    def path(self):
        return self.r.choice(KEYS + ["n", "q"])

    def attempt(self, line, fn):
        try:
            return line, fn()
        except Exception:
            return line, "fails"

    def do_keys(self):
        yield "keys", " ".join(sorted(join(k) for k in self.stack.keys(True)))

    def ndims(self, path):
        found = [item.get(split(path), None) for item in self.stack.tensordicts]
        return {t.ndim for t in found if isinstance(t, torch.Tensor)} if all(t is not None for t in found) else set()

    def do_shape(self):
        path = self.path()
        if path == "n" or len(self.ndims(path)) > 1:
            return
        yield self.attempt(f"shape {path}", lambda: numbers(self.stack.get_item_shape(split(path))))

    def do_get(self):
        path = self.path()
        if path != "n":
            yield self.attempt(f"get {path}", lambda: tensor(self.stack[split(path)]))

    def do_list(self):
        path = self.path()
        if path != "n":
            yield self.attempt(f"list {path}", lambda: " ".join(
                tensor(t) for t in [item[split(path)] for item in self.stack.tensordicts]))

    def do_range(self):
        start, stop = (self.r.choice([None] + list(range(-5, 6))) for _ in range(2))
        if len(range(*slice(start, stop).indices(len(self.stack.tensordicts)))):
            words = " ".join("-" if n is None else str(n) for n in (start, stop))
            yield self.attempt(f"range {words}", lambda: self.order(self.stack[start:stop]))

    def do_pick(self):
        count = len(self.stack.tensordicts)
        at = [self.r.randrange(-count - (self.r.random() < 0.1), count) for _ in range(self.r.randrange(1, 5))]
        yield self.attempt(f"pick {numbers(at)}", lambda: self.order(self.stack[at]))

    def do_set(self):
        path = self.path()
        locked = [item.is_locked for item in self.stack.tensordicts]
        if path == "n" or (any(locked) and not all(locked)):  # TensorDict could change only the unlocked items
            return
        shape = [len(self.stack.tensordicts)] + self.batch + self.common.get(path, [])
        if self.r.random() < 0.15:
            shape[0] += 1
        if self.batch and self.r.random() < 0.1:
            shape[1] += 1
        line = f"set {path} {self.first} {numbers(shape)}"
        value = self.values(shape)
        yield self.attempt(line, lambda: self.stack.set(split(path), value) is None or " ; ".join(
            self.leaves(item) for item in self.stack.tensordicts))

    def add(self, line, fn):
        batch = self.batch + ([2] if self.r.random() < 0.1 else [])
        item, text = self.item(batch)
        self.known.append(item)
        line, result = self.attempt(f"{line} {numbers(batch) or '-'} {text}", lambda: fn(item) or self.order(self.stack))
        if result == "fails":
            self.known.pop()
        return line, result

    def do_lock(self):
        """Locks one item, or unlocks all items, because TensorDict unlocks items of a locked stack only together."""
        at = self.r.randrange(len(self.stack.tensordicts))
        if self.r.random() < 0.5:
            yield self.attempt(f"lock {at}", lambda: self.stack.tensordicts[at].lock_() is None or "")
        else:
            for item in self.stack.tensordicts:
                if not self.stack.is_locked:
                    item.unlock_()
            yield self.attempt("unlock", lambda: self.stack.unlock_() is None or "")

    def do_append(self):
        if len(self.stack.tensordicts) < 5:
            yield self.add("append", self.stack.append)

    def do_insert(self):
        count = len(self.stack.tensordicts)
        at = self.r.randrange(-count, count + 1)
        if count < 5:
            yield self.add(f"insert {at}", lambda item: self.stack.insert(at, item))

    def do_pad(self):
        path = self.path()
        if path == "n" or len(self.ndims(path)) != 1 or -1 not in self.stack.get_item_shape(split(path)):
            return
        sizes = [set(n) for n in zip(*(item[split(path)].shape for item in self.stack.tensordicts))]
        if not any(len(n) > 1 and 1 in n for n in sizes):  # TensorDict repeats elements along a dimension of size 1
            yield self.attempt(f"pad {path} 7", lambda: tensor(
                self.stack.get(split(path), as_padded_tensor=True, padding_value=7)))

    def do_dense(self):
        yield self.attempt("dense", lambda: self.leaves(torch.stack(list(self.stack.tensordicts), 0)))

    def do_tree(self):
        yield self.attempt("tree n", lambda: " ; ".join(self.leaves(item) for item in self.stack["n"].tensordicts))


def main():
    count, seed, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    maker, done, failed = Maker(seed), 0, 0
    with open(name, "w") as out:
        print(f"# TensorDict {tensordict.__version__}, PyTorch {torch.__version__}, seed {seed}, {count} operations",
              file=out)
        while done < count:
            for line, result in maker.episode():
                print(line if result is None else f"{line} | {result}", file=out)
                done += result is not None
                failed += result == "fails"
    print(f"{done} operations, {failed} fail")


main()
