"""Reads records of bench/peers/compare: values, spreads and ratios of rows. Needs only the standard library.

A record is one JSON object; docs/benchmarks.md explains its fields. "turns" of a result is a list with one list of
seconds for each turn. The value of a turn is the median of its seconds.
"""
import json
import statistics

FORMAT = 1
LIBRARY, DRIVER, LINE = "tdict", "driver", "line"
MOVES = ("h2d", "d2h", "pin_h2d")


class Mistake(Exception):
    """Raised if the input is wrong. The message says why."""


def load(path):
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        if record["format"] != FORMAT or record["scenario"] != "compare":
            raise Mistake(f"{path}: no record of bench/peers/compare in format {FORMAT}")
        check(record)
        return record
    except OSError as error:
        raise Mistake(f"{path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise Mistake(f"{path}: no record: {type(error).__name__} {error}") from None


def check(record):
    """Raises Mistake if a record is inconsistent, or a result in it has no times or was not verified."""
    kind = record["device"]["kind"]
    if record["simulated"] != (kind == "sim"):
        raise Mistake(f"it says simulated: {record['simulated']}, and its device is {kind}")
    for row in record["rows"]:
        name = f"{row['scenario']}/{row['row']}"
        if not row["reached"]:
            continue
        for who, result in measured(row).items():
            if not all(turn and min(turn) > 0 for turn in result["turns"]):
                raise Mistake(f"{name}: {who} has a turn without times")
            if who != DRIVER and result.get("verified_bytes") is None:
                raise Mistake(f"{name}: {who} was not verified")
        if LIBRARY not in measured(row):
            raise Mistake(f"{name} was reached, and holds no times of {LIBRARY}")


def key(row):
    return row["scenario"], row["row"]


def measured(row):
    """Returns the results of a row that have times."""
    return {who: result for who, result in row.get("results", {}).items() if result.get("turns")}


def total_bytes(row):
    return sum(count * size for count, size in row["work"]["groups"])


def is_rate(row):
    """Returns whether the row measures the time of copies, which the line can be compared with."""
    return row["work"]["do"] in MOVES and row["work"]["statistic"] == "time"


def values(result):
    return [statistics.median(turn) for turn in result["turns"]]


def middle(result):
    return statistics.median(values(result))


def spread(result):
    """Returns the slowest turn minus the fastest. If there are five or more turns, first drops one at each end."""
    turns = sorted(values(result))
    if len(turns) >= 5:
        turns = turns[1:-1]
    return turns[-1] - turns[0]


def line_seconds(row):
    """Returns how many seconds the line takes for the bytes of the row, or None if the row has no line."""
    line = row.get("line")
    if not line or not line["turns"] or not is_rate(row):
        return None
    return middle(line) * total_bytes(row) / line["bytes"]


def ratios(row):
    """Returns a dict that maps each other result of the row, and the line, to a pair: the library's time divided by the
    time of this result, and the sum of both relative spreads."""
    results = measured(row)
    ours = results[LIBRARY]
    found = {}
    for who, result in list(results.items()) + ([(LINE, row["line"])] if line_seconds(row) else []):
        if who == LIBRARY:
            continue
        theirs = line_seconds(row) if who == LINE else middle(result)
        relative = spread(ours) / middle(ours) + spread(result) / middle(result)
        found[who] = (middle(ours) / theirs, relative)
    return found
