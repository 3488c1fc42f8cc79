"""The worker processes of bench/peers/compare, the teams that they form, and the contenders that take turns in a row.
Needs only the standard library."""
import json
import math
import os
import queue
import subprocess
import sys
import threading
import time

import records

TURN_SECONDS = 0.01  # the repetitions of a turn take about this long together, but there are at most --samples of them
WARM, WARM_SECONDS = 4, 0.02  # limits on the number and total time of uncounted repetitions before a turn of a warm row
PAUSED, PAUSED_SECONDS = 3, 0.06  # fewest repetitions in a turn of a "paused" row, unless they take longer than this
# (longest wall time of one repetition in seconds, number of turns); contenders with longer repetitions get LEAST_TURNS
TURNS = ((0.1, 11), (0.2, 7), (0.4, 5))
LEAST_TURNS = 3
LONG_SECONDS = 0.4   # if a repetition takes longer than this, the warm-up counts as a turn

# replaces taskset; arguments: PROCESSORS PROGRAM ARGUMENTS...
ON_FEW = ("import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); "
          "os.execvp(sys.argv[2], sys.argv[2:])")


class Failed(Exception):
    """Raised if a worker reports an error, exits, or does not reply in time."""


class Worker:
    """A process that replies to JSON requests, see bench/program/worker.c and bench/peers/worker.py."""

    def __init__(self, name, command, timeout=120, extra=None):
        self.name, self.timeout = name, timeout
        environment = dict(os.environ, **(extra or {}))
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, args=(self.process.stdout, self.lines), daemon=True).start()

    @staticmethod
    def read(stream, lines):
        with stream:
            for line in stream:
                lines.put(line)
        lines.put(None)

    def send(self, **request):
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except OSError:
            pass  # the process has exited, which receive() reports

    def receive(self):
        try:
            line = self.lines.get(timeout=self.timeout)
        except queue.Empty:
            self.stop()
            raise Failed(f"no answer within {self.timeout} s") from None
        if line is None:
            raise Failed(f"ended with {self.process.wait()}")
        answer = json.loads(line)
        if not answer["ok"]:
            raise Failed(answer["error"])
        return answer

    def ask(self, **request):
        self.send(**request)
        return self.receive()

    def alive(self):
        return self.process.poll() is None

    def stop(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if not self.alive():
            return
        self.send(op="quit")
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.stop()


def close_all(workers):
    """Asks all workers to quit, and then waits for them."""
    for worker in workers:
        if worker.alive():
            worker.send(op="quit")
    for worker in workers:
        worker.close()


def peer_command(options, name):
    return [sys.executable, "-B", str(options.peers_folder / f"{name}_peer.py")]


class Team:
    """A worker of the library and workers of its peers. `key` identifies the team. Most runs have only one team."""

    def __init__(self, key, library, peers):
        self.key, self.library, self.peers = key, library, peers

    def close(self):
        close_all([self.library, *self.peers.values()])


def start_team(options, command, names, cpus, place):
    """Starts workers that may use `cpus` processors each, and sends them "hello". If possible, they use different
    processors, so that they start in parallel."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < cpus:
        return Failed(f"there are {len(mine)} processors here")

    def start(number, name, what):
        some = [str(mine[(number * cpus + i) % len(mine)]) for i in range(cpus)]
        worker = Worker(name, [sys.executable, "-c", ON_FEW, ",".join(some), *what])
        worker.send(op="hello", device=place)
        return worker

    library = start(0, records.LIBRARY, command + ["--bare"])
    peers = {name: start(i + 1, name, peer_command(options, name)) for i, name in enumerate(names)}
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


class Contender:
    """A worker that takes turns while a row is measured, and the fields of its "run" requests."""

    def __init__(self, name, worker, request, setting=None):
        self.name, self.worker, self.request, self.setting = name, worker, request, setting
        self.turns, self.cpu, self.count, self.warm, self.most_turns, self.owed = [], [], 1, 0, math.inf, math.inf

    def run(self, count, warm=0):
        """Runs `count` repetitions. Returns their seconds as a list, and the mean wall and CPU time of one."""
        begin = time.monotonic()
        answer = self.worker.ask(op="run", warm=warm, count=count, **self.request)
        wall = (time.monotonic() - begin) / (count + warm)
        return [float(f"{one:.5g}") for one in answer["seconds"]], wall, answer.get("cpu_seconds", 0) / count

    def first_run(self):
        """Runs one repetition as a warm-up. If it takes longer than LONG_SECONDS, it counts as a turn."""
        seconds, wall, cpu = self.run(1)
        if wall > LONG_SECONDS:
            self.add_turn(seconds, cpu)
        return seconds, wall

    def plan(self, wall, most, cache="warm"):
        """Chooses the repetitions per turn and the number of turns from `wall`, the time of one repetition."""
        if wall <= LONG_SECONDS:
            self.turns, self.cpu = [], []
        wall = max(wall, 1e-9)
        least = min(PAUSED, int(PAUSED_SECONDS / wall)) if cache == "paused" else 1
        self.count = min(most, max(1, least, round(TURN_SECONDS / wall)))
        self.warm = min(WARM, int(WARM_SECONDS / wall)) if cache == "warm" else 0
        self.most_turns = next((turns for limit, turns in TURNS if wall <= limit), LEAST_TURNS)

    def sit_down(self):
        """Sets how many more turns the contender takes in this row."""
        self.owed = max(0, self.most_turns - len(self.turns))

    def has_turn(self, turn, turns):
        """Returns whether the contender runs in turn number `turn`. If it needs fewer than `turns` turns, they are
        spread evenly."""
        mine = min(self.owed, turns)
        return mine * (turn + 1) // turns > mine * turn // turns

    def take_turn(self):
        seconds, _, cpu = self.run(self.count, self.warm)
        self.add_turn(seconds, cpu)

    def add_turn(self, seconds, cpu):
        self.turns.append(seconds)
        if cpu is not None:
            self.cpu.append(float(f"{cpu:.4g}"))

    def drop_out(self):
        self.turns, self.cpu, self.most_turns, self.owed = [], [], 0, 0
