"""Gate: circles of calls between the files of a folder do not grow.

usage: circles.py ROOT
Two files of a folder of src/ are in one circle if each calls functions of the other, directly or through other files of
that folder or its subfolders. A header and its .c file count as one file. The gate sees only calls by name inside
functions, not calls through pointers or in macros. [circles] in limits.ini has the limits."""

import re

import source


def calls_of(folder):
    """Returns, for each file, the other files of the folder whose functions it calls."""
    bodies, owner = {}, {}
    for file in source.files(folder, "**/*.[ch]"):
        unit = str(file.relative_to(folder).with_suffix(""))
        text = source.without_preprocessor(source.blank(file.read_text()))
        for function in source.functions(text):
            head, _, body = text[function.begin:function.end].partition("{")
            bodies.setdefault(unit, []).append(body)
            if file.suffix == ".h" or not re.match(r"[^(]*\bstatic\b", head):
                owner[function.name] = unit
    return {unit: {owner.get(name, unit) for body in texts for name in re.findall(r"\b(\w+)\s*\(", body)} - {unit}
            for unit, texts in bodies.items()}


def reached(graph, start):
    seen, todo = set(), [start]
    while todo:
        for other in graph[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen


def largest_circle(graph):
    reach = {unit: reached(graph, unit) for unit in graph}
    circles = [{unit} | {other for other in reach[unit] if unit in reach[other]} for unit in graph]
    return sorted(max(circles, key=len, default=()))


def main():
    root = source.root_argument()
    report = source.Report("circles")
    limits = source.limits(root, "circles")
    for folder in sorted(path for path in (root / "src").iterdir() if path.is_dir()):
        circle = largest_circle(calls_of(folder))
        report.limit(f"src/{folder.name}", "files call each other in a circle: " + " ".join(circle), len(circle),
                     limits.pop(folder.name, 1))  # one file alone is not a circle
    for name in limits:
        report.fail("tests/gates/limits.ini", f"names src/{name}, which does not exist")
    report.end()


main()
