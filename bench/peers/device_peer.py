#!/usr/bin/env python3
"""Runs the workloads of bench/peers/compare-device in NumPy, PyTorch and TensorDict. bench/program/device.c describes
the protocol."""
import importlib.metadata

import numpy
import torch

import image_ways
import torch_peer
import worker
from worker import clock

try:
    from tensordict import TensorDict
except ImportError:
    TensorDict = None

SCALE, OFFSET = 0.0078125 * 1.1, -0.9  # the same values as in bench/program/device_moves.c
RENEW_BYTES = 1 << 28                  # larger sources are filled once, not before each verification


class Returned:
    """The result of a way that is timed only until its call returns, with that time."""

    def __init__(self, seconds, result):
        self.seconds, self.result = seconds, result


class DevicePeer:
    def __init__(self, device):
        self.device, self.gpu = device, torch_peer.open_gpu(device)
        self.ways, self.work, self.more = {}, {}, None

    def versions(self):
        return dict(torch_peer.versions(self.gpu), numpy=numpy.__version__, torchvision=image_ways.torchvision_version(),
                    tensordict=TensorDict and importlib.metadata.version("tensordict"))

    def wait(self):
        if self.gpu and self.work.get("place") != "host":
            torch.cuda.synchronize()

    # Trees.
    def leaf(self, dtype, shape):
        return torch.empty(shape, dtype=getattr(torch, dtype), pin_memory=self.gpu and self.work.get("source") == "pinned")

    def make(self, batch):
        return [self.leaf(dtype, [*batch, *shape]) for count, dtype, shape in self.work["leaves"] for _ in range(count)]

    def fill(self, leaves, seed):
        random = numpy.random.default_rng(seed)
        for leaf in leaves:
            to = leaf.numpy()
            if leaf.dtype == torch.float32:
                to[...] = random.random(to.shape, numpy.float32) * 2 - 1
            elif leaf.dtype == torch.bool:
                to[...] = random.integers(0, 2, to.shape, numpy.uint8)
            else:
                to[...] = random.integers(0, self.work.get("below", 256), to.shape, to.dtype)

    def renew(self, seed):
        """Fills the sources with random elements, unless they are large and already filled. Updates their copies."""
        if sum(leaf.nbytes for leaf in self.host) <= RENEW_BYTES or not self.filled:
            self.fill(self.host, seed)
            self.filled = True
        for to, source in zip(self.tree, self.host):
            if to is not source:
                to.copy_(source)
        for i, item in enumerate(self.items):
            for to, source in zip(item, self.host):
                to.copy_(source[i])
        self.wait()

    def td(self, leaves, batch):
        return TensorDict and TensorDict({f"leaf{i}": leaf for i, leaf in enumerate(leaves)}, batch)

    def to_place(self, leaves):
        return [leaf.clone() if self.work.get("place") == "host" else leaf.to(self.device, copy=True) for leaf in leaves]

    def prepare(self, work):
        self.finish()
        self.work = work
        self.host, self.filled = self.make(work.get("batch", [])), False
        self.items, self.tree = [], self.host
        ways = getattr(self, "prepare_" + work["work"])()
        self.ways = {name: way for name, way in ways.items() if TensorDict or not name.startswith("TensorDict")}
        self.renew(1)
        return {"ways": list(self.ways)}

    def finish(self):
        for name in ("host", "tree", "items", "target", "value", "tds", "td_tree"):
            setattr(self, name, [])
        self.ways = {}
        torch_peer.release_memory(self.gpu)

    # The workloads. Each function returns a dict that maps the name of each way to two functions: one runs the way, the
    # other returns the expected leaves.
    def prepare_gather(self):
        host, batch, picked = self.work.get("place") == "host", self.work["batch"], self.work["picked"]
        self.tree = self.to_place(self.host)
        self.target, self.value = self.to_place(self.make([picked])), self.make([picked])
        self.fill(self.value, 77)
        order = numpy.random.default_rng(5).permutation(batch[0])[:picked]
        index, mask = torch.from_numpy(order), torch.zeros(batch[0], dtype=torch.bool)
        mask[index] = True
        index = index if host else index.to(self.device)
        tree, target, td = self.tree, self.target, self.td(self.tree, batch)

        def read(picks):
            return lambda: [leaf[picks] for leaf in self.host]

        def out():
            for source, to in zip(tree, target):
                torch.index_select(source, 0, index, out=to)
            return target

        rows, masked = read(torch.from_numpy(order)), read(mask)
        ways = {
            "torch: x[idx]": (lambda: [leaf[index] for leaf in tree], rows),
            "torch: index_select": (lambda: [torch.index_select(leaf, 0, index) for leaf in tree], rows),
            "torch: index_select(out=)": (out, rows),
            "TensorDict: td[idx]": (lambda: td[index], rows),
        }
        if not host:
            return ways
        return {**ways, **self.host_gather(index, mask, td, masked), **self.numpy_gather(order, mask.numpy(), rows, masked)}

    def host_gather(self, index, mask, td, masked):
        part = self.td(self.value, [len(index)])

        def written():
            made = [leaf.clone() for leaf in self.host]
            for leaf, rows in zip(made, self.value):
                leaf[index] = rows
            return made

        def write():
            for leaf, rows in zip(self.tree, self.value):
                leaf[index] = rows
            return self.tree

        def write_td():
            td[index] = part
            return self.tree

        self.written = written
        return {
            "torch: x[mask]": (lambda: [leaf[mask] for leaf in self.tree], masked),
            "TensorDict: td[mask]": (lambda: td[mask], masked),
            "torch: x[idx] = y": (write, written),
            "TensorDict: td[idx] = y": (write_td, written),
        }

    def numpy_gather(self, order, mask, rows, masked):
        arrays, targets = [leaf.numpy() for leaf in self.tree], [leaf.numpy() for leaf in self.target]
        values = [leaf.numpy() for leaf in self.value]

        def take(rows, mode):
            """Copies rows to the targets. `mode` is never "raise", because NumPy would then use a buffer."""
            for source, to in zip(arrays, targets):
                source.take(rows, 0, to, mode)
            return self.target

        def take_masked():
            rows = mask.nonzero()[0]
            return [array.take(rows, 0) for array in arrays]

        def write():
            for to, source in zip(arrays, values):
                to[order] = source
            return self.tree

        def compress():
            for source, to in zip(arrays, targets):
                numpy.compress(mask, source, 0, to)
            return self.target

        return {
            "NumPy: take": (lambda: [array.take(order, 0) for array in arrays], rows),
            "NumPy: take(out=, clip)": (lambda: take(order, "clip"), rows),
            "NumPy: take(out=, wrap)": (lambda: take(order, "wrap"), rows),
            "NumPy: x[idx]": (lambda: [array[order] for array in arrays], rows),
            "NumPy: x[mask]": (lambda: [array[mask] for array in arrays], masked),
            "NumPy: take by mask.nonzero()": (take_masked, masked),
            "NumPy: take(out=, wrap) by mask.nonzero()": (lambda: take(mask.nonzero()[0], "wrap"), masked),
            "NumPy: compress(out=)": (compress, masked),
            "NumPy: x[idx] = y": (write, self.written),
        }

    def prepare_join(self):
        count, rows = self.work["batch"]
        self.items = [self.to_place(self.make([rows])) for _ in range(count)]
        self.tds = [self.td(item, [rows]) for item in self.items]
        columns = [list(column) for column in zip(*self.items)]
        joined = lambda: [leaf.flatten(0, 1) for leaf in self.host]
        return {
            "torch: stack": (lambda: [torch.stack(column) for column in columns], lambda: self.host),
            "TensorDict: stack": (lambda: torch.stack(self.tds), lambda: self.host),
            "torch: cat": (lambda: [torch.cat(column) for column in columns], joined),
            "TensorDict: cat": (lambda: torch.cat(self.tds), joined),
        }

    def on_device(self):
        self.tree = self.to_place(self.host)
        self.td_tree = self.td(self.tree, self.work["batch"])

    def prepare_clone(self):
        self.on_device()
        return {
            "torch: clone": (lambda: [leaf.clone() for leaf in self.tree], lambda: self.host),
            "TensorDict: clone": (lambda: self.td_tree.clone(), lambda: self.host),
        }

    def prepare_to_dtype(self):
        self.on_device()
        converted = lambda: [leaf.to(torch.bfloat16) for leaf in self.host]
        return {
            "torch: to(bfloat16)": (lambda: [leaf.to(torch.bfloat16) for leaf in self.tree], converted),
            "TensorDict: to(bfloat16)": (lambda: self.td_tree.to(torch.bfloat16), converted),
        }

    def prepare_fill(self):
        self.on_device()
        ones = lambda: [torch.ones_like(leaf) for leaf in self.host]

        def fill():
            for leaf in self.tree:
                leaf.fill_(1)
            return self.tree

        def fill_td():
            self.td_tree.apply_(lambda leaf: leaf.fill_(1))
            return self.tree

        return {"torch: fill_": (fill, ones), "TensorDict: apply_(fill_)": (fill_td, ones)}

    def prepare_transfer(self):
        td, pinned = self.td(self.host, []), self.work.get("source") == "pinned"
        sent = lambda: self.host

        def returns(do):
            def timed():
                begin = clock()
                result = do()
                return Returned(clock() - begin, result)
            return timed

        loop = lambda: [leaf.to(self.device, non_blocking=True) for leaf in self.host]
        default = lambda: td.to(self.device, non_blocking=True)
        ways = {"torch: to(non_blocking)": (loop, sent), "TensorDict: to": (lambda: td.to(self.device), sent),
                "TensorDict: to(non_blocking)": (default, sent)}
        if not pinned:
            ways["torch: pin_memory, to"] = (
                lambda: [self.pin(leaf).to(self.device, non_blocking=True) for leaf in self.host], sent)
        if not pinned and self.gpu:
            ways["TensorDict: non_blocking_pin"] = (
                lambda: td.to(self.device, non_blocking_pin=True, num_threads=4), sent)
        if TensorDict and not self.work.get("separate") and not self.work.get("below"):
            self.add_consolidated(ways, td, pinned and self.gpu)
        if self.work.get("lock"):
            ways["torch: to(non_blocking) returns"] = (returns(loop), sent)
            ways["TensorDict: to(non_blocking) returns"] = (returns(default), sent)
            if "TensorDict: consolidated" in ways:
                ways["TensorDict: consolidated returns"] = (
                    returns(ways["TensorDict: consolidated"][0]), ways["TensorDict: consolidated"][1])
        return ways

    def add_consolidated(self, ways, td, pinned):
        """Adds a way that sends a consolidated tree, which has one storage, as trees of tdict_create_from() do. This
        tree is not refilled between verifications."""
        self.fill(self.host, 1)
        self.filled = True
        self.td_tree = td.consolidate(pin_memory=True) if pinned else td.consolidate()
        first = [leaf.clone() for leaf in self.host]
        ways["TensorDict: consolidated"] = (lambda: self.td_tree.to(self.device, non_blocking=True), lambda: first)

    def pin(self, leaf):
        return leaf.pin_memory() if self.gpu else leaf.clone()

    def prepare_convert(self):
        half, buffer = torch.bfloat16, self.make(self.work["batch"])[0]
        buffer = self.pin(buffer)
        source = self.host[0]
        wanted = lambda: [source.float() * SCALE + OFFSET]

        def on_device(leaf):
            return [leaf.to(half).mul_(SCALE).add_(OFFSET)]

        def in_floats(leaf):
            return [(leaf.float().mul_(SCALE).add_(OFFSET)).to(half)]

        def through_buffer():
            buffer.copy_(source)
            return buffer.to(self.device, non_blocking=True)

        def host():
            return [source.to(half).mul_(SCALE).add_(OFFSET).to(self.device)]

        send = lambda: self.pin(source).to(self.device, non_blocking=True)
        return {
            "torch: pin_memory, to, convert": (lambda: on_device(send()), wanted),
            "torch: to, convert": (lambda: on_device(source.to(self.device)), wanted),
            "torch: to, convert as float": (lambda: in_floats(source.to(self.device)), wanted),
            "torch: pinned buffer, to, convert": (lambda: on_device(through_buffer()), wanted),
            "torch: convert on the host, to": (host, wanted),
            "torch: convert on the host, pin_memory, to":
                (lambda: [self.pin(source.to(half).mul_(SCALE).add_(OFFSET)).to(self.device, non_blocking=True)], wanted),
        }

    def prepare_images(self):
        return image_ways.Images(self.host[0], self.work["crop"], self.device, self.gpu).ways()

    # Requests.
    def do_once(self, way):
        """Runs a way once and releases its result. Returns (seconds, None). The seconds include the release."""
        begin = clock()
        result = self.ways[way][0]()
        if isinstance(result, Returned):
            self.wait()
            return result.seconds, None
        self.wait()
        del result
        return clock() - begin, None

    def verify(self, way, seed):
        self.renew(seed)
        do, wanted = self.ways[way]
        result = do()
        self.wait()
        result = result.result if isinstance(result, Returned) else result
        wanted = wanted()
        found = [result.get(f"leaf{i}") for i in range(len(wanted))] if hasattr(result, "batch_size") else result
        found = [torch.from_numpy(one) if isinstance(one, numpy.ndarray) else one for one in found]
        if len(found) != len(wanted):
            raise AssertionError(f"{len(found)} leaves, wanted {len(wanted)}")
        for i, (one, other) in enumerate(zip(found, wanted)):
            one = one.cpu()
            same = torch.equal(one, other) if one.dtype == other.dtype else \
                torch.allclose(one.float(), other, rtol=0, atol=0.02)
            if one.shape != other.shape or not same:
                raise AssertionError(f"leaf {i} differs")
        return {"verified_bytes": sum(one.nbytes for one in found)}

    def answer(self, request):
        op = request["op"]
        if op == "hello":
            return {"versions": self.versions(), "device": self.device}
        if op == "prepare":
            return self.prepare(request)
        if op == "verify":
            return self.verify(request["way"], request["seed"])
        if op == "run":
            for _ in range(request.get("warm", 0)):
                self.do_once(request["way"])
            return {"seconds": [self.do_once(request["way"])[0] for _ in range(request["count"])]}
        if op in ("finish", "quit"):
            self.finish()
            return {}
        raise ValueError(f"there is no op {op}")


if __name__ == "__main__":
    worker.main(DevicePeer)
