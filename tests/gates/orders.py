"""Gate: the table of memory orders in docs/testing.md lists each atomic operation of src/ that names an order.

usage: orders.py ROOT
A row has words, files below src/, operations with their orders, and a reason. `all files` means every file. The gate
fails if a file uses an order that no row has, if a row has an order, a word or a file that no longer exists, or if a
row has no reason. An operation without an order is sequentially consistent and needs no row."""

import collections
import re

import source

PAGE = "docs/testing.md"
ORDER = re.compile(r"\bmemory_order_(\w+)|\b__ATOMIC_([A-Z_]+)\b")
CALL = re.compile(r"\b(?:__)?atomic_(\w+)\s*\(")
SHORT = {"compare_exchange_strong": "cas", "compare_exchange_weak": "cas"}  # fetch_ is dropped from other names
Use = collections.namedtuple("Use", "word operation file")


def arguments(code, begin):
    """Returns the arguments of a call whose first argument begins at `begin`."""
    found, depth, start = [], 0, begin
    for at in range(begin, len(code)):
        depth += (code[at] in "([{") - (code[at] in ")]}")
        if depth < 0 or (depth == 0 and code[at] == ","):
            found.append(code[start:at].strip())
            start = at + 1
        if depth < 0:
            return found
    return found


def uses_of(code, file):
    """Returns the operations of a file that name an order, and the number of orders outside such operations."""
    uses, num_named = [], 0
    for call in CALL.finditer(code):
        listed = arguments(code, call.end())
        orders = [o.group(1) or o.group(2).lower() for o in map(ORDER.fullmatch, listed) if o]
        if not orders:
            continue
        num_named += len(orders)
        words = re.findall(r"\w+", re.sub(r"\[[^]]*\]", "", listed[0]))
        kind = call.group(1).removesuffix("_explicit").removeprefix("fetch_")
        uses.append(Use(words[-1], f"{SHORT.get(kind, kind)} {'/'.join(orders)}", file))
    return uses, len(ORDER.findall(code)) - num_named


def read_rows(report, root):
    """Returns the rows of the table as (words, files, operations). For `all files`, files is None."""
    tables = re.findall(r"^\| word \| files .*\n\|[-|]*\n((?:\|.*\n)*)", (root / PAGE).read_text(), flags=re.M)
    rows = []
    for line in "".join(tables).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != 4 or not cells[3]:
            report.fail(PAGE, f"the row {line} does not have words, files, orders and a reason")
            continue
        words, files, orders = (re.findall(r"`([^`]+)`", cell) for cell in cells[:3])
        rows.append((words, None if cells[1] == "all files" else [f"src/{file}" for file in files], orders))
    return rows


def main():
    root = source.root_argument()
    report = source.Report("orders")
    rows, uses = read_rows(report, root), set()
    for path in source.files(root, "src/**/*.[ch]"):
        file = str(path.relative_to(root))
        found, others = uses_of(source.blank(path.read_text()), file)
        uses |= set(found)
        if others:
            report.fail(file, f"names {others} memory orders outside of an atomic operation on a word")
    for use in sorted(uses):
        report.checked()
        if not any(use.word in words and (files is None or use.file in files) and use.operation in orders
                   for words, files, orders in rows):
            report.fail(use.file, f"uses {use.operation} for {use.word}, which the table of {PAGE} lacks")
    for words, files, orders in rows:
        here = [use for use in uses if use.word in words and (files is None or use.file in files) and use.operation in orders]
        gone = [*(set(words) - {use.word for use in here}), *(set(files or []) - {use.file for use in here}),
                *(set(orders) - {use.operation for use in here})]
        report.checked()
        for name in sorted(gone):
            report.fail(PAGE, f"the row of {', '.join(words)} names {name}, which is gone")
    report.end()


main()
