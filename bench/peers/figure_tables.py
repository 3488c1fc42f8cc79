"""Makes the tables that pages show from the figures in docs/figures, for figure_pages.py. Each table is a function in
TABLES, which gets a Figures object and returns Markdown. A row that was not measured is left out."""
import math
import re
import textwrap

SIDES = ("tdict", "driver", "torch", "tensordict")
OTHERS = (*SIDES[1:], "hand")                      # hand: threads that fill pinned buffers
FIRST = ("tdict", "hand", "torch", "tensordict")  # the sides of README's table
NAMES = {"tdict": "tdict", "driver": "driver calls", "torch": "PyTorch", "tensordict": "TensorDict", "NumPy": "NumPy",
         "TensorDict": "TensorDict", "hand": "threads by hand"}
# Rows of bench/peers/compare, with their names on the pages.
LARGE, SMALL = "tensordict/auto", "non-blocking/best"
TO_GPU = {LARGE: "1000 x 4 MB", SMALL: "1000 x 4000 B",
          **{f"batches/{name}": name for name in ("100 x 1 MB", "38.5 MB of 1 leaf", "10.9 MB of 7 leaves", "1.1 MB of 3 leaves",
                                                  "10,000 x 4000 B", "100,000 x 4000 B")}}
PAUSED = {key: name for key, name in TO_GPU.items() if "MB of" in name}
PINNED = {"batches/1000 x 4 MB, pinned": "1000 x 4 MB, pinned, to the GPU",
          "batches/1000 x 4000 B, pinned": "1000 x 4000 B, pinned, to the GPU",
          "d2h/4 GB, warm pages": "4 GB to the host, existing pages",
          "d2h/4 GB, fresh memory": "4 GB to the host, new memory",
          "d2h/4 GB, pinned result": "4 GB to the host, pinned result",
          "d2h/10.9 MB of 7 leaves, fresh memory": "10.9 MB of 7 leaves to the host, new memory"}
LATENCY = {"latency/call returns, 1000 x 4 MB": "`tdict_to_device_async` of 1000 x 4 MB returns",
           "latency/call returns, 10.9 MB": "`tdict_to_device_async` of 10.9 MB returns",
           "latency/own copies meanwhile, p50": "the program's own 51 KB copies during 4 GB, p50",
           "latency/own copies meanwhile, p99": "the program's own 51 KB copies during 4 GB, p99",
           **{f"cpus/{name}": name for name in ("250 x 4 MB on 1 processor", "250 x 4 MB on 2 processors")}}
MODES = {LARGE: "default", "tensordict/blocking": "`TDICT_MODE_BLOCKING`", "tensordict/non-blocking": "`TDICT_MODE_NON_BLOCKING`",
         "threads/1000 x 4 MB, num_threads 0": "default, `num_threads` 0",
         "threads/1000 x 4 MB, num_threads 4": "default, `num_threads` 4"}
THREADS = {"1000 x 4 MB": (4000, LARGE), "10 x 40 MB": (400, ""), "100 x 1 MB": (100, "batches/100 x 1 MB")}  # MB, default
PARTS = {"tensordict": "1000 x 4 MB", "synergies": "1000 x 4 MB", "d2h": "to the host", "bandwidth": "one tensor",
         "non-blocking": "1000 x 4000 B", "threads": "", "batches": "", "latency": "", "cpus": ""}  # begin the names of rows
LOADS = {"tdict": "tdict", "safetensors": "safetensors `load_file()`", "fastsafetensors": "fastsafetensors `fastsafe_open()`",
         "instanttensor-mmap": "InstantTensor with `Backend.MMAP`", "tensordict": "TensorDict `from_safetensors()`",
         "pin-loop": "a loop of `pin_memory().to(non_blocking=True)`"}
HOST = "host, 512 of 8192 rows, 5 leaves: gather"
READ = ("index_get$", r"idx\]$|index_select")
DEVICE = (  # row of the record, ways of tdict, ways of the peers, name in the table
    (HOST, "index_into list", r"idx\]$|index_select|take(?!.*mask)", "host: read by a list into a given tree, 5 leaves"),
    (HOST, "index_into mask", "mask|compress", "host: read by a mask into a given tree, 5 leaves"),
    (HOST, "index_set", "= y", "host: write by a list, 5 leaves"),
    ("device, 512 of 8192 rows, RL batch: gather", *READ, "device: read by a list, RL batch"),
    ("device, 512 of 8192 rows, 1000 leaves of 64 B: gather", *READ, "the same, 1000 leaves of 64 B a row"),
    ("device, 512 of 8192 rows, 1 leaf of 7 KB: gather", *READ, "the same, one leaf of 7 KB a row"),
    ("256 x 3 x 224 x 224 uint8 to bfloat16: convert", "", "", "256 x 3 x 224 x 224 images of bytes, to normalized bfloat16"),
    ("RL batch: join", " stack$", "stack", "stack, RL batch"),
    ("RL batch: join", " cat$", "cat", "cat, RL batch"),
    ("RL batch: clone", "clone_deep$", "", "clone, RL batch"),
    ("RL batch: to_dtype", "to_dtype$", "", "conversion of the dtype, RL batch"),
    ("RL batch: fill", "fill$", "", "fill, RL batch"),
    ("1000 leaves of 64 B a row: join", " stack$", "stack", "stack, 1000 leaves of 64 B a row"),
    ("1000 leaves of 64 B a row: clone", "clone_deep$", "", "clone, 1000 leaves of 64 B a row"),
    ("1000 leaves of 64 B a row: fill", "fill$", "", "fill, 1000 leaves of 64 B a row"),
    ("locked block, 1000 x 4000 B, pageable: transfer", "returns$", "returns$",
     "`tdict_to_device_async` of a locked tree returns, 1000 x 4000 B"),
)
CONTAINER = {"container/build 1000 leaves": "build a tree of 1000 tensors", "container/get each of 1000": "get each of 1000 keys",
             "container/walk 1000 leaves": "walk over 1000 tensors"}
ROWS = (("index_get list", r"td\[idx\]$", "`tdict_index_get` with a list of 512 rows, 5 leaves of 8192 rows"),
        ("index_get mask", r"td\[mask\]$", "the same with a mask"), ("index_set list", "= y", "`tdict_index_set` with the list"))
IMAGES = {"tdict: to_device image": "tdict",
          "torch.compile: whole, gather, normalize": "PyTorch with `torch.compile`: whole images, gather, normalize",
          "torch: whole, gather, normalize": "PyTorch, the same without `torch.compile`",
          "torchvision v2: whole, crop each": "torchvision (v2), each image cut on the device",
          "torch: crop on the host, to, normalize": "PyTorch, cut on the host"}
COPIES = {f"{work}, {kind}": f"{work}, {name}" for kind, name in
          (("pinned", "4 GB, pinned"), ("ordinary", "4 GB, ordinary"), ("small leaves", "4 MB, ordinary"))
          for work in ("replicate", "split")}
CALLS = {f"`tdict_comm_{name}_async`": name for name in ("broadcast", "broadcast_into", "all_reduce", "all_gather_stack",
                                                        "all_gather", "gather", "scatter", "send")}
QUEUED = {"-1": "no limit", "0": "default: 12 MiB", **{str(size << 20): f"{size} MiB" for size in (10, 8, 6, 4, 2)}}
COSTS = {**{name: name for name in ("create a tree, set each key, release", "get a key", "get a path of three keys", "walk",
                                    "stack, 5 tensors")},
         "clone, leaves in trees of 8": "shallow clone, leaves in trees of 8",
         "index_get [list], 5 tensors": "`tdict_index_get` with a list, 5 tensors",
         "index_get [mask of 8192], 5 tensors": "`tdict_index_get` with a mask of 8192 elements, 5 tensors"}


def three_digits(value):
    """Formats a number with at most three significant digits, without an exponent and without zeros at its end."""
    text = f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text


def with_spread(figure, factor):
    value, spread = (factor * one for one in figure)
    return three_digits(value) + (f" ±{float(f'{spread:.2g}'):g}" if spread else "")


def milliseconds(figure):
    return with_spread(figure, 1e3)


def readable(figure):
    """Formats seconds as us or ms."""
    return f"{with_spread(figure, 1e3)} ms" if figure[0] >= 1e-3 else f"{with_spread(figure, 1e6)} us"


def verdict(ours, theirs):
    """Returns "tie" if two figures differ by at most the larger spread, else "ahead" or "behind"."""
    apart = theirs[0] - ours[0]
    return "tie" if abs(apart) <= max(ours[1], theirs[1]) else "ahead" if apart > 0 else "behind"


def table(heads, rows, left=1, words=0):
    """Returns a table whose first `left` and last `words` columns have text, and the others have numbers."""
    if not rows:
        return "This version was not measured.\n"
    rule = ["---"] * left + ["---:"] * (len(heads) - left - words) + ["---"] * words
    lines = ["| " + " | ".join(line).replace("|  |", "| |") + " |" for line in [heads, *rows]]
    return "\n".join([lines[0], "|" + "|".join(rule) + "|", *lines[1:]]).replace("|  |", "| |") + "\n"


def times_table(figures, names, first="work"):
    """A row has the times of all sides, the part of the line that tdict reaches, and the sides that tie with tdict."""
    rows = []
    for key, name in names.items():
        row = figures.row("compare", key)
        if not row:
            continue
        if key == LARGE:
            row = {**row, **fastest_peers(figures)}
        line = f"{100 * row['line'][0] / row['tdict'][0]:.1f} %" if "line" in row else "-"
        ties = [NAMES[side] for side in SIDES[1:] if side in row and verdict(row["tdict"], row[side]) == "tie"]
        rows.append([name, *(milliseconds(row[side]) if side in row else "-" for side in SIDES), line, ", ".join(ties)])
    return table([first, *(NAMES[side] for side in SIDES), "of the line", "ties with"], rows, words=1)


def wrapped(text, indent=""):
    """Wraps a paragraph at 120 columns, but not inside code."""
    text = re.sub(r"`[^`]*`", lambda match: match.group().replace(" ", "\0"), text)
    filled = textwrap.fill(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ") + "\n"


def ratio(ours, theirs):
    return "a tie" if verdict(ours, theirs) == "tie" else f"{three_digits(theirs[0] / ours[0])}x"


def fastest_peers(figures):
    """Returns the fastest figure of each peer among all rows in which 1000 tensors of 4 MB travel from ordinary memory."""
    names = ["tensordict/auto", "synergies/pin and copy, non-blocking",
             *(f"threads/1000 x 4 MB, num_threads {n}" for n in (0, 1, 2, 4, 8))]
    rows = [figures.row("compare", name) for name in names]
    found = {side: [row[side] for row in rows if row.get(side)] for side in ("torch", "tensordict")}
    return {side: min(figures_of_side) for side, figures_of_side in found.items() if figures_of_side}


def first_rows(figures):
    """Returns (name, {side: figure}) for each row of README's table."""
    batch, file = figures.row("loader", "samples"), figures.row("load", "even, steady")
    total = f", {file['bytes'][0] / 1e9:.1f} GB" if file else ""

    def with_hand(key, row):
        return {**row, **figures.row("compare", f"batches/{key}, by hand")}  # tdict and `hand` took turns

    packages = [file[side] for side in ("safetensors", "fastsafetensors", "instanttensor-mmap") if side in file]
    rows = [("10,000 tensors of 4000 bytes", with_hand("10,000 x 4000 B", figures.row("compare", "batches/10,000 x 4000 B"))),
            ("1000 tensors of 4 MB", with_hand("1000 x 4 MB", {**figures.row("compare", LARGE), **fastest_peers(figures)})),
            ("a prefetching loader, time per batch of 256 shuffled samples of 7 tensors, 10.9 MB",
             {"tdict": batch.get("tdict"), "hand": batch.get("loop"), "torch": batch.get("DataLoader"),
              "tensordict": batch.get("TensorDict"), "line": figures.row("compare", "batches/10.9 MB of 7 leaves, pinned").get("line")}),
            (f"a safetensors file in the page cache{total}",
             {"tdict": file.get("tdict"), "hand": file.get("pin-loop"), "torch": min(packages, default=None),
              "tensordict": file.get("tensordict"), "line": file.get("line")})]
    return [(name, row) for name, row in rows if all(row.get(side) for side in FIRST)]


def first_table(figures):
    """README's table without its paragraph, for other pages."""
    cells = []
    for name, row in first_rows(figures):
        times = [f"{three_digits(1e3 * row[side][0])} ms" if row.get(side) else "" for side in ("line", *FIRST)]
        cells.append([name, *times, f"**{ratio(row['tdict'], min(row[side] for side in FIRST[1:]))}**"])
    heads = ["host memory or file to the GPU", "the link alone", "tdict", "by hand", "PyTorch", "TensorDict", "fastest other / tdict"]
    return table(heads, cells)


def first(figures):
    """README's table, and the paragraph below it."""
    text = first_table(figures)
    tie = "In *a tie*, the difference is within the spread. " if "a tie" in text else ""
    return text + "\n" + wrapped(
        f"Medians on one {figures.about()}. *The link alone* copies the same bytes from one pinned "
        "buffer with a single call. *By hand* is our own code: in rows 1 and 2, C threads that pack pinned buffers, "
        "and in rows 3 and 4, a PyTorch loop with pinned buffers. PyTorch and TensorDict use the fastest of several "
        f"settings and packages. {tie}[Performance](docs/performance.md) shows all rows, and where tdict is slower.")


def start(figures):
    """The paragraph of the start page."""
    rows = [{side: f"{three_digits(1e3 * row[side][0])} ms" for side in FIRST} for _, row in first_rows(figures)[:2]]
    if len(rows) < 2:
        return "[Performance](performance.md) has the figures.\n"
    small, large = rows
    return wrapped(
        f"On one GPU, tdict copies 10,000 tensors of 4000 bytes in {small['tdict']}, PyTorch in {small['torch']}, and TensorDict in "
        f"{small['tensordict']}. For 1000 tensors of 4 MB, the times are {large['tdict']}, {large['torch']} and "
        f"{large['tensordict']}.{figures.mark()} [Performance](performance.md) also shows where tdict is slower. "
        "In the chart, *by hand* is our own code with pinned buffers.")


def hand(figures):
    """Transfers beside threads that fill pinned buffers, as an expert would write them."""
    found = [(key.split("/")[1].removesuffix(", by hand"), row) for key, row in figures.rows("compare").items() if "hand" in row]
    rows = [[name, milliseconds(row["tdict"]), milliseconds(row["hand"]), verdict(row["tdict"], row["hand"])] for name, row in found]
    return table(["to the GPU, ordinary memory", "tdict", "by hand", "tdict is"], rows, words=1)


def summary(figures):
    rows = []
    for side in OTHERS:
        found = [verdict(row["tdict"], row[side]) for row in figures.rows("compare").values() if side in row]
        if found:
            rows.append([NAMES[side], *(str(found.count(word)) for word in ("ahead", "tie", "behind"))])
    return table(["against", "rows ahead", "ties", "rows behind"], rows)


def behind(figures):
    """The rows in which tdict is slower, the worst ones first."""
    rows = []
    for key, row in figures.rows("compare").items():
        slower = sorted(((row["tdict"][0] / row[side][0], NAMES[side]) for side in OTHERS
                         if side in row and verdict(row["tdict"], row[side]) == "behind"), reverse=True)
        if slower:
            scenario, name = key.split("/", 1)
            name = f"{PARTS.get(scenario, scenario)}: {name}" if PARTS.get(scenario, 1) else name
            parts = ", ".join(f"{part:.{2 if part >= 1.02 else 3}f}" for part, _ in slower)
            rows.append((-slower[0][0], [name, ", ".join(who for _, who in slower), parts]))
    for name, mine, other, fastest, _ in device_rows(figures):
        if verdict(mine, other) == "behind":
            rows.append((-mine[0] / other[0], [name, fastest, f"{mine[0] / other[0]:.2f}"]))
    cells = [cells for _, cells in sorted(rows)]
    return table(["row", "slower than", "tdict's time / the other time"], cells, 2) if cells else "There is no such row.\n"


def paused(figures):
    found = [(name, figures.row("compare", key), figures.row("compare", f"{key}, paused")) for key, name in PAUSED.items()]
    rows = [[name, milliseconds(warm["tdict"]), milliseconds(rested["tdict"])] for name, warm, rested in found if warm and rested]
    return table(["work", "without a pause", "after a pause of 5 ms"], rows)


def sizes(figures):
    names = {"in, pageable": "to the GPU, ordinary", "in, pinned": "to the GPU, pinned", "out, pageable": "to the host, new memory",
             "out, pinned": "to the host, pinned"}
    found = {size: {way: row for way in names if (row := figures.row("compare", f"bandwidth/{way}, {size}"))}
             for size in ("4 KiB", "64 KiB", "1 MiB", "16 MiB", "256 MiB")}
    found = {size: rows for size, rows in found.items() if rows}
    ways = [way for way in names if any(way in rows for rows in found.values())]
    cells = [[size, *(milliseconds(rows[way]["tdict"]) if way in rows else "-" for way in ways)] for size, rows in found.items()]
    return table(["size", *(names[way] for way in ways)], cells)


def latency(figures):
    rows = []
    for key, name in LATENCY.items():
        row = figures.row("compare", key)
        others = sorted((row[side][0], side) for side in ("torch", "tensordict") if side in row)
        if others:
            side = others[0][1]
            rows.append([name, milliseconds(row["tdict"]), f"{milliseconds(row[side])} ({NAMES[side]})",
                         verdict(row["tdict"], row[side])])
    return table(["work", "tdict", "best peer", "tdict is"], rows, words=1)


def modes(figures):
    found = [(name, figures.row("compare", key)) for key, name in MODES.items()]
    rows = [[name, *(milliseconds(row[side]) if side in row else "-" for side in ("tdict", "tensordict"))]
            for name, row in found if row]
    return table(["1000 x 4 MB from ordinary memory", "tdict", "TensorDict"], rows)


def threads(figures):
    """The rate for some values of num_threads."""
    counts, rows = ("0", "1", "2", "4", "8"), []
    for name, (size, default) in THREADS.items():
        found = [figures.row("compare", key) for key in (*(f"threads/{name}, num_threads {count}" for count in counts), default)]
        rows += [[f"{name}, {NAMES[side]}", *(three_digits(size / 1e3 / row[side][0]) if side in row else "-" for row in found)]
                 for side in ("tdict", "tensordict") if any(found[:-1])]
    return table(["GB/s with `num_threads`", *counts, "default"], rows)


def loads(figures):
    first_calls, later, rows = figures.row("load", "even, first"), figures.row("load", "even, steady"), []
    for side, name in LOADS.items():
        if side in first_calls and side in later:
            rates = [three_digits(1e-9 * row["bytes"][0] / row[side][0]) for row in (first_calls, later)]
            rows.append([name, *rates, f"{100 * later['line'][0] / later[side][0]:.1f} %" if "line" in later else "-"])
    total = f"{1e-9 * later['bytes'][0]:.1f} GB, 256 tensors" if later else "way"
    return table([total, "first call, GB/s", "later calls, GB/s", "later calls, of the line"], rows)


def best(row, begin, pattern):
    """Returns the name and the figure of the fastest way that begins with one of some words and matches a pattern."""
    found = [(figure, way) for way, figure in row.items() if way.startswith(begin) and re.search(pattern, way)]
    return min(found)[::-1] if found else (None, None)


def device_rows(figures):
    """Returns (name, figure of tdict, figure of the fastest peer, its name, figure of TensorDict) for each row of DEVICE."""
    rows = []
    for key, ours, theirs, name in DEVICE:
        row = figures.row("device", key)
        mine, (fastest, other) = best(row, "tdict:", ours)[1], best(row, ("torch:", "TensorDict:", "NumPy:"), theirs)
        if mine and other:
            rows.append((name, mine, other, NAMES[fastest.split(":")[0]], best(row, "TensorDict:", theirs)[1]))
    return rows


def device(figures):
    rows = []
    for name, mine, other, fastest, with_dict in device_rows(figures):
        part = "tie" if verdict(mine, other) == "tie" else three_digits(mine[0] / other[0])
        rows.append([name, readable(mine), f"{readable([other[0], 0])} ({fastest})",
                     readable([with_dict[0], 0]) if with_dict else "-", part])
    return table(["work", "tdict", "fastest peer", "TensorDict", "tdict / fastest"], rows)


def narrow(figures):
    key = next((key for key in figures.rows("device") if key.startswith("int64 ids, ")), "")
    row, size = figures.row("device", key), re.sub(r".*, (\S+) GB.*", r"\1", key)
    names = {"tdict: to_device narrow": "with `narrow`", "tdict: to_device": "without"}
    rows = [[name, readable(row[way]), three_digits(float(size) / row[way][0])] for way, name in names.items() if way in row]
    return table([f"{size} GB of int64 token ids below 50,257", "time", "GB/s of leaf bytes"], rows)


def own_copies(figures):
    row, rows = figures.row("device", "own copies, pageable: own_copies"), []
    if "p50 alone" in row:
        rows = [["no transfer", readable(row["p50 alone"]), readable(row["p99 alone"]), "-"]]
    for limit, name in QUEUED.items():
        if f"p50 {limit}" in row:
            part = f"{100 * row['line'][0] / row[f'transfer_seconds {limit}'][0]:.1f} %" if "line" in row else "-"
            rows.append([name, readable(row[f"p50 {limit}"]), readable(row[f"p99 {limit}"]), part])
    return table(["`max_queued_bytes`", "p50", "p99", "transfer, of the line"], rows)


def images(figures):
    sources = [figures.row("device", f"256 images of 256 x 256 x 3, cut to 224 x 224, {source}: images")
               for source in ("pageable", "pinned")]
    rows = [[name, *(readable(row[way]) if way in row else "-" for row in sources)] for way, name in IMAGES.items()
            if any(way in row for row in sources)]
    return table(["way", "from ordinary memory", "from pinned memory"], rows)


def container(figures):
    """Times of operations on the host, beside TensorDict."""
    found = [(name, row.get("tdict"), row.get("tensordict")) for key, name in CONTAINER.items() if (row := figures.row("compare", key))]
    for way, other, name in ROWS:
        row = figures.row("device", HOST)
        found.append((name, row.get(f"tdict: {way}"), best(row, "TensorDict:", other)[1]))
    rows = [[name, readable(ours), readable(theirs), three_digits(theirs[0] / ours[0])] for name, ours, theirs in found
            if ours and theirs]
    return table(["operation", "tdict", "TensorDict", "TensorDict / tdict"], rows)


def devices(figures):
    """Copies of a tree to two GPUs, and the time of one link."""
    found = [(name, figures.row("devices", key)) for key, name in COPIES.items()]
    names = {"tdict": "tdict", "each": "one tdict transfer for each GPU", "torch": "PyTorch", "tensordict": "TensorDict"}
    sides = [side for side in names if any(side in row for _, row in found)]
    rows = [[name, *(milliseconds(row[side]) if side in row else "-" for side in sides)] for name, row in found if row]
    text = table(["1000 leaves, times in ms", *(names[side] for side in sides)], rows)
    link = figures.row("devices", "link")
    return text + (f"\nOne copy of 4 GB from pinned memory to one GPU takes {milliseconds(link['driver'])} ms.\n" if link else "")


def comm(figures):
    """Messages between two GPUs, beside plain calls of NCCL."""
    rows = []
    for text, name in CALLS.items():
        found = [figures.row("devices", f"{name}, {size} B") for size in (1000000, 4000)]
        if all(found):
            rows.append([text, *(three_digits(1e3 * row[side][0]) for row in found for side in ("tdict", "buffer", "leaves"))])
    return table(["times in ms", "1000 x 1 MB", "one buffer", "leaf by leaf", "1000 x 4000 B", "one buffer", "leaf by leaf"], rows)


def pinning(figures):
    rows = []
    for size in (1, 4):
        for piece, name in ((0, "one (default)"), (32, "pieces of 32 MiB")):
            row = figures.row("pinning", f"{size} GiB, {piece} MiB")
            if row:
                times = [three_digits(1e3 * row[key][0]) for key in ("pin", "pin_wait", "unpin", "unpin_wait")]
                rows.append([f"{size} GiB", name, *times])
    return table(["block", "registration", "pinning, ms", "wait, ms", "unpinning, ms", "wait, ms"], rows, 2)


def loader(figures):
    names = {"tokens": "64 windows of 1024 tokens (1 MB)", "samples": "256 samples of 7 tensors (10.9 MB)"}
    sides = {"tdict": "tdict", "DataLoader": "`DataLoader`", "TensorDict": "`DataLoader` of a TensorDict", "loop": "hand-written loop"}
    found = [(name, figures.row("loader", key)) for key, name in names.items()]
    rows = [[name, *(f"{1 / row[side][0]:,.0f}" if side in row else "-" for side in sides)] for name, row in found if row]
    return table(["batches per second", *sides.values()], rows)


def costs(figures):
    found = [(name, figures.row("costs", key)) for key, name in COSTS.items()]
    rows = [[name, row["unit"], f"{row['instructions'][0]:,.0f}", f"{row['atomics'][0]:.2g}"] for name, row in found if row]
    return table(["operation", "unit", "instructions", "atomic operations"], rows, 2)


def ways(figures):
    """Three ways to copy 4 GB, for a page that teaches."""
    row, pinned = figures.row("compare", LARGE), figures.row("compare", "batches/1000 x 4 MB, pinned")
    found = (("one driver copy for each tensor", row.get("driver"),
              "one thread of the driver copies into small pinned buffers, and the program waits"),
             ("threads fill a ring of pinned buffers while the GPU reads them", row.get("tdict"), "`tdict_to_device()`, the default"),
             ("the tensors are already pinned", pinned.get("tdict"), "the link is the limit"))
    rows = [[name, f"{milliseconds([one[0], 0])} ms", what] for name, one, what in found if one]
    return table(["way", "time", "what happens"], rows, words=1)


def small(figures):
    row, pinned = figures.row("compare", SMALL), figures.row("compare", "batches/1000 x 4000 B, pinned")
    found = (("tdict, ordinary memory", row.get("tdict")), ("driver calls, ordinary memory", row.get("driver")),
             ("driver calls, pinned memory", pinned.get("driver")), ("PyTorch, ordinary memory", row.get("torch")))
    return table(["1000 tensors of 4000 bytes", "time, ms"], [[name, milliseconds(one)] for name, one in found if one])


TABLES = {"first": first, "hand": hand, "start": start, "summary": summary, "behind": behind, "paused": paused, "sizes": sizes,
          "to-gpu": lambda figures: times_table(figures, TO_GPU), "pinned": lambda figures: times_table(figures, PINNED),
          "latency": latency, "modes": modes, "threads": threads, "loads": loads, "device": device, "narrow": narrow,
          "pinning": pinning, "loader": loader, "costs": costs, "ways": ways, "small": small, "own-copies": own_copies,
          "images": images, "container": container, "devices": devices, "comm": comm}
