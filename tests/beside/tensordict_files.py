#!/usr/bin/env python3
"""Exchanges files in TensorDict's formats between tdict and the package tensordict, in both directions.

usage: tensordict_files.py LIBRARY
LIBRARY is libtdict.so. Exits with 77 if a package is missing."""

import json
import os
import random
import sys
import tempfile
import warnings
import zipfile

if "--help" in sys.argv:
    sys.exit(print(__doc__))

from tdict_files import Tdict

# This folder has a file safetensors.py, which would hide the package, so remove the folder from the search path.
sys.path = [folder for folder in sys.path if os.path.abspath(folder or ".") != os.path.dirname(os.path.abspath(__file__))]
try:
    import safetensors.torch
    import tensordict
    import torch
    from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict, UnbatchedTensor, lazy_stack, tensorclass
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

warnings.filterwarnings("ignore")
# float8 is missing, because TensorDict 0.15 cannot read float8 tensors from a directory.
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.float16, torch.bfloat16, torch.int32, torch.uint32,
          torch.float32, torch.complex64, torch.float64, torch.int64, torch.uint64]
SAFETENSORS, MEMMAP, CONSOLIDATED, TDZ = 1, 2, 3, 4


def elements(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def random_tensor(dtype, shape):
    count = int(torch.Size(shape).numel()) * torch.empty((), dtype=dtype).element_size()
    data = bytes(random.randrange(2) if dtype == torch.bool else random.randrange(256) for _ in range(count))
    tensor = torch.frombuffer(bytearray(data), dtype=dtype) if count else torch.empty(0, dtype=dtype)
    return tensor.reshape(shape)


def random_column(batch):
    make = random_column if len(batch) > 1 else lambda _: random.choice(["é", 1, None, 2.5, True])
    return NonTensorStack(*[make(batch[1:]) for _ in range(batch[0])])


def random_td(depth=0, batch=(2,)):
    td = TensorDict({}, batch_size=list(batch))
    if depth == 0:  # complex128 comes first, because the package cannot read it at some offsets of consolidated files
        td["complex128"] = random_tensor(torch.complex128, [*batch, 3])
    for dtype in DTYPES:
        if random.random() < 0.5 or depth == 0:
            td[str(dtype)[6:]] = random_tensor(dtype, [*batch, *random.choice([[], [3], [0], [2, 2]])])
    td["strided"] = random_tensor(torch.float32, [*batch, 4, 6]).transpose(-1, -2)[..., ::2, :]
    td["expanded"] = random_tensor(torch.int16, [*batch, 1]).expand(*batch, 3)
    for key, value in {"text": 'é漢😀 " \\ \n\x7f', "int": -3, "big": 2**62, "real": 0.1, "one": 1.0, "yes": True, "none": None,
                       "list": [1, [2.5, "x"]], "dict": {"a": {"b": []}}}.items():
        td.set_non_tensor(key, value)
    for key in ["dots.in.key", "a/b:c", "sp ace", "é漢", "..", "_class", "%41", 'quo"te', "C:x", "back\\slash", "*?<>|\x01\x7f", "_x"]:
        td[key] = random_tensor(random.choice(DTYPES), batch)
    if depth < 2:
        td["child"] = random_td(depth + 1, random.choice([batch, (*batch, 3)]))
        td["child 2.x"] = random_td(depth + 2, batch)
    if batch:
        td["column"] = random_column(batch)
    td["empty"] = TensorDict({}, batch_size=list(batch))
    td["zeros"] = torch.zeros([*batch, 0, 3])
    return td


def same_values(a, b, where):
    a, b = (x.tolist() if isinstance(x, NonTensorStack) else x.data for x in (a, b))
    assert type(a) is type(b) and a == b, (where, a, b)


def same_tds(found, wanted, path="", ordered=True):
    """Asserts that two TensorDicts are equal. If `ordered` is true, the keys must have the same order, which the
    package's consolidated files do not keep."""
    assert found.batch_size == wanted.batch_size, (path, found.batch_size, wanted.batch_size)
    a, b = list(found.keys()), list(wanted.keys())
    assert (a == b) if ordered else (sorted(a) == sorted(b)), (path, a, b)
    for key in wanted.keys():
        a, b = found.get(key), wanted.get(key)
        if isinstance(b, (NonTensorData, NonTensorStack)):
            same_values(a, b, (path, key))
        elif isinstance(b, TensorDict):
            same_tds(a, b, f"{path}.{key}", ordered)
        else:
            assert a.dtype == b.dtype and a.shape == b.shape and elements(a) == elements(b), (path, key)


def load(path, format):
    return TensorDict.from_consolidated(path) if format == CONSOLIDATED else TensorDict.load_memmap(path)


def save(td, path, format):
    if format == CONSOLIDATED:
        td.consolidate(filename=path)
    else:
        td.save(path)


NAMES = {MEMMAP: "folder", CONSOLIDATED: "file.td", TDZ: "file.tdz"}


def check_both_directions(tdict, folder):
    for _ in range(4):
        for batch in [(2,), (), (3,), (2, 2)]:
            td = random_td(batch=batch) if batch else random_td(batch=(1,)).squeeze(0)
            part = tempfile.mkdtemp(dir=folder)
            for format, name in NAMES.items():
                save(td, f"{part}/theirs.{name}", format)
                same_tds(load(f"{part}/theirs.{name}", format), td, ordered=False)
                for target, other in NAMES.items():
                    tdict.rewrite(f"{part}/theirs.{name}", f"{part}/{format}.{other}", format=target)
                    same_tds(load(f"{part}/{format}.{other}", target), td, ordered=False)


def files_of(folder):
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            found[os.path.relpath(path, folder)] = open(path, "rb").read()
    return found


def check_bytes(tdict, folder):
    """Checks that tdict writes the package's bytes. Leaves out lists, dicts and reals, whose JSON has several forms."""
    td = random_td()
    for _, level in [(None, td), *td.items(include_nested=True, is_leaf=lambda cls: False)]:
        if isinstance(level, TensorDict):
            for key in [key for key in list(level.keys()) if isinstance(level.get(key), (NonTensorData, NonTensorStack))]:
                if key in ("list", "dict", "real"):
                    level.del_(key)
    td.save(f"{folder}/theirs")
    tdict.rewrite(f"{folder}/theirs", f"{folder}/ours", format=MEMMAP)
    ours, theirs = files_of(f"{folder}/ours"), files_of(f"{folder}/theirs")
    theirs = {name: data for name, data in theirs.items() if data}
    assert set(ours) == set(theirs), set(ours) ^ set(theirs)
    for name in ours:
        assert ours[name] == theirs[name], (name, ours[name], theirs[name])
    td.consolidate(filename=f"{folder}/theirs.td")
    tdict.rewrite(f"{folder}/theirs", f"{folder}/ours.td", format=CONSOLIDATED)
    assert open(f"{folder}/ours.td", "rb").read() == open(f"{folder}/theirs.td", "rb").read()
    td.save(f"{folder}/theirs.tdz")
    tdict.rewrite(f"{folder}/theirs", f"{folder}/ours.tdz", format=TDZ)
    ours, theirs = zipfile.ZipFile(f"{folder}/ours.tdz"), zipfile.ZipFile(f"{folder}/theirs.tdz")
    assert ours.testzip() is None
    names = [entry.filename for entry in theirs.infolist() if entry.file_size]
    assert [entry.filename for entry in ours.infolist()] == names, ([entry.filename for entry in ours.infolist()], names)
    for name in names:
        assert ours.read(name) == theirs.read(name), name
        a, b = ours.getinfo(name), theirs.getinfo(name)
        assert a.header_offset <= b.header_offset and a.CRC == b.CRC, name


def check_stacks(tdict, folder):
    """Checks that lazy stacks are read as trees "0", "1", ... from every format."""
    for dim in (0, 1):
        items = [TensorDict({"a": random_tensor(torch.float32, [2, i + 1]), "n": {"b": random_tensor(torch.int8, [2])}}, [2]) for i in range(3)]
        for format, name in NAMES.items():
            for nested in (False, True):
                stack = lazy_stack([item.clone() for item in items], dim)
                whole = TensorDict({"s": stack, "x": random_tensor(torch.bool, stack.batch_size)}, stack.batch_size) if nested else stack
                part = tempfile.mkdtemp(dir=folder)
                save(whole, f"{part}/theirs.{name}", format)
                tdict.rewrite(f"{part}/theirs.{name}", f"{part}/ours.td", format=CONSOLIDATED)
                found = TensorDict.from_consolidated(f"{part}/ours.td")
                assert list(found.batch_size) == [2][:dim], found.batch_size
                members = found["s"] if nested else found
                assert list(members.keys()) == ["0", "1", "2"]
                for i, item in enumerate(items):
                    same_tds(members[str(i)], item, ordered=False)


def check_ragged(tdict, folder):
    """Checks that tdict keeps a jagged tensor of a consolidated file. In the other formats, TensorDict reads the tensor
    as a tree of values and offsets."""
    rows = [random_tensor(torch.float32, [n, 2]) for n in (2, 0, 3)]
    td = TensorDict({"j": torch.nested.nested_tensor(rows, layout=torch.jagged), "x": torch.arange(3)}, [3])
    td.consolidate(filename=f"{folder}/theirs.td")
    for format, name in NAMES.items():
        tdict.rewrite(f"{folder}/theirs.td", f"{folder}/{name}", format=format)
        found = load(f"{folder}/{name}", format)
        if format == CONSOLIDATED:
            for a, b in zip(found["j"].unbind(), rows):
                assert a.shape == b.shape and elements(a) == elements(b)
        else:
            assert elements(found["j", "values"]) == elements(torch.cat(rows))
            assert found["j", "offsets"].tolist() == [0, 2, 2, 5]
        tdict.rewrite(f"{folder}/{name}", f"{folder}/again{format}.td", format=CONSOLIDATED)
        again = TensorDict.from_consolidated(f"{folder}/again{format}.td")
        for a, b in zip(again["j"].unbind(), rows):
            assert a.shape == b.shape and elements(a) == elements(b)


def check_unbatched(tdict, folder):
    """Checks that unbatched leaves of a safetensors file survive TensorDict's own formats, which have no such leaf."""
    td = TensorDict({"x": torch.arange(3), "c": {"y": torch.ones(3)}}, [3])
    td["u"] = UnbatchedTensor(random_tensor(torch.float32, [5]))
    tensordict.to_safetensors(td, f"{folder}/u.safetensors")
    for format, name in NAMES.items():
        tdict.rewrite(f"{folder}/u.safetensors", f"{folder}/u.{name}", format=format)
        found = load(f"{folder}/u.{name}", format)
        assert elements(found["u"]) == elements(td.get("u")._base_tensor()), found["u"]
        tdict.rewrite(f"{folder}/u.{name}", f"{folder}/again.safetensors", format=SAFETENSORS)
        again = tensordict.from_safetensors(f"{folder}/again.safetensors")
        assert isinstance(again.get("u"), UnbatchedTensor) and elements(again.get("u")._base_tensor()) == elements(td.get("u")._base_tensor())


@tensorclass
class Sample:
    a: torch.Tensor
    s: str


def check_tensorclass(tdict, folder):
    td = TensorDict({"t": Sample(a=torch.ones(3, 2), s="text", batch_size=[3])}, [3])
    for format, name in NAMES.items():
        save(td, f"{folder}/{name}", format)
        tdict.rewrite(f"{folder}/{name}", f"{folder}/again.{name}", format=format)
        found = load(f"{folder}/again.{name}", format)
        assert found["t", "a"].sum() == 6 and found["t", "s"] == "text"


def check_float8(tdict, folder):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        TensorDict({"x": random_tensor(torch.uint8, [5]).view(dtype)}, []).save(f"{folder}/{dtype}")
        tdict.rewrite(f"{folder}/{dtype}", f"{folder}/{dtype}.again", format=MEMMAP)
        assert files_of(f"{folder}/{dtype}") == files_of(f"{folder}/{dtype}.again")


def check_complex128(tdict, folder):
    td = TensorDict({"a": random_tensor(torch.int8, [3]), "b": random_tensor(torch.complex128, [3]), "c": torch.ones(3)}, [3])
    td.save(f"{folder}/theirs")
    for format, name in NAMES.items():
        tdict.rewrite(f"{folder}/theirs", f"{folder}/{name}", format=format)
        same_tds(load(f"{folder}/{name}", format), td)


def check_pickles(tdict, folder):
    td = TensorDict({"x": torch.zeros(2)}, [2])
    td.set_non_tensor("o", {1, 2})
    td.save(f"{folder}/set")
    tdict.refuses(f"{folder}/set", "other.pickle, a pickle")
    td.save(f"{folder}/set.tdz")
    tdict.refuses(f"{folder}/set.tdz", "other.pickle, a pickle")
    TensorDict({"o": NonTensorStack({1}, {2})}, [2]).save(f"{folder}/stack")
    tdict.refuses(f"{folder}/stack", "pickle.pkl, a pickle")
    torch.save({"x": torch.zeros(2)}, f"{folder}/new.pt")
    tdict.refuses(f"{folder}/new.pt", "torch.save")
    torch.save({"x": torch.zeros(2)}, f"{folder}/old.pt", _use_new_zipfile_serialization=False)
    tdict.refuses(f"{folder}/old.pt", "the file is a pickle")
    td.del_("o")
    td["x"] = torch.zeros(2, 1000)
    td.save(f"{folder}/deflated.tdz", compression="deflate")
    tdict.refuses(f"{folder}/deflated.tdz", "compress")


def check_versions(tdict, folder):
    TensorDict({"x": torch.zeros(2)}, [2]).save(f"{folder}/v")
    meta = json.load(open(f"{folder}/v/meta.json"))
    meta["_format_version"] = 2
    json.dump(meta, open(f"{folder}/v/meta.json", "w"))
    tdict.refuses(f"{folder}/v", "the format version is 2")


def check_legacy_names(tdict, folder):
    """Checks a directory in the form of old versions, which used keys as file names without encoding them."""
    td = TensorDict({"a b": torch.arange(3), "c d": {"e*": torch.ones(3)}}, [3])
    td.memmap(f"{folder}/old", robust_key=False)
    tdict.rewrite(f"{folder}/old", f"{folder}/new", format=MEMMAP)
    same_tds(TensorDict.load_memmap(f"{folder}/new"), td)


def check_append(tdict, folder):
    a = TensorDict({"x": random_tensor(torch.float32, [2, 3]), "n": {"y": random_tensor(torch.int8, [2]), "z": torch.zeros(2, 0)}}, [2])
    b = TensorDict({"x": random_tensor(torch.float32, [3, 3]), "n": {"y": random_tensor(torch.int8, [3]), "z": torch.zeros(3, 0)}}, [3])
    for td in (a, b):
        td.set_non_tensor("s", "same")
    wanted = TensorDict({"x": torch.cat([a["x"], b["x"]]), "n": {"y": torch.cat([a["n", "y"], b["n", "y"]]), "z": torch.zeros(5, 0)}}, [5])
    wanted["n"].batch_size = [5]
    wanted.set_non_tensor("s", "same")
    a.save(f"{folder}/ours")
    a.save(f"{folder}/theirs")
    b.save(f"{folder}/rows")
    tdict.append(f"{folder}/ours", f"{folder}/rows")
    same_tds(TensorDict.load_memmap(f"{folder}/ours"), wanted, ordered=False)
    tensordict.append_memmap(f"{folder}/theirs", b)
    ours, theirs = files_of(f"{folder}/ours"), files_of(f"{folder}/theirs")
    assert ours == theirs, (ours, theirs)
    tensordict.append_memmap(f"{folder}/ours", b)
    tdict.append(f"{folder}/theirs", f"{folder}/rows")
    assert files_of(f"{folder}/ours") == files_of(f"{folder}/theirs")


def main():
    tdict = Tdict(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(2**32)
    print("seed", seed)
    random.seed(seed)
    for check in [check_both_directions, check_bytes, check_stacks, check_ragged, check_unbatched, check_tensorclass, check_float8, check_complex128,
                  check_pickles, check_versions, check_legacy_names, check_append]:
        with tempfile.TemporaryDirectory() as folder:
            check(tdict, folder)
        print(check.__name__)


if __name__ == "__main__":
    main()
