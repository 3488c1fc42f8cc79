#!/usr/bin/env python3
"""Writes the tables of docs/performance.md from the JSON records of tdict-bench and scripts/costs.

usage: report.py [--check] RECORD... --into PAGE

A RECORD is a JSON file, or a folder whose *.json are taken in the order of their names. The page holds pairs of lines

    <!-- begin: SCENARIO KIND -->
    <!-- end -->

and what stands between them is replaced. KIND is the kind of device that the record was made on (cuda, sim), and is
missing for scenarios of the host alone; so what was simulated never comes into a table of a GPU's.
--check writes nothing, and fails when the page is not what would be written.

Exit status: 0 done, 1 --check found a difference, 2 wrong use or a record that is none.
"""
import argparse
import difflib
import json
import pathlib
import re
import statistics
import sys

BEGIN = re.compile(r"^<!-- begin: ([a-z0-9-]+(?: [a-z0-9]+)?) -->$")
END = "<!-- end -->"
NOTHING = "*No run is recorded yet.*"


class Mistake(Exception):
    """What is wrong with the input, in one sentence."""


def format_bytes(count):
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


def table(heads, rows):
    """A markdown table; the first column is text, the others are numbers."""
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return ["| " + " | ".join(line) + " |" for line in [heads, rule] + rows]


def machine_text(record):
    machine = record["machine"]
    return f"{machine['cpu']}, {machine['cores']} processors, {machine.get('kernel', 'unknown kernel')}"


def median(samples):
    return statistics.median(samples["seconds"])


def spread(samples):
    return max(samples["seconds"]) - min(samples["seconds"])


def check_to_device(record):
    kind = record["device"]["kind"]
    if kind not in ("cuda", "sim"):
        raise Mistake(f"a run on {kind} has no rates and no table")
    if record["simulated"] != (kind == "sim"):
        raise Mistake(f"it says simulated: {record['simulated']}, and its device is {kind}")
    if record["verified"]["ways"] != len(record["rows"]):
        raise Mistake("not every way was verified")
    if kind == "cuda" and not ("raw_loop" in record and "raw_line" in record):
        raise Mistake("it has no raw rows")


def threads_text(asked):
    return "-" if asked is None else "auto" if asked < 0 else str(asked)


def to_device_row(record, samples, labels, ends):
    """One line: labels are way, threads asked and worked, ends are pinned memory and pin path."""
    rate = samples["bytes"] / median(samples)
    whole = record["work"]["total_bytes"] / rate
    cells = labels + [f"{median(samples) * 1e3:.2f}", f"{spread(samples) * 1e3:.2f}", f"{rate / 1e9:.2f}",
                      f"{whole / median(record['rows'][0]):.2f}"]
    if not record["simulated"]:
        line = record["raw_line"]["bytes"] / median(record["raw_line"])
        cells += [f"{whole / median(record['raw_loop']):.2f}", f"{100 * rate / line:.1f} %"]
    return cells + ends


def to_device(record):
    """The section of one run of `tdict-bench to-device`."""
    check_to_device(record)
    work, device, simulated = record["work"], record["device"], record["simulated"]
    heads = ["way", "threads asked", "worked", "median ms", "spread ms", "GB/s", "to blocking"]
    if not simulated:
        heads += ["to raw loop", "of the line"]
    heads += ["pinned MiB, ring + pool", "pin path"]
    rows = []
    for row in record["rows"]:
        stats = row["stats"]
        pinned = f"{row['peak_staging_bytes'] / 2**20:.1f} + {stats['peak_pinned_bytes'] / 2**20:.1f}"
        labels = [row["way"], threads_text(row["threads_asked"]), str(row["threads_worked"])]
        rows.append(to_device_row(record, row, labels, [pinned, stats["pin_path"]]))
    if not simulated:
        rows.append(to_device_row(record, record["raw_loop"], ["raw driver loop", "-", "1"], ["-", "-"]))
        line = record["raw_line"]
        rows.append(to_device_row(record, line, ["pinned line", "-", "1"], [f"{line['bytes'] / 2**20:.1f}", "-"]))
    version = device.get("driver_version", 0)
    driver = f", CUDA driver {version // 1000}.{version % 1000 // 10}" if version else ""
    title = f"{work['leaves']} leaves of {work['leaf_bytes']:,} bytes, {format_bytes(work['total_bytes'])}, to "
    title += "the SIMULATED device" if simulated else f"{device['name']}"
    lines = [f"**{title}**", ""] + table(heads, rows) + [""]
    lines.append(f"Made {record['date'][:10]} with tdict {record['library_version']} on {machine_text(record)}{driver}:"
                 f" `{' '.join(record['command'])}`.")
    lines.append(f"Verified: {format_bytes(record['verified']['bytes'])} in {record['verified']['ways']} ways. "
                 f"Median of {work['repeats']} after {work['warmups']} warm-ups, rows taking turns; spread is slowest "
                 "minus fastest; ratios are of times, below 1 is faster.")
    if simulated:
        lines.append("These times are copies within the host's memory; they say nothing about a GPU.")
    else:
        line = record["raw_line"]
        lines.append(f"The pinned line is one driver copy of {format_bytes(line['bytes'])} from one page-locked "
                     f"buffer, median of {len(line['seconds'])} taken between the rows.")
    return lines


def host_costs(record):
    """The section of one run of `scripts/costs`."""
    rows = [[row["what"], f"{row['instructions']:,}", f"{row['count']:,}", f"{row['instructions'] / row['count']:,.0f}"]
            for row in record["rows"]]
    lines = table(["what", "instructions", "times", "each"], rows) + [""]
    lines.append(f"Counted {record['date'][:10]} by {record['counter']} in a {record['build']} build of tdict "
                 f"{record['library_version']} on {machine_text(record)}: `{' '.join(record['command'])}`.")
    return lines


SCENARIOS = {"to-device": to_device, "host-costs": host_costs}


def read_record(path):
    """The name of its section, and the lines of it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != 1:
            raise Mistake(f"format {record['format']} is not 1")
        scenario = record["scenario"]
        if scenario not in SCENARIOS:
            raise Mistake(f"scenario '{scenario}' has no table here")
        name = scenario + (" " + record["device"]["kind"] if "device" in record else "")
        return name, SCENARIOS[scenario](record)
    except Mistake as mistake:
        raise Mistake(f"{path}: {mistake}") from None
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, IndexError, ValueError, ZeroDivisionError) as error:
        raise Mistake(f"{path}: no record: {type(error).__name__} {error}") from None


def read_sections(paths):
    sections = {}
    for path in map(pathlib.Path, paths):
        for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
            name, lines = read_record(file)
            sections.setdefault(name, []).append(lines)
    return sections


def rewrite(page, sections):
    """The text of the page with every section replaced."""
    out, open_name, used = [], None, set()
    for line in page.splitlines():
        begin = BEGIN.match(line)
        if begin and open_name:
            raise Mistake(f"section '{open_name}' has no end")
        if begin:
            open_name = begin.group(1)
            used.add(open_name)
            out.append(line)
            for i, lines in enumerate(sections.get(open_name, [[NOTHING]])):
                out += ([""] if i else []) + lines
        elif line == END:
            if not open_name:
                raise Mistake("an end without a begin")
            out.append(line)
            open_name = None
        elif not open_name:
            out.append(line)
    if open_name:
        raise Mistake(f"section '{open_name}' has no end")
    for name in sections:
        if name not in used:
            raise Mistake(f"the page has no section '{name}'")
    return "\n".join(out) + "\n"


def main(arguments):
    parser = argparse.ArgumentParser(description="Writes the tables of a page from JSON records.")
    parser.add_argument("records", nargs="+", metavar="RECORD", help="a JSON file or a folder of them")
    parser.add_argument("--into", required=True, metavar="PAGE", help="the markdown page")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when the page would change")
    options = parser.parse_args(arguments)
    page = pathlib.Path(options.into)
    try:
        old = page.read_text(encoding="utf-8")
        new = rewrite(old, read_sections(options.records))
        if old == new:
            return 0
        if not options.check:
            page.write_text(new, encoding="utf-8")
            return 0
    except Mistake as mistake:
        print(f"report.py: {mistake}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"report.py: {page}: {error.strerror}", file=sys.stderr)
        return 2
    sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(page), "as generated"))
    print(f"report.py: {page} is not what its records say; run report.py without --check", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
