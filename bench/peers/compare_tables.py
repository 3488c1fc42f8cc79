"""Makes Markdown tables from a record of bench/peers/compare. A record of a simulated device yields a single table
without peers. Uses only standard modules."""
import statistics

import charts
import records
from records import DRIVER, LIBRARY

PEERS = ["torch", "tensordict", "jax"]
ORDER = [LIBRARY, DRIVER] + PEERS
NAMES = charts.NAMES
TITLES = {
    "tensordict": "1000 leaves of a million floats, in TensorDict's modes",
    "synergies": "Pageable, pinned, or pinned first: 1000 tensors of a million floats",
    "batches": "Batches of training loops",
    "d2h": "To the host",
    "non-blocking": "1000 tensors of 1000 floats",
    "pin": "One tensor of a million floats",
    "latency": "How long other work is delayed",
    "fresh": "The first transfer of a process, and its first pinning",
    "cpus": "With one processor, and with two",
    "overlap": "A transfer during a kernel of 0.4 ms",
    "bandwidth": "One tensor, by size",
    "threads": "num_threads for several counts and sizes of leaves",
    "alloc": "Pinned memory",
    "container": "Containers on the host",
    "dlpack": "DLPack on the host",
}


def milliseconds(seconds):
    return charts.number(seconds * 1e3)


def table(heads, rows, last="---"):
    rule = ["---"] + ["---:"] * (len(heads) - 2) + [last]
    return ["| " + " | ".join(line) + " |" for line in [heads, rule] + rows]


def time_text(result):
    if result is None:
        return "-"
    if not result.get("turns"):
        return "failed"
    setting = f" ({result['setting']})" if "setting" in result else ""
    return f"{milliseconds(records.middle(result))} ±{milliseconds(records.spread(result))}{setting}"


def line_text(row):
    line = records.line_seconds(row)
    return f"{100 * line / records.middle(row['results'][LIBRARY]):.1f} %" if line else "-"


def stands(row):
    """Returns a string that says which contenders the library is behind, even with, and ahead of in this row."""
    found = {"behind": [], "even": [], "ahead": []}
    for who in ORDER[1:]:
        if who in records.measured(row):
            found[records.verdict(row, who)].append(NAMES[who])
    words = {"behind": "**behind {}**", "even": "even with {}", "ahead": "ahead of {}"}
    return "; ".join(words[word].format(", ".join(names)) for word, names in found.items() if names) or "-"


def scenario_rows(record):
    """Returns (scenario, rows that were reached) pairs in the order of the report."""
    found = {}
    for row in record["rows"]:
        if row["reached"]:
            found.setdefault(row["scenario"], []).append(row)
    return [(name, found[name]) for name in TITLES if name in found] + \
           [(name, rows) for name, rows in found.items() if name not in TITLES]


def row_text(record, row):
    """Returns the name of a row, with the number of its run if that is not the last run of the record."""
    number = records.earlier(record, row)
    return row["row"] + (f" (run {number})" if number else "")


def gpu_table(record, rows):
    shown = [who for who in ORDER if any(who in row["results"] for row in rows)]
    heads = ["row"] + [f"{NAMES[who]}, ms" for who in shown] + ["of the line", "tdict is"]
    cells = []
    for row in rows:
        times = [time_text(row["results"].get(who)) for who in shown]
        cells.append([row_text(record, row)] + times + [line_text(row), stands(row)])
    return table(heads, cells)


def sim_table(record):
    heads = ["row", "tdict, ms", "of the simulated line", "turns"]
    cells = []
    for name, rows in scenario_rows(record):
        for row in rows:
            result = row["results"][LIBRARY]
            cells.append([f"{name}: {row['row']}", time_text(result), line_text(row), str(len(result["turns"]))])
    return table(heads, cells)


def who_took_part(record):
    parts = []
    for name, versions in record["contenders"].items():
        inside = ", ".join(f"{word} {value}" for word, value in versions.items() if value and word != "device")
        parts.append(f"{NAMES.get(name, name)} ({inside})")
    absent = [f"{NAMES.get(name, name)} did not take part: {why}." for name, why in record["absent"].items()]
    return "Took part: " + ", ".join(parts) + ". " + " ".join(absent)


def made_text(record):
    """Returns lines with the machine and the date of each run."""
    lines = []
    for number, run in enumerate(record["runs"], 1):
        machine = run["machine"]
        rows = sum(row["reached"] and row["run"] + 1 == number for row in record["rows"])
        which = f"Run {number}, {rows} of the rows below: made" if len(record["runs"]) > 1 else "Made"
        delay = f", tdict delayed by {run['delay_percent']} % on purpose" if run["delay_percent"] else ""
        lines.append(f"{which} {run['date'][:10]} with tdict {run['library_version']} on {machine['cpu']}, "
                     f"{machine['cores']} processors, {machine.get('kernel', 'unknown kernel')}, in "
                     f"{run.get('seconds', 0):.0f} of {run['budget_seconds']:.0f} seconds{delay}.")
    if len(lines) > 1:
        lines = [text for line in lines for text in (line, "")][:-1]
    version = record["device"].get("driver_version", 0)
    if version:
        lines[-1] += f" CUDA driver {version // 1000}.{version % 1000 // 10}."
    return lines


def standing(record):
    """Returns lines with a table of the number of rows in which tdict is ahead of, even with and behind each contender,
    and a list of the rows in which it is behind."""
    counts, behind = {}, []
    for row in record["rows"]:
        if not row["reached"]:
            continue
        for who in ORDER[1:]:
            if who in records.measured(row):
                word = records.verdict(row, who)
                counts.setdefault(who, {"ahead": 0, "even": 0, "behind": 0})[word] += 1
                if word == "behind":
                    ratio = records.ratios(row)[who][0]
                    digits = 2 if ratio >= 1.01 else 4
                    behind.append((who, f"- behind {NAMES[who]}: {row['scenario']}, {row_text(record, row)}: "
                                        f"{ratio:.{digits}f} times its time"))
    cells = [[NAMES[who]] + [str(counts[who][word]) for word in ("ahead", "even", "behind")]
             for who in ORDER if who in counts]
    lines = table(["against", "rows ahead", "even", "behind"], cells, "---:")
    behind.sort(key=lambda one: ORDER.index(one[0]))
    text = "Where tdict is behind:" if behind else "There is no row in which tdict is behind."
    return lines + ["", text] + ([""] + [line for _, line in behind] if behind else [])


def missing(record):
    """Returns lines with the rows that were not measured and the settings that failed, each with its reason."""
    lines = [f"- {row['scenario']}, {row['row']}: {row['why']}" for row in record["rows"] if not row["reached"]]
    for row in record["rows"]:
        for who, result in row.get("results", {}).items():
            broken = result.get("broken") or ({"": result["failed"]} if "failed" in result else {})
            for setting, why in broken.items():
                called = f"{NAMES.get(who, who)} {setting}".strip()
                lines.append(f"- {row['scenario']}, {row['row']}: {called} failed: {why}")
    return ["", "Not measured:", ""] + lines if lines else []


NOTES = {
    "tensordict": ["", "*Pin on the caller* (`num_threads=0`): tdict copies with the calling thread alone. PyTorch's "
                   "`pin_memory()`, which TensorDict calls there, copies with PyTorch's own threads, as many as there are "
                   "processors. So the two rows make the same call, but with different numbers of threads."],
}


def threads_lines(rows):
    """Returns lines with the number of processors that each library used in each row."""
    lines = ["", "Processors used: the processor time of all threads of the process, divided by the time. `num_threads` of "
             "TensorDict does not limit PyTorch's `pin_memory()`, which copies each leaf with one thread for each processor.",
             ""]
    for row in rows:
        used = [f"{NAMES[who]} {statistics.median(result['cpu_seconds']) / records.middle(result):.1f}"
                for who, result in records.measured(row).items() if result.get("cpu_seconds") and who != "driver"]
        if used:
            lines.append(f"- {row['row']}: {', '.join(used)}")
    return lines if len(lines) > 3 else []


def fresh_lines(rows):
    """Returns lines that compare the first transfer with later ones and with the first allocation of device memory."""
    lines = [""]
    for row in rows:
        for who, result in records.measured(row).items():
            if "steady_seconds" not in result:
                continue
            first = f"- {row['row']}, {NAMES[who]}: {records.middle(result) / result['steady_seconds']:.2f} times the "
            first += f"{milliseconds(result['steady_seconds'])} ms that the next ones take"
            if "allocation_seconds" in result:
                first += f"; the first device memory, before it, {milliseconds(result['allocation_seconds'])} ms"
            lines.append(first)
    return lines if len(lines) > 1 else []


def overlap_lines(rows):
    """Returns lines with the overlap, as a percentage of the shorter of kernel and transfer."""
    lines = [""]
    for row in rows:
        more = row.get("more")
        if more:
            both = records.middle(row["results"][LIBRARY])
            hidden = (more["alone_seconds"] + more["kernel_seconds"] - both) / min(more["alone_seconds"], more["kernel_seconds"])
            lines.append(f"- {row['row']}: the transfer alone takes {milliseconds(more['alone_seconds'])} ms, the kernel "
                         f"{milliseconds(more['kernel_seconds'])} ms, both {milliseconds(both)} ms: "
                         f"{100 * max(0, min(1, hidden)):.0f} % of the shorter one is hidden")
    return lines if len(lines) > 1 else []


def section(record):
    """Returns the lines of the report on a record."""
    if record["simulated"]:
        size = "" if record["full"] else ", rows of at most 4 MB"
        lines = [f"**SIMULATED device{size}: these times are copies within the host's memory; they say nothing about a "
                 "GPU**", ""]
        return lines + sim_table(record) + [""] + made_text(record) + missing(record)
    lines = [f"**{record['device']['name']}**", ""] + made_text(record) + [who_took_part(record), ""] + standing(record)
    for name, rows in scenario_rows(record):
        lines += ["", f"### {TITLES.get(name, name)}", ""] + gpu_table(record, rows)
        lines += overlap_lines(rows) if name == "overlap" else []
        lines += threads_lines(rows) if name == "threads" else []
        lines += NOTES.get(name, [])
        lines += fresh_lines(rows) if name == "fresh" else []
    return lines + missing(record)
