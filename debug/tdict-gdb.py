"""Pretty-printers of GDB for trees, tensors, errors and futures of tdict.

GDB loads this file with the shared library if it is installed where GDB looks for it (docs/neighbours.md). Otherwise
load it by `source tdict-gdb.py`. The printers read the private structs of the library and need its debug information.
They call no function of the program, so they also work on core files."""

import struct

import gdb
import gdb.printing

FIRST_VALUES = 6  # number of elements shown of a tensor
MOST_KEYS = 200  # number of keys shown of a tree
DEVICES = {1: "cpu", 2: "cuda", 12: "sim"}
NAMES = {
    (0, 8): ("int8", "b"), (0, 16): ("int16", "h"), (0, 32): ("int32", "i"), (0, 64): ("int64", "q"),
    (1, 8): ("uint8", "B"), (1, 16): ("uint16", "H"), (1, 32): ("uint32", "I"), (1, 64): ("uint64", "Q"),
    (2, 16): ("float16", "e"), (2, 32): ("float32", "f"), (2, 64): ("float64", "d"),
    (4, 16): ("bfloat16", None), (5, 64): ("complex64", "2f"), (5, 128): ("complex128", "2d"),
    (6, 8): ("bool", "?"), (10, 8): ("float8_e4m3fn", None), (12, 8): ("float8_e5m2", None),
}  # (code, bits): name, format of the module struct
LEAF_MASK, LEAF_TENSOR, LEAF_TREE, LEAF_OBJECT = 3, 0, 1, 2  # as in src/core/tree/node.h
READ_ONLY, PINNED, CLAIMED = 1, 2, 4  # as in src/core/memory/storage.h


def array(pointer, count):
    return [int(pointer[i]) for i in range(count)]


def shape_text(sizes):
    return "[" + ", ".join(str(size) for size in sizes) + "]"


def device_text(device):
    kind, index = int(device["type"]), int(device["index"])
    name = DEVICES.get(kind, f"device type {kind}")
    return name if kind == 1 else f"{name}:{index}"


def text_of(pointer):
    return pointer.string(errors="replace")


def small_float(code, bits):
    """The value of a bfloat16 or an 8-bit float."""
    if code == 4:
        return struct.unpack("<f", struct.pack("<I", bits << 16))[0]
    if code == 12:  # float8_e5m2 is the upper half of a float16
        return struct.unpack("<e", struct.pack("<H", bits << 8))[0]
    sign, exponent, mantissa = -1.0 if bits & 0x80 else 1.0, bits >> 3 & 15, bits & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


def number_text(code, bits, raw):
    form = NAMES[code, bits][1]
    if form is None:
        return f"{small_float(code, int.from_bytes(raw, 'little')):.6g}"
    numbers = struct.unpack("<" + form, raw)
    if code == 6:
        return "true" if numbers[0] else "false"
    if code == 5:
        return f"{numbers[0]:.6g}{numbers[1]:+.6g}i"
    return f"{numbers[0]:.6g}" if code == 2 else str(numbers[0])


class Tensor:
    """A tdict_tensor, read from its private struct."""

    def __init__(self, value):
        self.value = value
        dtype = int(value["dtype"])
        self.code, self.bits, self.lanes = dtype & 0xFF, dtype >> 8 & 0xFF, dtype >> 16
        self.ndim, self.numel = int(value["ndim"]), int(value["numel"])
        self.shape = array(value["dims"], self.ndim)
        self.strides = array(value["dims"] + self.ndim, self.ndim)
        self.storage = value["storage"].dereference()

    def dtype_text(self):
        name = NAMES.get((self.code, self.bits), ("unknown", None))[0]
        return name if self.lanes == 1 else f"{name} x {self.lanes}"

    def offsets(self):
        """The offsets, in elements, of the first elements in C order."""
        index = [0] * self.ndim
        for _ in range(min(self.numel, FIRST_VALUES)):
            yield sum(i * stride for i, stride in zip(index, self.strides))
            for d in reversed(range(self.ndim)):
                index[d] += 1
                if index[d] < self.shape[d]:
                    break
                index[d] = 0

    def values_text(self):
        if (self.code, self.bits) not in NAMES or not int(self.value["data"]):
            return ""
        lane, start, texts = self.bits // 8, int(self.value["data"]), []
        for offset in self.offsets():
            raw = gdb.selected_inferior().read_memory(start + offset * lane * self.lanes, lane * self.lanes).tobytes()
            lanes = [number_text(self.code, self.bits, raw[i : i + lane]) for i in range(0, len(raw), lane)]
            texts.append(lanes[0] if self.lanes == 1 else "<" + " ".join(lanes) + ">")
        return " {" + ", ".join(texts) + (", ...}" if self.numel > FIRST_VALUES else "}")

    def text(self):
        flags, on_host = int(self.storage["flags"]), int(self.storage["device"]["type"]) == 1
        text = f"{self.dtype_text()} {shape_text(self.shape)} {device_text(self.storage['device'])}"
        text += " pinned" if flags & (PINNED | CLAIMED) and on_host else ""
        text += " read-only" if flags & READ_ONLY else ""
        if int(self.storage["marks"]):
            text += " in transfer"
        if int(self.storage["lost"]):
            return text + " lost"
        try:
            return text + (self.values_text() if on_host else "")
        except gdb.MemoryError:
            return text + " <the elements cannot be read>"


class TensorPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        return f"tensor {Tensor(self.value).text()}"


class TreePrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        tree = self.value
        text = f"tree batch={shape_text(array(tree['batch_size'], int(tree['batch_ndim'])))}"
        text += f" device={device_text(tree['device'])}" if tree["has_device"] else ""
        return text + (" locked" if tree["locked"] or int(tree["locks_above"]) > 0 else "")

    def children(self):
        keys, shown = self.value["keys"], 0
        for slot in range(int(keys["num_slots"])):
            name = keys["slots"][slot]["name"]
            if not int(name):
                continue
            if shown == MOST_KEYS:
                yield "...", "more keys"
                return
            shown += 1
            yield text_of(name), leaf_value(int(self.value["leaves"][slot]))


def pointer_to(address, type_name):
    return gdb.Value(address).cast(gdb.lookup_type(type_name).pointer())


def leaf_value(leaf):
    """The entry of a slot: a pointer with its kind in the low bits."""
    kind, address = leaf & LEAF_MASK, leaf & ~LEAF_MASK
    if kind == LEAF_TREE:
        return pointer_to(address, "struct tdict_tree")
    if kind == LEAF_OBJECT:
        return f"object {text_of(pointer_to(address, 'struct tdict_box')['type']['name'])}"
    return pointer_to(address, "struct tdict_tensor") if address else "empty"


def status_name(number):
    for field in gdb.lookup_type("tdict_status").fields():
        if field.enumval == number:
            return field.name
    return f"status {number}"


class ErrorPrinter:
    def __init__(self, value):
        self.value = value

    def to_string(self):
        text = status_name(int(self.value["status"]))
        path, message = self.value["path"].string(errors="replace"), self.value["message"].string(errors="replace")
        if not int(self.value["status"]):
            return text
        native = int(self.value["native"])
        return f"{text} {path}{': ' if path else ''}{message}" + (f" [{native}]" if native else "")


class FuturePrinter:
    """The fields are those of src/engine/future.h. `queued` is a field of src/engine/transfer.h: only transfers have it."""

    def __init__(self, value):
        self.value = value

    def is_queued(self):
        if "tdict_transfer_kind" not in str(self.value["kind"]):
            return False
        transfer = self.value.address.cast(gdb.lookup_type("struct tdict_transfer").pointer())
        return int(transfer["queued"]["count"]) == 0

    def to_string(self):
        f = self.value
        has_ended = int(f["ended"]["count"]) == 0
        state = "ended" if has_ended else "all copies queued" if self.is_queued() else "running or waiting"
        failed = int(f["error"]["status"])
        return f"future {state}" + (f", {ErrorPrinter(f['error']).to_string()}" if failed else "")


PRINTERS = {
    "tdict_tree": TreePrinter,
    "tdict_tensor": TensorPrinter,
    "tdict_error": ErrorPrinter,
    "tdict_future": FuturePrinter,
}


class Lookup(gdb.printing.PrettyPrinter):
    """Chooses the printer of a struct, or of a pointer to an opaque struct."""

    def __init__(self):
        super().__init__("tdict")

    def __call__(self, value):
        kind = value.type.strip_typedefs()
        if kind.code == gdb.TYPE_CODE_PTR:
            target = kind.target().strip_typedefs().unqualified()
            maker = PRINTERS.get(target.tag or "")
            if not maker or target.code != gdb.TYPE_CODE_STRUCT or maker is ErrorPrinter or not int(value):
                return None
            try:  # the program sees an incomplete type: use the complete type of the library
                complete = gdb.lookup_type(f"struct {target.tag}")
                return maker(value.cast(complete.pointer()).dereference()) if complete.fields() else None
            except (gdb.error, TypeError):
                return None
        maker = PRINTERS.get(kind.unqualified().tag or kind.name or value.type.name or "")
        return maker(value) if maker and kind.code == gdb.TYPE_CODE_STRUCT and kind.fields() else None


gdb.printing.register_pretty_printer(gdb.current_objfile(), Lookup(), replace=True)
