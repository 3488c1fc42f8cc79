#!/usr/bin/env python3
"""Compares conversions between float dtypes with PyTorch's, bit by bit. All NaNs count as equal.

usage: compare_dtypes.py LIBRARY [COUNT]
LIBRARY is a shared library such as build/release/libtdict.so. Converts every bit pattern of the 8-bit and 16-bit
floats to float32 and float64 and back, and COUNT (default 100000000) random bit patterns of float32 to each of these
floats. A number too large for float8_e4m3fn becomes NaN in tdict and in PyTorch 2.11. PyTorch 2.15 returns the largest
number instead; such elements are counted separately. Exit status: 0 equal, 1 different, 77 if PyTorch is missing."""

import ctypes
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

try:
    import torch
except ImportError:
    print("PyTorch is missing")
    sys.exit(77)

# DLPack's type code and bits of each dtype. Old versions of PyTorch have no 8-bit floats.
CODES = {getattr(torch, name): code for name, code in (
    ("float16", (2, 16)), ("bfloat16", (4, 16)), ("float8_e4m3fn", (10, 8)), ("float8_e5m2", (12, 8)), ("float32", (2, 32)),
    ("float64", (2, 64))) if hasattr(torch, name)}
SMALL = [dtype for dtype, (_, bits) in CODES.items() if bits <= 16]
INTEGERS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}
PIECE = 1 << 24
saturated = [0]  # number of elements that PyTorch replaced with the largest float8_e4m3fn


class Desc(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_index", ctypes.c_int32), ("dtype", ctypes.c_uint32), ("ndim", ctypes.c_int32),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.c_void_p),
                ("storage_bytes", ctypes.c_size_t), ("flags", ctypes.c_uint32)]


def wrap(library, tensor):
    code, bits = CODES[tensor.dtype]
    shape = (ctypes.c_int64 * 1)(tensor.numel())
    desc = Desc(ctypes.sizeof(Desc), tensor.data_ptr(), 1, 0, code | bits << 8 | 1 << 16, 1, shape, None, 0, 0)
    out = ctypes.c_void_p()
    status = library.tdict_tensor_from_data(ctypes.byref(desc), None, None, ctypes.byref(out), None)
    assert status == 0, status
    return out


def convert(library, source, dtype):
    made = torch.empty(source.numel(), dtype=dtype)
    dst, src = wrap(library, made), wrap(library, source)
    status = library.tdict_convert(dst, src, None)
    assert status == 0, status
    library.tdict_tensor_release(dst)
    library.tdict_tensor_release(src)
    return made


def count_differences(source, made):
    """Returns the number of elements of `made` that differ from PyTorch's conversion."""
    dtype = made.dtype
    wanted = source.to(dtype)
    integer = INTEGERS[CODES[dtype][1]]
    differs = made.view(integer) != wanted.view(integer)
    if not differs.any():
        return 0
    at = differs.nonzero().flatten()
    is_nan = made[at].double().isnan()
    equal = is_nan & wanted[at].double().isnan()
    if dtype == getattr(torch, "float8_e4m3fn", None):
        large = is_nan & (source[at].double().abs() > 464) & (wanted[at].double().abs() == 448)
        saturated[0] += int(large.sum())
        equal |= large
    at = at[~equal]
    for i in at[:5].tolist():
        print(f"  {source[i].item()!r} to {dtype}: {made[i].item()!r}, PyTorch {wanted[i].item()!r}")
    return at.numel()


def main():
    library = ctypes.CDLL(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 10**8
    library.tdict_tensor_release.argtypes = [ctypes.c_void_p]
    library.tdict_convert.argtypes = [ctypes.c_void_p] * 3
    library.tdict_tensor_from_data.argtypes = [ctypes.c_void_p] * 5
    wrong = 0
    for dtype in SMALL:
        bits = CODES[dtype][1]
        patterns = torch.arange(1 << bits).to(INTEGERS[bits]).view(dtype)
        for wide in (torch.float32, torch.float64):
            there = count_differences(patterns, convert(library, patterns, wide))
            wider = patterns.to(wide)
            back = count_differences(wider, convert(library, wider, dtype))
            print(f"{dtype}, all {1 << bits} patterns, to {wide}: {there} differ; and back: {back} differ")
            wrong += there + back
    generator = torch.Generator().manual_seed(20261123)
    totals = dict.fromkeys(SMALL, 0)
    for at in range(0, count, PIECE):
        some = min(PIECE, count - at)
        source = torch.randint(-(1 << 31), 1 << 31, (some,), generator=generator).to(torch.int32).view(torch.float32)
        for dtype in SMALL:
            totals[dtype] += count_differences(source, convert(library, source, dtype))
    for dtype, differ in totals.items():
        print(f"torch.float32, {count} random patterns, to {dtype}: {differ} differ")
    print(f"PyTorch {torch.__version__}; numbers that it replaced with the largest float8_e4m3fn: {saturated[0]}")
    return 1 if wrong + sum(totals.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
