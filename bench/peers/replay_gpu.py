#!/usr/bin/env python3
"""Repeats examples/replay_gpu.c, a replay buffer in GPU memory, with TensorDict. Prints the same figures.

usage: replay_gpu.py [DEVICE [ROWS]]     DEVICE: cuda (default if there is a GPU) or cpu
PyTorch and TensorDict must be installed for this Python. Actor threads write transitions by index assignment, and the
learner reads samples with lists of random positions on the device. The exit status is 0 if all checked samples have
correct checksums. As in the example, write times include making the transitions, here with PyTorch's random
generator."""

import sys
import threading
import time

if "--help" in sys.argv:
    sys.exit(print(__doc__))

import torch
from tensordict import TensorDict

ACTORS, NEW_ROWS, OBS, ACTIONS, BATCH, LISTS, CHECKED = 4, 2048, 376, 17, 512, 64, 8
FLOATS = ("obs", "action", "reward", ("next", "obs"))


def empty(rows, device, pinned=False):
    def zeros(*shape, dtype=torch.float32):
        made = torch.zeros(rows, *shape, dtype=dtype, device=device)
        return made.pin_memory() if pinned else made
    return TensorDict({"obs": zeros(OBS), "action": zeros(ACTIONS), "reward": zeros(), "next": {"obs": zeros(OBS)},
                       "checksum": zeros(dtype=torch.int64)}, [rows])


def checksum(rows):
    """Returns the checksum of each row: 1 plus the sum of its words. The 1 makes the check fail for unwritten rows,
    which are all zeros."""
    total = torch.ones(rows.batch_size[0], dtype=torch.int64)
    for name in FLOATS:
        total += rows[name].reshape(rows.batch_size[0], -1).view(torch.int32).sum(1, dtype=torch.int64)
    return total


class Buffer:
    def __init__(self, device, capacity):
        self.device, self.capacity = device, capacity
        self.tree = empty(capacity, device)
        self.lock = threading.Lock()  # guards `written` and the contents of `tree`
        self.written, self.goal, self.stop, self.failed = 0, capacity, False, False

    def write(self, rows):
        """Writes NEW_ROWS rows at the ring's current position, and wraps around at its end. Call with the lock held."""
        done = 0
        while done < NEW_ROWS:
            first = (self.written + done) % self.capacity
            count = min(NEW_ROWS - done, self.capacity - first)
            self.tree[first:first + count] = rows[done:done + count]
            done += count
        self.written += NEW_ROWS

    def run_actor(self, seed):
        try:
            generator = torch.Generator().manual_seed(seed)
            host = empty(NEW_ROWS, "cpu", pinned=self.device.type == "cuda")
            more = True
            while more:
                for name in FLOATS:
                    torch.rand(host[name].shape, generator=generator, out=host[name])
                host["checksum"].copy_(checksum(host))
                rows = host.to(self.device)
                with self.lock:
                    more = not self.stop and self.written < self.goal
                    if more:
                        self.write(rows)
        except BaseException:
            self.failed = True
            raise

    def start_actors(self):
        self.actors = [threading.Thread(target=self.run_actor, args=(seed,)) for seed in range(ACTORS)]
        for actor in self.actors:
            actor.start()

    def join_actors(self):
        for actor in self.actors:
            actor.join()


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main():
    device = torch.device(sys.argv[1] if len(sys.argv) > 1 else "cuda" if torch.cuda.is_available() else "cpu")
    is_gpu = device.type == "cuda"
    capacity = int(sys.argv[2]) if len(sys.argv) > 2 else 2000000 if is_gpu else 5000
    samples = 4000 if is_gpu else 64
    buffer = Buffer(device, capacity)
    lists = torch.randint(0, capacity, (LISTS, BATCH), device=device)
    row_bytes = sum(leaf[0].numel() * leaf.element_size() for leaf in buffer.tree.values(True, True))
    synchronize(device)

    start = time.perf_counter()
    buffer.start_actors()
    buffer.join_actors()
    synchronize(device)
    fill = time.perf_counter() - start
    print(f"{capacity} rows of {row_bytes} bytes")
    print(f"written: {buffer.written / fill:.0f} transitions/s, {1e-9 * row_bytes * buffer.written / fill:.2f} GB/s")

    buffer.goal = float("inf")
    buffer.start_actors()
    kept = []
    start = time.perf_counter()
    try:
        for n in range(samples):
            with buffer.lock:
                batch = buffer.tree[lists[n % LISTS]]
            if n % (samples // CHECKED) == 0:
                kept.append(batch)
        synchronize(device)
        seconds = time.perf_counter() - start
    finally:
        buffer.stop = True
        buffer.join_actors()
    count = samples * BATCH
    print(f"{samples / seconds:.0f} batches/s of {BATCH}")
    print(f"sampled: {count / seconds:.0f} transitions/s, {1e-9 * row_bytes * count / seconds:.2f} GB/s")
    wrong = sum(int((rows["checksum"] != checksum(rows)).sum()) for rows in (batch.to("cpu") for batch in kept))
    print(f"checked: {wrong} of {CHECKED * BATCH} transitions have a wrong checksum")
    return wrong > 0 or buffer.failed


if __name__ == "__main__":
    sys.exit(main())
