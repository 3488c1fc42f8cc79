"""A base class for make_operations.py: the operations that change keys, and those that let trees share nodes."""

from common import KEYS, LEAVES, POOL, TEXTS, Wanted, escape, ids_of, own_nodes, some_locked


class KeyOperations:
    # keys
    def change(self, s, line, fn):
        td = self.pool[s]

        def do():
            fn(td)
            return [td]

        return line, do

    def op_set(self, s):
        td = self.pool[s]
        path = self.path()
        node = td
        for key in path[:-1]:
            if key not in node.keys() or isinstance(node.get(key), LEAVES):
                break
            node = node.get(key)
        shape = list(node.batch_size) + [self.r.randrange(1, 3) for _ in range(self.r.randrange(2))]
        if self.r.random() < 0.1:
            shape = [9] + shape[1:]
        base, value = self.values(shape)
        if self.through_leaf(td, path):
            raise Wanted("set through a leaf")
        return self.change(s, f"set {s} {self.text(path)} {base} {','.join(map(str, shape)) or '-'}",
                           lambda t: t.set(self.key(path), value))

    def op_delete(self, s):
        path = self.some_path(self.pool[s])
        return self.change(s, f"delete {s} {self.text(path)}", lambda t: t.del_(self.key(path)))

    def op_rename(self, s):
        old, new = self.some_path(self.pool[s])[:1], (self.r.choice(KEYS),)
        safe = self.r.random() < 0.5
        if old == new:
            raise Wanted("rename to the same name")

        def do(t):
            order = [new[0] if k == old[0] else k for k in t.keys() if k != new[0]]  # container.md: a key keeps its position
            t.rename_key_(old[0], new[0], safe=safe)
            t._tensordict = {k: t._tensordict[k] for k in order}

        return self.change(s, f"rename {s} {self.text(old)} {self.text(new)} {int(safe)}", do)

    def op_select(self, s, d):
        td = self.pool[s]
        paths = [self.some_path(td) for _ in range(self.r.randrange(1, 3))]
        strict = self.r.random() < 0.5
        if len(paths) > 1 and (paths[0][: len(paths[1])] == paths[1] or paths[1][: len(paths[0])] == paths[0]):
            raise Wanted("select of both a tree and one of its entries")
        if any(self.through_leaf(td, p) for p in paths):
            raise Wanted("select through a leaf")
        if not strict and any(len(p) > 1 and self.key(p) not in td.keys(True) for p in paths):
            raise Wanted("a non-strict select of a missing nested path: only TensorDict makes its nodes")
        keys = self.drawn = [self.key(p) for p in paths]
        return self.shape_op(s, d, "select", f"{int(strict)} {' '.join(map(self.text, paths))}",
                             lambda t: t.select(*keys, strict=strict))

    def op_exclude(self, s, d):
        td = self.pool[s]
        paths = [self.some_path(td) for _ in range(self.r.randrange(1, 3))]
        if any(self.through_leaf(td, p) for p in paths):
            raise Wanted("exclude through a leaf")
        keys = self.drawn = [self.key(p) for p in paths]
        return self.shape_op(s, d, "exclude", " ".join(map(self.text, paths)), lambda t: t.exclude(*keys))

    def op_flatten_keys(self, s, d):
        separator = self.r.choice([".", "_"])
        return self.shape_op(s, d, "flatten_keys", separator, lambda t: t.flatten_keys(separator))

    def op_unflatten_keys(self, s, d):
        separator = self.r.choice([".", "_"])
        self.check_parts(self.pool[s], separator)
        return self.shape_op(s, d, "unflatten_keys", separator, lambda t: t.unflatten_keys(separator))

    def op_select_(self, s):
        td = self.pool[s]
        self.check_distinct(td)
        line, _ = self.op_select(s, s)
        _, _, _, strict, *texts = line.split(" ")
        keys = self.drawn
        return self.change(s, f"select_ {s} {strict} {' '.join(texts)}",
                           lambda t: t.select(*keys, strict=strict == "1", inplace=True))

    def op_exclude_(self, s):
        line, _ = self.op_exclude(s, s)
        keys, paths = self.drawn, [k if isinstance(k, tuple) else (k,) for k in self.drawn]
        if any(a is not b and a == b[: len(a)] for a in paths for b in paths):
            raise Wanted("in-place exclude of both a tree and one of its entries")
        return self.change(s, f"exclude_ {s} {' '.join(line.split(' ')[3:])}", lambda t: t.exclude(*keys, inplace=True))

    def op_flatten_keys_(self, s):
        td = self.pool[s]
        separator = self.r.choice([".", "_"])
        below = [v for _, v in self.nodes(td)]
        taken = set(map(id, below))
        others = set().union(*(ids_of(self.pool[k]) for k in range(POOL) if k != s))
        if td.is_locked and not list(self.leaves(td)):
            raise Wanted("in-place flatten_keys of a locked tree without tensors")
        if taken & others or len(taken) < len(below) or any(v.is_locked and not td.is_locked for v in below):
            raise Wanted("in-place flatten_keys that removes shared or locked trees")
        flat = [separator.join(p) for p, _ in self.entries(td)]
        if any(k in td.keys() and not isinstance(td.get(k), LEAVES) for k in flat):
            raise Wanted("in-place flatten_keys if a new key is the key of a tree")

        def do(t):
            t.flatten_keys(separator, inplace=True)
            t._tensordict = {k: t._tensordict[k] for k in flat}  # in tdict's order

        return self.change(s, f"flatten_keys_ {s} {separator}", do)

    def check_parts(self, td, separator):
        """Refuses keys that lead through a text, into a tree with a different batch size, or into a later tree."""
        keys = list(td.keys())
        moved = any(separator in k and not isinstance(v, LEAVES) for k, v in td.items())
        if moved and self.agreement(td) != "whole":
            raise Wanted("an operation on a tree with a child that no longer fits its batch size")
        for key, value in td.items():
            parts = key.split(separator)
            for i in range(1, len(parts)):
                above = td.get(separator.join(parts[:i]), None)
                if isinstance(above, TEXTS):
                    raise Wanted("unflatten_keys through a text")
                if above is not None and not isinstance(above, LEAVES) and above.batch_size != td.batch_size:
                    raise Wanted("unflatten_keys into a tree with a different batch size")
        for i, key in enumerate(keys):
            if any(key.startswith(k + separator) and separator in k and not isinstance(td.get(k), LEAVES)
                   for k in keys[i + 1:]):
                raise Wanted("unflatten_keys of a key that comes before its tree")

    def op_unflatten_keys_(self, s):
        separator = self.r.choice([".", "_"])
        self.check_parts(self.pool[s], separator)
        td = self.pool[s]
        moved = set().union(*(ids_of(v) for k, v in td.items() if separator in k and not isinstance(v, LEAVES)))
        stay = set().union(*(ids_of(v) for k, v in td.items() if separator not in k and not isinstance(v, LEAVES)))
        if moved & stay:
            raise Wanted("a tree below itself")
        return self.change(s, f"unflatten_keys_ {s} {separator}", lambda t: t.unflatten_keys(separator, inplace=True))

    def op_split_keys(self, s, d):
        td = self.pool[s]
        paths = [self.some_path(td) for _ in range(self.r.randrange(1, 4))]
        cut = self.r.randrange(len(paths) + 1)
        if self.agreement(td) != "whole":
            raise Wanted("an operation on a tree with a child that no longer fits its batch size")
        if any(a is not b and a == b[: len(a)] for a in paths for b in paths):
            raise Wanted("split_keys with a repeated path, or with a path below another one")
        if any(self.through_leaf(td, p) for p in paths):
            raise Wanted("split_keys through a leaf")
        if any(self.key(p[:i]) in td.keys(True) and td.get(self.key(p[:i])).batch_size != td.batch_size
               for p in paths for i in range(1, len(p))):
            raise Wanted("the batch size of intermediate trees in split_keys")
        sets = [[self.key(p) for p in paths[:cut]], [self.key(p) for p in paths[cut:]]]
        return self.pieces(s, d, "split_keys", f"{cut} {' '.join(map(self.text, paths))}", lambda t: t.split_keys(*sets))

    def op_depth(self, s):
        return f"depth {s}", lambda: str(self.pool[s].depth)

    # aliases
    def way(self, td, path):
        """Returns the existing trees on a path."""
        return [td] + [td.get(self.key(path[:i])) for i in range(1, len(path)) if self.key(path[:i]) in td.keys(True)]

    def op_adopt(self, s):
        """Puts a child or the whole tree of one slot into another slot's tree, so that both trees share it."""
        td, f = self.pool[s], self.r.randrange(POOL)
        found = [((), self.pool[f])] + list(self.nodes(self.pool[f]))
        path = self.path()
        if self.through_leaf(td, path):
            raise Wanted("set through a leaf")
        way = self.way(td, path)
        shape = way[-1].batch_size
        fits = [(w, c) for w, c in found if c.batch_size[: len(shape)] == shape]
        if not fits and self.r.random() < 0.8:
            raise Wanted("no child that fits")
        where, child = self.r.choice(fits if fits and self.r.random() < 0.95 else found)
        if ids_of(child) & set(map(id, way)):
            raise Wanted("a tree below itself")
        if self.size(td) + self.size(child) > 200 or len(where) + len(path) > 6:
            raise Wanted("trees that grow too large")
        if not list(self.leaves(child)) or self.agreement(child) != "whole":
            raise Wanted("a child that is empty, or has children that do not fit its batch size")
        if child.is_locked and id(child) not in ids_of(td):
            raise Wanted("a child that tdict unlocks when its locked parent is released")
        return self.change(s, f"adopt {s} {self.text(path)} {f} {self.text(where) or '-'}",
                           lambda t: t.set(self.key(path), child))

    def op_handle(self, s, d):
        """Puts a child of one slot's tree into another slot, so that operations on that slot also change the parent."""
        nodes = list(self.nodes(self.pool[s]))
        if not nodes or s == d:
            raise Wanted("a handle to a missing child")
        path, child = self.r.choice(nodes)
        self.check_release(d)

        def do():
            self.pool[d] = child
            return [child]

        return f"handle {s} {d} {self.text(path)}", do

    def op_share(self, s):
        """Puts a tensor of one slot into another slot's tree."""
        f = self.r.randrange(POOL)
        leaves, path, td = list(self.leaves(self.pool[f])), self.path(), self.pool[s]
        if not leaves or self.through_leaf(td, path):
            raise Wanted("set through a leaf, or no tensor to share")
        shape = self.way(td, path)[-1].batch_size
        fits = [(w, t) for w, t in leaves if t.shape[: len(shape)] == shape]
        if not fits and self.r.random() < 0.8:
            raise Wanted("no tensor that fits")
        where, tensor = self.r.choice(fits if fits and self.r.random() < 0.95 else leaves)
        return self.change(s, f"share {s} {self.text(path)} {f} {self.text(where)}",
                           lambda t: t.set(self.key(path), tensor))

    def op_batch(self, s):
        """Sets a different batch size, usually a shorter one. Tensors set later may not fit the trees above."""
        td = self.pool[s]
        if some_locked(td):
            raise Wanted("the batch size of a locked tree")
        if any(not list(self.leaves(v)) for _, v in self.nodes(td)):
            raise Wanted("the batch size of empty children")
        if self.agreement(td) != "whole":
            raise Wanted("an operation on a tree with a child that no longer fits its batch size")
        shape = list(td.batch_size)[: self.r.randrange(td.batch_dims + 1)]
        leaves = list(self.leaves(td))
        if leaves and self.r.random() < 0.3:
            shape = list(self.r.choice(leaves)[1].shape)[:4]

        def do(t):
            t.batch_size = shape

        return self.change(s, f"batch {s} {','.join(map(str, shape)) or '-'}", do)

    def op_stray(self, s):
        """Removes the batch size of a child, and sets a tensor that does not begin with the parent's batch size."""
        td, key = self.pool[s], self.r.choice(KEYS)
        nodes = [(p, v) for p, v in self.nodes(td) if not some_locked(v)]
        if not nodes:
            raise Wanted("a handle to a missing child")
        path, child = self.r.choice(nodes)
        if any(not list(self.leaves(v)) for _, v in self.nodes(child)):
            raise Wanted("the batch size of empty children")
        base, value = self.values([5])

        def do(_):
            child.batch_size = []
            child.set(key, value)

        return self.change(s, f"stray {s} {self.text(path)} {base} {self.text((key,))}", do)

    def accepts(self, td, source):
        """Returns whether the tensors of a source fit the trees into which they are put."""
        for key, value in source.items():
            below = td.get(key, None)
            if isinstance(value, LEAVES) or below is None or isinstance(below, LEAVES):
                inside = [value] if isinstance(value, LEAVES) else [v for _, v in self.entries(value)]
                if any(v.shape[: td.batch_dims] != td.batch_size for v in inside):
                    return False
            elif not self.accepts(below, value):
                return False
        return True

    def same_sizes(self, td, source):
        return td.batch_size == source.batch_size and all(
            self.same_sizes(td.get(k), v) for k, v in source.items()
            if not isinstance(v, LEAVES) and k in td.keys() and not isinstance(td.get(k), LEAVES))

    def op_update(self, s):
        f = self.r.randrange(POOL)
        source = self.pool[f]
        if f == s:
            raise Wanted("update with itself")
        if not list(self.leaves(source)):
            raise Wanted("update with a source without tensors")
        fits = bool(self.texts(source)) or self.accepts(self.pool[s], source)  # texts for whole trees always fit
        if fits and not self.same_sizes(self.pool[s], source):
            raise Wanted("update with a source of a different batch size")
        # Update from a clone: tdict copies the trees of the source, but TensorDict would share some of them.
        return self.change(s, f"update {s} {f}", lambda t: t.update(source.clone(recurse=False)))

    def op_update_in_place(self, s):
        td = self.pool[s]
        if not self.writable(td):
            raise Wanted("writing to overlapping elements")
        other = td.clone()
        other.unlock_()
        gone = [k for k in other.keys() if self.r.random() < 0.3]
        for k in gone:
            other.del_(k)
        base = self.fill_tree(other)
        return self.change(s, f"update_ {s} {base} {' '.join(map(escape, gone))}", lambda t: t.update_(other))
