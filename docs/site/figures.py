"""Draws the charts of the site from the tables of docs/performance.md, with bench/charts.py."""

import re
import sys

SERIES = {"tdict": "tdict", "driver calls": "driver", "PyTorch": "torch", "TensorDict": "tensordict", "JAX": "jax"}
CHARTS = [  # file, title, rows, series that are left out
    ("large", "1000 tensors of 4 MB, ordinary memory, to the GPU", ["1000 x 4 MB"], {"jax"}),
    ("batches", "Batches in ordinary memory, to the GPU", ["100 x 1 MB", "38.5 MB of 1 leaf", "10.9 MB of 7 leaves"], set()),
    ("small", "1000 tensors of 4000 bytes, ordinary memory, to the GPU", ["1000 x 4000 B"], {"jax"}),
    ("to_host", "4 GB to the host", ["4 GB to the host, existing pages", "4 GB to the host, new memory",
                                     "4 GB to the host, pinned result"], set()),
]


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
                match = re.match(r"([\d.]+)(?: ±([\d.]+))?$", cell)
                if column in SERIES and match:
                    values[SERIES[column]] = (float(match.group(1)), float(match.group(2) or 0))
            rows.setdefault(line[0], values)
    return rows


def write_charts(root, folder):
    sys.path.insert(0, str(root / "bench"))
    import charts
    folder.mkdir(parents=True, exist_ok=True)
    rows = read_rows((root / "docs/performance.md").read_text())
    for name, title, wanted, left_out in CHARTS:
        groups = [(row, {who: value for who, value in rows[row].items() if who not in left_out}) for row in wanted]
        note = "milliseconds; lower is better" + ("; JAX is left out, see the table" if left_out else "")
        (folder / f"{name}.svg").write_text(charts.bars(title, note, groups, list(SERIES.values())))
