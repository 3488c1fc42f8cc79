"""Gate: a layer includes only lower layers, and the files of a folder do not include each other in a cycle.

usage: layers.py ROOT
src/ has four rooms, from the lowest to the highest: core, device, engine, services. Each folder of core, device or
services, with its subfolders, is a layer. Files outside such folders are in the layer of their room. HEADERS has the
layer of each public header, and BELOW the layers that each layer may include. A file must not include files of a higher
room. A header and the .c file of the same name are a unit. Units must not include each other in a cycle. A folder has
at most MOST_UNITS units."""

import pathlib
import re

import source

HEADERS = {
    "export.h": "base",
    "status.h": "base",
    "try.h": "base",
    "values.h": "base",
    "memory.h": "memory",
    "run.h": "memory",
    "tensor.h": "tensor",
    "view.h": "tensor",
    "object.h": "tree",
    "path.h": "tree",
    "tree.h": "tree",
    "nontensor.h": "leaves",
    "unbatched.h": "leaves",
    "ragged.h": "leaves",
    "arrow.h": "interop",
    "comm_nccl.h": "comm",
    "comm_table.h": "comm",
    "clone.h": "ops",
    "combine.h": "ops",
    "convert.h": "ops",
    "index.h": "ops",
    "keysets.h": "ops",
    "shape.h": "ops",
    "visit.h": "ops",
    "write.h": "ops",
    "schema.h": "schema",
    "share.h": "share",
    "comm.h": "comm",
    "comm_mpi.h": "mpi",
    "lazy_stack.h": "stack",
    "debug.h": "tree",
    "dlpack.h": "interop",
    "records.h": "interop",
    "sim.h": "device",
    "context.h": "device",
    "hook.h": "engine",
    "trace.h": "engine",
    "transfer.h": "engine",
    "wire.h": "engine",
    "io.h": "io",
    "dataset.h": "loader",
    "epoch.h": "loader",
    "tokens.h": "loader",
    "random.h": "loader",
    "sampler.h": "loader",
    "loader.h": "loader",
    "replay.h": "loader",
    "devices.h": "multi_device",
    "tdict.h": "context",
}
ROOMS = ["core", "device", "engine", "services"]
BELOW = {
    "base": [],
    "kernel": ["base"],
    "sched": ["base"],
    "memory": ["sched", "kernel"],
    "tensor": ["memory"],
    "tree": ["tensor"],
    "leaves": ["tree"],
    "ops": ["leaves"],
    "schema": ["tree"],
    "kernels": ["kernel"],
    "device": ["memory", "kernels"],
    "cuda": ["device"],
    "sim": ["device"],
    "engine": ["tree", "device"],
    "stack": ["ops", "engine"],
    "multi_device": ["ops", "engine"],
    "interop": ["io"],
    "loader": ["ops", "engine"],
    "share": ["ops", "schema", "engine"],
    "comm": ["multi_device", "schema"],
    "mpi": ["comm"],
    "debug": ["ops"],
    "io": ["ops", "engine", "stack"],
    # src/context.c and its header, which may include all layers except mpi
    "context": ["comm", "cuda", "debug", "interop", "io", "loader", "multi_device", "share", "sim", "stack"],
}
MOST_UNITS = 20


def sees(layer):
    found = {layer}
    for below in BELOW[layer]:
        found |= sees(below)
    return found


def layer_of_path(name):
    """Returns the layer of a file, or None if it has no layer. The path is relative to src/."""
    if name in ("context.c", "context.h"):
        return "context"
    folders = name.split("/")[:-1]
    if not folders or folders[0] not in ROOMS:
        return None
    return next((folder for folder in folders[1::-1] if folder in BELOW), None)


def layer_of_include(name):
    """Returns the layer of an included file, or None for a system header."""
    if name.startswith("tdict/"):
        return HEADERS.get(name[len("tdict/"):], "?")
    return layer_of_path(name)


def room(name):
    """Returns the number of a file's room, lowest first. The path is relative to src/. context.c has the highest
    number."""
    folder = name.split("/")[0]
    return ROOMS.index(folder) if folder in ROOMS else len(ROOMS)


def includes(root, file):
    """Yields the location, the opening quote or bracket, and the name of each include of a file."""
    text = source.blank(file.read_text(), keep_strings=True)
    for match in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]", text, re.M):
        yield f"{file.relative_to(root)}:{source.line_of(text, match.start())}", *match.groups()


def check(report, root, file, layer):
    for where, quote, name in includes(root, file):
        report.checked()
        target = layer_of_include(name)
        if target is None:
            if quote == '"':
                report.fail(where, f'"{name}" belongs to no layer: write "<room>/<layer>/<file>.h" or "tdict/<file>.h"')
            elif name == "nvtx3/nvToolsExt.h" and file.name == "nvtx.c":
                pass  # this header needs no library at run time
            elif re.match(r"(cuda|cudart|driver_types|nv)", name) or name == "threads.h":
                report.fail(where, f"<{name}> must not be included in this library")
        elif target == "?":
            report.fail(where, f"{name} has no layer: add it to the table in tests/gates/layers.py")
        elif target not in sees(layer):
            report.fail(where, f"{layer} must not see {target} ({name})")


def check_room(report, root, file, name):
    for where, _, included in includes(root, file):
        if (root / "src" / included).exists() and room(included) > room(name):
            report.fail(where, f"{included} lies in a room above {name.split('/')[0]}")


def find_cycle(edges):
    """Returns a cycle of units, which ends with its first unit, or None if there is no cycle."""
    done = set()

    def follow(unit, path):
        if unit in path:
            return path[path.index(unit) :] + [unit]
        if unit in done:
            return None
        for target in sorted(edges.get(unit, {})):
            cycle = follow(target, path + [unit])
            if cycle:
                return cycle
        done.add(unit)
        return None

    return next((cycle for cycle in (follow(unit, []) for unit in sorted(edges)) if cycle), None)


def check_units(report, root, files):
    """Checks that each folder has at most MOST_UNITS units, and that units do not include each other in a cycle."""
    folders, edges = {}, {}  # folder -> its units; unit -> {included unit: where}
    for file in files:
        unit = file.with_suffix("").relative_to(root)
        folders.setdefault(unit.parent, set()).add(unit)
        for where, _, name in includes(root, file):
            target = pathlib.Path("src", name).with_suffix("")
            if target != unit and (root / "src" / name).exists():
                edges.setdefault(unit, {}).setdefault(target, f"{where} includes {name}")
    for folder, units in sorted(folders.items()):
        report.checked()
        if len(units) > MOST_UNITS:
            report.fail(folder, f"has {len(units)} units, wanted at most {MOST_UNITS}: move some to a sub-folder")
    while cycle := find_cycle(edges):
        steps = [edges[unit][target] for unit, target in zip(cycle, cycle[1:])]
        report.fail(cycle[0].parent, f"include cycle {' -> '.join(unit.name for unit in cycle)}: {'; '.join(steps)}")
        del edges[cycle[-2]][cycle[-1]]


def main():
    root = source.root_argument()
    report = source.Report("layers")
    for file in source.files(root, "include/tdict/*.h"):
        if file.name in HEADERS:
            check(report, root, file, HEADERS[file.name])
        else:
            report.fail(file.relative_to(root), "has no layer: add it to the table in tests/gates/layers.py")
    units = []
    for file in source.files(root, "src/**/*.[ch]"):
        name = str(file.relative_to(root / "src"))
        layer = layer_of_path(name)
        if layer:
            check(report, root, file, layer)
            check_room(report, root, file, name)
            units.append(file)
        else:
            report.fail(file.relative_to(root), "lies in no layer's folder")
    check_units(report, root, units)
    report.end()


main()
