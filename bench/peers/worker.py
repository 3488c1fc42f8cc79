"""Code shared by the workers of all libraries except tdict: the protocol, making sources, and verifying results.

Reads a JSON request from each line of standard input, and replies with a line of JSON:

    {"op": "hello", "device": D}          opens the device; returns name, versions and device
    {"op": "settings", "work": W}         returns the settings that this library documents for such a row
    {"op": "prepare", "work": W}          makes the sources
    {"op": "verify", "setting": S}        runs the row once, and compares the result with its source; returns
                                          approximate seconds
    {"op": "run", "setting": S, "warm": K, "count": N}   returns the seconds of N repetitions after K uncounted ones, and
                                          the processor seconds of all threads during these N
    {"op": "finish"}                      ends the row; keeps the sources for the next row
    {"op": "drop"}                        releases the kept sources
    {"op": "quit"}                        ends the program

A reply has "ok": true, or "ok": false and a message in "error". W describes a row as `tdict-bench worker` does: do,
groups (each [leaves, bytes]), source, cache, result, calls, statistic, kernel_seconds, trees.

Each library has a subclass of Peer, for example in torch_peer.py. The time of a sample usually includes the wait for
the device and the release of the result.
"""
import argparse
import concurrent.futures
import gc
import json
import os
import resource
import sys
import time
import traceback

import numpy

EVICT_BYTES = 768 << 20
EVICT_THREADS = 8
TOUCH_BYTES = 64 << 20
PAUSE = 0.005
BLOCK_WORDS = 1 << 18
clock = time.perf_counter


def leaf_sizes(work):
    """Returns the size of each leaf in bytes, in order."""
    return [size for count, size in work["groups"] for _ in range(count)]


def total_bytes(work):
    return sum(count * size for count, size in work["groups"])


def fill(words, number, block):
    """Fills leaf `number` with copies of a random block. Each copy is XORed with a mark that depends on its index and
    on the leaf."""
    for i, at in enumerate(range(0, len(words), BLOCK_WORDS)):
        part = words[at:at + BLOCK_WORDS]
        mark = numpy.uint32((number * 0x9E3779B1 + i * 0x85EBCA6B) & 0xFFFFFFFF)
        numpy.bitwise_xor(block[:len(part)], mark, out=part)


def checksum(words):
    """Returns the sum of `words`, reinterpreted as 64-bit integers. Overflow wraps around."""
    return numpy.sum(words.view(numpy.int64), dtype=numpy.int64)


class Peer:
    name = "none"

    def __init__(self, device):
        self.device = device
        self.kept = None      # identifies the kept sources: their groups, source and trees
        self.sources = []     # the source trees, in this library's own type
        self.words = []       # the memory of `sources` as numpy arrays of 32-bit words
        self.known_sums = {}  # maps the index of a source tree to the checksums of its leaves
        self.next_tree = 0
        self.evict = None
        self.work = None
        self.threads = concurrent.futures.ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0))))
        self.block = numpy.random.default_rng(12345).integers(0, 1 << 32, BLOCK_WORDS, numpy.uint32)

    # Functions that a subclass implements.
    def versions(self):
        return {}

    def settings(self, work):
        return []

    def empty(self, size, pinned):
        """Returns a new leaf of `size` bytes, and its memory as a numpy array of 32-bit words."""
        raise NotImplementedError

    def tree(self, leaves):
        """Returns a tree of this library with these leaves."""
        return leaves

    def prepare_row(self):
        """Prepares a row. Called when the sources have been made."""

    def finish_row(self):
        """Ends a row. Called before the sources are released."""

    def release(self):
        """Returns cached memory to the system or the driver."""

    def sample(self, setting, tree):
        """Runs a repetition on source tree `tree` and returns its seconds."""
        raise NotImplementedError

    def verify(self, setting):
        """Runs the row once. Raises an exception if the result is wrong. Returns a rough time in seconds, or None."""
        raise NotImplementedError

    # Functions that all peers share.
    def drop_sources(self):
        self.sources, self.words, self.kept, self.known_sums = [], [], None, {}
        gc.collect()
        self.release()

    def make_sources(self, work):
        key = (json.dumps(work["groups"]), work["source"], work["trees"])
        if self.kept == key:
            return
        self.drop_sources()
        if work["do"].startswith("alloc"):
            return
        jobs = []
        for tree in range(work["trees"]):
            made = [self.empty(size, work["source"] == "pinned") for size in leaf_sizes(work)]
            self.words.append([words for _, words in made])
            self.sources.append(self.tree([leaf for leaf, _ in made]))
            jobs += [(words, tree * len(made) + i) for i, words in enumerate(self.words[-1])]
        self.side_by_side(lambda job: fill(job[0], job[1], self.block), jobs, total_bytes(work))
        self.kept = key

    def side_by_side(self, do, items, size):
        """Returns do(item) for each item, in order. Uses several threads if `size`, their total bytes, is large."""
        if size < 32 << 20:
            return [do(item) for item in items]
        step = max(1, len(items) // 64)
        parts = [items[at:at + step] for at in range(0, len(items), step)]
        return [one for part in self.threads.map(lambda part: [do(item) for item in part], parts) for one in part]

    def sums(self, tree=0):
        """Returns the checksum of each leaf of source tree `tree`. Computes them only once."""
        if tree not in self.known_sums:
            self.known_sums[tree] = numpy.array(self.side_by_side(checksum, self.words[tree], total_bytes(self.work)))
        return self.known_sums[tree]

    def compare_sums(self, found):
        wanted, arrived = self.sums(), numpy.array(found, numpy.int64)
        if wanted.shape != arrived.shape:
            raise AssertionError(f"{len(arrived)} leaves arrived of {len(wanted)}")
        for i in numpy.flatnonzero(wanted != arrived):
            raise AssertionError(f"leaf {i} differs: its sum is {arrived[i]}, sent was {wanted[i]}")

    def compare_words(self, found):
        """Compares a result, whose leaves are arrays of 32-bit words on the host, with source tree 0."""
        if len(found) != len(self.words[0]):
            raise AssertionError(f"{len(found)} leaves arrived of {len(self.words[0])}")
        pairs = list(enumerate(zip(found, self.words[0])))
        for i, same in enumerate(self.side_by_side(lambda pair: numpy.array_equal(*pair[1]), pairs,
                                                   total_bytes(self.work))):
            if not same:
                raise AssertionError(f"leaf {i} differs")

    def empty_caches(self):
        if self.evict is None:
            self.evict = numpy.array_split(numpy.zeros(EVICT_BYTES // 8, numpy.uint64), EVICT_THREADS)
        list(self.threads.map(lambda part: numpy.add(part, numpy.uint64(1), out=part), self.evict))

    def settle(self, tree):
        """Brings the CPU caches into the state that the row wants. Returns the CPU seconds that this took."""
        begin = cpu_seconds()
        if self.work["cache"] == "cold":
            self.empty_caches()
        else:
            if self.words and total_bytes(self.work) <= TOUCH_BYTES:
                for words in self.words[tree]:
                    words[::16].sum()
            time.sleep(PAUSE)
        return cpu_seconds() - begin

    def run(self, setting, count):
        """Runs `count` repetitions. Returns the list of their seconds, and their CPU seconds in total."""
        seconds, outside = [], 0
        begin = cpu_seconds()
        for _ in range(count):
            tree = self.next_tree % max(1, len(self.sources))
            self.next_tree += 1
            if self.work["cache"] != "warm":
                outside += self.settle(tree)
            seconds.append(self.sample(setting, tree))
        return seconds, cpu_seconds() - begin - outside

    def answer(self, request):
        op = request.get("op")
        if op == "hello":
            return {"name": self.name, "device": self.device, "versions": self.versions()}
        if op == "settings":
            return {"settings": self.settings(request["work"])}
        if op == "prepare":
            self.work = request["work"]
            self.make_sources(self.work)
            if self.work["cache"] == "cold":
                self.empty_caches()  # allocates its memory now, not during a measurement
            self.prepare_row()
            return {}
        if op == "verify":
            seconds = self.verify(request["setting"])
            return {"verified_bytes": total_bytes(self.work), "seconds": seconds or 0}
        if op == "run":
            self.run(request["setting"], request.get("warm", 0))
            seconds, cpu = self.run(request["setting"], request["count"])
            return {"seconds": seconds, "cpu_seconds": cpu}
        if op in ("finish", "quit"):
            self.finish_row()
            return {}
        if op == "drop":
            self.finish_row()
            self.drop_sources()
            return {}
        raise ValueError(f"there is no op {op}")


def cpu_seconds():
    """Returns the CPU time of this process in seconds: all threads, in user and kernel mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main(make, collects=False):
    """Replies to requests with the peer that make(device) returns. `collects`: keep the garbage collector enabled."""
    parser = argparse.ArgumentParser(description="A worker of bench/peers/compare.")
    parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to standard error, not between the replies
    peer = None
    if not collects:
        gc.disable()  # as timeit does; drop_sources() collects instead
    for line in sys.stdin:
        request = {}
        try:
            request = json.loads(line)
            if peer is None and request.get("op") != "quit":
                peer = make(request.get("device", "cpu"))
            answer = dict(peer.answer(request) if peer else {}, ok=True)
        except Exception as error:
            traceback.print_exc()
            answer = {"ok": False, "error": one_line(error)}
        out.write(json.dumps(answer) + "\n")
        out.flush()
        if peer is None or request.get("op") == "quit":
            break
