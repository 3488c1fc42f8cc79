#!/usr/bin/env python3
"""The PyTorch worker of bench/peers/compare: times loops over lists of tensors, as in PyTorch's tutorial on
pin_memory."""
import random
import threading
import time

import numpy
import torch

import worker
from worker import clock

OWN_COPIES, OWN_BYTES, MOST_TRANSFERS, PAUSE = 200, 51200, 50, 0.00025
MANY = 64  # if more consecutive leaves than this have the same size, one operation sums them


def register(wanted):
    """Chooses how PyTorch pins: if `wanted`, it registers memory that eight threads touch, or else asks the driver."""
    if torch.cuda.is_initialized():
        text = "pinned_use_cuda_host_register:True,pinned_num_register_threads:8" if wanted else \
               "pinned_use_cuda_host_register:False"
        newer = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
        (newer or torch.cuda.memory._set_allocator_settings)(text)


def open_gpu(device):
    """If the device is a GPU, makes it current and initializes CUDA. Returns whether it is a GPU."""
    if device.startswith("cuda"):
        torch.cuda.set_device(torch.device(device))
        torch.zeros(1, device=device)
    return device.startswith("cuda")


def versions(gpu):
    return {"torch": torch.__version__, "cuda": torch.version.cuda, "gpu": torch.cuda.get_device_name() if gpu else None}


def release_memory(gpu):
    """Returns the device and pinned memory that PyTorch caches to the driver."""
    if gpu:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        getattr(torch._C, "_host_emptyCache", lambda: None)()


class TorchPeer(worker.Peer):
    name = "torch"
    # maps (do, result or source) to the settings for each value of "calls"
    TABLE = {
        ("h2d", "pageable"): {"blocking": ["to"], "non_blocking": ["to non_blocking"],
                              "best": ["to", "to non_blocking", "pin_memory, to non_blocking"]},
        ("h2d", "pinned"): {"blocking": ["to"], "non_blocking": ["to non_blocking"], "best": ["to", "to non_blocking"]},
        ("pin", None): {"any": ["pin_memory"]},
        ("pin_h2d", None): {"blocking": ["pin_memory, to"], "non_blocking": ["pin_memory, to non_blocking"]},
        ("d2h", "fresh"): {"any": ["to"]},
        ("d2h", "warm"): {"any": ["copy_", "copy_ non_blocking"]},
        ("d2h", "pinned"): {"any": ["to non_blocking"]},
        ("d2h", "into_pinned"): {"any": ["copy_", "copy_ non_blocking"]},
        ("alloc", None): {"any": ["empty pin_memory", "empty pin_memory, register"]},
        ("alloc_again", None): {"any": ["empty pin_memory"]},
        ("call", None): {"any": ["to non_blocking", "pin_memory, to non_blocking"]},
        ("copies", None): {"any": ["pin_memory, to non_blocking"]},
        ("copies_pinning", None): {"any": ["pin_memory", "pin_memory, register"]},
        ("copies_idle", None): {"any": ["no transfer"]},
        ("overlap", None): {"own_stream": ["own stream"], "same_stream": ["same stream"]},
    }

    def __init__(self, device):
        super().__init__(device)
        self.gpu = open_gpu(device)
        self.on_device, self.targets = [], []

    def versions(self):
        return versions(self.gpu)

    def settings(self, work):
        rows = None
        for second in (work["result"] if work["do"] == "d2h" else work["source"], None):
            rows = rows or self.TABLE.get((work["do"], second))
        rows = rows or {}
        return rows.get("any") or rows.get(work["calls"], [])

    def empty(self, size, pinned):
        leaf = torch.empty(size // 4, dtype=torch.float32, pin_memory=pinned and self.gpu)
        return leaf, leaf.numpy().view(numpy.uint32)

    def make_sources(self, work):
        """Makes the sources. If they are pinned, registers memory, which is faster than asking the driver for it."""
        register(work["source"] == "pinned")
        try:
            super().make_sources(work)
        finally:
            register(False)

    def release(self):
        release_memory(self.gpu)

    def wait(self):
        if self.gpu:
            torch.cuda.synchronize()

    def prepare_row(self):
        do = self.work["do"]
        if do == "d2h":
            self.on_device = [self.send(leaves) for leaves in self.sources]
            self.wait()
            if self.work["result"] in ("warm", "into_pinned"):
                self.make_targets()
        if do.startswith("copies"):
            self.own = torch.empty(OWN_BYTES, dtype=torch.uint8, pin_memory=self.gpu)
            self.own_target = torch.empty(OWN_BYTES, dtype=torch.uint8, device=self.device)
            self.own_stream = torch.cuda.Stream() if self.gpu else None
        if do == "overlap" and self.gpu:
            self.measure_cycles()

    def finish_row(self):
        self.on_device, self.targets = [], []

    def make_targets(self):
        many = 1 if worker.total_bytes(self.work) > 512 << 20 else len(self.sources)
        pinned = self.work["result"] == "into_pinned"
        self.targets = []
        for _ in range(many):
            made = [self.empty(size, pinned) for size in worker.leaf_sizes(self.work)]
            for _, words in made:
                words.fill(0xA5A5A5A5)
            self.targets.append(self.tree([leaf for leaf, _ in made]))

    def send(self, leaves):
        return [leaf.to(self.device) for leaf in leaves]

    def transfer(self, setting, tree):
        """Performs the row's operation and returns the result, without waiting for the device at the end."""
        leaves = self.sources[tree]
        do = self.work["do"]
        if do == "d2h":
            return self.fetch(setting, tree)
        if setting == "to":
            return [leaf.to(self.device) for leaf in leaves]
        if setting == "to non_blocking":
            return [leaf.to(self.device, non_blocking=True) for leaf in leaves]
        if setting in ("pin_memory", "pin_memory, register"):
            return [leaf.pin_memory() if self.gpu else leaf.clone() for leaf in leaves]
        if setting == "pin_memory, to":
            return [leaf.pin_memory().to(self.device) for leaf in leaves]
        if setting == "pin_memory, to non_blocking":
            return [leaf.pin_memory().to(self.device, non_blocking=True) for leaf in leaves]
        raise ValueError(f"there is no setting {setting}")

    def fetch(self, setting, tree):
        leaves = self.on_device[tree]
        if setting == "to":
            return [leaf.to("cpu") for leaf in leaves]
        if setting == "to non_blocking":
            return [leaf.to("cpu", non_blocking=True) for leaf in leaves]
        targets = self.targets[tree % len(self.targets)]
        for target, leaf in zip(targets, leaves):
            target.copy_(leaf, non_blocking=setting.endswith("non_blocking"))
        return targets

    def leaves_of(self, made):
        return made

    def sample(self, setting, tree):
        do = self.work["do"]
        special = getattr(self, "sample_" + do, None)
        if special:
            return special(setting, tree)
        begin = clock()
        made = self.transfer(setting, tree)
        self.wait()
        del made
        return clock() - begin

    def verify(self, setting):
        do = self.work["do"]
        if do.startswith("alloc") or do == "copies_idle":
            return self.sample(setting, 0)
        begin = clock()
        if do == "overlap":
            made = self.sources[0][0].to(self.device, non_blocking=True)
            made = [made]
        else:
            made = self.transfer(setting, 0)
        self.wait()
        seconds = clock() - begin
        leaves = self.leaves_of(made)
        pinned = self.work["result"] in ("pinned", "into_pinned") or do in ("pin", "copies_pinning")
        if self.gpu and pinned and not all(leaf.is_pinned() for leaf in leaves):
            raise AssertionError("the result is not pinned")
        if leaves[0].device.type == "cpu":
            self.compare_words([leaf.numpy().view(numpy.uint32) for leaf in leaves])
        else:
            self.compare_sums(self.sums_of(leaves))
        return seconds

    @staticmethod
    def sums_of(leaves):
        """Returns the sum of the 64-bit words of each leaf. One operation sums many small leaves of the same size."""
        found, at = [], 0
        while at < len(leaves):
            size, end = leaves[at].numel(), at
            while end < len(leaves) and leaves[end].numel() == size:
                end += 1
            same = [leaf.view(torch.int64) for leaf in leaves[at:end]]
            if len(same) > MANY and size < 1 << 16:
                found.append(torch.cat(same).view(len(same), size // 2).sum(1))
            else:
                found.append(torch.stack([words.sum() for words in same]))
            at = end
        return torch.cat(found).cpu().numpy()

    # Samples of rows that do more than transfer a tree and wait.
    def sample_alloc(self, setting, tree):
        register(setting.endswith("register"))
        size = worker.total_bytes(self.work)
        begin = clock()
        block = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        seconds = clock() - begin
        del block
        self.release()
        register(False)
        return seconds

    def sample_alloc_again(self, setting, tree):
        size = worker.total_bytes(self.work)
        begin = clock()
        torch.empty(size, dtype=torch.uint8, pin_memory=True)
        return clock() - begin

    def sample_call(self, setting, tree):
        begin = clock()
        made = self.transfer(setting, tree)
        seconds = clock() - begin
        self.wait()
        del made
        return seconds

    def copy_own(self, times):
        begin = clock()
        if self.own_stream:
            with torch.cuda.stream(self.own_stream):
                self.own_target.copy_(self.own, non_blocking=True)
            self.own_stream.synchronize()
        else:
            self.own_target.copy_(self.own)
        times.append(clock() - begin)

    def percentile(self, times):
        times.sort()
        percent = 99 if self.work["statistic"] == "p99" else 50
        return times[(len(times) * percent + 99) // 100 - 1]

    def sample_copies_idle(self, setting, tree):
        times = []
        while len(times) < OWN_COPIES:
            time.sleep(random.uniform(0.5, 1.5) * PAUSE)
            self.copy_own(times)
        return self.percentile(times)

    def start(self, setting, tree):
        """Performs the row's operation on a new thread. Returns the thread, and an Event that it sets at the end."""
        done = threading.Event()

        def move():
            try:
                if self.gpu:
                    torch.cuda.set_device(torch.device(self.device))
                made = self.transfer(setting, tree)
                if self.gpu and self.work["do"] == "copies":
                    torch.cuda.current_stream().synchronize()
                del made
            finally:
                done.set()

        thread = threading.Thread(target=move)
        thread.start()
        return thread, done

    def sample_copies(self, setting, tree):
        times = []
        for n in range(MOST_TRANSFERS):
            thread, done = self.start(setting, (tree + n) % len(self.sources))
            while True:
                time.sleep(random.uniform(0.5, 1.5) * PAUSE)
                self.copy_own(times)
                if len(times) >= OWN_COPIES or done.is_set():
                    break
            thread.join()
            if len(times) >= OWN_COPIES:
                break
        self.wait()
        return self.percentile(times)

    def sample_copies_pinning(self, setting, tree):
        """Returns the seconds of the longest own copy while another thread pins a source. The cache of pinned memory is
        empty at the start."""
        self.release()
        register(self.gpu and setting.endswith("register"))
        times = []
        thread, done = self.start(setting, tree)
        self.copy_own(times)
        while not done.is_set():
            self.copy_own(times)
        thread.join()
        register(False)
        self.release()
        return max(times)

    def measure_cycles(self):
        """Sets self.cycles to the argument with which torch.cuda._sleep() takes kernel_seconds."""
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1000)
        first.record()
        torch.cuda._sleep(20_000_000)
        last.record()
        torch.cuda.synchronize()
        self.cycles = int(20_000_000 * self.work["kernel_seconds"] / (first.elapsed_time(last) * 1e-3))
        self.copy_stream = torch.cuda.Stream()

    def sample_overlap(self, setting, tree):
        leaf = self.sources[tree][0]
        begin = clock()
        if self.gpu:
            torch.cuda._sleep(self.cycles)
        if setting == "own stream" and self.gpu:
            with torch.cuda.stream(self.copy_stream):
                made = leaf.to(self.device, non_blocking=True)
        else:
            made = leaf.to(self.device, non_blocking=True)
        self.wait()
        del made
        return clock() - begin


if __name__ == "__main__":
    worker.main(TorchPeer)
