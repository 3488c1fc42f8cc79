"""Makes tables from records of bench/peers/compare, and charts from any records with times, for bench/peers/plot."""
import argparse
import html
import json
import pathlib
import statistics
import sys

import charts
import compare_tables
import records

Mistake = records.Mistake


def format_bytes(count):
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} bytes"


def median(samples):
    return statistics.median(samples["seconds"])


def spread(samples):
    return max(samples["seconds"]) - min(samples["seconds"])


def tables(paths):
    """Returns the tables of all records as one string, in the order of the paths."""
    parts = []
    for path in paths:
        try:
            parts.append("\n".join(compare_tables.section(records.load(path))) + "\n")
        except (KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError) as error:
            raise Mistake(f"{path}: no record: {type(error).__name__} {error}") from None
    return "\n".join(parts)


def bars_of(record):
    """Returns the rows of a record as the groups of charts.bars(): (name, {series: (milliseconds, spread)})."""
    groups = []
    for row in record["rows"]:
        if record["scenario"] == "tune":
            name, parts = f"{row['direction']}, {format_bytes(row['bytes'])}", {"tdict": {"seconds": [row["seconds"]]}}
        elif record["scenario"] == "compare":
            name, parts = f"{row['scenario']}: {row['row']}", {}
            values = {who: (records.middle(result) * 1e3, records.spread(result) * 1e3)
                      for who, result in records.measured(row).items()}
            groups += [(name, values)] if values else []
            continue
        else:
            name = row.get("name", row["row"])
            parts = {"tdict": row.get("library"), "driver": row.get("driver"), "line": row.get("line")}
        groups.append((name, {who: (median(part) * 1e3, spread(part) * 1e3)
                              for who, part in parts.items() if part and part["seconds"]}))
    if not any(values for _, values in groups):
        raise Mistake("no row has a time")
    return groups


def chart_of(path):
    """Returns the chart of a record as SVG. Raises Mistake if no row has a time."""
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
                           bars_of(record), list(charts.COLOURS))
    except Mistake as mistake:
        raise Mistake(f"{path}: {mistake}") from None
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise Mistake(f"{path}: no record: {type(error).__name__} {error}") from None


def draw(paths, folder):
    """Writes a chart for each record and a page with all charts, and prints the file names. If two records have the
    same file name, adds a number to the name of the second chart."""
    drawn = {}
    for path in map(pathlib.Path, paths):
        name, again = path.stem, 1
        while name + ".svg" in drawn:
            again += 1
            name = f"{path.stem}-{again}"
        drawn[name + ".svg"] = chart_of(path)
    images = "\n".join(f'<p><img src="{html.escape(name)}" alt="{html.escape(name)}"></p>' for name in drawn)
    drawn["index.html"] = f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>tdict-bench</title>\n{images}\n'
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in drawn.items():
        (folder / name).write_text(text, encoding="utf-8")
        print(folder / name)


def main(arguments, description=__doc__):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="+", metavar="RECORD", help="a JSON file")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE", help="write the tables there")
    parser.add_argument("--charts", type=pathlib.Path, metavar="DIR", help="draw charts in DIR, print no tables")
    options = parser.parse_args(arguments)
    if options.charts and options.out:
        parser.error("--out is for tables, but --charts prints no tables")
    try:
        if options.charts:
            draw(options.records, options.charts)
        elif options.out:
            options.out.write_text(tables(options.records), encoding="utf-8")
        else:
            print(tables(options.records), end="")
        return 0
    except Mistake as mistake:
        print(f"plot: {mistake}", file=sys.stderr)
    except OSError as error:
        print(f"plot: {error.filename}: {error.strerror}", file=sys.stderr)
    return 2
