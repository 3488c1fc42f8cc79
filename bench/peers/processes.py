"""Measures the rows of bench/peers/compare that need a new process for each repetition. Starts the teams of rows whose
processes may use only a few processors. Needs only the standard library.

Before the clock starts, each process opens the library's context or loads the peer's module, and makes its sources. The
processes of a row run in two waves. The processes of a wave prepare at the same time, but are measured one after
another."""
import os
import statistics
import sys

import records
from contest import Failed, Team, Worker, close_all, peer_command

PEER_PROCESSES = 3  # processes for each setting of a peer; row["processes"] is the number for the library
NEAR = 1.5  # a setting whose first process takes over NEAR times as long as the peer's best gets no further process
# replaces taskset; arguments: PROCESSORS PROGRAM ARGUMENTS...
ON_FEW = ("import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); "
          "os.execvp(sys.argv[2], sys.argv[2:])")
SMALL_SHARE = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".08"}  # fraction of the device memory for each JAX process


class Single:
    """A process that runs one repetition with one setting of a contender."""

    def __init__(self, name, setting, worker):
        self.name, self.setting, self.worker = name, setting, worker

    def prepare(self, row, place):
        """Sends the requests that prepare the process, without waiting for the replies."""
        self.worker.send(op="hello", device=place)
        if self.name == records.LIBRARY:
            self.worker.send(op="prepare", scenario=row["scenario"], row=row["row"])
        else:
            self.worker.send(op="prepare", work=row["work"])

    def ready(self):
        self.worker.receive()
        self.worker.receive()

    def do(self, verified):
        """Runs the repetition. Returns (seconds, verified bytes, further results). The library always verifies its
        result. A peer does so only if `verified` (the bytes that an earlier process verified) is 0."""
        who = {} if self.name == records.LIBRARY else {"setting": self.setting}
        seconds = self.worker.ask(op="run", count=1, **who)["seconds"][0]
        more = {}
        if not who or not verified:
            verified = self.worker.ask(op="verify", **who)["verified_bytes"]
            more = self.worker.ask(op="finish").get("more", {})
        return float(f"{seconds:.5g}"), verified, more


def start_single(name, setting, options, command):
    if name == records.LIBRARY:
        return Single(name, setting, Worker(name, command + ["--bare"]))
    return Single(name, setting, Worker(name, peer_command(options, name), extra=SMALL_SHARE))


def is_beaten(key, done):
    """Returns whether a setting takes over NEAR times as long as the best setting of the same peer."""
    seconds = {one: statistics.median(found[0] for found in many) for one, many in done.items() if one[0] == key[0]}
    return key in seconds and seconds[key] > NEAR * min(seconds.values())


def take_wave(row, place, singles, done, broken):
    """Prepares all processes at the same time, and then runs them one after another. Adds the results to `done` and the
    reasons for failures to `broken`. The keys of both are (name, setting)."""
    try:
        for single in singles:
            single.prepare(row, place)
        ready = []
        for single in singles:
            try:
                single.ready()
                ready.append(single)
            except Failed as failed:
                broken[single.name, single.setting] = str(failed)
        for single in ready:
            key = (single.name, single.setting)
            try:
                one = single.do(done[key][0][1] if key in done else 0)
                done.setdefault(key, []).append(one)
            except Failed as failed:
                broken[key] = str(failed)
            single.worker.close()
    finally:
        close_all([single.worker for single in singles])


def result_of(found):
    result = {"turns": [[seconds] for seconds, _, _ in found], "repetitions": 1, "verified_bytes": found[0][1]}
    for word in found[0][2]:
        result[word] = float(f"{statistics.median(more[word] for _, _, more in found if word in more):.5g}")
    return result


def measure_fresh(row, options, command, invited, place):
    """Measures a row in which each repetition has its own process, and returns the results."""
    settings = [(name, setting) for name, known in invited.items() for setting in known]
    done, broken = {}, {}
    first = [(records.LIBRARY, None)] * min(row["processes"], options.turns) + settings
    take_wave(row, place, [start_single(*key, options, command) for key in first], done, broken)
    near = [key for key in settings if key in done and not is_beaten(key, done)]
    more = near * (min(PEER_PROCESSES, options.turns) - 1)
    take_wave(row, place, [start_single(*key, options, command) for key in more], done, broken)
    if (records.LIBRARY, None) not in done:
        raise Failed(broken.get((records.LIBRARY, None), "no process has finished"))
    results = {records.LIBRARY: result_of(done[records.LIBRARY, None])}
    for name in invited:
        tried = {setting: result_of(found) for (who, setting), found in done.items() if who == name}
        result = {}
        if tried:
            best = min(tried, key=lambda setting: records.middle(tried[setting]))
            result = dict(tried[best], setting=best,
                          tried={setting: records.middle(one) for setting, one in tried.items()})
        wrong = {setting: why for (who, setting), why in broken.items() if who == name}
        if wrong:
            result["broken"] = wrong
        if not tried:
            result["failed"] = "; ".join(f"{setting}: {why}" for setting, why in wrong.items())
        results[name] = result
    return results


def start_team(options, command, names, cpus, place):
    """Starts workers that may use `cpus` processors each, and sends them "hello". If possible, they use different
    processors, so that they start in parallel."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < cpus:
        return Failed(f"there are {len(mine)} processors here")

    def start(number, name, what, extra=None):
        some = [str(mine[(number * cpus + i) % len(mine)]) for i in range(cpus)]
        worker = Worker(name, [sys.executable, "-c", ON_FEW, ",".join(some), *what], extra=extra)
        worker.send(op="hello", device=place)
        return worker

    library = start(0, records.LIBRARY, command + ["--bare"])
    peers = {name: start(i + 1, name, peer_command(options, name), SMALL_SHARE) for i, name in enumerate(names)}
    return Team(f"{cpus} processors", library, peers)


def few_processors_teams(options, command, names, wanted, place):
    """Returns a dict that maps each number of processors to its team, or to a Failed if the team cannot be started."""
    teams = {cpus: start_team(options, command, names, cpus, place) for cpus in wanted}
    for cpus, team in teams.items():
        if isinstance(team, Failed):
            continue
        for name, peer in list(team.peers.items()):
            try:
                peer.receive()
            except Failed:
                peer.close()
                del team.peers[name]
        try:
            team.library.receive()
        except Failed as failed:
            team.close()
            teams[cpus] = failed
    return teams
