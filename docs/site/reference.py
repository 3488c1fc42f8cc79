"""Writes the reference of the site: one page for each row of README's table "Functions by task".

usage: reference.py ROOT FOLDER"""

import pathlib
import re
import sys

import headers

# The title of each row's page, by the first function or class that the row names.
TITLES = {
    "tdict_context_create": ("context", "Contexts and pinned memory"),
    "tdict_create_from": ("trees", "Trees"),
    "tdict_tensor_empty": ("tensors", "Tensors and dtypes"),
    "tdict_to_device": ("transfers", "Transfers"),
    "tdict_to_devices": ("devices", "Several devices and processes"),
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
PREFIXES = {"tdict_future_": "futures", "tdict_record_stream": "futures"}


class Task:
    def __init__(self, slug, title, text, header_names):
        self.slug, self.title, self.text, self.headers, self.functions = slug, title, text, header_names, []


def read_tasks(root, all_headers):
    """The rows of README's table with their functions. A function belongs to the row that names it, else to the first
    row that names its header."""
    table = re.search(r"^## Functions by task\n(.*?)^## ", (root / "README.md").read_text(), re.S | re.M).group(1)
    tasks, owner = [], {}
    for row in re.findall(r"^\| (.*?) \|$", table, re.M)[1:]:
        text, names, files = row.split(" | ")
        names = re.findall(r"`([\w:]+)`", names)
        slug, title = TITLES.get(names[0], (re.sub(r"\W", "_", names[0]), text))
        tasks.append(Task(slug, title, text, re.findall(r"include/tdict/([\w./]+)", files)))
        owner.update({name: tasks[-1] for name in names})
    for name, function in all_headers.functions.items():
        task = owner.get(name) or next((t for p, slug in PREFIXES.items() for t in tasks if name.startswith(p) and t.slug == slug), None)
        task = task or next((t for t in tasks if function.header in t.headers), None)
        if task:
            task.functions.append(function)
    return tasks


def rst(text):
    def token(match):
        word = match.group(0)
        if word.startswith("`"):
            made = f"``{word[1:-1].strip() or ' '}``"
        elif word.startswith("**"):
            return word
        elif word.endswith("()") and word.startswith("tdict"):
            made = f":c:func:`{word[:-2]}`"
        else:
            made = f"``{word}``"
        before, after = match.string[match.start() - 1:match.start()], match.string[match.end():match.end() + 1]
        return ("\\ " if before and (before.isalnum() or before in "_*") else "") + made + ("\\ " if after and (after.isalnum() or after in "_*") else "")

    pieces, at = [], 0
    for match in re.finditer(r"`[^`]+`|\*\*[^*]+\*\*|\btdict_\w+\(\)|\bTDICT_\w+\b(?:\(\))?", text):
        pieces += [re.sub(r"([\\*|_])", r"\\\1", text[at:match.start()]), token(match)]
        at = match.end()
    return "".join(pieces) + re.sub(r"([\\*|_`])", r"\\\1", text[at:])


def indented(text, by):
    return "\n".join(" " * by + line if line.strip() else "" for line in text.split("\n"))


def write_blocks(out, blocks, by):
    for block in blocks:
        if block.kind == "text":
            out.append(indented(rst(block.text), by) + "\n")
        elif block.kind == "note":
            out.append(indented(rst(block.text), by) + "\n")
        elif block.kind == "list":
            out += [indented("* " + rst(item), by) for item in block.items] + [""]
        elif block.kind == "code":
            out.append(indented(".. code-block:: c\n\n" + indented(block.text, 3), by) + "\n")
        elif block.kind == "table":
            out.append(indented(list_table(block.items), by) + "\n")


def list_table(rows, head=1):
    lines = [".. list-table::", f"   :header-rows: {head}", ""]
    for row in rows:
        for i, cell in enumerate(row):
            lines.append(("   * - " if i == 0 else "     - ") + rst(cell))
    return "\n".join(lines)


def write_function(out, f):
    out.append(f".. c:function:: {f.prototype}\n")
    write_blocks(out, f.brief + f.blocks, 3)
    for name, direction, text in f.parameters:
        out.append(f"   :param {name}: {rst((f'({direction}) ' if direction and direction != 'in' else '') + text)}")
    if f.result and not f.errors:
        out.append(f"   :returns: {rst(f.result)}")
    out.append("")
    if f.errors:
        out.append("   .. rubric:: Returns\n")
        out += ["   * " + (f":c:enumerator:`{status}`" + (": " if text else "") if status else "") + rst(text) for status, text in f.errors] + [""]
    if f.common_errors:
        out.append(f"   .. rubric:: Errors of all functions of {f.header}\n\n   {rst(f.common_errors)}\n")
    if f.thread:
        out.append(f"   .. rubric:: Threads\n\n   {rst(f.thread)}\n")
    if f.example:
        file, text = f.example
        out.append(f"   .. rubric:: Example\n\n   .. code-block:: c\n      :caption: {file}\n\n{indented(text, 6)}\n")


def write_types(out, task, all_headers):
    mine = lambda header: header in task.headers
    for name, (header, text, values) in all_headers.enums.items():
        if mine(header):
            out.append(f".. c:enum:: {name}\n\n   {rst(text)}\n")
            for value, meaning in values:
                out.append(f"   .. c:enumerator:: {value}\n\n      {rst(meaning)}\n")
    for name, (header, text, members) in all_headers.structs.items():
        if mine(header):
            out.append(f".. c:struct:: {name}\n\n   {rst(text)}\n")
            default = f"{name}_default"
            if default in (all_headers.root / "include/tdict" / header).read_text():
                out.append(f"   ``{default}()`` returns the defaults.\n")
            if members:
                rows = [["member", "meaning"]] + [[f"`{shown}`", meaning] for shown, meaning in members]
                out.append(indented(list_table(rows), 3) + "\n")
    for name, (header, definition, text) in all_headers.types.items():
        if mine(header) and name not in all_headers.enums and name not in all_headers.structs and not name.startswith("Arrow"):
            shown = re.sub(r"^typedef\s+", "", definition)
            opaque = re.fullmatch(r"struct (\w+) \1", shown)
            out.append(f".. c:type:: {name if opaque else shown}\n\n   {rst(text) or 'An opaque type.'}\n")
    for name, (header, shown, text) in all_headers.macros.items():
        if mine(header) and text:
            out.append(f".. c:macro:: {shown}\n\n   {rst(text)}\n")


def first_sentence(f):
    return re.split(r"(?<=[.:])\s", (f.brief + f.blocks)[0].text)[0].rstrip(":")


def write_page(folder, task, all_headers):
    out = [f".. _{task.slug}-reference:\n", task.title, "=" * len(task.title), "", rst(task.text[0].upper() + task.text[1:]) + ".\n"]
    rows = [["function", "purpose"]] + [[f"{f.name}()", first_sentence(f)] for f in task.functions]
    out += [list_table(rows), ""]
    for header in [h for h in task.headers if h in all_headers.comments]:
        title = f"tdict/{header}"
        functions = [f for f in task.functions if f.header == header]
        if not functions and header != task.headers[0]:
            continue
        out += [title, "-" * len(title), ""]
        for part in all_headers.comments[header]:
            out.append(comment_rst(part) + "\n")
        for function in functions:
            write_function(out, function)
    types = []
    write_types(types, task, all_headers)
    if types:
        out += ["Types and macros", "----------------", ""] + types
    (folder / f"{task.slug}.rst").write_text("\n".join(out) + "\n")


def comment_rst(part):
    """A paragraph of a header's comment: text, a list, or indented code."""
    part = part.replace("#TDICT", "TDICT").replace("@p ", "")
    if all(line.startswith("    ") for line in part.split("\n") if line):
        return "::\n\n" + part
    items = re.split(r"^- ", part, flags=re.M)
    if len(items) > 1:
        head = [rst(headers.clean(items[0]))] if items[0].strip() else []
        return "\n".join(head + ([""] if head else []) + ["* " + rst(headers.clean(item)) for item in items[1:]])
    return rst(headers.clean(part))


def write_reference(root, folder, all_headers):
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [t for t in read_tasks(root, all_headers) if t.slug != "cpp"]
    written = set()
    for task in tasks:
        task.headers = [h for h in task.headers if h not in written or any(f.header == h for f in task.functions)]
        types = list(task.headers)
        write_page(folder, task, all_headers if not written & set(types) else without_types(all_headers, written))
        written |= set(types)
    rows = [["task", "functions"]] + [[t.title, ", ".join(f"{f.name}()" for f in t.functions)] for t in tasks]
    index = ["Reference", "=========", "", "Every public function of the C interface, by task. The text is that of the headers.\n",
             ".. toctree::", "   :maxdepth: 1", ""] + [f"   {t.slug}" for t in tasks] + ["   cpp", "", list_table(rows), ""]
    (folder / "index.rst").write_text("\n".join(index))
    return tasks


def without_types(all_headers, seen):
    """The same headers, without the types of headers whose types are on an earlier page."""
    import copy
    made = copy.copy(all_headers)
    for kind in ("structs", "enums", "macros", "types"):
        setattr(made, kind, {k: v for k, v in getattr(all_headers, kind).items() if v[0] not in seen})
    return made


if __name__ == "__main__":
    write_reference(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), headers.Headers(sys.argv[1]))
