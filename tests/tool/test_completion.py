"""Tests of the bash completion and of the progress bar. usage: test_completion.py CASE TDICT"""

import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import time

import support
from support import equal, write_file

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools/completion/tdict"


def complete(*words):
    """Returns the completions that bash offers for the last word of the command line `tdict WORDS`."""
    words = [support.program, *words]
    quoted = " ".join(f"'{word}'" for word in words)
    text = (f'source "{SCRIPT}"; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _tdict "{support.program}"; '
            'printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", text], capture_output=True, text=True)
    equal((done.returncode, done.stderr), (0, ""))
    return [line for line in done.stdout.split("\n") if line]


def tool_completes_commands():
    equal(sorted(complete("")), sorted(re.findall(r"^  ([a-z][a-z-]*) ", support.run("--help").split("Options:")[0], re.M)))
    equal(complete("insp"), ["inspect"])
    equal(complete("nothing"), [])


def tool_completes_options():
    for command in complete(""):
        options = set(re.findall(r"(--[a-z][a-z-]*=?)", support.run(command, "--help").split("Mandatory")[0]))
        options = {option for option in options if re.search(rf"^ +(-.,? +)?{option}", support.run(command, "--help"), re.M)}
        equal(set(complete(command, "--")), options)
    equal(complete("inspect", "--so"), ["--sort="])
    equal(complete("inspect", "--sort", "="), ["bytes", "name"])
    equal(complete("convert", "--format", "=", "n"), ["npy", "npz"])
    equal(complete("convert", "--format", "n"), ["npy", "npz"])
    equal(complete("inspect", "--sort", ""), ["bytes", "name"])


def tool_completes_values():
    equal(complete("inspect", "-s", "b"), ["bytes"])
    equal(complete("bench-load", "--device", "c"), ["cpu", "cuda:0"])
    equal(complete("bench-load", "-d", "s"), ["sim"])
    equal(complete("convert", "-d", "b"), ["bfloat16"])
    equal(complete("to-device", "--mode", "non_blocking_"), ["non_blocking_pin"])
    equal(complete("to-device", "--mode", "auto,b"), ["auto,blocking"])
    equal(complete("to-device", "--mode", "=", "auto,blocking,au"), ["auto,blocking,auto"])
    equal(complete("to-device", "-t", "au"), ["auto"])
    equal(complete("load", "--work", "m"), ["mixed", "many"])
    equal(complete("loader", "-w", "tokens"), ["tokens", "tokens16"])
    open("samples.bin", "w").close()
    equal(complete("loader", "-f", "s"), ["samples.bin"])  # here, -f takes a file


def tool_completes_keys():
    write_file("one.safetensors", {name: ("U8", [1], b"\1") for name in ("obs.pixels", "obs.state", "$(touch ran)", "a b", "w")})
    equal(sorted(complete("cat", "one.safetensors", "")), sorted(["obs.pixels", "obs.state", r"\$\(touch\ ran\)", r"a\ b", "w"]))
    equal(complete("cat", "one.safetensors", "obs.p"), ["obs.pixels"])
    equal(complete("cat", "--head", "3", "one.safetensors", "obs.s"), ["obs.state"])
    equal(complete("cat", "one.safetensors", "--ra"), ["--raw"])
    equal(complete("cat", "one.safetensors", "w", "one"), ["one.safetensors"])
    equal(complete("convert", "one.safetensors", "--keys", "obs.p"), ["obs.pixels"])
    equal(complete("convert", "one.safetensors", "-k", "w"), ["w"])
    equal(complete("inspect", "one.safetensors", "one"), ["one.safetensors"])
    open("none.bin", "w").close()
    equal(complete("cat", "none.bin", "n"), ["none.bin"])
    assert not os.path.exists("ran")


def tool_completes_scenarios():
    bench = pathlib.Path(support.program).parents[1] / "bench/tdict-bench"
    if not bench.exists():
        print("tdict-bench is not built")
        sys.exit(77)
    support.program = str(bench)
    text = support.run("--help").split("Options:")[0]
    equal(complete(""), re.findall(r"^  ([a-z][\w-]*) ", text, re.M))
    equal(complete("to-dev"), ["to-device"])
    equal(complete("to-device", "--mo"), ["--mode="])
    equal(complete("to-device", "--mark"), ["--markdown"])  # its value is optional


def tool_completes_files():
    for name in ("one.npz", "other.npz"):
        open(name, "w").close()
    equal(sorted(complete("inspect", "o")), ["one.npz", "other.npz"])
    equal(complete("inspect", "--json", "one"), ["one.npz"])


def tool_shows_the_time_left():
    """After two seconds, the program shows a bar and the time left. The test pauses the program for that long, because
    it might otherwise finish before it shows a bar."""
    count = 1 << 30
    header = json.dumps({"x": {"dtype": "U8", "shape": [count], "data_offsets": [0, count]}}).encode().ljust(96)
    for _ in range(20):
        with open("sparse.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + count)
        leader, follower = pty.openpty()
        process = subprocess.Popen([support.program, "verify", "sparse.safetensors"], stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        shown = b""
        is_stopped = False
        try:
            while part := os.read(leader, 100000):
                shown += part
                if re.search(rb" [1-9]\d? %", shown) and not is_stopped:
                    is_stopped = True
                    process.send_signal(signal.SIGSTOP)
                    time.sleep(2.1)
                    process.send_signal(signal.SIGCONT)
        except OSError:
            pass
        os.close(leader)
        equal(process.wait(), 0)
        if bars := re.findall(rb"\[(#*)(-*)\] +(\d+) %, (\d+) s left, 1073\.7 MB\x1b\[K", shown):
            assert b"left" not in shown[:shown.index(b"\r", 1)], shown  # the first line is shown at once
            for done, rest, percent, left in bars:
                percent = int(percent)
                equal(len(done) + len(rest), 20)
                assert abs(len(done) - percent / 5) < 0.62, shown
                # The pause alone took two seconds.
                assert int(left) >= 2 * (99.5 - percent) / (percent + 0.5) - 0.5, shown
            return
    raise AssertionError("the program always finished before it showed a bar")


if __name__ == "__main__":
    support.main(globals())
