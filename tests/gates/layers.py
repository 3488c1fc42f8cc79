"""Gate: includes point down only.

usage: layers.py ROOT
A folder of src/ is a layer, its sub-folders included; public headers belong to the layers of the table. SEES says what each layer may include."""

import re

import source

HEADERS = {
    "export.h": "base",
    "status.h": "base",
    "try.h": "base",
    "values.h": "base",
    "memory.h": "memory",
    "tensor.h": "tensor",
    "object.h": "tree",
    "tree.h": "tree",
    "clone.h": "tree",
    "combine.h": "tree",
    "index.h": "tree",
    "keysets.h": "tree",
    "shape.h": "tree",
    "visit.h": "tree",
    "write.h": "tree",
    "sim.h": "device",
    "context.h": "device",
    "hook.h": "transfer",
    "trace.h": "transfer",
    "transfer.h": "transfer",
    "dataset.h": "loader",
    "sampler.h": "loader",
    "loader.h": "loader",
    "tdict.h": "context",
}
BELOW = {
    "base": [],
    "sched": ["base"],
    "memory": ["sched"],
    "tensor": ["memory"],
    "tree": ["tensor"],
    "device": ["memory"],
    "transfer": ["tree", "device"],
    "loader": ["transfer"],
    "context": ["loader"],  # src/context.c, the one file that sees all, and its header
}


def sees(layer):
    found = {layer}
    for below in BELOW[layer]:
        found |= sees(below)
    return found


def layer_of_include(name):
    """The layer that an included file belongs to; None for a system header."""
    if name.startswith("tdict/"):
        return HEADERS.get(name[len("tdict/"):], "?")
    if name == "context.h":
        return "context"
    if "/" in name and name.split("/")[0] in BELOW:
        return name.split("/")[0]
    return None


def check(report, root, file, layer):
    text = source.blank(file.read_text(), keep_strings=True)
    for match in re.finditer(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"]+)[>\"]", text, re.M):
        where = f"{file.relative_to(root)}:{source.line_of(text, match.start())}"
        quote, name = match.groups()
        report.checked()
        target = layer_of_include(name)
        if target is None:
            if quote == '"':
                report.fail(where, f'"{name}" is named by no layer: write "<layer>/<file>.h" or "tdict/<file>.h"')
            elif name == "nvtx3/nvToolsExt.h" and file.name == "nvtx.c":
                pass  # a header that needs nothing at run time
            elif re.match(r"(cuda|cudart|driver_types|nv)", name) or name == "threads.h":
                report.fail(where, f"<{name}> is not used in this library")
        elif target == "?":
            report.fail(where, f"{name} has no layer: add it to the table in tests/gates/layers.py")
        elif target not in sees(layer):
            report.fail(where, f"{layer} must not see {target} ({name})")


def main():
    root = source.root_argument()
    report = source.Report("layers")
    for file in source.files(root, "include/tdict/*.h"):
        if file.name in HEADERS:
            check(report, root, file, HEADERS[file.name])
        else:
            report.fail(file.relative_to(root), "has no layer: add it to the table in tests/gates/layers.py")
    for file in source.files(root, "src/**/*.[ch]"):
        folders = file.relative_to(root / "src").parts[:-1]
        layer = folders[0] if folders else file.stem
        if layer in BELOW and (folders or layer == "context"):
            check(report, root, file, layer)
        else:
            report.fail(file.relative_to(root), "lies in no layer's folder")
    report.end()


main()
