#!/usr/bin/env python3
"""Records random operations of the class TensorDict, for tests/beside/replay.c.

usage: make_operations.py COUNT SEED FILE [--load]
In some operations, tdict saves a tree and opens the file. With --load, TensorDict also saves trees, to the folder
FILE.files, for tdict to open. Keep this folder with the record.
Each line is an operation on a pool of four trees of int64 tensors and texts, `|`, and then `fails` or the result: keys
in order, batch sizes, shapes, elements. Trees share nodes: a child is put into several trees (`adopt`), or a slot of
the pool is a handle of another slot's child (`handle`). After a change, a `show` line follows for each other slot that
shares a changed tree. Operations in which tdict intentionally differs (see docs/container.md) are not recorded, but
counted, and the counts are printed. If a tree has a child that no longer fits its batch size, tdict refuses the
operation. It is then recorded as a failure without running TensorDict, and also counted."""

import collections
import random
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

HERE = sys.path.pop(0)  # this folder has a file safetensors.py, which would hide the package
import safetensors.torch  # noqa: E402, F401
import tensordict
import torch
from tensordict import NonTensorStack, TensorDict

sys.path.insert(0, HERE)
from common import KEYS, LEAVES, POOL, REFUSED_BY_TENSORDICT, TEXTS, USES_BATCH, Wanted, dump, escape, ids_of, in_order_of, own_nodes, some_locked
from file_operations import FileOperations
from key_operations import KeyOperations

EPISODE = 60


class Maker(KeyOperations, FileOperations):
    def __init__(self, seed, files):
        self.files, self.saved = files, 0
        self.r = random.Random(seed)
        self.pool = [None] * POOL
        self.shape = []
        self.has_texts = False
        self.next = 1
        self.wanted = collections.Counter()
        self.done = collections.Counter()
        self.failed = collections.Counter()

    # making trees
    def values(self, shape):
        count = 1
        for n in shape:
            count *= n
        base = self.next
        self.next += count
        return base, torch.arange(base, base + count).reshape(shape)

    def entries(self, td, prefix=()):
        for key, value in td.items():
            if isinstance(value, LEAVES):
                yield prefix + (key,), value
            else:
                yield from self.entries(value, prefix + (key,))

    def leaves(self, td):
        return [(p, v) for p, v in self.entries(td) if isinstance(v, torch.Tensor)]

    def texts(self, td):
        return [(p, v) for p, v in self.entries(td) if isinstance(v, TEXTS)]

    def nodes(self, td, prefix=()):
        for key, value in td.items():
            if not isinstance(value, LEAVES):
                yield prefix + (key,), value
                yield from self.nodes(value, prefix + (key,))

    def size(self, td):
        return sum(v.numel() + 1 for _, v in self.entries(td))

    def path(self):
        return tuple(self.r.choice(KEYS) for _ in range(self.r.choice([1, 1, 2, 2, 3])))

    def some_path(self, td):
        """Returns a path, usually an existing one."""
        there = [p for p, _ in self.entries(td)] + [p for p, _ in self.nodes(td)]
        return self.r.choice(there) if there and self.r.random() < 0.7 else self.path()

    def through_leaf(self, td, path):
        for key in path[:-1]:
            if key not in td.keys():
                return False
            td = td.get(key)
            if isinstance(td, LEAVES):
                return True
        return False

    def dim(self, td, more=0):
        nb = td.batch_dims + more
        return self.r.randrange(-nb - 1, nb + 1) if self.r.random() < 0.15 else self.r.randrange(max(nb, 1))

    @staticmethod
    def text(path):
        return ".".join(escape(k) for k in path)

    @staticmethod
    def key(path):
        return path if len(path) > 1 else path[0]

    def fill_tree(self, td):
        """Writes new values to the leaves of a tree, in order. Returns the first value."""
        base = self.next
        for path, value in list(self.leaves(td)):
            _, new = self.values(tuple(value.shape))
            td.set(self.key(path), new)
        return base

    def agreement(self, td):
        """Returns "whole" if all entries fit the batch size, "tensors" if only the tensors do, else "not"."""
        bs = td.batch_size
        if any(v.shape[: len(bs)] != bs for _, v in self.leaves(td)):
            return "not"
        below = [v for v in td.values() if not isinstance(v, LEAVES)]
        whole = all(v.batch_size[: len(bs)] == bs and self.agreement(v) == "whole" for v in below)
        return "whole" if whole else "tensors"

    def sharing(self, s):
        """Returns the other slots that share a tree with slot `s`."""
        mine = ids_of(self.pool[s])
        return {k for k in range(POOL) if k != s and self.pool[k] is not None and mine & ids_of(self.pool[k])}

    def check_release(self, d):
        """Refuses to release a locked tree that shares nodes with another slot: tdict would unlock these nodes."""
        td = self.pool[d]
        if td is not None and some_locked(td) and self.sharing(d):
            raise Wanted("a child that tdict unlocks when its locked parent is released")

    def check_elements(self, made):
        if not self.has_texts:
            return
        if 0 in made.batch_size:
            raise Wanted("texts of a tree without elements")
        for value in made.values():
            if isinstance(value, NonTensorStack) and value.batch_size[: made.batch_dims] != made.batch_size:
                raise Wanted("columns that TensorDict returns with a different batch size")
            if not isinstance(value, LEAVES):
                self.check_elements(value)

    def check_distinct(self, td):
        """Refuses a tree that contains a child twice."""
        ids = [id(v) for _, v in self.nodes(td)]
        if len(set(ids)) < len(ids):
            raise Wanted("keys changed in place in a tree with a child at several paths")

    # indexing
    def index(self, td):
        items, texts, left, lists = [], [], list(td.batch_size), 0
        if not left:  # no batch dimensions: only new axes and an ellipsis are valid, and other items test errors
            kinds = self.r.choice([["A"], ["R"], ["N"], ["E"], ["N", "E"], ["E", "N"], ["N", "N"]])
            made = {"A": (0, "A0"), "R": (slice(0, 2, 1), "R0,2,1"), "N": (None, "N"), "E": (Ellipsis, "E")}
            return tuple(made[k][0] for k in kinds), [made[k][1] for k in kinds]
        rest = False
        kinds = self.r.choice(["AARRRNELM", "LLLMR"]) if len(left) > 1 else "AARRRNELM"
        while left and self.r.random() < 0.8:
            n = left[0]
            kind = self.r.choice(kinds)
            if kind == "A":
                i = self.r.randrange(-n - 1, n + 1)
                items.append(i), texts.append(f"A{i}")
                left.pop(0)
            elif kind == "R":
                a, b = self.r.randrange(-4, 5), self.r.randrange(-4, 5)
                s = self.r.choice([1, 1, 2, 3])
                items.append(slice(a, b, s)), texts.append(f"R{a},{b},{s}")
                left.pop(0)
            elif kind == "N":
                items.append(None), texts.append("N")
            elif kind == "E" and not rest:
                items.append(Ellipsis), texts.append("E")
                rest = True
                left = left[self.r.randrange(len(left)):]
            elif kind == "L" and lists < 3 and n:
                lengths = [len(i) if i.dtype != torch.bool else int(i.sum()) for i in items if isinstance(i, torch.Tensor)]
                length = self.r.choice(lengths) if lengths and self.r.random() < 0.7 else self.r.randrange(1, 4)
                where = [self.r.randrange(-n, n) for _ in range(length)]
                items.append(torch.tensor(where, dtype=torch.int64)), texts.append("L" + ",".join(map(str, where)))
                left.pop(0)
                lists += 1
            elif kind == "M" and lists < 2 and not rest and n:
                bits = [self.r.random() < 0.5 for _ in range(n)]
                items.append(torch.tensor(bits)), texts.append("M" + "".join("01"[b] for b in bits))
                left.pop(0)
                lists += 1
        if not items:
            return (0,), ["A0"]
        return tuple(items), texts

    # operations: each returns its line, and a function that runs the operation and returns the trees to show
    def op_new(self, s):
        self.check_release(s)
        shape = [self.r.randrange(1, 4) for _ in range(self.r.randrange(4))]
        td = TensorDict({}, self.shape if self.r.random() < 0.5 else shape)  # half of the trees can share children
        spec = []
        for _ in range(self.r.randrange(1, 5)):
            path = self.path()
            if self.through_leaf(td, path) or any(p[: len(path)] == path for p, _ in self.nodes(td)):
                continue
            extra = [self.r.randrange(1, 4) for _ in range(self.r.randrange(3))]
            base, value = self.values(list(td.batch_size) + extra)
            td.set(self.key(path), value)
            spec.append(f"{self.text(path)}={base}:{','.join(map(str, extra))}")
        for _ in range(self.r.randrange(3) if self.has_texts else 0):
            path = self.path()
            if self.through_leaf(td, path) or any(p[: len(path)] == path for p, _ in self.nodes(td)):
                continue
            word, text = self.new_text(td.batch_size)
            td.set(self.key(path), text)
            spec.append(f"{self.text(path)}={word}")

        def do():
            self.pool[s] = td
            return [td]

        return f"new {s} {','.join(map(str, td.batch_size)) or '-'} {' '.join(spec)}", do

    def keep(self, s, made):
        def do():
            td = own_nodes(made())
            self.check_elements(td)
            if self.size(td) > 400 or td.batch_dims > 5:
                return [td], False
            self.pool[s] = td
            return [td], True

        return do

    def shape_op(self, s, d, name, args, fn):
        td = self.pool[s]
        self.check_release(d)
        return f"{name} {s} {d} {args}", self.keep(d, lambda: fn(td))

    def op_index(self, s, d):
        td = self.pool[s]
        index, texts = self.index(td)
        copies = any(isinstance(i, torch.Tensor) for i in index)  # tdict's copies are in C order
        if copies:
            self.check_lists(td, index)

        def do(t):
            made = t[index].contiguous() if copies else t[index]
            return made.clone(recurse=False) if made is t else made  # tdict would return a new tree

        return self.shape_op(s, d, "index", " ".join(texts), do)

    def check_lists(self, td, index):
        try:
            empty = 0 in td[index].batch_size
        except Exception:
            return
        if empty and any(isinstance(i, torch.Tensor) and i.dtype != torch.bool for i in index):
            raise Wanted("a list with an invalid position, if the result is empty")

    def op_setindex(self, s):
        td = self.pool[s]
        index, texts = self.index(td)
        self.check_lists(td, index)
        if self.texts(td):
            raise Wanted("writing by an index to a tree with texts")
        try:
            value = td[index].clone()
        except Exception:
            raise Wanted("nothing to write") from None
        for i in index:
            if isinstance(i, torch.Tensor) and i.dtype != torch.bool and len(set((i % max(td.batch_size)).tolist())) != len(i):
                raise Wanted("writing by a list with a repeated position")
        if not self.writable(td):
            raise Wanted("writing to overlapping elements")
        value.unlock_()
        base = self.fill_tree(value)

        def do():
            td[index] = value
            return [td]

        return f"setindex {s} {base} {' '.join(texts)}", do

    def writable(self, td):
        return all(v.numel() == 0 or all(st != 0 or n == 1 for st, n in zip(v.stride(), v.shape))
                   for _, v in self.leaves(td))

    def factors(self, n):
        shape = []
        while self.r.random() < 0.6 and len(shape) < 2:
            f = self.r.choice([k for k in range(1, n + 1) if n % k == 0]) if n else 1
            shape.append(f)
            n //= f
        shape.append(n)
        self.r.shuffle(shape)
        if self.r.random() < 0.2:
            shape[self.r.randrange(len(shape))] = self.r.choice([-1, 7])
        return shape

    def op_view(self, s, d):
        shape = self.factors(self.pool[s].numel() if self.pool[s].batch_dims else 1)
        if self.texts(self.pool[s]):
            raise Wanted("view of texts")
        return self.shape_op(s, d, "view", ",".join(map(str, shape)), lambda t: t.view(*shape))

    def op_reshape(self, s, d):
        shape = self.factors(self.pool[s].numel() if self.pool[s].batch_dims else 1)
        return self.shape_op(s, d, "reshape", ",".join(map(str, shape)), lambda t: t.reshape(*shape))

    def op_flatten(self, s, d):
        td = self.pool[s]
        if td.batch_dims == 0:
            raise Wanted("flatten of a tree without batch dimensions")
        a, b = self.r.randrange(td.batch_dims), self.r.randrange(td.batch_dims)
        if a > b:
            raise Wanted("flatten from a later to an earlier dimension")
        return self.shape_op(s, d, "flatten", f"{a} {b}", lambda t: t.flatten(a, b))

    def op_unflatten(self, s, d):
        td = self.pool[s]
        if td.batch_dims == 0:
            raise Wanted("unflatten of a tree without batch dimensions")
        dim = self.r.randrange(td.batch_dims)
        shape = self.factors(td.batch_size[dim])
        return self.shape_op(s, d, "unflatten", f"{dim} {','.join(map(str, shape))}", lambda t: t.unflatten(dim, shape))

    def op_unsqueeze(self, s, d):
        dim = self.dim(self.pool[s], 1)
        return self.shape_op(s, d, "unsqueeze", str(dim), lambda t: t.unsqueeze(dim))

    def op_squeeze(self, s, d):
        td = self.pool[s]
        if self.r.random() < 0.4:
            if td.batch_dims and all(n == 1 for n in td.batch_size):
                raise Wanted("squeeze without arguments if all dimensions have size 1")
            return self.shape_op(s, d, "squeeze", "all", lambda t: t.squeeze())
        dim = self.dim(td)
        if td.batch_dims == 0 or not -td.batch_dims <= dim < td.batch_dims:
            raise Wanted("squeeze of a missing dimension")
        return self.shape_op(s, d, "squeeze", str(dim), lambda t: t.squeeze(dim))

    def op_expand(self, s, d):
        td = self.pool[s]
        shape = [self.r.randrange(1, 3) for _ in range(self.r.randrange(2))]
        for n in td.batch_size:
            shape.append(self.r.randrange(1, 4) if self.r.random() < 0.1 or n == 1 else self.r.choice([n, n, -1]))
        if not shape:
            raise Wanted("expand to no dimensions")
        return self.shape_op(s, d, "expand", ",".join(map(str, shape)), lambda t: t.expand(*shape))

    def op_permute(self, s, d):
        td = self.pool[s]
        order = list(range(td.batch_dims))
        self.r.shuffle(order)
        if not order:
            raise Wanted("permute of a tree without batch dimensions")
        order = [i - td.batch_dims if self.r.random() < 0.2 else i for i in order]
        return self.shape_op(s, d, "permute", ",".join(map(str, order)), lambda t: t.permute(*order))

    def op_transpose(self, s, d):
        a, b = self.dim(self.pool[s]), self.dim(self.pool[s])
        return self.shape_op(s, d, "transpose", f"{a} {b}", lambda t: t.transpose(a, b))

    def pieces(self, s, d, name, args, fn):
        td = self.pool[s]
        self.check_release(d)
        made = []

        def do():
            made.extend(map(own_nodes, fn(td)))
            for piece in made:
                self.check_elements(piece)
            if made:
                self.pool[d] = made[-1]
            return made, bool(made)

        return f"{name} {s} {d} {args}", do

    def op_split(self, s, d):
        td = self.pool[s]
        if td.batch_dims == 0:
            raise Wanted("split of a tree without batch dimensions")
        dim = self.r.randrange(td.batch_dims)
        n = td.batch_size[dim]
        cut = self.r.randrange(n + 1)
        sizes = [cut, n - cut] if self.r.random() < 0.85 else [cut, n - cut + 1]
        return self.pieces(s, d, "split", f"{dim} {','.join(map(str, sizes))}", lambda t: t.split(sizes, dim))

    def op_chunk(self, s, d):
        td = self.pool[s]
        if td.batch_dims == 0:
            raise Wanted("split of a tree without batch dimensions")
        dim, n = self.r.randrange(td.batch_dims), self.r.randrange(1, 5)
        if td.batch_size[dim] == 0:
            raise Wanted("chunks of an empty dimension")
        return self.pieces(s, d, "chunk", f"{dim} {n}", lambda t: t.chunk(n, dim))

    def op_unbind(self, s, d):
        td = self.pool[s]
        if td.batch_dims == 0:
            raise Wanted("split of a tree without batch dimensions")
        dim = self.r.randrange(td.batch_dims)
        return self.pieces(s, d, "unbind", str(dim), lambda t: t.unbind(dim))

    def sibling(self, td):
        other = td.clone()
        other.unlock_()
        if self.r.random() < 0.1 and len(list(other.keys())):
            other.del_(self.r.choice(list(other.keys())))
        base = self.fill_tree(other)
        return other, base, self.fill_texts(other) if self.texts(other) and self.r.random() < 0.7 else "-"

    def op_join(self, s, d):
        td = self.pool[s]
        name = self.r.choice(["stack", "cat"])
        if self.size(td) > 150 or (name == "cat" and td.batch_dims == 0):
            raise Wanted("join of large trees, or cat without batch dimensions")
        dim = self.r.randrange(td.batch_dims + (name == "stack"))
        missing = None
        other, base, texts = self.sibling(td)
        shapes = {p: v.batch_size for p, v in self.texts(td)}
        if any(shapes[p] != v.batch_size for p, v in self.texts(other)):
            raise Wanted("a column with more dimensions than its tree")
        gone = [k for k in td.keys() if k not in other.keys()]
        if gone:
            missing = gone[0]
        fn = torch.stack if name == "stack" else torch.cat
        if missing and name == "stack":
            fn = lambda items, dim: TensorDict.stack(items, dim)
        args = f"{name} {dim} {base} {escape(missing) if missing else '-'} {texts}"
        return self.shape_op(s, d, "join", args, lambda t: fn([t, other], dim))

    def op_pad(self, s, d):
        td = self.pool[s]
        if self.size(td) > 150 or not list(self.leaves(td)):
            raise Wanted("pad_sequence of a large tree or of no tensors")
        if self.texts(td):
            raise Wanted("pad_sequence of texts")
        if td.batch_dims == 0:
            return self.pad_samples(s, d)
        if td.batch_size[0] == 0:
            raise Wanted("pad_sequence of no rows")
        rows = self.r.randrange(1, td.batch_size[0] + 1)
        return self.shape_op(s, d, "pad", str(rows), lambda t: in_order_of(tensordict.pad_sequence([t, t[:rows]]), t))

    def pad_samples(self, s, d):
        """Pads samples without batch dimensions, in which each tensor is a sequence."""
        td, rows = self.pool[s], self.r.randrange(4)
        if self.agreement(td) != "whole" or any(v.batch_dims for _, v in self.nodes(td)):
            raise Wanted("pad_sequence of samples whose children have batch sizes")

        def do(t):
            other = t.clone(recurse=False).unlock_()
            for path, value in list(self.leaves(other)):
                other.set(self.key(path), value[:rows] if value.ndim else value)
            return in_order_of(tensordict.pad_sequence([t, other]), t)

        return self.shape_op(s, d, "pad", str(rows), do)

    def op_every(self, s, d):
        td = self.pool[s]
        if td.batch_dims == 0:
            raise Wanted("split of a tree without batch dimensions")
        dim, size = self.r.randrange(td.batch_dims), self.r.choice([0, 1, 1, 2, 3, 7])
        return self.pieces(s, d, "every", f"{dim} {size}", lambda t: t.split(size, dim))

    def op_write(self, s):
        td = self.pool[s]
        if not self.writable(td):
            raise Wanted("writing to overlapping elements")
        path = self.some_path(td)
        there = dict(self.leaves(td)).get(path)
        if there is None and (dict(self.nodes(td)).get(path) is not None or path in dict(self.texts(td))):
            raise Wanted("set_ of a tree or a text")
        if self.through_leaf(td, path):
            raise Wanted("set through a leaf")
        if there is None and len(path) > 1:
            raise Wanted("set_ of a missing nested key")
        shape = list(there.shape) if there is not None else [2]
        base, value = self.values(shape)
        return self.change(s, f"write {s} {self.text(path)} {base} {','.join(map(str, shape)) or '-'}",
                           lambda t: t.set_(self.key(path), value))

    def op_fill(self, s):
        td = self.pool[s]
        path, value = self.some_path(td), self.r.randrange(-5, 100)
        if dict(self.leaves(td)).get(path) is None:
            raise Wanted("fill_ of an entry that is not a tensor")
        return self.change(s, f"fill {s} {self.text(path)} {value}", lambda t: t.fill_(self.key(path), value))

    def op_zero(self, s):
        return self.change(s, f"zero {s}", lambda t: t.zero_())

    def op_clone(self, s, d):
        deep = self.r.random() < 0.5
        return self.shape_op(s, d, "clone", str(int(deep)), lambda t: t.clone().contiguous() if deep else t.clone(False))

    def op_lock(self, s):
        lock = self.r.random() < 0.4
        if not lock and any(some_locked(self.pool[k]) for k in self.sharing(s)):
            raise Wanted("unlocking a tree whose child is in another locked tree")
        return self.change(s, f"lock {s} {int(lock)}", lambda t: t.lock_() if lock else t.unlock_())

    def reset(self, out):
        self.pool = [None] * POOL
        self.shape = [self.r.randrange(1, 4) for _ in range(self.r.choice([0, 1, 1, 2]))]
        self.has_texts = self.r.random() < 0.4
        out.write("reset\n")
        for s in range(POOL):
            line, do = self.op_new(s)
            out.write(f"{line} | {' '.join(map(dump, do()))}\n")

    def step(self, out):
        two = [self.op_index, self.op_index, self.op_view, self.op_reshape, self.op_flatten, self.op_unflatten,
               self.op_unsqueeze, self.op_squeeze, self.op_expand, self.op_permute, self.op_transpose, self.op_split,
               self.op_chunk, self.op_unbind, self.op_join, self.op_join, self.op_pad, self.op_select, self.op_exclude,
               self.op_flatten_keys, self.op_unflatten_keys, self.op_clone, self.op_split_keys, self.op_handle,
               self.op_handle, self.op_handle, self.op_handle, self.op_every, self.op_consolidate, self.op_save, self.op_save,
               self.op_load, self.op_load, self.op_load_lazy]
        one = [self.op_new, self.op_new, self.op_setindex, self.op_setindex, self.op_set, self.op_set, self.op_delete,
               self.op_rename, self.op_update, self.op_update_in_place, self.op_write, self.op_fill, self.op_zero,
               self.op_lock, self.op_select_, self.op_exclude_, self.op_flatten_keys_, self.op_unflatten_keys_,
               self.op_adopt, self.op_adopt, self.op_adopt, self.op_adopt, self.op_share, self.op_batch, self.op_stray, self.op_depth,
               self.op_text, self.op_text]
        fn = self.r.choice(two + one)
        s, d = self.r.randrange(POOL), self.r.randrange(POOL)
        name = fn.__name__[3:]
        agreement = self.agreement(self.pool[s]) if name in USES_BATCH else "whole"
        try:
            if agreement == "tensors" or (agreement == "not" and 0 in self.pool[s].batch_size):
                raise Wanted("a child whose tensors fit its parent, but whose batch size does not")
            if name in USES_BATCH | {"update", "clone"} and some_locked(self.pool[s]) and not self.pool[s].is_locked:
                raise Wanted("the locks of a result if a part of the source is locked")
            line, do = fn(s, d) if fn in two else fn(s)
        except Wanted as why:
            self.wanted[str(why)] += 1
            return False
        except Exception:
            if agreement == "whole":
                raise
            return False  # such an operation cannot be recorded
        if agreement == "not":
            self.wanted["an operation on a tree with a child that no longer fits its batch size"] += 1
            out.write(f"{line} ~| fails\n")
            return True
        before = self.sharing(s) if fn in one else set()
        kept = True
        try:
            shown = do()
            if isinstance(shown, tuple):
                shown, kept = shown
            answer = shown if isinstance(shown, str) else " ".join(map(dump, shown))
            self.done[name] += 1
        except Wanted as why:
            self.wanted[str(why)] += 1
            return False
        except Exception as error:
            known = [why for message, why in REFUSED_BY_TENSORDICT.items() if self.has_texts and message in str(error)]
            if known:
                self.wanted[known[0]] += 1
                if fn in one:  # TensorDict may have changed a part of the tree before it failed
                    self.reset(out)
                return False
            answer, kept = "fails", False
            why = " ".join(str(error).split())[:60].encode("ascii", "replace").decode()
            self.failed[name] += 1
        out.write(f"{line} {'' if kept else '~'}| {answer}\n")
        if answer == "fails":
            out.write(f"# {why}\n")
        if answer == "fails" and fn in one:  # TensorDict may have changed a part of the tree before it failed
            self.reset(out)
        elif fn in one:
            for k in sorted(before | self.sharing(s)):
                out.write(f"show {k} | {dump(self.pool[k])}\n")
                self.done["show"] += 1
        return True


def main():
    count, seed, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    maker = Maker(seed, name + ".files" if "--load" in sys.argv else None)
    with open(name, "w") as out:
        out.write(f"# TensorDict {tensordict.__version__}, PyTorch {torch.__version__}, seed {seed}, {count} operations\n")
        done = 0
        while done < count:
            maker.reset(out)
            for _ in range(EPISODE):
                done += maker.step(out)
    print(f"{done} operations")
    for key in sorted(set(maker.done) | set(maker.failed)):
        print(f"  {key:18} {maker.done[key]:6} done {maker.failed[key]:6} failed")
    print("not recorded, because tdict intentionally differs or the operation was impossible:")
    for key, n in maker.wanted.most_common():
        print(f"  {n:6}  {key}")


main()
