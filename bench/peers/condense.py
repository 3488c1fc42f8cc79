"""Reads the records of `bench/peers/pages --measure`, and keeps what the pages show: medians and spreads.

docs/figures/NAME.json has the result for one machine. "records" maps the name of a record to its command and its rows.
A row maps each side to [median, spread], in seconds. In rows of `costs`, it has counts instead. Needs only the standard
library."""
import json
import pathlib
import statistics

import records

Mistake = records.Mistake


def short(value):
    return float(f"{value:.4g}")


def of(seconds):
    """Returns [median, spread] of a list of seconds, each from a turn of its own."""
    return [short(statistics.median(seconds)), short(records.spread({"turns": [[one] for one in seconds]}))]


def of_turns(result):
    return [short(records.middle(result)), short(records.spread(result))]


def compare(record):
    rows = {}
    for row in record["rows"]:
        if row["reached"]:
            found = {side: of_turns(result) for side, result in records.measured(row).items()}
            if row["work"]["calls"] == "by hand" and "driver" in found:
                found["hand"] = found.pop("driver")
            line = records.line_seconds(row)
            rows[f"{row['scenario']}/{row['row']}"] = dict(found, line=[short(line), 0]) if line else found
    return rows


def loader(record):
    return {work: {side: of([1 / rate for rate in result["rates"]]) for side, result in sides.items() if result["rates"]}
            for work, sides in record["work"].items()}


def load(record):
    rows = {}
    for file in record["files"]:
        good = {side: [one for one in results if "error" not in one] for side, results in file["sides"].items()}
        good = {side: results for side, results in good.items() if results}
        total = good["tdict"][0]["total_bytes"]
        for name, values in (("first", {side: [one["first_seconds"] for one in results] for side, results in good.items()}),
                             ("steady", {side: [one for result in results for one in result["steady_seconds"]]
                                         for side, results in good.items()})):
            row = rows[f"{file['work']}, {name}"] = {side: of(seconds) for side, seconds in values.items() if seconds}
            row["bytes"] = [total, 0]
            lines = [one["line_rate"] for one in good["tdict"] if one.get("line_rate")]
            if lines:
                row["line"] = [short(total / statistics.median(lines)), 0]
    return rows


def own_copies(row):
    """Returns figures of the program's own copies for each value of max_queued_bytes: "p50 8388608", and so on."""
    found = {f"{key} alone": [short(row["alone"][key]), 0] for key in ("p50", "p99")}
    for limit, turns in row["limits"].items():
        found.update({f"{key} {limit}": of([turn[key] for turn in turns]) for key in ("p50", "p99", "transfer_seconds")})
    if row["line_bytes"]:
        found["line"] = [short(statistics.median(row["lines"]) * row["total_bytes"] / row["line_bytes"]), 0]
    return found


def device(record):
    rows = {}
    for row in record["rows"]:
        name = f"{row['row']}: {row['work']['work']}" if "work" in row else row["row"]
        if row.get("limits"):
            rows[name] = own_copies(row)
        elif row.get("results"):
            rows[name] = {way: of_turns(result) for way, result in row["results"].items()}
    return rows


def devices(record):
    """Returns the copies to all devices, the messages between them ("broadcast, 4000 B", and so on), and the time that one
    link needs for the bytes of the large tree."""
    names = {"samples": "tdict", "plain_samples": "each", "torch_samples": "torch", "tensordict_samples": "tensordict",
             "one_buffer_samples": "buffer", "leaf_by_leaf_samples": "leaves"}

    def sides(row):
        return {names[key]: of(seconds) for key, seconds in row.items() if key in names}

    rows = {row["work"]: sides(row) for row in record["rows"] if row["devices"] == record["devices"]}
    large = next(row["delivered_bytes"] for row in record["rows"] if row["work"] == "split, pinned")
    rows["link"] = {"driver": [short(large / record["plain_1"]["lines"]), 0]}
    return {**rows, **{f"{row['work']}, {row['bytes'] / row['leaves']:.0f} B": sides(row) for row in record["comm"]}}


def pinning(record):
    rows = {}
    for one in record:
        row = rows.setdefault(f"{one['bytes'] >> 30} GiB, {one['piece_bytes'] >> 20} MiB", {})
        for key in ("pin", "pin_wait", "unpin", "unpin_wait"):
            row.setdefault(key, []).extend(one[f"{key}_seconds"])
    return {name: {key: of(seconds) for key, seconds in row.items()} for name, row in rows.items()}


def costs(record):
    return {row["what"]: {"unit": row["unit"], "instructions": [short(row["each"]), 0], "atomics": [short(row["atomics_each"]), 0]}
            for row in record["rows"]}


READERS = {"compare": compare, "loader": loader, "load": load, "device": device, "pinning": pinning, "costs": costs,
           "devices": devices}


def machine_text(record):
    """Returns a text that names the GPU, its driver, the processor and the kernel of a record."""
    device = record.get("device", {"kind": "cpu"})
    machine = (record["runs"][-1] if "runs" in record else record)["machine"]
    several = f"{record['devices']} x " if "devices" in record else ""
    parts = [several + device["name"]] if device["kind"] != "cpu" else []
    if device.get("driver_version"):
        parts.append(f"CUDA driver {device['driver_version'] // 1000}.{device['driver_version'] % 1000 // 10}")
    return ", ".join([*parts, machine["cpu"].replace("(R)", ""), f"{machine['cores']} processors", machine["kernel"].split("-")[0]])


def peers_of(record):
    """Returns a dict that maps the names of other libraries to their versions."""
    names = {"torch": "PyTorch", "tensordict": "TensorDict", "numpy": "NumPy", "torchvision": "torchvision", "nccl": "NCCL"}
    found = {}
    for versions in [*record.get("contenders", {}).values(), record.get("peers"), record.get("peer")]:
        versions = (versions or {}).get("versions", versions or {})
        found.update({names[key]: str(value).split("+")[0] for key, value in versions.items() if key in names and str(value)[:1].isdigit()})
    return found


def condense(folder, small):
    """Returns the content of docs/figures/NAME.json, and a list of the records that are missing, with reasons. Raises
    Mistake if the records are simulated or of two versions."""
    about = json.loads((folder / "about.json").read_text())
    result = {"format": records.FORMAT, "commit": about["commit"], "date": about["date"], "version": None, "machine": None,
              "peers": {}, "records": {}}
    missing = []
    for name, command in about["commands"].items():
        path = pathlib.Path(folder / f"{name}.json")
        if not path.exists():
            missing.append(f"{path} is missing: `{command}` ended with {about['status'].get(name)}")
            continue
        try:
            record = json.loads(path.read_text())
            rows = READERS[name](record)
            head = record[0] if isinstance(record, list) else record
            if head.get("simulated") and not small:
                raise Mistake(f"{path} is from a simulated device")
            version = head.get("library_version", result["version"])
            if result["version"] not in (None, version):
                raise Mistake(f"{path} is of version {version}, and another record of {result['version']}")
            result["version"] = version
            result["peers"].update(peers_of(head))
            if "device" in head or result["machine"] is None:
                result["machine"] = machine_text(head)
            result["records"][name] = {"command": command, "rows": rows}
        except (KeyError, TypeError, IndexError, AttributeError, ValueError) as error:
            missing.append(f"{path}: no record: {type(error).__name__} {error}")
    return result, missing


def text_of(figures):
    """Returns JSON with a line for each row."""
    parts = []
    for name, record in figures["records"].items():
        rows = ",\n".join(f"   {json.dumps(key)}: {json.dumps(row)}" for key, row in record["rows"].items())
        parts.append(f'  {json.dumps(name)}: {{"command": {json.dumps(record["command"])}, "rows": {{\n{rows}\n  }}}}')
    head = json.dumps({key: value for key, value in figures.items() if key != "records"}, indent=1)
    return head.removesuffix("\n}") + ',\n "records": {\n' + ",\n".join(parts) + "\n }\n}\n"
