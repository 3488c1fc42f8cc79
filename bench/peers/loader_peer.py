"""Does the same as tdict's loader, with PyTorch and TensorDict: fetches random windows of a token shard, or random
samples of seven tensors in memory, collates them into batches and moves the batches to the GPU. The requests are {"op":
"hello"}, {"op": "quit"} and {"op": "run", "work", "way", "workers", "pin", "batched", "seconds", "shard", "samples",
"batch"}, which returns "batches_per_second".

The ways are: dataloader (torch.utils.data.DataLoader; with "batched", its sampler yields whole batches, so that one
indexing operation fetches a batch), loop (a hand-written loop that gathers each batch with one indexing operation into
one of two pinned buffers), tensordict (a DataLoader over a TensorDict, which fetches each batch with one indexing
operation; samples only). With tensordict, DataLoader pins each batch if "pin" is true, or else TensorDict.to() does."""

import time

import numpy
import torch

import worker

WINDOW = 1024
SHAPES = {"obs.pixels": ((84, 84, 3), torch.uint8), "obs.state": ((17,), torch.float32), "action": ((6,), torch.float32),
          "next.obs.pixels": ((84, 84, 3), torch.uint8), "next.obs.state": ((17,), torch.float32),
          "next.reward": ((), torch.float64), "next.done": ((), torch.bool)}


class Tokens(torch.utils.data.Dataset):
    def __init__(self, shard):
        self.tokens = numpy.memmap(shard, dtype=numpy.uint16, mode="r", offset=1024)
        self.count = (len(self.tokens) - 1 - WINDOW) // WINDOW + 1
        self.reach = numpy.arange(WINDOW + 1)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if isinstance(index, list):
            places = numpy.asarray(index)[:, None] * WINDOW + self.reach
            rows = torch.from_numpy(self.tokens[places].astype(numpy.int64))
            return {"tokens": rows[:, :-1].contiguous(), "targets": rows[:, 1:].contiguous()}
        row = torch.from_numpy(self.tokens[index * WINDOW:(index + 1) * WINDOW + 1].astype(numpy.int64))
        return {"tokens": row[:-1], "targets": row[1:]}

    def buffers(self, batch):
        return {name: torch.empty((batch, WINDOW), dtype=torch.int64).pin_memory() for name in ("tokens", "targets")}

    def gather(self, index, buffers):
        places = index.numpy()[:, None] * WINDOW + self.reach
        rows = self.tokens[places]
        buffers["tokens"].numpy()[...] = rows[:, :-1]
        buffers["targets"].numpy()[...] = rows[:, 1:]


class Samples(torch.utils.data.Dataset):
    def __init__(self, count):
        generator = torch.Generator().manual_seed(2)
        self.data = {}
        for name, (shape, dtype) in SHAPES.items():
            if dtype == torch.uint8:
                self.data[name] = torch.randint(0, 256, (count, *shape), dtype=dtype, generator=generator)
            elif dtype == torch.bool:
                self.data[name] = torch.rand((count, *shape), generator=generator) > 0.5
            else:
                self.data[name] = torch.rand((count, *shape), dtype=dtype, generator=generator)
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return {name: value[index] for name, value in self.data.items()}

    def buffers(self, batch):
        return {name: torch.empty((batch, *value.shape[1:]), dtype=value.dtype).pin_memory()
                for name, value in self.data.items()}

    def gather(self, index, buffers):
        for name, value in self.data.items():
            torch.index_select(value, 0, index, out=buffers[name])


def dataloader(dataset, job, device):
    options = {"num_workers": job["workers"], "pin_memory": job["pin"]}
    if job["workers"]:
        options.update(prefetch_factor=2, persistent_workers=True)
    if job["batched"]:
        random = torch.utils.data.RandomSampler(dataset)
        options.update(sampler=torch.utils.data.BatchSampler(random, job["batch"], drop_last=True), batch_size=None)
    else:
        options.update(batch_size=job["batch"], shuffle=True, drop_last=True)
    loader = torch.utils.data.DataLoader(dataset, **options)
    while True:
        for batch in loader:
            yield {name: value.to(device, non_blocking=job["pin"]) for name, value in batch.items()}


def loop(dataset, job, device):
    buffers = [dataset.buffers(job["batch"]) for _ in range(2)]
    free = [torch.cuda.Event() for _ in range(2)] if device.type == "cuda" else None
    turn = 0
    while True:
        order = torch.randperm(len(dataset))
        for at in range(0, len(dataset) - job["batch"] + 1, job["batch"]):
            turn = 1 - turn
            if free:
                free[turn].synchronize()
            dataset.gather(order[at:at + job["batch"]], buffers[turn])
            batch = {name: value.to(device, non_blocking=True) for name, value in buffers[turn].items()}
            if free:
                free[turn].record()
            yield batch


def whole(batch):
    return batch


def tensordict(dataset, job, device):
    from tensordict import TensorDict
    options = {"num_workers": job["workers"], "pin_memory": job["pin"], "persistent_workers": job["workers"] > 0}
    loader = torch.utils.data.DataLoader(TensorDict(dataset.data, [dataset.count]), batch_size=job["batch"], shuffle=True,
                                         drop_last=True, collate_fn=whole, **options)
    way = {"non_blocking": True} if job["pin"] else {"non_blocking_pin": device.type == "cuda"}
    while True:
        for batch in loader:
            yield batch.to(device, **way)


def measure(job, dataset, device):
    batches = {"dataloader": dataloader, "loop": loop, "tensordict": tensordict}[job["way"]](dataset, job, device)
    begin, warm, count = None, time.perf_counter() + job["seconds"] / 4, 0
    for batch in batches:
        del batch
        count += 1
        now = time.perf_counter()
        if begin is None and now > warm and count > 2:
            if device.type == "cuda":
                torch.cuda.synchronize()
            begin, count = time.perf_counter(), 0
        elif begin is not None and now - begin > job["seconds"]:
            break
    if device.type == "cuda":
        torch.cuda.synchronize()
    return count / (time.perf_counter() - begin)


class LoaderPeer:
    def __init__(self, device):
        self.device, self.datasets = torch.device("cuda" if torch.cuda.is_available() else "cpu"), {}

    def answer(self, job):
        if job["op"] == "hello":
            return {"torch": torch.__version__, "device": str(self.device), "threads": torch.get_num_threads()}
        if job["op"] == "quit":
            return {}
        if job["work"] not in self.datasets:
            self.datasets[job["work"]] = Tokens(job["shard"]) if job["work"] == "tokens" else Samples(job["samples"])
        return {"batches_per_second": measure(job, self.datasets[job["work"]], self.device)}


if __name__ == "__main__":
    worker.main(LoaderPeer, collects=True)
