"""What the transfer engine must show: a table of targets, each computed from a record of bench/compare. Standard library
only. A figure that the record does not hold is shown as missing, never as met."""
import records
from records import LIBRARY

PEERS = ("torch", "tensordict", "jax")
GB = 1e9


class Missing(Exception):
    """The record does not hold what a target needs."""


class Rows:
    """A record's rows by name."""

    def __init__(self, record):
        self.record = record
        self.rows = {f"{row['scenario']}/{row['row']}": row for row in record["rows"]}
        self.asked = []  # the rows of the last figure

    def row(self, name):
        row = self.rows.get(name)
        if row is None or not row["reached"]:
            raise Missing("not measured")
        self.asked.append(row)
        return row

    def runs(self):
        """Which earlier runs the last figure is of, as text."""
        numbers = sorted({records.earlier(self.record, row) or 0 for row in self.asked} - {0})
        self.asked = []
        return "".join(f" (run {number})" for number in numbers)

    def result(self, name, who=LIBRARY):
        result = records.measured(self.row(name)).get(who)
        if result is None:
            raise Missing(f"{who} not measured")
        return result

    def seconds(self, name, who=LIBRARY):
        return records.middle(self.result(name, who))

    def best_peer(self, name):
        """Seconds of the fastest peer in the row."""
        found = [records.middle(result) for who, result in records.measured(self.row(name)).items() if who in PEERS]
        if not found:
            raise Missing("no peer measured")
        return min(found)

    def rate(self, name):
        return records.total_bytes(self.row(name)) / self.seconds(name) / GB

    def line_share(self, name):
        line = records.line_seconds(self.row(name))
        if not line:
            raise Missing("no line measured")
        return 100 * line / self.seconds(name)

    def fact(self, name, word, who=LIBRARY):
        value = self.result(name, who).get(word)
        if value is None:
            raise Missing(f"{who} has no {word}")
        return value

    def cpu_per_gb(self, name, who=LIBRARY):
        """Seconds of processors, all threads', for 1 GB."""
        seconds = records.cpu_seconds(self.result(name, who))
        if seconds is None:
            raise Missing("not measured")
        return seconds / (records.total_bytes(self.row(name)) / GB)


class Target:
    """What is wanted of one figure: at least (or at most) `limit`; `aim` would be better still. A limit that is None is
    not asked for."""

    def __init__(self, what, measure, limit=None, aim=None, unit="ms", more_is_better=False):
        self.what, self.measure, self.limit, self.aim, self.unit = what, measure, limit, aim, unit
        self.more_is_better = more_is_better

    def reached(self, value, limit):
        return limit is not None and (value >= limit if self.more_is_better else value <= limit)

    def verdict(self, value):
        if self.limit is None and self.aim is None:
            return "reported"
        if self.reached(value, self.aim):
            return "aim met"
        if self.limit is None:
            return "aim not met"
        return "met" if self.reached(value, self.limit) else "**not met**"

    def cells(self, rows):
        """Of the target's line in the table."""
        word = "at least" if self.more_is_better else "at most"
        wanted = [self.what, f"{word} {figure(self.limit)} {self.unit}" if self.limit is not None else "-",
                  f"{figure(self.aim)}" if self.aim is not None else "-"]
        rows.asked = []
        try:
            value = self.measure(rows)
        except Missing as missing:
            return wanted + [f"*{missing}*", "not measured"]
        return wanted + [f"{figure(value)} {self.unit}{rows.runs()}", self.verdict(value)]


AUTO, FIRST, PINNED = "tensordict/auto", "fresh/first transfer, 1000 x 4 MB", "fresh/pin_memory, 1000 x 4 MB"
SMALL, MANY = "non-blocking/best", "batches/100,000 x 4000 B"
TIMES = "times its time"
PAUSED = "after a pause of 5 ms"


def time_of(name, what, limit=None, aim=None):
    return Target(what, lambda rows: rows.seconds(name) * 1e3, limit, aim)


def rate_of(name, what, limit, aim):
    return Target(what, lambda rows: rows.rate(name), limit, aim, "GB/s", True)


def share_of(name, what, limit, aim):
    return Target(what, lambda rows: rows.line_share(name), limit, aim, "% of line", True)


def beside(name, who, what, limit):
    """The library's time over another's in the same row."""
    return Target(what, lambda rows: rows.seconds(name) / rows.seconds(name, who), limit, None, TIMES)


def beside_row(name, who, what, limit):
    """The time of the automatic choice over another's in a row of its own, on the same leaves."""
    return Target(what, lambda rows: rows.seconds(AUTO) / rows.seconds(name, who), limit, None, TIMES)


def batch(what, limit, aim):
    name = "batches/" + what
    return [time_of(name, what, limit, aim),
            Target(f"{what}: beside the best peer", lambda rows: rows.seconds(name) / rows.best_peer(name), 1, None, TIMES),
            time_of(name + ", paused", f"{what}, {PAUSED}"),
            time_of(name + ", cold", f"{what}, cold sources")]


def processors(text):
    name = f"cpus/250 x 4 MB on {text}"
    return Target(f"taskset to {text}: rate over the best peer's", lambda rows: rows.best_peer(name) / rows.seconds(name),
                  0.95, 1, "times its rate", True)


def cpu_targets():
    def own(rows):
        return rows.cpu_per_gb(AUTO)

    return [Target("CPU seconds for 1 GB, 1000 x 4 MB", own, unit="s"),
            Target("the same, TensorDict's best mode", lambda rows: rows.cpu_per_gb(AUTO, "tensordict"), unit="s"),
            Target("the first over the second", lambda rows: own(rows) / rows.cpu_per_gb(AUTO, "tensordict"), None, 1,
                   "times")]


TARGETS = [
    share_of(AUTO, "1000 x 4 MB", 94, 97),
    beside(AUTO, "tensordict", "1000 x 4 MB: beside TensorDict's best", 1),
    beside_row("tensordict/pin on 4 threads", "tensordict", "1000 x 4 MB: beside TensorDict's num_threads=4", 0.88),
    beside_row("synergies/pageable, blocking", "torch", "1000 x 4 MB: beside PyTorch's blocking loop", 1 / 5.5),
    Target("first transfer of a process, over the next ones",
           lambda rows: rows.seconds(FIRST) / rows.fact(FIRST, "steady_seconds"), 1.3, 1.1, "times"),
    Target("the first device allocation of that process", lambda rows: rows.fact(FIRST, "allocation_seconds") * 1e3),
    time_of(SMALL, "1000 x 4000 B", 0.20, 0.13),
    beside(SMALL, "tensordict", "1000 x 4000 B: beside TensorDict's best", 1 / 40),
    time_of("batches/1000 x 4000 B, paused", f"1000 x 4000 B, {PAUSED}"),
    time_of("batches/10,000 x 4000 B", "10,000 x 4000 B", 1.5, 1.1),
    time_of(MANY, "100,000 x 4000 B", 10, 8.2),
    beside(MANY, "tensordict", "100,000 x 4000 B: beside TensorDict's best", 1 / 100),
    *batch("1.1 MB of 3 leaves", 0.070, 0.050),
    *batch("10.9 MB of 7 leaves", 0.36, 0.28),
    *batch("38.5 MB of 1 leaf", 1.05, 0.88),
    share_of("batches/1000 x 4 MB, pinned", "pinned tree, 4 GB", 97, 98.5),
    time_of("batches/1000 x 4000 B, pinned", "pinned tree, 1000 x 4000 B", 0.20, 0.13),
    time_of("latency/call returns, 1000 x 4 MB", "`_async` of 1000 leaves, 4 GB, returns", 0.3, 0.05),
    time_of("latency/own copies meanwhile, p50", "program's 51 KB pinned copy meanwhile, p50 of 200"),
    time_of("latency/own copies meanwhile, p99", "program's 51 KB pinned copy meanwhile, p99 of 200", 3, 1),
    rate_of("d2h/4 GB, warm pages", "device to host, 4 GB, warm pages", 48, 52),
    rate_of("d2h/4 GB, fresh memory", "device to host, 4 GB, fresh memory", 24, 35),
    rate_of("d2h/4 GB, pinned result", "device to host, 4 GB, pinned result", 53, 54.5),
    beside("d2h/4 GB, pinned result", "tensordict", "device to host, 4 GB, pinned result: beside TensorDict's default", 1),
    time_of(PINNED, "`tdict_pin_memory` of 4 GB, fresh process", 350, 220),
    time_of("latency/own copies while 4 GB are pinned, longest", "longest wait of another submission while 4 GB are pinned in pieces of 32 MiB", 5),
    time_of("alloc/1 GiB, none kept", "pinned allocation, 1 GiB", 60, 40),
    processors("1 processor"),
    processors("2 processors"),
    *cpu_targets(),
]


def figure(value):
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def section(record):
    """The lines of the page; none for a simulated device, of which nothing is wanted."""
    if record["simulated"]:
        return []
    rows = Rows(record)
    cells = [target.cells(rows) for target in TARGETS]
    met = sum(one[4] in ("met", "aim met") for one in cells)
    unmet = sum(one[4] in ("**not met**", "aim not met") for one in cells)
    gone = sum(one[4] == "not measured" for one in cells)
    lines = ["", "### What the engine must show", "",
             f"Targets met: {met}; not met: {unmet}; not measured: {gone}. *Aim met* is more than the target asks.", ""]
    lines += ["| " + " | ".join(line) + " |"
              for line in [["work", "target", "aim", "measured", ""], ["---", "---", "---:", "---", "---"]] + cells]
    return lines
