"""Writes the reference of the site: one page for each row of the table "Functions by task" of docs/functions.md.

usage: reference.py ROOT FOLDER"""

import pathlib
import re
import sys

import cheat_sheet
import headers
import rst

# The title of each row's page, by the first function or class that the row names.
TITLES = {
    "tdict_context_create": ("context", "Contexts and memory"),
    "tdict_create_from": ("trees", "Trees"),
    "tdict_tensor_empty": ("tensors", "Tensors and dtypes"),
    "tdict_to_device": ("transfers", "Transfers and pinning"),
    "tdict_to_devices_async": ("devices", "Several devices and processes"),
    "tdict_future_wait_on_stream": ("futures", "Futures and streams"),
    "tdict_set_text": ("objects", "Text, numbers and objects"),
    "tdict_loader_create": ("loaders", "Loaders, datasets and replay buffers"),
    "tdict_index_get": ("indexing", "Indices and batch dimensions"),
    "tdict_stack": ("joining", "Stack, concatenate, pad; ragged rows"),
    "tdict_select": ("keys", "Keys and visits"),
    "tdict_copy": ("writing", "Write, clone and compare"),
    "tdict_trace_start": ("observing", "Timelines and the simulated device"),
    "tdict_lazy_stack_create": ("structure", "Lazy stacks and schemas"),
    "tdict_dlpack_export_tree": ("exchange", "DLPack and Arrow"),
    "tdict_share_ring_create": ("processes", "Worker processes and arrays of structs"),
    "tdict_open": ("files", "Files"),
    "tdict::tree": ("cpp", "C++"),
    "TDICT_TRY": ("errors", "Errors and summaries"),
}
# Declarations whose names begin so are on these pages, although their header has another home.
PREFIXES = {"tdict_future": "futures", "tdict_record_stream": "futures"}
DTYPES = """A dtype is one number, so dtypes can be compared with ``==`` and used in a switch. :c:func:`tdict_dtype_name`
returns a name such as ``float32``. C11 has no type for float16, bfloat16 and the dtypes of 8 bits. For these dtypes, the
table names an integer of the same size, which holds the bits. :c:func:`tdict_tensor_to_dtype` converts elements."""


class Task:
    def __init__(self, slug, title, text, header_names):
        self.slug, self.title, self.text, self.headers, self.functions = slug, title, text, header_names, []


def read_tasks(root, all_headers):
    """The rows of the table of docs/functions.md with their functions. A function belongs to the row that names it, else to the home of
    its header."""
    table = re.search(r"^## Functions by task\n(.*?)^## ", (root / "docs/functions.md").read_text(), re.S | re.M).group(1)
    tasks, owner = [], {}
    for row in re.findall(r"^\| (.*?) \|$", table, re.M)[1:]:
        text, names, files = row.split(" | ")
        names = re.findall(r"`([\w:]+)`", names)
        slug, title = TITLES.get(names[0], (re.sub(r"\W", "_", names[0]), text))
        tasks.append(Task(slug, title, text, re.findall(r"include/tdict/([\w./]+)", files)))
        owner.update({name: tasks[-1] for name in names})
    for name, function in all_headers.functions.items():
        task = by_prefix(tasks, name) or owner.get(name) or home_of(tasks, function.header)
        if task:
            task.functions.append(function)
    return tasks


def by_prefix(tasks, name):
    return next((t for prefix, slug in PREFIXES.items() for t in tasks if name.startswith(prefix) and t.slug == slug), None)


def home_of(tasks, header):
    """The row that has the header as its first header, else the first row with the header."""
    rows = [t for t in tasks if header in t.headers]
    return next((t for t in rows if t.headers[0] == header), rows[0] if rows else None)


def label(header):
    return f"header-{header[:-2]}"


class Page:
    """One page of the reference."""

    def __init__(self, task, tasks, all_headers, names):
        self.task, self.tasks, self.all, self.names = task, tasks, all_headers, names
        self.out, self.examples = [], {}

    def is_mine(self, header, name):
        return (by_prefix(self.tasks, name) or home_of(self.tasks, header)) is self.task

    def write_function(self, f):
        out, names = self.out, self.names
        out.append(f".. c:function:: {f.prototype}\n")
        out += [rst.indented(block, 3) for block in rst.blocks(f.brief + f.blocks, names)]
        for name, direction, text in f.parameters:
            shown = f"({direction}) " if direction and direction != "in" else ""
            out.append(f"   :param {name}: {rst.text(shown + text, names)}")
        if f.result and not f.errors:
            out.append(f"   :returns: {rst.text(f.result, names)}")
        out.append("")
        if f.errors or f.common_errors:
            out.append("   .. rubric:: Returns\n")
            for status, text in f.errors:
                text += "." if re.search(r"\.\s", text) else ""
                out.append("   * " + (f":c:enumerator:`{status}`" + (": " if text else "") if status else "") + rst.text(text, names))
            if f.common_errors:
                out.append(f"   * the errors of all functions of :ref:`tdict/{f.header} <{label(f.header)}>`")
            out.append("")
        if f.thread:
            out.append(f"   .. rubric:: Threads\n\n   {rst.text(f.thread, names)}\n")
        if f.example:
            self.write_example(f)

    def write_example(self, f):
        """Each example is printed once on a page. Other functions of the example link to it."""
        first = self.examples.setdefault(f.example, f.name)
        self.out.append("   .. rubric:: Example\n")
        if first != f.name:
            self.out.append(f"   See the example of :c:func:`{first}`.\n")
            return
        file, text = f.example
        self.out += [f"   From {rst.download(file)}:\n", f"   .. code-block:: c\n\n{rst.indented(text, 6)}\n"]

    def types(self):
        """The types and macros of the page: [(name, lines)]."""
        found, names = [], self.names
        for name, (header, text, values) in self.all.enums.items():
            if self.is_mine(header, name):
                lines = [f".. c:enum:: {name}\n\n   {rst.text(text, names)}\n"]
                lines += [f"   .. c:enumerator:: {value}\n\n      {rst.text(meaning, names)}\n" for value, meaning in values]
                found.append((name, lines))
        for name, (header, text, members) in self.all.structs.items():
            if self.is_mine(header, name):
                found.append((name, self.struct(name, header, text, members)))
        for name, (header, definition, text) in self.all.types.items():
            if self.is_mine(header, name) and name not in self.all.enums and name not in self.all.structs and not name.startswith("Arrow"):
                shown = re.sub(r"^typedef\s+", "", definition)
                opaque = re.fullmatch(r"struct (\w+) \1", shown)
                found.append((name, [f".. c:type:: {name if opaque else shown}\n\n   {rst.text(text, names) or 'An opaque type.'}\n"]))
        for name, (header, shown, text, value) in self.all.macros.items():
            if self.is_mine(header, name) and text and not headers.is_dtype(value):
                found.append((name, [f".. c:macro:: {shown}\n\n   {rst.text(text, names)}\n"]))
        return found

    def struct(self, name, header, text, members):
        lines = [f".. c:struct:: {name}\n\n   {rst.text(text, self.names)}\n"]
        if f"{name}_default" in self.all.defaults:
            lines.append(f"   ``{name}_default()`` returns the defaults.\n")
        if members:
            rows = [["member", "meaning"]] + [[f"`{shown}`", meaning] for shown, meaning in members]
            targets = [None] + [f"{name}.{field_name(shown)}" for shown, _ in members]
            lines.append(rst.indented(rst.table(rows, self.names, targets=targets), 3) + "\n")
        return lines

    def write_dtypes(self):
        """The table of dtypes. A comment of a macro has the type in C and the name in PyTorch."""
        found = [(name, value, text) for name, (header, _, text, value) in self.all.macros.items()
                 if headers.is_dtype(value) and self.is_mine(header, name)]
        if not found:
            return
        rows = [["macro", "bytes", "type in C", "in PyTorch"]]
        for name, value, text in found:
            kind, torch = text.split("; ")
            rows.append([f"`{name}`", str(int(value.split(",")[1]) // 8), f"`{kind}`", f"`{torch}`"])
        self.out += [".. _dtypes:\n", *rst.heading("Dtypes", "-"), DTYPES + "\n"]
        table = rst.table(rows, rst.Names.none())
        self.out += [re.sub(r"``(TDICT_\w+)``", r".. c:macro:: \1\n          :nocontentsentry:\n", table), ""]

    def write_header(self, header):
        functions = [f for f in self.task.functions if f.header == header]
        home = home_of(self.tasks, header)
        if home is not self.task and not functions:
            return
        if home is self.task:
            self.out += [f".. _{label(header)}:\n", *rst.heading(f"tdict/{header}", "-")]
            self.out += rst.comment(self.all.comments[header], self.names, "~")
            self.out += rst.heading(f"Functions of tdict/{header}", "~") if functions else []
        else:
            self.out += [*rst.heading(f"Functions of tdict/{header}", "-"),
                         f"Read also the rules of {self.names.header('tdict/' + header)}.\n"]
        for function in functions:
            self.write_function(function)

    def write(self, folder):
        task, names = self.task, self.names
        self.out = [f".. _{task.slug}-reference:\n", *rst.heading(task.title, "="), rst.text(rst.capital(task.text), names) + ".\n"]
        rows = [["function", "purpose"]] + [[f"{f.name}()", first_sentence(f)] for f in task.functions]
        types = self.types()
        self.out += [rst.table(rows, names), ""]
        if types:
            self.out += ["Types and macros: " + ", ".join(names.link(name) for name, _ in types) + ".\n"]
        self.write_dtypes()
        for header in [h for h in task.headers if h in self.all.comments]:
            self.write_header(header)
        if types:
            self.out += rst.heading("Types and macros", "-") + [line for _, lines in types for line in lines]
        (folder / f"{task.slug}.rst").write_text("\n".join(self.out) + "\n")


def field_name(shown):
    """The name that `int64_t shape[4]` or `void (*free)(void *)` declares."""
    pointer = re.search(r"\(\*(\w+)\)", shown)
    return pointer.group(1) if pointer else re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", shown))[-1]


def first_sentence(f):
    return re.split(r"(?<=[.:])\s", (f.brief + f.blocks)[0].text)[0].rstrip(":")


def labels_of(tasks, all_headers):
    """The label of each header that has a page."""
    return {f"tdict/{h}": label(h) for h in all_headers.comments if home_of(tasks, h)}


def write_reference(root, folder, all_headers):
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [t for t in read_tasks(root, all_headers) if t.slug != "cpp"]
    names = rst.Names(all_headers, labels_of(tasks, all_headers))
    for task in tasks:
        Page(task, tasks, all_headers, names).write(folder)
    cheat_sheet.write(folder, all_headers, names)
    rows = [["task", "functions"]] + [[t.title, ", ".join(f"{f.name}()" for f in t.functions)] for t in tasks]
    index = [*rst.heading("Reference", "="), "Every public function of the C interface, by task. The headers contain the same text.\n",
             ".. toctree::", "   :maxdepth: 1", ""] + [f"   {t.slug}" for t in tasks] + ["   cpp", "   cheat_sheet", "", rst.table(rows, names), ""]
    (folder / "index.rst").write_text("\n".join(index))
    return tasks


if __name__ == "__main__":
    write_reference(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), headers.Headers(sys.argv[1]))
