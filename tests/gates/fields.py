"""Gate: the structs of a transfer do not grow.

usage: fields.py ROOT
Counts the fields of a struct. The flat count includes the fields of nested structs of src/engine, so moving fields into
a nested struct does not reduce it. A pointer or an array counts as one field. [fields] in limits.ini has the limits:
NAME or NAME.flat. Names joined by + share a limit."""

import re

import source


def structs_of(root):
    """Returns {struct: types of its fields} for src/engine. Pointers, arrays and functions have the type None."""
    found = {}
    for file in source.files(root, "src/engine/**/*.[ch]"):
        text = source.without_preprocessor(source.blank(file.read_text()))
        for match in re.finditer(r"^(?:typedef )?struct (\w+) \{\n(.*?)^\}", text, re.M | re.S):
            found[match.group(1)] = [field for line in match.group(2).split(";") for field in fields_of(line.strip())]
    return found


def fields_of(declaration):
    """Returns the types of the fields in a declaration without its semicolon, such as `int a, *b`."""
    if not declaration:
        return []
    if "(*" in declaration:
        return [None]
    type_end = re.match(r"(?:_Atomic\([^)]*\)|(?:const |struct |unsigned )*\w+)", declaration).end()
    type_name = declaration[:type_end].split()[-1]
    return [None if re.search(r"[*\[]", name) else type_name for name in declaration[type_end:].split(",")]


def flat(structs, name):
    return sum(flat(structs, field) if field in structs else 1 for field in structs[name])


def main():
    root = source.root_argument()
    report = source.Report("fields")
    structs = structs_of(root)
    for entry, limit in source.limits(root, "fields").items():
        names, _, is_flat = entry.partition(".")
        missing = [name for name in names.split("+") if name not in structs]
        if missing:
            report.fail("tests/gates/limits.ini", f"names struct {missing[0]}, which src/engine does not have")
            continue
        count = sum(flat(structs, name) if is_flat else len(structs[name]) for name in names.split("+"))
        report.limit(names, "fields in the flat count" if is_flat else "fields", count, limit)
    report.end()


main()
