"""Holds the ratios of one record of bench/compare against another's. Standard library only.

A ratio is tdict's time over that of something else in the same row of the same run. What differs between two runs is put
into one of three classes, by a rule that docs/benchmarks.md explains:

- it agrees: its change is no larger than the larger of the two runs' spreads of it;
- it moved with the machine: beyond that, its change is no larger than what the two machines' own speeds, which each run
  measured without the library, let any ratio change by;
- it differs.
"""
import statistics

import charts
import records
from records import LINE

LINE_SHARE = 0.6  # of the line in both runs, below which a ratio to it is not compared: the host bounds such a row
AGREES, MACHINE, DIFFERS = "agrees", "moved with the machine", "differs"
SPEEDS = (("copy_one_thread", "copy by one thread, GB/s", 1e9), ("copy_all_threads", "by all, GB/s", 1e9),
          ("fresh_pages", "fresh pages, GB/s", 1e9), ("core", "multiplications, M/s", 1e6),
          ("small_copies", "4 KiB copies, 1000/s", 1e3), ("line", "line, GB/s", 1e9))
SHOWN_ONLY = ("fresh_pages",)  # what a virtual machine has been through decides it too


def speeds(record):
    """What each speed was, at the beginning and the end of each run of the record."""
    found = {}
    for run in record["runs"]:
        for one in run.get("speed", []):
            for word, value in one.items():
                found.setdefault(word, []).append(value)
    return found


def leeway(old, new):
    """By which factor a ratio may change from one machine to the other; None when a record does not hold the speeds.

    A time that is a sum of parts, each bound by one of the speeds, becomes at most as many times longer as the speed that
    fell most, and at least as many times as the one that grew most. A ratio of two such times therefore changes by no more
    than the quotient of those two."""
    before, after = speeds(old), speeds(new)
    both = [word for word, _, _ in SPEEDS if word in before and word in after and word not in SHOWN_ONLY]
    if not both:
        return None
    factors = [statistics.mean(after[word]) / statistics.mean(before[word]) for word in both]
    return max(factors) / min(factors)


def is_near_line(row):
    line = records.line_seconds(row)
    return line is not None and line > LINE_SHARE * records.middle(records.measured(row)[records.LIBRARY])


class Change:
    """One ratio of a row in both runs."""

    def __init__(self, who, old, new, factor):
        self.who, self.old, self.new = who, old[0], new[0]
        self.allowed = max(old[1], new[1])
        moved = max(self.new / self.old, self.old / self.new)  # the same whichever run came first
        if moved <= 1 + self.allowed:
            self.verdict = AGREES
        elif factor is not None and moved <= factor * (1 + self.allowed):
            self.verdict = MACHINE
        else:
            self.verdict = DIFFERS


def changes(old, new, factor):
    """Of one row: each ratio that both runs have and that is compared."""
    before, after = records.ratios(old), records.ratios(new)
    found = []
    for who in before:
        if who not in after or (who == LINE and not (is_near_line(old) and is_near_line(new))):
            continue
        found.append(Change(who, before[who], after[who], factor))
    return found


def verdict(found):
    """Of a row: the worst of its ratios'; None when there is none to compare."""
    worst = [word for word in (DIFFERS, MACHINE, AGREES) if any(one.verdict == word for one in found)]
    return worst[0] if worst else None


def compare(old, new):
    """(row, its changes) for each row that both records reached with the same work, in the order of the first. A row that
    both have from the same run is no second measurement."""
    last = {records.key(row): row for row in new["rows"] if row["reached"]}
    factor, found = leeway(old, new), []
    for row in old["rows"]:
        other = last.get(records.key(row)) if row["reached"] else None
        if other and other["work"] == row["work"] and records.run_date(old, row) != records.run_date(new, other):
            found.append((row, changes(row, other, factor)))
    return found


def table(heads, rows):
    rule = ["---"] + ["---:"] * (len(heads) - 1)
    return ["| " + " | ".join(line) + " |" for line in [heads, rule] + rows]


def run_name(record):
    return record["date"][:16].replace("T", " ")


def speed_table(all_records):
    """What each machine did by itself, at the beginning and at the end."""
    found = [(record, speeds(record)) for record in all_records]
    shown = [one for one in SPEEDS if any(one[0] in by_word for _, by_word in found)]
    if not shown:
        return ["", "The runs did not record what their machines do by themselves."]
    rows = []
    for record, by_word in found:
        cells = [charts.number(min(by_word[word]) / unit) + " to " + charts.number(max(by_word[word]) / unit)
                 if word in by_word else "-" for word, _, unit in shown]
        rows.append([run_name(record), record["runs"][0]["machine"]["cpu"]] + cells)
    return ["", *table(["run", "machine"] + [head for _, head, _ in shown], rows)]


def change_text(row, one):
    return (f"- {row['scenario']}, {row['row']}, to {charts.NAMES[one.who]}: {one.old:.3f}, here {one.new:.3f} (spread "
            f"{100 * one.allowed:.0f} %)")


def beside(old, new):
    """One earlier run beside the last: a line of the table, the leeway, and the ratios outside their spreads by class."""
    compared = [(row, found) for row, found in compare(old, new) if found]
    verdicts = [verdict(found) for _, found in compared]
    ratios = [one for _, found in compared for one in found]
    outside = {word: [change_text(row, one) for row, found in compared for one in found if one.verdict == word]
               for word in (MACHINE, DIFFERS)}
    counts = [f"{sum(word == wanted for word in verdicts)} rows, {sum(one.verdict == wanted for one in ratios)} ratios"
              for wanted in (AGREES, MACHINE, DIFFERS)]
    factor = leeway(old, new)
    row = [run_name(old), str(len(compared)), *counts, f"{100 * (factor - 1):.0f} %" if factor else "not recorded"]
    return row, outside


def folded(summary, lines):
    return ["", "<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"] if lines else []


def section(all_records):
    """The lines of the page on earlier records of one kind of device beside the last one."""
    if len(all_records) < 2:
        return []
    found = [beside(old, all_records[-1]) for old in all_records[:-1]]
    heads = ["beside the run of", "rows compared", "agree", "moved with the machine", "differ", "leeway"]
    lines = ["", "### Two runs", *speed_table(all_records), "", *table(heads, [row for row, _ in found]), "",
             "A row counts as its worst ratio does. *Leeway*: by how much the machines' speeds above let a ratio change."]
    for (row, outside) in found:
        lines += folded(f"What differs from the run of {row[0]}", outside[DIFFERS])
        lines += folded(f"What moved with the machine, beside the run of {row[0]}", outside[MACHINE])
    return lines
