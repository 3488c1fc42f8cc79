#!/usr/bin/env python3
"""The TensorDict worker of bench/peers/compare: times the calls that the documentation of TensorDict.to() shows."""
import importlib.metadata

import tensordict
from tensordict import TensorDict

import worker
from torch_peer import TorchPeer
from worker import clock

PINS = [0, 4, None, 8, 2, 1]  # values of num_threads, probably best first, because there may not be time for all


def pin_name(threads):
    return f"non_blocking_pin num_threads={threads}"


class TensorDictPeer(TorchPeer):
    name = "tensordict"
    PIN_CALLS = {f"pin_{n}": [pin_name(n)] for n in (0, 1, 2, 4, 8)}
    TABLE = {
        ("h2d", "pageable"): dict(PIN_CALLS, blocking=["non_blocking=False"], non_blocking=["default"],
                                  best=[pin_name(n) for n in PINS] + ["default", "non_blocking=False", "consolidate"]),
        ("h2d", "pinned"): {"blocking": ["non_blocking=False"], "non_blocking": ["default"],
                            "best": ["default", "non_blocking=False"]},
        ("pin", None): {"any": ["pin_memory", "pin_memory num_threads=4"]},
        ("pin_h2d", None): {"blocking": ["pin_memory, non_blocking=False"], "non_blocking": ["pin_memory, default"]},
        ("d2h", "fresh"): {"any": ["non_blocking=False"]},
        ("d2h", "warm"): {"any": ["copy_", "copy_ non_blocking"]},
        ("d2h", "pinned"): {"any": ["default"]},
        ("d2h", "into_pinned"): {"any": ["copy_", "copy_ non_blocking"]},
        ("call", None): {"any": ["default", pin_name(0), pin_name(4)]},
        ("copies", None): {"any": [pin_name(0), pin_name(4)]},
        ("build", None): {"any": ["TensorDict(dict)"]},
        ("get", None): {"any": ["get", "[]"]},
        ("walk", None): {"any": ["items(True, True)", "values(True, True)"]},
    }

    def versions(self):
        return dict(super().versions(), tensordict=importlib.metadata.version("tensordict"),
                    module=getattr(tensordict, "__version__", None))

    def tree(self, leaves):
        return TensorDict({str(i): leaf for i, leaf in enumerate(leaves)})

    def send(self, leaves):
        return leaves.to(self.device)

    def leaves_of(self, made):
        return list(made.values(True, True))

    def transfer(self, setting, tree):
        td = self.sources[tree]
        if self.work["do"] == "d2h":
            return self.fetch(setting, tree)
        if setting == "default":
            return td.to(self.device)
        if setting == "non_blocking=False":
            return td.to(self.device, non_blocking=False)
        if setting == "consolidate":
            return td.consolidate().to(self.device)
        if setting in ("pin_memory", "pin_memory, register"):
            return td.pin_memory()
        if setting == "pin_memory num_threads=4":
            return td.pin_memory(num_threads=4)
        if setting == "pin_memory, default":
            return td.pin_memory().to(self.device)
        if setting == "pin_memory, non_blocking=False":
            return td.pin_memory().to(self.device, non_blocking=False)
        threads = {pin_name(n): n for n in PINS}[setting]
        return td.to(self.device, non_blocking_pin=True, num_threads=threads)

    def fetch(self, setting, tree):
        td = self.on_device[tree]
        if setting == "default":
            return td.to("cpu")
        if setting == "non_blocking=False":
            return td.to("cpu", non_blocking=False)
        target = self.targets[tree % len(self.targets)]
        return target.copy_(td, non_blocking=setting.endswith("non_blocking"))

    def verify(self, setting):
        do = self.work["do"]
        if do in ("build", "get", "walk"):
            wanted = len(worker.leaf_sizes(self.work))
            if self.container(setting, 0)[1] != wanted:
                raise AssertionError("a leaf was not built, found or visited")
            return None
        return super().verify(setting)

    # Containers on the host.
    def prepare_row(self):
        super().prepare_row()
        if self.work["do"] in ("build", "get", "walk"):
            self.keys = [str(i) for i in range(len(worker.leaf_sizes(self.work)))]
            self.named = dict(self.sources[0].items())

    def container(self, setting, tree):
        td = self.sources[0]
        count = 0
        begin = clock()
        if setting == "TensorDict(dict)":
            built = TensorDict(self.named)
            del built
            return clock() - begin, len(TensorDict(self.named).keys())
        if setting == "get":
            for key in self.keys:
                td.get(key)
                count += 1
        elif setting == "[]":
            for key in self.keys:
                td[key]
                count += 1
        elif setting == "items(True, True)":
            for _ in td.items(True, True):
                count += 1
        else:
            for _ in td.values(True, True):
                count += 1
        return clock() - begin, count

    def sample_build(self, setting, tree):
        return self.container(setting, tree)[0]

    sample_get = sample_walk = sample_build


if __name__ == "__main__":
    worker.main(TensorDictPeer)
