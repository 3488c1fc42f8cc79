#!/usr/bin/env python3
"""Loads a safetensors file to the GPU with a Python package, and prints one line of JSON.

  bench/peers/load.py WAY FILE [--repeat 5] [--seconds 4]

WAY is one of

  safetensors          safetensors.torch.load_file(FILE, device="cuda:0")
  tensordict           tensordict.from_safetensors(FILE, device="cuda:0")
  pin-loop             load_file() to the cpu, then pin_memory().to(non_blocking=True) for each tensor
  fastsafetensors      fastsafe_open(FILE, nogds=True): through a bounce buffer
  instanttensor        instanttensor.safe_open(FILE): its default, which reads from the disk without the page cache
  instanttensor-mmap   the same with Backend.MMAP: through the page cache

The line has the seconds of the first call, which is made after the CUDA context was created, and the seconds of later
calls: at least one and at most --repeat. After --seconds, no further call starts. Before each call, the file is read
once to fill the page cache. Eight tensors of the first result are compared with the file. If a way cannot be measured,
the line has the reason in the field "error". Without a GPU, the ways that support it load to the cpu.

Without access to a package registry, install these wheels (Python 3.12, x86-64) besides torch and safetensors:
  fastsafetensors-0.5.0-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl, 2.7 MB (needs typer)
  instanttensor-0.2.2-cp312-cp312-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl, 6.5 MB (needs torch >= 2.8)
  tensordict-0.15.3-py3-none-any.whl, 0.9 MB (needs pyvers and cloudpickle)"""

import argparse
import concurrent.futures
import importlib
import importlib.metadata
import json
import os
import time

PIECE = 4 << 20
VERIFIED = 8


class CannotRun(Exception):
    """Raised if a way cannot run on this machine or produces a wrong result."""


def need_gpu(device, way):
    if device.type != "cuda":
        raise CannotRun(f"{way} needs a GPU")


def load_safetensors(path, device):
    import safetensors.torch
    return safetensors.torch.load_file(path, device=str(device))


def load_tensordict(path, device):
    import tensordict
    tree = tensordict.from_safetensors(path, device=device)
    return {".".join((name,) if isinstance(name, str) else name): tensor
            for name, tensor in tree.items(include_nested=True, leaves_only=True)}


def load_pin_loop(path, device):
    import safetensors.torch
    need_gpu(device, "pin-loop")
    return {name: tensor.pin_memory().to(device, non_blocking=True)
            for name, tensor in safetensors.torch.load_file(path).items()}


def load_fastsafetensors(path, device):
    import fastsafetensors
    with fastsafetensors.fastsafe_open([path], nogds=True, device=str(device)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def load_instanttensor(path, device, **options):
    import instanttensor
    need_gpu(device, "instanttensor")
    with instanttensor.safe_open(path, framework="pt", device=device, **options) as file:
        return dict(file.tensors())


def load_instanttensor_mmap(path, device):
    import instanttensor
    return load_instanttensor(path, device, backend=instanttensor.Backend.MMAP)


WAYS = {"safetensors": ("safetensors", load_safetensors), "tensordict": ("tensordict", load_tensordict),
        "pin-loop": ("torch", load_pin_loop),
        "fastsafetensors": ("fastsafetensors", load_fastsafetensors),
        "instanttensor": ("instanttensor", load_instanttensor),
        "instanttensor-mmap": ("instanttensor", load_instanttensor_mmap)}


def warm(path):
    """Reads the file with several threads, to fill the page cache."""
    fd, size = os.open(path, os.O_RDONLY), os.stat(path).st_size

    def read(first):
        buffer = bytearray(PIECE)
        for at in range(first * PIECE, size, threads * PIECE):
            os.preadv(fd, [buffer], at)

    threads = min(16, os.cpu_count() or 1)
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(read, range(threads)))
    os.close(fd)


def verify(torch, tensors, path):
    """Compares VERIFIED of the tensors, including the first and the last, with the file."""
    import safetensors
    with safetensors.safe_open(path, framework="pt") as file:
        names = list(file.keys())
        if len(names) != len(tensors):
            raise CannotRun(f"{len(tensors)} tensors arrived, wanted {len(names)}")
        for i in range(VERIFIED):
            name = names[i * (len(names) - 1) // (VERIFIED - 1)]
            wanted, found = file.get_tensor(name), tensors[name].cpu()
            if not torch.equal(wanted.view(torch.uint8), found.view(torch.uint8)):
                raise CannotRun(f"the tensor {name} differs from the file")


def measure(options):
    package, load = WAYS[options.way]
    import torch
    import safetensors.torch  # noqa: F401 imported here, so that the first call does not include the import
    importlib.import_module(package)
    version = importlib.metadata.version(package)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    synchronize = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    torch.zeros(1, device=device)
    synchronize()

    def call():
        warm(options.file)
        begin = time.perf_counter()
        tensors = load(options.file, device)
        synchronize()
        return time.perf_counter() - begin, tensors

    first, tensors = call()
    verify(torch, tensors, options.file)
    steady, begin = [], time.perf_counter()
    while len(steady) < options.repeat and (not steady or time.perf_counter() - begin < options.seconds):
        del tensors
        seconds, tensors = call()
        steady.append(seconds)
    return {"way": options.way, "package": f"{package} {version}", "torch": torch.__version__, "device": str(device),
            "total_bytes": sum(one.numel() * one.element_size() for one in tensors.values()), "first_seconds": first,
            "steady_seconds": steady}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("file")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    try:
        answer = measure(options)
    except Exception as error:  # pylint: disable=broad-except
        answer = {"way": options.way, "error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
