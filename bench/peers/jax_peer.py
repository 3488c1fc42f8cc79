#!/usr/bin/env python3
"""The JAX worker of bench/peers/compare: times device_put() of a dict of arrays with block_until_ready(), and
device_get()."""
import importlib.metadata
import os

# JAX preallocates this fraction of the device memory, and the other workers need the rest.
os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", ".25")

import jax
import jax.numpy as jnp
import numpy

import worker
from worker import clock


class JaxPeer(worker.Peer):
    name = "jax"
    sum_kind = numpy.int32

    def __init__(self, device):
        super().__init__(device)
        kind, _, index = device.partition(":")
        self.place = jax.devices("gpu" if kind == "cuda" else kind)[int(index or 0)]
        self.sum = jax.jit(lambda x: jnp.sum(jax.lax.bitcast_convert_type(x, jnp.int32)))
        self.on_device, self.pinned = [], []

    def versions(self):
        return {"jax": jax.__version__, "jaxlib": importlib.metadata.version("jaxlib"), "gpu": self.place.device_kind}

    def settings(self, work):
        if work["calls"] != "best":
            return []
        if work["do"] == "first":
            return ["device_put"]
        if work["do"] in ("h2d", "call"):
            return ["device_put from pinned_host"] if work["source"] == "pinned" else ["device_put"]
        return ["device_get"] if (work["do"], work["result"]) == ("d2h", "fresh") else []

    def empty(self, size, pinned):
        leaf = numpy.empty(size // 4, numpy.float32)
        return leaf, leaf.view(numpy.uint32)

    def tree(self, leaves):
        return {str(i): leaf for i, leaf in enumerate(leaves)}

    def prepare_row(self):
        self.pinned = []
        if self.work["source"] == "pinned":
            host = jax.sharding.SingleDeviceSharding(self.place, memory_kind="pinned_host")
            self.pinned = [jax.block_until_ready(jax.device_put(tree, host)) for tree in self.sources]
        if self.work["do"] == "d2h":
            self.on_device = [jax.block_until_ready(jax.device_put(tree, self.place)) for tree in self.sources]

    def finish_row(self):
        self.on_device, self.pinned, self.kept_result = [], [], None

    def put(self, setting, tree):
        if setting == "device_put":
            return jax.device_put(self.sources[tree], self.place)
        there = jax.sharding.SingleDeviceSharding(self.place, memory_kind="device")
        return jax.device_put(self.pinned[tree], there)

    @staticmethod
    def again(leaves):
        return {key: jnp.copy(leaf) for key, leaf in leaves.items()}

    def sample(self, setting, tree):
        if self.work["do"] == "d2h":
            # After device_get(), an array caches its host copy, so each repetition needs a new array.
            fresh = jax.block_until_ready(self.again(self.on_device[tree]))
            begin = clock()
            made = jax.device_get(fresh)
            del made
            return clock() - begin
        begin = clock()
        made = self.put(setting, tree)
        if self.work["do"] == "call":
            seconds = clock() - begin
            jax.block_until_ready(made)
            return seconds
        jax.block_until_ready(made)
        if self.work["do"] == "first":
            seconds = clock() - begin
            self.keep(made)
            return seconds
        del made
        return clock() - begin

    @staticmethod
    def in_order(made):
        """Returns the leaves in numeric order of their keys. JAX would order the keys as strings."""
        return [made[str(i)] for i in range(len(made))]

    def verify(self, setting):
        if self.work["do"] == "d2h":
            made = jax.device_get(self.again(self.on_device[0]))
            self.compare_words([leaf.view(numpy.uint32) for leaf in self.in_order(made)])
            return None
        begin = clock()
        made = self.kept_result
        if made is None:
            made = jax.block_until_ready(self.put(setting, 0))
        seconds = clock() - begin
        self.compare_sums(jax.device_get([self.sum(leaf) for leaf in self.in_order(made)]))
        return seconds


if __name__ == "__main__":
    worker.main(JaxPeer)
