"""Draws the charts of the site from the tables of docs/performance.md, and README's chart from README's table, with
bench/peers/charts.py."""

import math
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench/peers"))
import charts  # noqa: E402

SERIES = {"tdict": "tdict", "driver calls": "driver", "PyTorch": "torch", "TensorDict": "tensordict", "JAX": "jax"}
CHARTS = [  # file, title, rows, series that are left out
    ("large", "1000 tensors of 4 MB, ordinary memory, to the GPU", ["1000 x 4 MB"], {"jax"}),
    ("batches", "Batches in ordinary memory, to the GPU", ["100 x 1 MB", "38.5 MB of 1 leaf", "10.9 MB of 7 leaves"], set()),
    ("small", "1000 tensors of 4000 bytes, ordinary memory, to the GPU", ["1000 x 4000 B"], {"jax"}),
    ("to_host", "4 GB to the host", ["4 GB to the host, existing pages", "4 GB to the host, new memory",
                                     "4 GB to the host, pinned result"], set()),
]
DARK = {"#ffffff": "#131416", "#222222": "#d8d8d8", "#555555": "#a8a8a8", "#cccccc": "#3c3f44", "#111111": "#ffffff",
        "#1b6ca8": "#4f9fdc", "#7f7f7f": "#8f8f8f", "#d1495b": "#e0667a"}  # colors of a chart, and those of its dark copy
FIRST = re.compile(r"^\| host memory or file to the GPU .*\n(?:\|.*\n)+\n(?:Medians .*\n(?:.+\n)*)?", re.M)  # and its note


class NoTable(Exception):
    """README has no table of measured times."""


def three_digits(value):
    """At most three digits that count, without an exponent and without zeros after a point that count nothing."""
    text = f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def read_rows(text):
    """The rows of all tables that have a column "tdict" and a column "PyTorch": name to {series: (value, spread)}."""
    rows = {}
    for table in re.findall(r"(?:^\|.*\n)+", text, re.M):
        lines = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in table.strip().split("\n")]
        if not {"tdict", "PyTorch"} <= set(lines[0]):
            continue
        for line in lines[2:]:
            values = {}
            for column, cell in zip(lines[0], line):
                match = re.match(r"([\d.]+)(?: ms)?(?: ±([\d.]+))?$", cell)
                if column in SERIES and match:
                    values[SERIES[column]] = (float(match.group(1)), float(match.group(2) or 0))
            rows.setdefault(line[0], values)
    return rows


def first_page(root):
    return (root / "README.md").read_text()


def first_chart(root):
    """The times of README's table as parts of PyTorch's time, which a reader can compare between rows."""
    table = FIRST.search(first_page(root))
    rows = read_rows(table.group(0)) if table else {}
    if len(rows) != 4 or any(len(values) != 3 for values in rows.values()):
        raise NoTable("has no table of four rows with the times of tdict, PyTorch and TensorDict")
    groups = [(name.split(",")[0] if "loader" in name else name,
               {who: (100 * value / values["torch"][0], 0) for who, (value, _) in values.items()})
              for name, values in rows.items()]
    return charts.bars("Time until the tensors are on the GPU", "percent of PyTorch's time; lower is better; NVIDIA H200", groups,
                       ["tdict", "torch", "tensordict"])


def write_dark_copies(folder):
    """Writes NAME-dark.svg beside each chart, for readers who prefer dark pages."""
    for chart in sorted(folder.glob("*.svg")):
        text = re.sub(r"#[0-9a-f]{6}\b", lambda m: DARK.get(m.group(0), m.group(0)), chart.read_text())
        chart.with_name(f"{chart.stem}-dark.svg").write_text(text)


def write_charts(root, folder):
    folder.mkdir(parents=True, exist_ok=True)
    rows = read_rows((root / "docs/performance.md").read_text())
    for name, title, wanted, left_out in CHARTS:
        groups = [(row, {who: value for who, value in rows[row].items() if who not in left_out}) for row in wanted]
        note = "milliseconds; lower is better" + ("; JAX is left out, see the table" if left_out else "")
        (folder / f"{name}.svg").write_text(charts.bars(title, note, groups, list(SERIES.values())))
    write_dark_copies(folder)
