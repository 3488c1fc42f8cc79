"""A base class for make_operations.py: the operations that save and open trees, and the operations that set texts."""

import os

import tensordict
import torch
from tensordict import NonTensorData, TensorDict, lazy_stack

from common import LEAVES, TEXTS, Wanted, column, consolidated_order, flat, own_nodes

FORMATS = ["safetensors", "memmap", "td", "tdz"]


def order_of(td, format):
    return consolidated_order(td) if format == "td" else td


def is_strided(td):
    return any(not v.is_contiguous() if isinstance(v, torch.Tensor) else not isinstance(v, TEXTS) and is_strided(v)
               for v in td.values())


def is_repeated(text):
    """Returns whether all texts of a stack are equal. TensorDict may have made the stack from one text for the tree."""
    return not isinstance(text, NonTensorData) and len(set(flat(text.tolist()))) == 1


def separate(td):
    """Returns a copy like a tree from a file: it shares nothing with the source, and no node is locked."""
    made = TensorDict({}, td.batch_size)
    for key, value in own_nodes(td).items():
        made._tensordict[key] = value.clone().contiguous() if isinstance(value, LEAVES) else separate(value)
    return made


class FileOperations:
    # texts
    def new_text(self, shape):
        """Returns the words for the record, and a column of texts or one text for the whole tree."""
        base = self.next
        if self.r.random() < 0.5:
            self.next += 1
            return f"~w{base}", NonTensorData(f"w{base}", batch_size=shape)
        self.next += max(shape.numel(), 1)
        return f"~t{base}", column(list(shape), base)

    def op_text(self, s):
        if not self.has_texts:
            raise Wanted("a text in an episode without texts")
        td, path = self.pool[s], self.path()
        if self.through_leaf(td, path):
            raise Wanted("set through a leaf")
        word, text = self.new_text(self.way(td, path)[-1].batch_size)
        return self.change(s, f"text {s} {self.text(path)} {word}", lambda t: t.set(self.key(path), text))

    def fill_texts(self, td):
        """Replaces the texts of a tree with new columns, in order. Returns the number of the first text."""
        base = self.next
        for key, value in list(td.items()):
            if isinstance(value, TEXTS):
                td.set(key, column(list(td.batch_size), self.next))
                self.next += max(td.numel(), 1)
            elif not isinstance(value, torch.Tensor):
                self.fill_texts(value)
        return base

    # files
    def check_sound(self, td):
        if self.agreement(td) != "whole":
            raise Wanted("an operation on a tree with a child that no longer fits its batch size")

    def check_columns(self, td, format):
        """Refuses columns with more dimensions than their tree, which TensorDict's formats store as lists in JSON."""
        deep = [v for v in td.values() if not isinstance(v, (torch.Tensor, NonTensorData)) and v.ndim > td.ndim]
        if format != "safetensors" and any(isinstance(v, TEXTS) for v in deep):
            raise Wanted("a column with more dimensions than its tree")
        for value in td.values():
            if not isinstance(value, LEAVES):
                self.check_columns(value, format)

    def shown(self, line, made):
        return line, lambda: ([made()], False)

    def opened(self, s, d, line, made):
        """Records a tree that was opened. Usually does not put it into the pool, so that saved trees stay there."""
        td = self.pool[s]
        ids = [id(v) for _, v in self.nodes(td)]
        inside, outside = len(set(ids)) < len(ids), bool(self.sharing(s))
        name = line.split(" ")[0]
        self.done[f"{name}: aliased"] += inside or outside
        self.done[f"{name}: texts"] += bool(self.texts(td))
        if self.r.random() < 0.7:
            return self.shown(line, made)
        self.check_release(d)

        def do():
            self.pool[d] = separate(made())
            return [self.pool[d]], True

        return line, do

    def op_consolidate(self, s, d):
        self.check_sound(self.pool[s])
        return self.shown(f"consolidate {s} {d}", lambda: own_nodes(self.pool[s].consolidate().clone()))

    def op_save(self, s, d):
        """Records an operation in which tdict saves a tree and opens the file. The order of keys depends on the
        format."""
        self.check_sound(self.pool[s])
        td, format = self.pool[s], self.r.choice(FORMATS)
        self.check_columns(td, format)
        if format == "td" and any(map(is_repeated, (v for _, v in self.texts(td)))):
            raise Wanted("a consolidated file with a text that TensorDict repeats for all elements")

        def made():
            names = [".".join(p) for p, _ in self.leaves(td)]
            if format == "safetensors" and len(set(names)) < len(names):
                raise ValueError("two tensors with one name")  # as TensorDict's to_safetensors does
            return order_of(td, format)

        return self.opened(s, d, f"save {s} {d} {format}", made)

    def file(self, format):
        if not self.files:
            raise Wanted("a tree saved by TensorDict, without --load")
        self.saved += 1
        os.makedirs(self.files, exist_ok=True)
        return f"{self.saved}.{format}", f"{self.files}/{self.saved}.{format}"

    def write(self, td, path, format):
        try:
            if format == "safetensors":
                tensordict.to_safetensors(td.contiguous(), path)
            elif format == "td":
                td.consolidate(filename=path)
            else:  # TensorDict cannot put a strided leaf into an archive
                (td.clone() if format == "tdz" and is_strided(td) else td).save(path)
        except Exception as error:
            raise Wanted(f"TensorDict cannot write .{format}: {type(error).__name__}") from None

    def op_load(self, s, d):
        """Saves a tree with TensorDict, for tdict to open."""
        td, format = self.pool[s], self.r.choice(FORMATS)
        self.check_sound(td)
        self.check_columns(td, format)
        name, path = self.file(format)
        self.write(td, path, format)
        return self.opened(s, d, f"load {s} {d} {name}", lambda: order_of(td, format))

    def op_load_lazy(self, s, d):
        """Saves a lazy stack with TensorDict. tdict opens the file as a tree of the stack's items."""
        td, format = self.pool[s], self.r.choice(FORMATS[1:])
        self.check_sound(td)
        if not list(self.entries(td)):
            raise Wanted("an empty lazy stack")
        self.check_columns(td, format)
        other, dim = td.clone().unlock_(), self.r.randrange(td.batch_dims + 1)
        self.fill_tree(other)
        self.fill_texts(other)
        name, path = self.file(format)
        self.write(lazy_stack([td.clone(), other], dim), path, format)

        def made():
            stack = TensorDict({}, td.batch_size[:dim])
            stack._tensordict = {"0": own_nodes(td), "1": own_nodes(other)}
            return order_of(stack, format)

        return self.opened(s, d, f"load {s} {d} {name}", made)
