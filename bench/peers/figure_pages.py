"""Writes the figures of docs/figures/*.json into the pages, and draws their charts, for bench/peers/pages.

A page has its figures between `<!-- figures: NAME -->` and `<!-- end -->`, where NAME is a table of figure_tables.py. Its
block `note` has the footnotes, which name the machine, the commit and the commands of the page's figures. A text refers to
the footnote of NAME.json as [^NAME]."""
import json
import re

import charts
import figure_tables
import records

Mistake = records.Mistake
BLOCK = re.compile(r"<!-- figures: (\S+) -->\n(.*?)<!-- end -->\n", re.S)
KINDS = ("versions", "commits", "dates")
STAMP = re.compile(r"\b(?:tdict|version|library \|)\s+(0\.\d+\.\d+)\b|\bcommit\s+`?([0-9a-f]{7,40})\b|\b(20\d\d-\d\d-\d\d)\b")
CHARTS = {  # file: title, rows of the record, series
    "large": ("1000 tensors of 4 MB, ordinary memory, to the GPU", {"tensordict/auto": "1000 x 4 MB"}),
    "batches": ("Batches in ordinary memory, to the GPU",
                {f"batches/{name}": name for name in ("100 x 1 MB", "38.5 MB of 1 leaf", "10.9 MB of 7 leaves")}),
    "small": ("1000 tensors of 4000 bytes, ordinary memory, to the GPU", {"non-blocking/best": "1000 x 4000 B"}),
    "to_host": ("4 GB to the host", {key: name for key, name in figure_tables.PINNED.items() if key.startswith("d2h/4 GB")}),
}


class Figures:
    """The figures of all machines, and which of their records a page has used."""

    def __init__(self, root):
        files = sorted((root / "docs/figures").glob("*.json"))
        self.machines = {path.stem: json.loads(path.read_text()) for path in files}
        self.used = {}  # maps a machine to the names of records

    def rows(self, record):
        for name, machine in self.machines.items():
            if record in machine["records"]:
                self.used.setdefault(name, []).append(record)
                return machine["records"][record]["rows"]
        return {}

    def row(self, record, key):
        return self.rows(record).get(key, {})

    def mark(self):
        """Returns the mark of the footnote of the records that were used last."""
        return f"[^{list(self.used)[-1]}]" if self.used else ""

    def about(self):
        """Returns a text that says where the records that were used last come from, and which command made them."""
        name = list(self.used)[-1] if self.used else None
        if not name:
            return "machine"
        one = self.machines[name]
        versions = [f"tdict {one['version']} (commit {one['commit']})",
                    *(f"{peer} {version}" for peer, version in one["peers"].items() if peer in ("PyTorch", "TensorDict"))]
        both = " and ".join([", ".join(versions[:-1]), versions[-1]] if len(versions) > 1 else versions)
        return f"{one['machine'].split(',')[0]}, measured on {one['date']} by `bench/peers/pages --measure` with {both}"

    def stamp(self, machine):
        one = self.machines[machine]
        return f"tdict {one['version']}, commit {one['commit']}"


def note(figures):
    """Returns a footnote for each machine whose figures the page shows."""
    parts = []
    for name, names in figures.used.items():
        one = figures.machines[name]
        peers = "".join(f", {peer} {version}" for peer, version in one["peers"].items())
        ran = [f"`{one['records'][record]['command'].split()[0]}`" for record in one["records"] if record in names]
        only = f" --only {','.join(one['records'])}" if len(one["records"]) == 1 else ""
        text = (f"[^{name}]: {one['machine']}. {figures.stamp(name)}, {one['date']}{peers}. Command: "
                f"`bench/peers/pages --measure DIR --program build/release/bench/tdict-bench{only}`, which runs "
                f"{', '.join(ran[:-1])}{' and ' if ran[1:] else ''}{ran[-1]}.")
        parts.append(figure_tables.wrapped(text, "    "))
    return "\n".join(parts)


def fill(figures, text):
    """Returns the text of a page with its blocks made again."""
    figures.used = {}

    def table(match):
        name = match.group(1)
        if name == "note":
            return match.group(0)
        if name not in figure_tables.TABLES:
            raise Mistake(f"there is no table {name}")
        return f"<!-- figures: {name} -->\n{figure_tables.TABLES[name](figures)}<!-- end -->\n"

    def notes(match):
        return f"<!-- figures: note -->\n{note(figures)}<!-- end -->\n" if match.group(1) == "note" else match.group(0)

    text = BLOCK.sub(table, text)
    for name in re.findall(r"\[\^(\w+)\](?!:)", text):  # a footnote that only a chart needs
        if name in figures.machines:
            figures.used.setdefault(name, ["compare"])
    return BLOCK.sub(notes, text)


def draw(figures):
    """Returns a dict that maps file names to charts."""
    figures.used, charts_of = {}, {}

    def chart(name, title, unit, groups, sides=figure_tables.SIDES):
        if groups:
            machine = list(figures.used)[-1]
            text = f"{unit}; lower is better; {figures.machines[machine]['machine'].split(',')[0]}, {figures.stamp(machine)}"
            charts_of[f"{name}.svg"] = charts.bars(title, text, groups, list(sides))

    for name, (title, rows) in CHARTS.items():
        found = [(text, figures.row("compare", key)) for key, text in rows.items()]
        chart(name, title, "milliseconds", [
            (text, {side: (1e3 * row[side][0], 1e3 * row[side][1]) for side in figure_tables.SIDES if side in row})
            for text, row in found if row])
    groups = []
    for name, row in figure_tables.first_rows(figures):
        slowest = max(row[side][0] for side in figure_tables.FIRST)
        groups.append((name.split(", ")[0], {side: (100 * row[side][0] / slowest, 0) for side in figure_tables.FIRST}))
    chart("first", "Time until the tensors are on the GPU", "percent of the slowest time in each group", groups, figure_tables.FIRST)
    return charts_of


def pages(root):
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def made(root):
    """Returns (path, content) for each page with figures and for each chart."""
    figures = Figures(root)
    found = []
    for page in pages(root):
        text = page.read_text()
        if BLOCK.search(text):
            try:
                found.append((page, fill(figures, text)))
            except Mistake as mistake:
                raise Mistake(f"{page.relative_to(root)}: {mistake}") from None
    return found + [(root / "docs/figures" / name, chart) for name, chart in draw(figures).items()]


def write(root):
    for path, text in made(root):
        path.write_text(text)


def stamps(text):
    """Returns the versions, the commits and the dates that a text names, as three sets."""
    found = (set(), set(), set())
    for match in STAMP.finditer(text):
        for values, value in zip(found, match.groups()):
            if value:
                values.add(value[:7] if values is found[1] else value)
    return found


def page_stamps(text):
    """Yields (kind, values) for each kind of stamp. Machines may be measured on different days, but text outside the blocks
    must not name another day."""
    outside = stamps(BLOCK.sub("", text))
    inside = stamps("".join(match.group(0) for match in BLOCK.finditer(text)))
    for kind, ours, theirs in zip(KINDS, inside, outside):
        yield kind, theirs | ours if kind != "dates" or theirs - ours else theirs


def differences(root):
    """Returns (file, reason) for each page or chart that does not show the figures of docs/figures, and for each page that
    names figures of two versions."""
    found = []
    versions = {name: machine["version"] for name, machine in Figures(root).machines.items()}
    if len(set(versions.values())) > 1:
        found.append(("docs/figures", f"has figures of different versions: {', '.join(map(' of '.join, versions.items()))}"))
    for path, text in made(root):
        if not path.exists() or path.read_text() != text:
            found.append((path.relative_to(root), "does not show the figures of docs/figures: run bench/peers/pages"))
    for page in pages(root):
        for kind, values in page_stamps(page.read_text()):
            if len(values) > 1:
                found.append((page.relative_to(root), f"shows figures of different {kind}: {', '.join(sorted(values))}"))
    return found
