#!/usr/bin/env python3
"""Exchanges tensors and trees with NumPy, PyTorch and JAX through DLPack, in both directions.

usage: dlpack.py LIBRARY [MODULE]
LIBRARY is a shared library such as build/release/libtdict.so. MODULE, torch or jax, must be installed. The structs are
passed in capsules made with ctypes, as in a binding. Checks values, strides, byte offsets, dtypes, read-only flags and
lifetimes: each deleter must run once, and the exporter's tree is released first. CUDA tensors are exchanged while the
producer's stream is busy; this part needs a GPU. Skips other libraries that are not installed. Exit status: 0 equal, 1
different, 77 if NumPy or MODULE is missing."""

import ctypes
import gc
import importlib
import sys
import weakref

if "--help" in sys.argv:
    sys.exit(print(__doc__))

try:
    import numpy as np
except ImportError:
    print("NumPy is missing")
    sys.exit(77)

MAX_NDIM = 32
pointer = ctypes.POINTER
c_void_p, c_int32, c_int64, c_size_t = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
# maps tdict's dtypes to DLPack's type code and bits
DTYPES = {"int8": (0, 8), "int16": (0, 16), "int32": (0, 32), "int64": (0, 64), "uint8": (1, 8), "uint16": (1, 16),
          "uint32": (1, 32), "uint64": (1, 64), "float16": (2, 16), "float32": (2, 32), "float64": (2, 64),
          "complex64": (5, 64), "complex128": (5, 128), "bool": (6, 8)}
TORCH_ONLY = {"bfloat16": (4, 16), "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8)}


class Stream(ctypes.Structure):
    _fields_ = [("type", c_int32), ("index", c_int32), ("handle", c_void_p)]


class Device(ctypes.Structure):
    _fields_ = [("type", c_int32), ("index", c_int32)]


class ExportOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("stream", Stream), ("read_only", ctypes.c_bool),
                ("pinned_as_cpu", ctypes.c_bool), ("legacy", ctypes.c_bool)]


class ImportOptions(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("stream", Stream), ("copy_read_only", ctypes.c_bool)]


class Entry(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("versioned", c_void_p), ("legacy", c_void_p)]


class Error(ctypes.Structure):
    _fields_ = [("status", c_int32), ("native", c_int32), ("path", ctypes.c_char * 248), ("message", ctypes.c_char * 256)]


class Desc(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("data", c_void_p), ("device_type", c_int32), ("device_index", c_int32),
                ("dtype", ctypes.c_uint32), ("ndim", c_int32), ("shape", pointer(c_int64)), ("strides", pointer(c_int64)),
                ("storage_bytes", c_size_t), ("flags", ctypes.c_uint32)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", pointer(c_int64)),
                ("strides", pointer(c_int64)), ("byte_offset", ctypes.c_uint64)]


DELETER = ctypes.CFUNCTYPE(None, c_void_p)


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", c_void_p), ("deleter", DELETER),
                ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Legacy(ctypes.Structure):
    _fields_ = [("tensor", DLTensor), ("manager_ctx", c_void_p), ("deleter", DELETER)]


api = ctypes.pythonapi
DESTRUCTOR = ctypes.CFUNCTYPE(None, c_void_p)
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [c_void_p, ctypes.c_char_p, c_void_p]
api.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_GetPointer.restype = c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
# Capsules store the addresses of these names, so the names must outlive the capsules.
NAMES = {True: b"dltensor_versioned", False: b"dltensor"}
USED = {True: b"used_dltensor_versioned", False: b"used_dltensor"}
checked = [0]


def check(good, what):
    checked[0] += 1
    if not good:
        print(f"different: {what}")
        sys.exit(1)


class Tdict:
    """The library functions that a binding would wrap."""

    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.tdict_tensor_const_data.restype = c_void_p
        self.lib.tdict_tensor_data.restype = c_void_p
        self.lib.tdict_num_leaves.restype = c_size_t
        for name in ("tdict_tensor_release", "tdict_release", "tdict_tensor_const_data", "tdict_tensor_data",
                     "tdict_num_leaves", "tdict_context_destroy", "tdict_future_release"):
            getattr(self.lib, name).argtypes = [c_void_p]

    def call(self, name, *args):
        error = Error()
        status = getattr(self.lib, name)(*args, ctypes.byref(error))
        if status:
            raise RuntimeError(f"{name}: {error.status} {error.path.decode()} {error.message.decode()}")

    def desc(self, tensor):
        desc = Desc(struct_size=ctypes.sizeof(Desc))
        self.lib.tdict_tensor_get_desc(tensor, ctypes.byref(desc))
        return desc

    def wrap(self, array, read_only=False, code=None, strides=True):
        """Makes a tensor over the elements of a NumPy array. Returns the tensor and a list that counts its releases."""
        code = code or DTYPES[array.dtype.name]
        shape = (c_int64 * max(array.ndim, 1))(*array.shape)
        steps = (c_int64 * max(array.ndim, 1))(*[s // array.itemsize for s in array.strides])
        desc = Desc(ctypes.sizeof(Desc), array.ctypes.data, 1, 0, code[0] | code[1] << 8 | 1 << 16, array.ndim, shape,
                    steps if strides else None, 0, 2 if read_only else 0)
        released = []
        release = DELETER(lambda user: released.append(array))
        released_by.append(release)
        out = c_void_p()
        self.call("tdict_tensor_from_data", ctypes.byref(desc), release, None, ctypes.byref(out))
        return out, released

    def export(self, tensor, versioned=True, context=None, **options):
        o = ExportOptions(struct_size=ctypes.sizeof(ExportOptions), legacy=not versioned, **options)
        out = Entry()
        self.call("tdict_dlpack_export", context, tensor, ctypes.byref(o), ctypes.byref(out))
        check((out.versioned if not versioned else out.legacy) is None, "the entry has one struct")
        return out.versioned if versioned else out.legacy

    def take(self, capsule, context=None, **options):
        """Imports the tensor of a capsule and marks the capsule as used."""
        versioned = bool(api.PyCapsule_IsValid(capsule, NAMES[True]))
        managed = api.PyCapsule_GetPointer(capsule, NAMES[versioned])
        entry = Entry(None, managed if versioned else None, None if versioned else managed)
        o = ImportOptions(struct_size=ctypes.sizeof(ImportOptions), **options)
        out = c_void_p()
        self.call("tdict_dlpack_import", context, ctypes.byref(entry), ctypes.byref(o), ctypes.byref(out))
        check(entry.versioned is None and entry.legacy is None, "the import takes ownership of the managed tensor")
        api.PyCapsule_SetName(capsule, USED[versioned])
        return out


released_by = []  # keeps the callbacks, which must outlive the tensors


class Exported:
    """An object with __dlpack__(), as a binding returns. Older consumers do not pass max_version."""

    def __init__(self, managed, versioned, device=(1, 0)):
        self.managed, self.versioned, self.device, self.given = managed, versioned, device, False

    def __dlpack__(self, **options):
        assert not self.given
        self.given = True
        return api.PyCapsule_New(self.managed, NAMES[self.versioned], None)

    def __dlpack_device__(self):
        return self.device


class Owner(np.ndarray):
    """An array that can have weak references. It is deleted as soon as no library uses its bytes."""


def arrays():
    """Yields pairs of a description and an array: each dtype of DTYPES in many layouts."""
    rng = np.random.default_rng(1)
    for name in DTYPES:
        bytes_ = rng.integers(0, 2 if name == "bool" else 100, 4 * 3 * 5)
        base = bytes_.astype(name).reshape(4, 3, 5)
        yield name, base
        yield name + " transposed", base.transpose(2, 0, 1)
        yield name + " sliced", base[1:, ::2, 1:4]
        yield name + " reversed", base[::-1, :, ::-1]
        yield name + " scalar", base[2, 1, 3, ...]
        yield name + " empty", base[:, :0]
        yield name + " broadcast", np.broadcast_to(base[0, 0], (2, 5))


def elements(tdict, tensor):
    """Returns the elements of an imported tensor, which are read through its descriptor."""
    desc = tdict.desc(tensor)
    shape = [desc.shape[i] for i in range(desc.ndim)]
    name = next(k for k, v in {**DTYPES, **TORCH_ONLY}.items() if v == (desc.dtype & 255, desc.dtype >> 8 & 255))
    dtype = np.dtype(name) if name in DTYPES else np.dtype(f"uint{TORCH_ONLY[name][1]}")
    out = np.empty(shape, dtype)
    for index in np.ndindex(*shape):
        at = sum(i * desc.strides[k] for k, i in enumerate(index)) * dtype.itemsize
        raw = ctypes.string_at(desc.data + at, dtype.itemsize)
        out[index] = np.frombuffer(raw, dtype)[0]
    return out


def numpy_out(tdict):
    """Exports from tdict to NumPy. Releases the tensor before the array."""
    new = tuple(int(n) for n in np.__version__.split(".")[:2]) >= (2, 1)  # NumPy 2.1 added the versioned struct
    for versioned in (True, False) if new else (False,):
        for what, array in arrays():
            if array.dtype == bool and not new:
                continue
            tensor, released = tdict.wrap(array, read_only=versioned and array.ndim == 3)
            managed = tdict.export(tensor, versioned)
            tdict.lib.tdict_tensor_release(tensor)
            got = np.from_dlpack(Exported(managed, versioned))
            check(got.dtype == array.dtype and got.shape == array.shape, f"{what}: dtype and shape in NumPy")
            check(np.array_equal(got, array), f"{what}: values in NumPy")
            if array.size:
                check(got.ctypes.data == array.ctypes.data, f"{what}: NumPy shares the bytes")
                check(all(n == 1 or a == b for n, a, b in zip(array.shape, got.strides, array.strides)), f"{what}: strides")
            if versioned and array.ndim == 3 and array.size:
                check(not got.flags.writeable, f"{what}: read-only in NumPy")
            check(not released, f"{what}: the array holds the bytes")
            del got
            check(len(released) == 1, f"{what}: released once")
    return new


def numpy_in(tdict, new):
    """Imports from NumPy to tdict. Releases the array before the tensor."""
    for what, array in arrays():
        if array.dtype == bool and not new:
            continue
        mine = np.array(array, copy=True, order="K").view(Owner) if array.size else array.copy().view(Owner)
        values = np.array(mine)
        gone = weakref.ref(mine)
        capsule = mine.__dlpack__(max_version=(1, 0)) if new else mine.__dlpack__()
        address = mine.ctypes.data
        tensor = tdict.take(capsule)
        del mine, capsule
        gc.collect()
        check(gone() is not None, f"{what}: the tensor holds the array")
        if values.size:
            check(tdict.desc(tensor).data == address, f"{what}: tdict shares the bytes")
        check(np.array_equal(elements(tdict, tensor), values), f"{what}: values in tdict")
        tdict.lib.tdict_tensor_release(tensor)
        gc.collect()
        check(gone() is None, f"{what}: the array is freed")
    if new:
        array = np.arange(6.0)
        array.flags.writeable = False
        tensor = tdict.take(array.__dlpack__(max_version=(1, 0)))
        check(tdict.lib.tdict_tensor_data(tensor) is None, "a read-only array stays read-only")
        tdict.lib.tdict_tensor_release(tensor)
        tensor = tdict.take(array.__dlpack__(max_version=(1, 0)), copy_read_only=True)
        check(tdict.lib.tdict_tensor_data(tensor) not in (None, array.ctypes.data), "a read-only array is copied")
        check(np.array_equal(elements(tdict, tensor), array), "the copy has the array's values")
        tdict.lib.tdict_tensor_release(tensor)
    # the producer's tensor has a byte offset and NULL strides; its deleter appends to `deleted`
    array = np.arange(12, dtype=np.int32)
    deleted = []
    shape = (c_int64 * 2)(2, 4)
    managed = Versioned(1, 0, None, DELETER(deleted.append), 0,
                        DLTensor(array.ctypes.data, 1, 0, 2, 0, 32, 1, shape, None, 4 * array.itemsize))
    tensor = tdict.take(api.PyCapsule_New(ctypes.addressof(managed), NAMES[True], None))
    check(np.array_equal(elements(tdict, tensor), array[4:].reshape(2, 4)), "byte offset and NULL strides")
    check(not deleted, "not deleted yet")
    tdict.lib.tdict_tensor_release(tensor)
    check(len(deleted) == 1, "deleted once")


def torch_both(tdict, torch):
    """Exchanges tensors with PyTorch in both directions, including dtypes that NumPy lacks."""
    exchanged = torch_dtypes(torch)
    not_deleted = 0
    for what, array in arrays():
        if any(s < 0 for s in array.strides) or array.dtype.name not in exchanged:
            continue  # PyTorch has no negative strides
        tensor, released = tdict.wrap(array)
        managed = tdict.export(tensor)
        tdict.lib.tdict_tensor_release(tensor)
        got = torch.from_dlpack(api.PyCapsule_New(managed, NAMES[True], None)) if torch_versioned(torch) else \
            torch.from_dlpack(legacy_of(tdict, array, managed))
        check(tuple(got.shape) == array.shape and np.array_equal(got.numpy(), array), f"{what}: values in PyTorch")
        if array.size:
            check(got.data_ptr() == array.ctypes.data, f"{what}: PyTorch shares the bytes")
            check(all(n == 1 or a * array.itemsize == b for n, a, b in zip(array.shape, got.stride(), array.strides)), f"{what}: strides")
            if array.ndim == 3 and array.flags.writeable and "broadcast" not in what:
                got[0, 0, 0] = 1
                check(array[0, 0, 0] == 1, f"{what}: a write in PyTorch changes the array")
        check(not released, f"{what}: PyTorch holds the bytes")
        del got
        gc.collect()
        if array.size == 0 and torch_version(torch) < (2, 3) and not released:
            not_deleted += 1  # PyTorch issue 117273: data is NULL, so the deleter is never called
        else:
            check(len(released) == 1, f"{what}: released once")
        if "broadcast" in what:
            continue
        owner = np.array(array, copy=True, order="K").view(Owner)
        gone = weakref.ref(owner)
        source = torch.from_numpy(owner)
        tensor = tdict.take(torch.utils.dlpack.to_dlpack(source))
        check(np.array_equal(elements(tdict, tensor), source.numpy()), f"{what}: values from PyTorch")
        if array.size:
            check(tdict.desc(tensor).data == source.data_ptr(), f"{what}: tdict shares PyTorch's bytes")
        del source, owner
        gc.collect()
        check(gone() is not None, f"{what}: the tensor holds PyTorch's bytes")
        check(np.array_equal(elements(tdict, tensor), array), f"{what}: values after PyTorch's tensor is deleted")
        tdict.lib.tdict_tensor_release(tensor)
        gc.collect()
        check(gone() is None, f"{what}: PyTorch's bytes are freed")
    if not_deleted:
        print(f"PyTorch: skipped, it does not delete {not_deleted} empty tensors (its issue 117273, fixed in 2.3)")
    for name in exchanged & set(TORCH_ONLY):
        source = torch.arange(8, dtype=torch.float32).to(getattr(torch, name)).reshape(2, 4).t()
        bits = source.view(torch.uint8 if TORCH_ONLY[name][1] == 8 else torch.int16)
        tensor = tdict.take(source.__dlpack__(max_version=(1, 0)) if torch_versioned(torch) else source.__dlpack__())
        got = elements(tdict, tensor)
        check(np.array_equal(got, bits.numpy().view(got.dtype)), f"{name}: values from PyTorch")
        back = torch.from_dlpack(api.PyCapsule_New(tdict.export(tensor), NAMES[True], None)) if torch_versioned(torch) \
            else torch.from_dlpack(api.PyCapsule_New(tdict.export(tensor, False), NAMES[False], None))
        tdict.lib.tdict_tensor_release(tensor)
        check(back.dtype == source.dtype and torch.equal(back.view(bits.dtype), bits), f"{name}: back to PyTorch")
    torch_tree(tdict, torch)


def torch_version(torch):
    return tuple(int(n) for n in torch.__version__.split(".")[:2])


def torch_versioned(torch):
    """Returns whether PyTorch reads and writes the versioned struct, as version 2.9 and later do."""
    return torch_version(torch) >= (2, 9)


def torch_dtypes(torch):
    """Returns the names of the dtypes that PyTorch can exchange. Versions before 2.9 lack or refuse some."""
    names, without = {*DTYPES, *TORCH_ONLY}, []
    for name in sorted(names):
        try:
            torch.from_dlpack(torch.utils.dlpack.to_dlpack(torch.zeros(1, dtype=getattr(torch, name))))
        except (AttributeError, BufferError, RuntimeError) as error:
            check(not torch_versioned(torch), f"PyTorch refuses {name}: {error}")
            without.append(name)
    if without:
        print(f"PyTorch: skipped, it does not exchange {', '.join(without)}")
    return names - set(without)


def legacy_of(tdict, array, managed):
    """Deletes the versioned struct and returns a capsule with a legacy struct, for an older PyTorch."""
    Versioned.from_address(managed)
    tensor = tdict.take(api.PyCapsule_New(managed, NAMES[True], None))
    out = tdict.export(tensor, False)
    tdict.lib.tdict_tensor_release(tensor)
    return api.PyCapsule_New(out, NAMES[False], None)


def torch_tree(tdict, torch):
    """Imports PyTorch's tensors as a tree, and exports the tree. Releases the tree before using the exported
    tensors."""
    sources = {f"n{i % 3}.leaf\\.{i}": torch.randn(3, i + 1) for i in range(50)}
    capsules = [torch.utils.dlpack.to_dlpack(t) for t in sources.values()]
    entries = (Entry * 50)()
    for i, (name, capsule) in enumerate(zip(sources, capsules)):
        versioned = bool(api.PyCapsule_IsValid(capsule, NAMES[True]))
        managed = api.PyCapsule_GetPointer(capsule, NAMES[versioned])
        entries[i] = Entry(name.encode(), managed if versioned else None, None if versioned else managed)
    tree = c_void_p()
    tdict.call("tdict_dlpack_import_tree", None, entries, c_size_t(50), None, ctypes.byref(tree))
    for capsule in capsules:
        versioned = bool(api.PyCapsule_IsValid(capsule, NAMES[True]))
        api.PyCapsule_SetName(capsule, USED[versioned])
    check(tdict.lib.tdict_num_leaves(tree) == 50, "all tensors are in the tree")
    out, count = pointer(Entry)(), c_size_t()
    legacy = not torch_versioned(torch)
    o = ExportOptions(struct_size=ctypes.sizeof(ExportOptions), legacy=legacy)
    tdict.call("tdict_dlpack_export_tree", None, tree, ctypes.byref(o), ctypes.byref(out), ctypes.byref(count))
    tdict.lib.tdict_release(tree)
    back = {}
    for i in range(count.value):
        managed = out[i].legacy if legacy else out[i].versioned
        back[out[i].name.decode()] = torch.from_dlpack(api.PyCapsule_New(managed, NAMES[not legacy], None))
        out[i].legacy = out[i].versioned = None
    tdict.lib.tdict_dlpack_release_entries(out, count)
    values = {name: t.clone() for name, t in sources.items()}
    addresses = {name: t.data_ptr() for name, t in sources.items()}
    del sources, capsules
    gc.collect()
    for name, value in values.items():
        check(torch.equal(back[name], value) and back[name].data_ptr() == addresses[name], f"{name}: back from a tree")


def torch_cuda(tdict, torch):
    """Exchanges CUDA tensors while the producer's stream is still busy."""
    context = c_void_p()
    tdict.call("tdict_context_create", None, ctypes.byref(context))
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    streams = [Stream(2, torch.cuda.current_device(), s.cuda_stream) for s in (side, other)]
    wait = torch.empty(1 << 24, device="cuda")
    for number in range(200):
        # PyTorch fills a tensor on a busy stream, and tdict copies the tensor to the host.
        with torch.cuda.stream(side):
            source = torch.zeros(1 << 16, device="cuda")
            for _ in range(number % 5):
                wait.normal_()
            source.fill_(number + 1.0)
        capsule = torch.utils.dlpack.to_dlpack(source)
        versioned = bool(api.PyCapsule_IsValid(capsule, NAMES[True]))
        managed = api.PyCapsule_GetPointer(capsule, NAMES[versioned])
        entry = (Entry * 1)(Entry(b"t", managed if versioned else None, None if versioned else managed))
        o = ImportOptions(struct_size=ctypes.sizeof(ImportOptions), stream=streams[0])
        tree, host = c_void_p(), c_void_p()
        tdict.call("tdict_dlpack_import_tree", context, entry, c_size_t(1), ctypes.byref(o), ctypes.byref(tree))
        api.PyCapsule_SetName(capsule, USED[versioned])
        tdict.call("tdict_to_device", context, tree, Device(1, 0), None, ctypes.byref(host))
        leaf = c_void_p()
        tdict.call("tdict_get", host, b"t", ctypes.byref(leaf))
        got = np.ctypeslib.as_array(ctypes.cast(tdict.lib.tdict_tensor_const_data(leaf), pointer(ctypes.c_float)), (1 << 16,))
        check((got == number + 1.0).all(), f"CUDA try {number}: tdict reads after PyTorch's stream")
        # While a tdict transfer fills a tensor, PyTorch reads the tensor on its own stream.
        got[:] = number + 0.5
        future, moved = c_void_p(), c_void_p()
        tdict.call("tdict_to_device_async", context, host, Device(2, 0), None, ctypes.byref(future))
        tdict.call("tdict_future_wait_on_stream", future, streams[0], ctypes.byref(moved))
        tdict.call("tdict_get", moved, b"t", ctypes.byref(leaf))
        out = tdict.export(leaf, torch_versioned(torch), context, stream=streams[1])
        with torch.cuda.stream(other):
            mine = torch.from_dlpack(api.PyCapsule_New(out, NAMES[torch_versioned(torch)], None))
            total = (mine == number + 0.5).all()
            del mine
        tdict.lib.tdict_release(moved)
        other.synchronize()
        check(bool(total), f"CUDA try {number}: PyTorch reads after tdict's transfer")
        for thing in (tree, host):
            tdict.lib.tdict_release(thing)
        tdict.lib.tdict_future_release(future)
    tdict.lib.tdict_context_destroy(context)


def jax_both(tdict, jax):
    """Exchanges tensors with JAX on the CPU, which accepts legacy structs of tensors in C order."""
    array = np.arange(24, dtype=np.float32).reshape(4, 6)
    tensor, released = tdict.wrap(array)
    got = jax.dlpack.from_dlpack(Exported(tdict.export(tensor, False), False))
    tdict.lib.tdict_tensor_release(tensor)
    check(np.array_equal(np.asarray(got), array), "values in JAX")
    tensor = tdict.take(got.__dlpack__())
    check(np.array_equal(elements(tdict, tensor), array), "values from JAX")
    tdict.lib.tdict_tensor_release(tensor)
    del got
    gc.collect()
    check(len(released) == 1, "JAX releases the bytes once")


def installed(name, title, wanted):
    """Returns a module, or None if it is not installed. Exits with 77 if the missing module is MODULE."""
    try:
        importlib.import_module(f"{name}.dlpack" if name == "jax" else name)
        return sys.modules[name]
    except ImportError:
        print(f"{title}: skipped, it is not installed")
        if name == wanted:
            sys.exit(77)
        return None


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["torch"], ["jax"]):
        print(__doc__)
        sys.exit(2)
    tdict = Tdict(sys.argv[1])
    wanted = sys.argv[2] if len(sys.argv) > 2 else None
    new = numpy_out(tdict)
    numpy_in(tdict, new)
    print(f"NumPy {np.__version__}: equal")
    torch = installed("torch", "PyTorch", wanted)
    if torch:
        torch_both(tdict, torch)
        print(f"PyTorch {torch.__version__}: equal")
        if torch.cuda.is_available():
            torch_cuda(tdict, torch)
            print("CUDA: equal")
        else:
            print("CUDA: skipped, PyTorch finds no GPU")
    jax = installed("jax", "JAX", wanted)
    if jax:
        jax_both(tdict, jax)
        print(f"JAX {jax.__version__}: equal")
    print(f"{checked[0]} checks")


main()
