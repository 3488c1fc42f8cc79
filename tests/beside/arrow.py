#!/usr/bin/env python3
"""Exchanges arrays with pyarrow in both directions, and exports arrays to nanoarrow. Compares all elements.

usage: arrow.py LIBRARY [COUNT] [SEED]
LIBRARY is libtdict.so. COUNT is the number of random tables (default 200). Exits with 77 if pyarrow or nanoarrow is
missing."""

import ctypes
import random
import struct
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

try:
    import nanoarrow
    import numpy as np
    import pyarrow as pa
    from nanoarrow.c_array import allocate_c_array
    from nanoarrow.c_schema import allocate_c_schema
except ImportError as error:
    print(f"skipped: {error} (pip install pyarrow nanoarrow numpy)")
    sys.exit(77)

C = ctypes
REFUSE, FILL, MASK = 0, 1, 2
NUMBERS = {(0, 8): "int8", (0, 16): "int16", (0, 32): "int32", (0, 64): "int64", (1, 8): "uint8", (1, 16): "uint16",
           (1, 32): "uint32", (1, 64): "uint64", (2, 16): "float16", (2, 32): "float32", (2, 64): "float64",
           (6, 8): "bool"}
DTYPES = {name: code | bits << 8 | 1 << 16 for (code, bits), name in NUMBERS.items()}


class Error(C.Structure):
    _fields_ = [("status", C.c_int32), ("native", C.c_int32), ("path", C.c_char * 248), ("message", C.c_char * 256)]


class Device(C.Structure):
    _fields_ = [("type", C.c_int32), ("index", C.c_int32)]


class Options(C.Structure):
    _fields_ = [("struct_size", C.c_size_t), ("nulls", C.c_int32), ("mask_all", C.c_bool), ("fill_value", C.c_double),
                ("mask_path", C.c_char_p)]


class Value(C.Structure):
    _fields_ = [("kind", C.c_int32), ("integer", C.c_int64), ("real", C.c_double), ("text", C.c_void_p),
                ("length", C.c_size_t)]


class Stats(C.Structure):
    """The first members of tdict_transfer_stats."""
    _fields_ = [("struct_size", C.c_size_t), ("num_leaves", C.c_int64), ("num_shared_leaves", C.c_int64),
                ("objects", C.c_int64 * 4), ("total_bytes", C.c_size_t)]


class TransferOptions(C.Structure):
    """The first members of tdict_transfer_options."""
    _fields_ = [("struct_size", C.c_size_t), ("mode", C.c_int32), ("num_threads", C.c_int32), ("after_device", C.c_int32 * 2), ("after", C.c_void_p),
                ("memory", C.c_void_p), ("flags", C.c_bool * 3), ("stats", C.POINTER(Stats))]


class RaggedInfo(C.Structure):
    _fields_ = [("values", C.c_void_p), ("offsets", C.c_void_p), ("num_rows", C.c_int64)]


SCHEMA_BYTES, ARRAY_BYTES, STREAM_BYTES = 72, 80, 40
lib = C.CDLL(sys.argv[1]) if len(sys.argv) > 1 else sys.exit(__doc__)
for name in ("tdict_tensor_shape", "tdict_tensor_const_data", "tdict_nontensor_type", "tdict_ragged_type"):
    getattr(lib, name).restype = C.c_void_p
for name in ("tdict_tensor_release", "tdict_release", "tdict_ragged_release", "tdict_num_keys", "tdict_tensor_shape",
             "tdict_tensor_const_data", "tdict_ragged_get_info", "tdict_tensor_ndim",
             "tdict_tensor_dtype", "tdict_tensor_is_contiguous", "tdict_context_destroy"):
    getattr(lib, name).argtypes = [C.c_void_p]
lib.tdict_num_keys.restype = C.c_size_t
lib.tdict_ragged_get_info.restype = RaggedInfo
lib.tdict_tensor_dtype.restype = C.c_uint32
lib.tdict_tensor_is_contiguous.restype = C.c_bool
lib.tdict_tensor_device.restype = Device
lib.tdict_tensor_device.argtypes = [C.c_void_p]
lib.tdict_batch_size.restype = C.POINTER(C.c_int64)
lib.tdict_batch_size.argtypes = [C.c_void_p]


class Refused(Exception):
    pass


def ok(name, *arguments):
    """Calls a function whose last parameter is a tdict_error, and raises an exception if it fails."""
    error = Error()
    if getattr(lib, name)(*arguments, C.byref(error)) != 0:
        raise Refused(f"{error.path.decode()}: {error.message.decode()}")


# Reading and making trees.


def read_tensor(tensor):
    ndim = lib.tdict_tensor_ndim(tensor)
    shape = [C.cast(lib.tdict_tensor_shape(tensor), C.POINTER(C.c_int64))[i] for i in range(ndim)]
    dtype = np.dtype(NUMBERS[lib.tdict_tensor_dtype(tensor) & 0xff, lib.tdict_tensor_dtype(tensor) >> 8 & 0xff])
    count = int(np.prod(shape, dtype=np.int64))
    assert lib.tdict_tensor_is_contiguous(tensor)
    data = lib.tdict_tensor_const_data(tensor)
    raw = C.string_at(data, count * dtype.itemsize) if count else b""
    return np.frombuffer(raw, dtype).reshape(shape)


def read_leaf(tree, path):
    """Returns a leaf as a list with one element for each row."""
    found = C.c_void_p()
    error = Error()
    if lib.tdict_get(tree, path.encode(), C.byref(found), C.byref(error)) == 0:
        return list(read_tensor(found))
    if lib.tdict_get_ragged(tree, path.encode(), C.byref(found), C.byref(error)) == 0:
        info = lib.tdict_ragged_get_info(found)
        values, offsets = read_tensor(info.values), read_tensor(info.offsets)
        return [values[a:b] for a, b in zip(offsets, offsets[1:])]
    rows = []
    for i in range(lib.tdict_batch_size(tree)[0]):
        value = Value()
        ok("tdict_get_value", tree, path.encode(), C.c_int64(i), C.byref(value))
        rows.append(None if value.kind == 0 else C.string_at(value.text, value.length).decode())
    return rows


def set_tensor(tree, path, array):
    tensor = C.c_void_p()
    array = np.ascontiguousarray(array)
    shape = (C.c_int64 * array.ndim)(*array.shape)
    ok("tdict_tensor_from_array", DTYPES[array.dtype.name], array.ndim, shape, C.c_void_p(array.ctypes.data),
       C.byref(tensor))
    ok("tdict_set", tree, path.encode(), tensor)
    lib.tdict_tensor_release(tensor)


def make_tree(rows):
    tree = C.c_void_p()
    ok("tdict_create", 1, (C.c_int64 * 1)(rows), C.byref(tree))
    return tree


def set_ragged(tree, path, values, offsets):
    parts = make_tree(0)
    lone = C.c_void_p()
    ok("tdict_create", 0, None, C.byref(lone))
    set_tensor(lone, "v", values)
    set_tensor(lone, "o", offsets)
    v, o, ragged = C.c_void_p(), C.c_void_p(), C.c_void_p()
    ok("tdict_get", lone, b"v", C.byref(v))
    ok("tdict_get", lone, b"o", C.byref(o))
    ok("tdict_ragged_create", v, o, C.byref(ragged))
    ok("tdict_set_ragged", tree, path.encode(), ragged)
    lib.tdict_ragged_release(ragged)
    lib.tdict_release(lone)
    lib.tdict_release(parts)


def options(nulls=REFUSE, fill=float("nan"), mask_all=False):
    return C.byref(Options(C.sizeof(Options), nulls, mask_all, fill, b"_mask"))


# Exports and imports.


def import_batch(batch, **given):
    schema, array, tree = (C.c_char * SCHEMA_BYTES)(), (C.c_char * ARRAY_BYTES)(), C.c_void_p()
    batch._export_to_c(C.addressof(array), C.addressof(schema))
    try:
        ok("tdict_arrow_import", schema, array, options(**given), C.byref(tree))
    finally:
        release(schema, 56)
        release(array, 64)
    return tree


def release(buffer, at):
    """Calls the release callback at a byte offset, unless it is NULL."""
    callback = struct.unpack_from("P", buffer, at)[0]
    if callback:
        C.CFUNCTYPE(None, C.c_void_p)(callback)(C.addressof(buffer))


def import_table(table, **given):
    """Imports a table through the PyCapsule of its stream."""
    capsule = table.__arrow_c_stream__()
    get = C.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = C.c_void_p, [C.py_object, C.c_char_p]
    tree = C.c_void_p()
    ok("tdict_arrow_import_stream", C.c_void_p(get(capsule, b"arrow_array_stream")), options(**given), C.byref(tree))
    return tree


def export_pyarrow(tree):
    schema, array = (C.c_char * SCHEMA_BYTES)(), (C.c_char * ARRAY_BYTES)()
    ok("tdict_arrow_export", tree, schema, array)
    batch = pa.RecordBatch._import_from_c(C.addressof(array), C.addressof(schema))
    batch.validate(full=True)
    return batch


def export_nanoarrow(tree):
    schema = allocate_c_schema()
    array = allocate_c_array(schema)
    ok("tdict_arrow_export", tree, C.c_void_p(schema._addr()), C.c_void_p(array._addr()))
    return nanoarrow.Array(array)


def same(found, wanted):
    """Returns whether two rows are equal. NaN equals NaN, and None equals only None."""
    if wanted is None or found is None or isinstance(wanted, str):
        return found is wanted or found == wanted
    if isinstance(wanted, (list, tuple)) or isinstance(found, (list, np.ndarray)):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return found == wanted or (found != found and wanted != wanted)


def check(tree, path, wanted):
    found = read_leaf(tree, path)
    assert same(found, wanted), (path, found[:5], wanted[:5])


def refuses(text, function, *arguments, **given):
    try:
        function(*arguments, **given)
    except Refused as error:
        assert text in str(error), (str(error), text)
        return
    raise AssertionError(f"not refused: {text}")


# The checks.


def numbers(name, count, rng):
    if name == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if name.startswith("float"):
        return rng.standard_normal(count).astype(name)
    info = np.iinfo(name)
    return rng.integers(info.min, info.max, count, dtype=name, endpoint=True)


def every_dtype(rng):
    for name in DTYPES:
        for count in (0, 1, 7, 8, 9, 1000):
            wanted = numbers(name, count, rng)
            arrow = pa.array(wanted)
            batch = pa.RecordBatch.from_arrays([arrow], ["x"])
            tree = import_batch(batch)
            check(tree, "x", list(wanted))
            back = export_pyarrow(tree)
            assert back.equals(batch), (name, count)
            assert same(export_nanoarrow(tree).to_pylist(), [{"x": v} for v in arrow.to_pylist()]), name
            lib.tdict_release(tree)
            assert same(back.column("x").to_pylist(), arrow.to_pylist())  # the tree has already been released
            for start in (1, 3, 8, 13):
                part = batch.slice(start, max(0, count - start - 1))
                tree = import_batch(part)
                check(tree, "x", list(wanted[start:max(start, count - 1)]))
                lib.tdict_release(tree)


def shapes(rng):
    for name in ("bool", "float16", "int64"):
        wanted = numbers(name, 5 * 3 * 4, rng).reshape(5, 3, 4)
        tree = make_tree(5)
        set_tensor(tree, "a.x", wanted)
        set_tensor(tree, "empty", wanted[:, :0])
        batch = export_pyarrow(tree)
        typ = pa.list_(pa.list_(pa.from_numpy_dtype(wanted.dtype), 4), 3)
        assert batch.schema.field("a").type.field("x").type.equals(typ), batch.schema
        assert same([row["x"] for row in batch.column("a").to_pylist()], wanted.tolist())
        for part, rows in ((batch, slice(0, 5)), (batch.slice(2, 2), slice(2, 4)), (batch.slice(5), slice(5, 5))):
            again = import_batch(part)
            check(again, "a.x", list(wanted[rows]))
            check(again, "empty", list(wanted[rows, :0]))
            lib.tdict_release(again)
        lib.tdict_release(tree)


def fixed_shape_tensors(rng):
    """Imports fixed-shape tensors, the type that TensorDict's to_arrow() makes."""
    wanted = numbers("float32", 4 * 2 * 3, rng).reshape(4, 2, 3)
    for array, shaped in ((wanted, wanted), (np.transpose(wanted, (0, 2, 1)), np.transpose(wanted, (0, 2, 1)))):
        rows = pa.FixedShapeTensorArray.from_numpy_ndarray(array)
        batch = pa.RecordBatch.from_arrays([rows], ["x"])
        for start in (0, 1, 4):
            tree = import_batch(batch.slice(start))
            found = C.c_void_p()
            ok("tdict_get", tree, b"x", C.byref(found))
            contiguous = C.c_void_p()
            ok("tdict_tensor_contiguous", found, C.byref(contiguous))
            assert same(list(read_tensor(contiguous)), list(shaped[start:])), (array.shape, start)
            lib.tdict_tensor_release(contiguous)
            lib.tdict_release(tree)


def lists_and_texts(rng):
    words = ["", "a", "näh", "日本語", "a\0b", "x" * 300]
    for large in (False, True):
        make_list, text = (pa.large_list, pa.large_string()) if large else (pa.list_, pa.string())
        for name in ("bool", "int16", "float64"):
            rows = [list(numbers(name, n, rng)) for n in (3, 0, 5, 1, 0)]
            item = pa.from_numpy_dtype(np.dtype(name))
            texts = [random.choice(words) for _ in rows]
            pairs = [[list(numbers(name, 2, rng)) for _ in range(n)] for n in (1, 0, 2, 3, 0)]
            batch = pa.RecordBatch.from_arrays(
                [pa.array([list(map(lambda v: v.item(), r)) for r in rows], make_list(item)), pa.array(texts, text),
                 pa.array([[[v.item() for v in p] for p in r] for r in pairs], make_list(pa.list_(item, 2)))],
                ["rows", "texts", "pairs"])
            for start, stop in ((0, 5), (1, 4), (2, 2), (4, 5), (5, 5)):
                tree = import_batch(batch.slice(start, stop - start))
                check(tree, "rows", rows[start:stop])
                check(tree, "texts", texts[start:stop])
                check(tree, "pairs", pairs[start:stop])
                back = export_pyarrow(tree)
                assert back.column("rows").to_pylist() == batch.slice(start, stop - start).column("rows").to_pylist()
                assert stop == start or back.column("texts").to_pylist() == texts[start:stop]
                if stop - start == 5:
                    assert back.schema.field("rows").type == batch.schema.field("rows").type
                assert len(export_nanoarrow(tree).to_pylist()) == stop - start
                lib.tdict_release(tree)
    tree = make_tree(4)
    for dtype in ("int32", "int64"):
        set_ragged(tree, dtype, np.arange(6, dtype="float32").reshape(6, 1), np.array([0, 0, 2, 5, 6], dtype))
    batch = export_pyarrow(tree)
    assert str(batch.schema.field("int32").type).startswith("list<")
    assert str(batch.schema.field("int64").type).startswith("large_list<")
    assert batch.column("int32").to_pylist() == [[], [[0.0], [1.0]], [[2.0], [3.0], [4.0]], [[5.0]]]
    lib.tdict_release(tree)


def value_columns():
    def put(tree, key, values):
        rows, kept = (Value * len(values))(), []
        for row, value in zip(rows, values):
            kind = {type(None): 0, bool: 1, int: 2, float: 3, str: 4}[type(value)]
            row.kind = kind
            row.integer = value if kind in (1, 2) else 0
            row.real = value if kind == 3 else 0.0
            if kind == 4:
                kept.append(C.create_string_buffer(value.encode()))
                row.text, row.length = C.addressof(kept[-1]), len(value.encode())
        ok("tdict_set_values", tree, key.encode(), rows, C.c_size_t(len(values)))

    columns = {"text": ["a", None, "ü"], "whole": [1, 2**62, None], "real": [1.5, None, 2.0], "mixed": [1, 2.5, None],
               "bool": [True, None, False], "none": [None, None, None]}
    tree = make_tree(3)
    for key, values in columns.items():
        put(tree, key, values)
    ok("tdict_set_text", tree, b"single", "één".encode())
    batch = export_pyarrow(tree)
    types = dict(zip(batch.schema.names, map(str, batch.schema.types)))
    assert types == {"text": "string", "whole": "int64", "real": "double", "mixed": "double", "bool": "bool",
                     "none": "null", "single": "string"}, types
    for key, values in columns.items():
        assert batch.column(key).to_pylist() == values, key
    assert batch.column("single").to_pylist() == ["één"] * 3
    assert export_nanoarrow(tree).to_pylist()[1]["whole"] == 2**62
    lib.tdict_release(tree)


def nulls(rng):
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1.5, None, 2.5, None]), pa.array([1, 2, None, 4], pa.uint16()), pa.array([True, None, True, False]),
         pa.array([[1, 2], None, [], [3]]), pa.array(["a", None, "", "b"]), pa.array([1, 2, 3, 4]),
         pa.array([[1, 2], None, [3, None], [5, 6]], pa.list_(pa.int8(), 2)),
         pa.array([{"y": 1}, None, {"y": None}, {"y": 4}])],
        ["f", "u", "b", "l", "t", "full", "fixed", "s"])
    nan = float("nan")
    refuses("f: ", import_batch, batch)
    for start in (0, 1, 2):
        part = batch.slice(start)
        refuses("null", import_batch, part)
        tree = import_batch(part, nulls=FILL)
        check(tree, "f", [1.5, nan, 2.5, nan][start:])
        check(tree, "u", [1, 2, 0, 4][start:])
        check(tree, "b", [True, False, True, False][start:])
        check(tree, "l", [[1, 2], [], [], [3]][start:])
        check(tree, "t", ["a", None, "", "b"][start:])
        check(tree, "fixed", [[1, 2], [0, 0], [3, 0], [5, 6]][start:])
        check(tree, "s.y", [1, 0, 0, 4][start:])
        refuses("_mask", read_leaf, tree, "_mask.f")
        lib.tdict_release(tree)
        tree = import_batch(part, nulls=MASK, fill=7)
        check(tree, "f", [1.5, 7, 2.5, 7][start:])
        check(tree, "u", [1, 2, 7, 4][start:])
        check(tree, "_mask.f", [True, False, True, False][start:])
        check(tree, "_mask.u", [True, True, False, True][start:])
        if start < 2:
            check(tree, "_mask.l", [True, False, True, True][start:])
            check(tree, "_mask.t", [True, False, True, True][start:])
            check(tree, "_mask.fixed", [True, False, True, True][start:])
        check(tree, "_mask.s.y", [True, False, False, True][start:])
        refuses("_mask", read_leaf, tree, "_mask.full")
        lib.tdict_release(tree)
    # A null list can have offsets that span elements.
    values, offsets = pa.array([1, 2, 3, 4, 5]), pa.array([0, 2, 4, 5], pa.int32())
    rows = pa.ListArray.from_arrays(offsets, values, mask=pa.array([False, True, False]))
    tree = import_batch(pa.RecordBatch.from_arrays([rows], ["l"]), nulls=FILL)
    check(tree, "l", [[1, 2], [], [5]])
    lib.tdict_release(tree)
    # In a stream, a key has a mask if one of the batches has a null.
    table = pa.table({"x": pa.chunked_array([pa.array([1, 2]), pa.array([None, 3])]),
                      "y": pa.chunked_array([pa.array([1, 2]), pa.array([4, 3])])})
    tree = import_table(table, nulls=MASK)
    check(tree, "_mask.x", [True, True, False, True])
    check(tree, "x", [1, 2, 0, 3])
    refuses("_mask", read_leaf, tree, "_mask.y")
    lib.tdict_release(tree)


def refused_types():
    now = [0]
    for array, text in (
            (pa.array(now, pa.timestamp("us")), "timestamp"), (pa.array(now, pa.date32()), "date"),
            (pa.array(now, pa.time32("s")), "time"), (pa.array(now, pa.duration("s")), "duration"),
            (pa.array([b"x"]), "binary"), (pa.array([b"x"], pa.binary(1)), "fixed-size binary"),
            (pa.array([1], pa.decimal128(5, 2)), "decimal"), (pa.array(["a"]).dictionary_encode(), "dictionary"),
            (pa.array(["a"], pa.string_view()), "utf8 view"), (pa.array([{"a": 1}], pa.map_(pa.string(), pa.int8())),
             "map"),
            (pa.array([[1]], pa.list_view(pa.int8())), "list view"), (pa.array([["a"]]), "elements of lists"),
            (pa.array([[[1]]]), "elements of lists"), (pa.array([[{"a": 1}]]), "elements of lists")):
        refuses(f"n.x: arrow_import: ", import_batch, pa.RecordBatch.from_arrays(
            [pa.StructArray.from_arrays([array], ["x"])], ["n"]))
        refuses(text, import_batch, pa.RecordBatch.from_arrays([array], ["x"]))


def tables(rng):
    for chunks in ([], [3], [3, 0, 5], [1] * 9):
        parts = [pa.RecordBatch.from_arrays(
            [pa.array(numbers("float32", n, rng)), pa.array(numbers("bool", n, rng)),
             pa.array([[1] * int(rng.integers(0, 4)) for _ in range(n)], pa.large_list(pa.int64())),
             pa.array([str(i) for i in range(n)], pa.string())], ["f", "b", "l", "t"]) for n in chunks]
        schema = pa.schema([("f", pa.float32()), ("b", pa.bool_()), ("l", pa.large_list(pa.int64())),
                            ("t", pa.string())])
        table = pa.Table.from_batches(parts, schema)
        tree = import_table(table)
        for name in schema.names:
            check(tree, name, table.column(name).to_pylist())
        lib.tdict_release(tree)
    stream = (C.c_char * STREAM_BYTES)()
    trees = []
    for rows in (3, 0, 2):
        trees.append(make_tree(rows))
        set_tensor(trees[-1], "x", np.arange(rows, dtype="int32"))
        set_tensor(trees[-1], "n.b", np.ones((rows, 3), bool))
    ok("tdict_arrow_export_stream", (C.c_void_p * 3)(*trees), C.c_size_t(3), stream)
    for tree in trees:
        lib.tdict_release(tree)
    reader = pa.RecordBatchReader._import_from_c(C.addressof(stream))
    table = reader.read_all()
    table.validate(full=True)
    assert table.column("x").to_pylist() == [0, 1, 2, 0, 1] and table.column("x").num_chunks == 3
    assert table.column("n").to_pylist() == [{"b": [True] * 3}] * 5


def device_arrays(rng):
    """Imports an Arrow device array from pyarrow and exports it back. Its buffers are in host memory."""
    wanted = numbers("int32", 100, rng)
    batch = pa.RecordBatch.from_arrays([pa.array(wanted), pa.array(wanted % 2 == 0)], ["x", "b"])
    context, tree = C.c_void_p(), C.c_void_p()
    ok("tdict_context_create", None, C.byref(context))
    schema, array = (C.c_char * SCHEMA_BYTES)(), (C.c_char * 128)()
    batch.slice(5)._export_to_c_device(C.addressof(array), C.addressof(schema))
    ok("tdict_arrow_import_device", context, schema, array, None, C.byref(tree))
    release(schema, 56)
    check(tree, "x", list(wanted[5:]))
    ok("tdict_arrow_export_device", tree, schema, array)
    back = pa.RecordBatch._import_from_c_device(C.addressof(array), C.addressof(schema))
    assert back.equals(batch.slice(5)) and back.device_type == pa.DeviceAllocationType.CPU
    lib.tdict_release(tree)
    lib.tdict_context_destroy(context)


CUDA, SIM, ENODEVICE = 2, 12, 12  # two device types and a status


def to_device(rng, device_type):
    """Moves a table of 10 columns to a device in one transfer. Returns False if there is no such device."""
    context, tree, moved, back = (C.c_void_p() for _ in range(4))
    # A tdict_context_options with only struct_size and device; the other members get their defaults.
    chosen = (C.c_char * 16)()
    struct.pack_into("Nii", chosen, 0, 16, device_type, 0)
    if lib.tdict_context_create(chosen, C.byref(context), None) == ENODEVICE:
        return False
    table = pa.table({f"c{i}": numbers(name, 1000, rng) for i, name in enumerate(list(DTYPES)[:10])})
    tree = import_table(table)
    stats = Stats(C.sizeof(Stats))
    transfer = TransferOptions(C.sizeof(TransferOptions), 0, -1, (C.c_int32 * 2)(), None, None, (C.c_bool * 3)(), C.pointer(stats))
    ok("tdict_to_device", context, tree, Device(device_type, 0), C.byref(transfer), C.byref(moved))
    assert stats.num_leaves == 10 and stats.total_bytes == sum(c.nbytes for c in table.columns)
    # Export a device array, import it, and move the tree back to the host.
    schema, array, again = (C.c_char * SCHEMA_BYTES)(), (C.c_char * 128)(), C.c_void_p()
    ok("tdict_arrow_export_device", moved, schema, array)
    assert struct.unpack_from("qi", array, 80) == (0, device_type)
    lib.tdict_release(moved)
    ok("tdict_arrow_import_device", context, schema, array, None, C.byref(again))
    release(schema, 56)
    ok("tdict_to_device", context, again, Device(1, 0), None, C.byref(back))
    lib.tdict_release(again)
    for name in table.column_names:
        check(back, name, list(table.column(name).to_numpy()))
    lib.tdict_release(back)
    lib.tdict_release(tree)
    lib.tdict_context_destroy(context)
    return True


def random_type(depth):
    leaf = [pa.from_numpy_dtype(np.dtype(name)) for name in DTYPES]
    if depth == 0 or random.random() < 0.4:
        return random.choice(leaf + [pa.string(), pa.large_string()])
    number = random.choice(leaf)
    kind = random.random()
    if kind < 0.35:
        return pa.struct([(f"k{i}", random_type(depth - 1)) for i in range(random.randint(0, 3))])
    if kind < 0.55:
        return pa.list_(number, random.randint(0, 3))
    if kind < 0.75:
        return random.choice([pa.list_, pa.large_list])(number)
    return random.choice([pa.list_, pa.large_list])(pa.list_(pa.list_(number, 2), 1))


def random_value(typ):
    if pa.types.is_struct(typ):
        return {typ.field(i).name: random_value(typ.field(i).type) for i in range(typ.num_fields)}
    if pa.types.is_fixed_size_list(typ):
        return [random_value(typ.value_type) for _ in range(typ.list_size)]
    if pa.types.is_list(typ) or pa.types.is_large_list(typ):
        return [random_value(typ.value_type) for _ in range(random.randint(0, 3))]
    if pa.types.is_boolean(typ):
        return random.random() < 0.5
    if pa.types.is_floating(typ):
        return random.randint(-8, 8) / 4
    if pa.types.is_integer(typ):
        return random.randint(0, 100)
    return "".join(random.choice("aé ") for _ in range(random.randint(0, 4)))


def random_tables(count):
    """Sends random tables from pyarrow to tdict and back, and compares all rows. Slices have offsets at every level."""
    for _ in range(count):
        rows = random.randint(0, 20)
        types = [random_type(2) for _ in range(random.randint(0, 5))]
        arrays = [pa.array([random_value(t) for _ in range(rows)], t) for t in types]
        batch = pa.RecordBatch.from_arrays(arrays, [f"c{i}" for i in range(len(arrays))])
        start = random.randint(0, batch.num_rows)
        part = batch.slice(start, random.randint(0, batch.num_rows - start))
        tree = import_batch(part)
        wanted = part.to_pylist()
        back = export_pyarrow(tree)
        assert back.to_pylist() == wanted, (part.schema, back.to_pylist()[:3], wanted[:3])
        # nanoarrow 0.9 returns no rows for structs without fields and for lists of 0 elements.
        if types and "struct<>" not in str(part.schema) and "[0]" not in str(part.schema):
            found = export_nanoarrow(tree).to_pylist()
            assert found == wanted, (part.schema, found, wanted)
        lib.tdict_release(tree)


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    random.seed(seed)
    rng = np.random.default_rng(seed)
    before = pa.total_allocated_bytes()
    every_dtype(rng)
    shapes(rng)
    fixed_shape_tensors(rng)
    lists_and_texts(rng)
    value_columns()
    nulls(rng)
    refused_types()
    tables(rng)
    device_arrays(rng)
    assert to_device(rng, SIM)
    where = "the simulated device and cuda:0" if to_device(rng, CUDA) else "the simulated device; there is no GPU"
    random_tables(count)
    assert pa.total_allocated_bytes() == before, "some pyarrow arrays were not released"
    versions = f"pyarrow {pa.__version__}, nanoarrow {nanoarrow.__version__}"
    print(f"{len(DTYPES)} dtypes, {count} random tables: {versions} agree; a table moved to {where}")


main()
