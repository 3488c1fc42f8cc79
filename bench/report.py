"""Writes the tables of docs/performance.md from the JSON records of tdict-bench, bench/compare and scripts/costs, and the
charts of docs/figures; bench/plot is its command.

A record is a JSON file; of a folder all *.json are taken in the order of their names, timelines (*.trace.json) left out. The page holds pairs of lines

    <!-- begin: SCENARIO KIND -->
    <!-- end -->

and what stands between them is replaced. KIND is the kind of device that the record was made on (cuda, sim), and is
missing for scenarios of the host alone; so what was simulated never comes into a table of a GPU's.
"""
import argparse
import difflib
import html
import json
import pathlib
import re
import statistics
import sys

import charts
import compare_tables
import records

BEGIN = re.compile(r"^<!-- begin: ([a-z0-9-]+(?: [a-z0-9]+)?) -->$")
END = "<!-- end -->"
NOTHING = "*No run is recorded yet.*"
Mistake = records.Mistake


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
    def number(value):
        return "-" if value is None else f"{value:,.1f}" if 0 < abs(value) < 10 else f"{value:,.0f}"
    rows = [[row["what"], row["unit"], number(row["units"]), number(row["instructions"]), number(row["each"]),
             number(row["atomics_each"]), number(row["system_calls"])] for row in record["rows"]]
    lines = table(["operation", "unit", "units", "instructions", "one unit more", "atomics, one unit more", "system calls"],
                  rows) + [""]
    lines.append(f"Counted {record['date'][:10]} by {record['counter']} in a {record['build']} build of tdict "
                 f"{record['library_version']} on {machine_text(record)}: `{' '.join(record['command'])}`.")
    return lines


def each(section):
    """One section after the other, where every record has its own."""
    def together(all_records):
        lines = []
        for i, record in enumerate(all_records):
            lines += ([""] if i else []) + section(record)
        return lines
    return together


SCENARIOS = {"to-device": each(to_device), "host-costs": each(host_costs), "compare": compare_tables.section}


def read_record(path):
    """A record, and the name of its section."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != 1:
            raise Mistake(f"format {record['format']} is not 1")
        scenario = record["scenario"]
        if scenario not in SCENARIOS:
            raise Mistake(f"scenario '{scenario}' has no table here")
        if scenario == "compare":
            records.check(record)
        name = scenario + (" " + record["device"]["kind"] if "device" in record else "")
        SCENARIOS[scenario]([record])
        return name, record
    except Mistake as mistake:
        raise Mistake(f"{path}: {mistake}") from None
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, IndexError, ValueError, ZeroDivisionError) as error:
        raise Mistake(f"{path}: no record: {type(error).__name__} {error}") from None


def read_all(paths):
    """The records of each section, in order."""
    found = {}
    for path in map(pathlib.Path, paths):
        for file in sorted(one for one in path.glob("*.json") if not one.name.endswith(".trace.json")) if path.is_dir() else [path]:
            name, record = read_record(file)
            found.setdefault(name, []).append(record)
    return found


def make_sections(found):
    return {name: SCENARIOS[name.split()[0]](all_records) for name, all_records in found.items()}


def make_figures(found):
    figures = {}
    for name, all_records in found.items():
        if name.split()[0] == "compare":
            figures.update(compare_tables.figures(all_records))
    return figures


def own_bars(record):
    """The rows of any record that has times: (name, {series: (milliseconds, spread)})."""
    groups = []
    for row in record["rows"]:
        if record["scenario"] == "to-device":
            asked = threads_text(row["threads_asked"])
            name, parts = row["way"] + ("" if asked == "-" else f", threads {asked}"), {"tdict": row}
        elif record["scenario"] == "tune":
            name, parts = f"{row['direction']}, {format_bytes(row['bytes'])}", {"tdict": {"seconds": [row["seconds"]]}}
        elif record["scenario"] == "compare":
            name, parts = f"{row['scenario']}: {row['row']}", {}
            values = {who: (records.middle(result) * 1e3, records.spread(result) * 1e3)
                      for who, result in records.measured(row).items()}
            groups += [(name, values)] if values else []
            continue
        else:
            name = row["row"]
            parts = {"tdict": row.get("library"), "driver": row.get("driver"), "line": row.get("line")}
        groups.append((name, {who: (median(part) * 1e3, spread(part) * 1e3)
                              for who, part in parts.items() if part and part["seconds"]}))
    if record["scenario"] == "to-device" and "raw_loop" in record:
        loop = record["raw_loop"]
        groups.append(("raw driver loop", {"driver": (median(loop) * 1e3, spread(loop) * 1e3)}))
    if not any(values for _, values in groups):
        raise Mistake("no row has a time")
    return groups


def own_chart(path):
    """The chart of one record of the user's, whatever made it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != 1:
            raise Mistake(f"format {record['format']} is not 1")
        if "rows" not in record or record["scenario"] == "host-costs":
            raise Mistake(f"a record of '{record['scenario']}' has no rows of times to draw")
        machine = (record["runs"][-1] if "runs" in record else record)["machine"]
        note = f"{record['device'].get('name') or record['device']['text']}, {machine['cpu']}, {path.name}; milliseconds, less is better"
        if record["simulated"]:
            note = "SIMULATED, says nothing about a GPU: " + note
        return charts.bars(f"{record['scenario']}, tdict {record.get('library_version', '')}".rstrip(", "), note,
                           own_bars(record), list(charts.COLOURS))
    except Mistake as mistake:
        raise Mistake(f"{path}: {mistake}") from None
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise Mistake(f"{path}: no record: {type(error).__name__} {error}") from None


def draw_own(paths, folder):
    """Writes the charts and a page of them, and says where. Records of one name get numbers."""
    drawn = {}
    for path in map(pathlib.Path, paths):
        name, again = path.stem, 1
        while name + ".svg" in drawn:
            again += 1
            name = f"{path.stem}-{again}"
        drawn[name + ".svg"] = own_chart(path)
    images = "\n".join(f'<p><img src="{html.escape(name)}" alt="{html.escape(name)}"></p>' for name in drawn)
    drawn["index.html"] = f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>tdict-bench</title>\n{images}\n'
    for name, text in drawn.items():
        put(folder / name, text)
        print(folder / name)


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
            out += sections.get(open_name, [NOTHING])
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


def differences(wanted, figures):
    """What the files are not: each as (path, its text now, the text that it should have)."""
    found = []
    for path, new in wanted.items():
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if old != new:
            found.append((path, old, new))
    for path in sorted(figures.glob("compare-*.svg")) if figures else []:
        if path not in wanted:
            found.append((path, path.read_text(encoding="utf-8"), None))
    return found


def show(path, old, new):
    if new is None:
        print(f"{path}: no record draws this chart")
    elif path.suffix == ".svg":
        print(f"{path}: is not what the records draw")
    else:
        sys.stdout.writelines(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(path), "as generated"))


def put(path, new):
    if new is None:
        path.unlink()
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(new, encoding="utf-8")


def main(arguments, description=__doc__, docs=None):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", metavar="RECORD", default=[docs / "data"] if docs else [],
                        help="a JSON file or a folder of them")
    parser.add_argument("--into", metavar="PAGE", default=docs and docs / "performance.md", help="the markdown page")
    parser.add_argument("--figures", metavar="DIR", default=docs and docs / "figures", help="the folder of the charts")
    parser.add_argument("--own", metavar="DIR", help="draw these records into that folder; no page is read or written")
    parser.add_argument("--check", action="store_true", help="write nothing, fail when something would change")
    options = parser.parse_args(arguments)
    if options.own and (options.check or options.records == parser.get_default("records")):
        parser.error("--own wants records, and has nothing to check")
    if options.own:
        try:
            draw_own(options.records, pathlib.Path(options.own))
            return 0
        except (Mistake, OSError) as mistake:
            print(f"plot: {mistake}", file=sys.stderr)
            return 2
    page = pathlib.Path(options.into)
    figures = pathlib.Path(options.figures) if options.figures else None
    try:
        found = read_all(options.records)
        wanted = {page: rewrite(page.read_text(encoding="utf-8"), make_sections(found))}
        if figures:
            wanted.update({figures / name: text for name, text in make_figures(found).items()})
        different = differences(wanted, figures)
        for path, old, new in different:
            if options.check:
                show(path, old, new)
            else:
                put(path, new)
    except Mistake as mistake:
        print(f"plot: {mistake}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"plot: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    if different and options.check:
        print(f"plot: {page} or a chart is not what its records say; run bench/plot", file=sys.stderr)
        return 1
    return 0
