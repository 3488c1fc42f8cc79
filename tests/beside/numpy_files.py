#!/usr/bin/env python3
"""Exchanges .npy and .npz files between tdict and NumPy, in both directions.

usage: numpy_files.py LIBRARY
LIBRARY is libtdict.so. Exits with 77 if NumPy is missing."""

import random
import sys
import tempfile
import zipfile

if "--help" in sys.argv:
    sys.exit(print(__doc__))

from tdict_files import Tdict

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TYPES = "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()
SHAPES = [(), (0,), (3,), (2, 0, 4), (2, 3), (1, 1, 5), (7, 2, 3)]


def random_array(kind, shape):
    dtype = np.dtype(kind)
    count = int(np.prod(shape, dtype=int))
    data = bytes(random.randrange(2 if kind == "?" else 256) for _ in range(count * dtype.itemsize))
    return np.frombuffer(data, dtype).reshape(shape)


def random_arrays():
    arrays = {}
    for kind in TYPES:
        for shape in random.sample(SHAPES, 3):
            name = f"{random.choice(['', 'model.layers.0.', 'a.b.'])}{kind.replace('?', 'b')}_{'x'.join(map(str, shape))}"
            arrays[name] = random_array(kind, shape)
    arrays["é漢.sp ace/:*"] = random_array("f4", (2,))
    return arrays


def native(array):
    return array.astype(array.dtype.newbyteorder("="), order="C")


def same(found, wanted, name):
    assert found.dtype == wanted.dtype.newbyteorder("=") and found.shape == wanted.shape, (name, found.dtype, found.shape)
    assert native(found).tobytes() == native(wanted).tobytes(), name


def variant(array):
    """Returns the same elements in a random memory order (C or Fortran) and byte order."""
    order = random.choice(["C", "F"])
    swapped = array.dtype.newbyteorder(random.choice("<>"))
    return np.array(array.astype(swapped), order=order, copy=True)


def check_npz(tdict, folder):
    arrays = random_arrays()
    stored = {name: variant(array) for name, array in arrays.items()}
    np.savez(f"{folder}/theirs.npz", **stored)
    for flat in (False, True):
        tdict.rewrite(f"{folder}/theirs.npz", f"{folder}/ours.npz", flat=flat)
        with np.load(f"{folder}/ours.npz") as found:  # NumPy verifies the checksums
            assert set(found.files) == set(arrays), set(found.files) ^ set(arrays)
            for name, array in arrays.items():
                same(found[name], array, name)
    with zipfile.ZipFile(f"{folder}/ours.npz") as archive:
        assert archive.testzip() is None
        for info in archive.infolist():
            with open(f"{folder}/ours.npz", "rb") as file:
                file.seek(info.header_offset)
                header = file.read(30)
            start = info.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            assert start % 64 == 0, (info.filename, start)


def check_npy(tdict, folder):
    for kind in TYPES:
        for shape in SHAPES:
            array = random_array(kind, shape)
            np.save(f"{folder}/x.npy", variant(array))
            tdict.rewrite(f"{folder}/x.npy", f"{folder}/y.npy")
            same(np.load(f"{folder}/y.npy"), array, (kind, shape))
            np.save(f"{folder}/z.npy", native(array))
            assert open(f"{folder}/y.npy", "rb").read() == open(f"{folder}/z.npy", "rb").read(), f"other bytes: {kind} {shape}"
    for version in ((1, 0), (2, 0), (3, 0)):
        array = random_array("f4", (3, 5))
        with open(f"{folder}/x.npy", "wb") as file:
            np.lib.format.write_array(file, array, version=version)
        tdict.rewrite(f"{folder}/x.npy", f"{folder}/y.npy")
        same(np.load(f"{folder}/y.npy"), array, version)


def check_refused(tdict, folder):
    path = f"{folder}/x.npy"
    np.save(path, np.array([{}, 1], dtype=object), allow_pickle=True)
    tdict.refuses(path, "need pickle")
    np.save(path, np.array(["a", "bc"]))
    tdict.refuses(path, "'<U2' is not supported")
    np.save(path, np.array([b"a", b"bc"]))
    tdict.refuses(path, "'|S2' is not supported")
    np.save(path, np.array(["2020-01-01"], dtype="M8[D]"))
    tdict.refuses(path, "'<M8[D]' is not supported")
    np.save(path, np.zeros(3, dtype=[("a", "f4"), ("b", "i4")]))
    tdict.refuses(path, "is a record")
    np.save(path, np.zeros(3, dtype="g"))
    tdict.refuses(path, "is not supported")
    np.save(path, np.zeros(3, dtype="V2"))
    tdict.refuses(path, "does not say what the bytes are")
    np.savez_compressed(f"{folder}/x.npz", a=np.zeros(1000))
    tdict.refuses(f"{folder}/x.npz", "compressed with deflate")


def main():
    tdict = Tdict(sys.argv[1])
    random.seed(19)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(10):
            check_npz(tdict, folder)
        check_npy(tdict, folder)
        check_refused(tdict, folder)
    print(f"equal with NumPy {np.__version__}")


if __name__ == "__main__":
    main()
