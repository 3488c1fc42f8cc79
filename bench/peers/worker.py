"""What the workers of other libraries share: the protocol of tdict-bench worker, sources, samples, checks.

One JSON object a line on standard input, one line back for each, in order:

    {"op": "hello"}                       name, versions, device
    {"op": "settings", "work": W}         the documented settings in which this library can do the work; may be none
    {"op": "prepare", "work": W}          sources are made
    {"op": "verify", "setting": S}        does it once and compares what arrived with what was sent
    {"op": "run", "setting": S, "count": N}   seconds of N repetitions
    {"op": "finish"}                      the row is over; sources are kept, the next row may have the same
    {"op": "quit"}

An answer has "ok": true, or "ok": false and a sentence in "error". W is what `tdict-bench worker` says of a row:
do, groups ([leaves, bytes] each), source, cache, result, calls, statistic, kernel_seconds.

A peer is a subclass of Peer, see torch_peer.py. Its do_* functions return seconds, and wait for the device before they
stop the clock; what was made is dropped inside the clock.
"""
import argparse
import concurrent.futures
import gc
import json
import os
import sys
import time
import traceback

import numpy

TREES = 4
EVICT_BYTES = 768 << 20
TOUCH_BYTES = 64 << 20
BLOCK_WORDS = 1 << 18
clock = time.perf_counter


def leaf_sizes(work):
    """Bytes of each leaf, in order."""
    return [size for count, size in work["groups"] for _ in range(count)]


def total_bytes(work):
    return sum(count * size for count, size in work["groups"])


def fill(words, number, block):
    """Random words that no other leaf has: a block of them, changed by the leaf's number and the block's place."""
    for i, at in enumerate(range(0, len(words), BLOCK_WORDS)):
        part = words[at:at + BLOCK_WORDS]
        mark = numpy.uint32((number * 0x9E3779B1 + i * 0x85EBCA6B) & 0xFFFFFFFF)
        numpy.bitwise_xor(block[:len(part)], mark, out=part)


def checksum(words):
    """The sum of 32-bit words as signed integers, whole."""
    return int(numpy.sum(words.view(numpy.int32), dtype=numpy.int64))


class Peer:
    name = "none"

    def __init__(self, device):
        self.device = device
        self.kept = None      # what the kept sources were made for
        self.sources = []     # TREES lists of leaves, in this library's own type
        self.words = []       # the same memory as numpy arrays of 32-bit words
        self.known_sums = {}  # checksums of the kept sources' leaves
        self.next_tree = 0
        self.evict = None
        self.work = None
        self.threads = concurrent.futures.ThreadPoolExecutor(min(8, len(os.sched_getaffinity(0))))
        self.block = numpy.random.default_rng(12345).integers(0, 1 << 32, BLOCK_WORDS, numpy.uint32)

    # What a subclass gives.
    def versions(self):
        return {}

    def settings(self, work):
        return []

    def empty(self, size, pinned):
        """A leaf of so many bytes, and its memory as a numpy array of 32-bit words."""
        raise NotImplementedError

    def tree(self, leaves):
        """What the library calls a tree, of these leaves."""
        return leaves

    def prepare_row(self):
        """After the sources are there."""

    def finish_row(self):
        """Before the sources go."""

    def release(self):
        """Gives cached memory back."""

    def sample(self, setting, tree):
        """One repetition: seconds."""
        raise NotImplementedError

    def verify(self, setting):
        """Does it once; raises when something else arrived than was sent."""
        raise NotImplementedError

    # What they share.
    def drop_sources(self):
        self.sources, self.words, self.kept, self.known_sums = [], [], None, {}
        gc.collect()
        self.release()

    def make_sources(self, work):
        key = (json.dumps(work["groups"]), work["source"])
        if self.kept == key:
            return
        self.drop_sources()
        if work["do"].startswith("alloc"):
            return
        jobs = []
        for tree in range(TREES):
            made = [self.empty(size, work["source"] == "pinned") for size in leaf_sizes(work)]
            self.words.append([words for _, words in made])
            self.sources.append(self.tree([leaf for leaf, _ in made]))
            jobs += [(words, tree * len(made) + i) for i, words in enumerate(self.words[-1])]
        if total_bytes(work) < 32 << 20:
            for words, number in jobs:
                fill(words, number, self.block)
        else:
            list(self.threads.map(lambda job: fill(job[0], job[1], self.block), jobs))
        self.kept = key

    def sums(self, tree=0):
        """The checksum of each leaf of a source, reckoned once."""
        if tree not in self.known_sums:
            self.known_sums[tree] = list(self.threads.map(checksum, self.words[tree]))
        return self.known_sums[tree]

    def compare_sums(self, found, bits=64):
        mask = (1 << bits) - 1
        for i, (wanted, sum_) in enumerate(zip(self.sums(), found, strict=True)):
            if (wanted & mask) != (int(sum_) & mask):
                raise AssertionError(f"leaf {i} differs: its sum is {sum_}, sent was {wanted}")

    def settle_caches(self, tree):
        if self.work["cache"] == "cold":
            if self.evict is None:
                self.evict = numpy.zeros(EVICT_BYTES // 8, numpy.uint64)
            self.evict += numpy.uint64(1)
        elif self.words and total_bytes(self.work) <= TOUCH_BYTES:
            for words in self.words[tree]:
                words[::16].sum()

    def run(self, setting, count):
        seconds = []
        for _ in range(count):
            tree = self.next_tree % TREES
            self.next_tree += 1
            self.settle_caches(tree)
            seconds.append(self.sample(setting, tree))
        return seconds

    def answer(self, request):
        op = request.get("op")
        if op == "hello":
            return {"name": self.name, "device": self.device, "versions": self.versions()}
        if op == "settings":
            return {"settings": self.settings(request["work"])}
        if op == "prepare":
            self.work = request["work"]
            self.make_sources(self.work)
            self.prepare_row()
            return {}
        if op == "verify":
            self.verify(request["setting"])
            return {"verified_bytes": total_bytes(self.work)}
        if op == "run":
            return {"seconds": self.run(request["setting"], request["count"])}
        if op in ("finish", "quit"):
            self.finish_row()
            return {}
        raise ValueError(f"there is no op {op}")


def one_line(error):
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def main(make):
    """Serves the peer that make(device) gives."""
    parser = argparse.ArgumentParser(description="A worker of bench/compare.")
    parser.add_argument("--device", default="cuda:0", help="cuda:N, or cpu to see that the worker answers")
    options = parser.parse_args()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print do not disturb the answers
    peer, broken = None, None
    try:
        peer = make(options.device)
    except Exception as error:
        broken = one_line(error)
    gc.disable()  # as timeit does; make_sources() collects between rows
    for line in sys.stdin:
        try:
            if peer is None:
                raise RuntimeError(broken)
            request = json.loads(line)
            answer = dict(peer.answer(request), ok=True)
        except Exception as error:
            request = request if peer is not None else {}
            if peer is not None:
                traceback.print_exc()
            answer = {"ok": False, "error": one_line(error)}
        out.write(json.dumps(answer) + "\n")
        out.flush()
        if peer is None or request.get("op") == "quit":
            break
