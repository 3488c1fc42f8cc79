#!/usr/bin/env python3
"""Compares the library's JSON reader with Python's json module, on random texts and on damaged texts.

usage: json_texts.py PROGRAM [COUNT [SEED]]
PROGRAM is beside_json_values. Both readers must accept the same texts and read the same values, and the text that the
library writes must have these values. In addition, the library must refuse lone surrogates, duplicate keys, keys with
U+0000, integers beyond 64 bits, reals beyond a double, NaN and Infinity, and more than 512 levels."""

import json
import random
import struct
import subprocess
import sys

if "--help" in sys.argv:
    sys.exit(print(__doc__))

BATCH = 20000
LEVELS = 512
MARKS = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b" ", b"\t", b"\n", b"\r", b"-", b"+", b".", b"e", b"E", b"0", b"1",
         b"9", b"\\u", b"\\ud83d", b"\\ude00", b"\\u0000", b"\\u00e9", b"true", b"false", b"null", b"NaN", b"Infinity",
         b"\xc3\xa9", b"\xf0\x9f\x98\x80", b"\xed\xa0\x80", b"\xff", b"\xef\xbb\xbf", b"\0", b"\x1f", b"\x7f", b"/", b"//",
         b"1e400", b"9223372036854775808", b"-9223372036854775808", b"1e-400", b'{"a":1,"a":2}', b"'", b"u", b"\x0b"]
SPACES = ["", "", "", " ", "\n", "\t\r "]
WORDS = ["a", "b", "dtype", "shape", "", "é", "漢", "\U0001f600", "\0", "\n", '"', "\\", "/", "\x7f", "\x1f", "a longer text "]


class Refused(Exception):
    pass


def random_text():
    return "".join(random.choices(WORDS, k=random.randrange(5)))


def write_string(text):
    """Returns the text as a JSON string with random kinds of escapes."""
    parts = []
    for char in text:
        units = struct.unpack(f">{len(char.encode('utf-16-be')) // 2}H", char.encode("utf-16-be"))
        short = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n"}.get(char)
        hexadecimal = "".join(f"\\u{unit:{random.choice('xX').replace('x', '04x').replace('X', '04X')}}" for unit in units)
        if short and random.random() < 0.7:
            parts.append(short)
        elif char in '"\\' or char < " " or random.random() < 0.2:
            parts.append(hexadecimal)
        else:
            parts.append(char)
    return '"' + "".join(parts) + '"'


def write_number():
    kind = random.randrange(6)
    if kind == 0:
        return str(random.choice([0, 1, -1, 2**63 - 1, -2**63, 2**53 + 1, 2**63, -2**63 - 1, 10**30]))
    if kind == 1:
        return str(random.randrange(-10**6, 10**6))
    if kind == 2:
        return repr(struct.unpack("<d", random.randbytes(8))[0]).replace("nan", "0.5").replace("inf", "1e308")
    return (random.choice(["", "-"]) + str(random.randrange(10**random.randrange(1, 20)))
            + random.choice(["", f".{random.randrange(10**6):06}", f".{random.getrandbits(90)}"])
            + random.choice(["", "", f"{random.choice('eE')}{random.choice(['', '+', '-'])}{random.randrange(random.choice([3, 400])):02}"]))


def write_value(depth):
    def space():
        return random.choice(SPACES)

    kind = random.randrange(9 if depth else 6)
    if kind < 2:
        return write_number()
    if kind < 4:
        return write_string(random_text())
    if kind < 6:
        return random.choice(["true", "false", "null"])
    count = random.choice([0, 1, 2, 3, 3, 20 if depth == 1 else 4])
    if kind == 6:
        return "[" + ",".join(space() + write_value(depth - 1) + space() for _ in range(count)) + space() + "]"
    keys = [random_text() + random.choice(["", str(i)]) for i in range(count)]
    return ("{" + ",".join(space() + write_string(key) + space() + ":" + space() + write_value(depth - 1) + space() for key in keys)
            + space() + "}")


def make_text():
    if random.random() < 0.002:
        levels = random.choice([LEVELS - 1, LEVELS, LEVELS + 1, 700])
        return random.choice(["[" * levels + "]" * levels, '{"a":' * levels + "1" + "}" * levels]).encode()
    return (random.choice(SPACES) + write_value(random.randrange(5)) + random.choice(SPACES)).encode()


def damage(text, other):
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        at = random.randrange(len(text) + 1)
        kind = random.randrange(6)
        if kind == 0:
            text = text[:at] + text[at + 1:]
        elif kind == 1:
            text = text[:at] + random.choice(MARKS) + text[at:]
        elif kind == 2:
            text = text[:at] + random.choice(MARKS) + text[at + 1:]
        elif kind == 3:
            text = text[:at] + random.randbytes(1) + text[at + 1:]
        elif kind == 4:
            end = at + random.randrange(8)
            text = text[:end] + text[at:end] + text[end:]
        else:
            text = text[:at] + other[random.randrange(len(other) + 1):]
    return text


def refuse(*_):
    raise Refused


def write_tokens(value, depth, out):
    """Writes the tokens as json_values.c does. Raises Refused for values that only the library refuses."""
    if isinstance(value, str):
        try:
            out.append('"' + value.encode().hex())
        except UnicodeEncodeError:
            raise Refused from None
    elif value is None or isinstance(value, bool):
        out.append({None: "n", True: "t", False: "f"}[value])
    elif isinstance(value, int):
        if not -2**63 <= value < 2**63:
            raise Refused
        out.append(f"i{value}")
    elif isinstance(value, float):
        if value in (float("inf"), float("-inf")):
            raise Refused
        out.append("r" + struct.pack(">d", value).hex())
    else:
        if depth == LEVELS:
            raise Refused
        is_object = isinstance(value, tuple)  # the pairs of an object
        pairs = value if is_object else [(None, member) for member in value]
        keys = {key for key, _ in pairs}
        if is_object and (len(keys) != len(pairs) or any("\0" in key for key in keys)):
            raise Refused
        out.append("{" if is_object else "[")
        for key, member in pairs:
            out.append(" ")
            if is_object:
                write_tokens(key, depth + 1, out)
                out.append(":")
            write_tokens(member, depth + 1, out)
        out.append("}" if is_object else "]")


def expect(text):
    """Returns the tokens of a JSON text, or "-" if the text is invalid or refused."""
    out = []
    try:
        write_tokens(json.loads(text.decode(), parse_constant=refuse, object_pairs_hook=tuple), 0, out)
    except (Refused, ValueError):
        return "-"
    return "".join(out)


def compare(program, texts):
    frames = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    lines = subprocess.run([program], input=frames, capture_output=True, check=True).stdout.split(b"\n")
    assert len(lines) == len(texts) + 1, (len(lines), len(texts))
    accepted = 0
    for text, line in zip(texts, lines):
        wanted = expect(text)
        found, _, written = line.partition(b"\t")
        assert found.decode() == wanted, f"{text}: found {found}, wanted {wanted}"
        if wanted != "-":
            accepted += 1
            assert expect(written) == wanted, f"{text}: written as {written}"
    return accepted


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(2**31)
    random.seed(seed)
    sys.setrecursionlimit(10000)
    sys.set_int_max_str_digits(0)
    print(f"seed {seed}")
    done = accepted = 0
    while done < count:
        whole = [make_text() for _ in range(min(BATCH, count - done) // 4 + 1)]
        texts = whole + [damage(text, random.choice(whole)) for text in whole for _ in range(3)]
        accepted += compare(sys.argv[1], texts)
        done += len(texts)
    assert done / 10 < accepted < done * 9 / 10, (accepted, done)
    print(f"{done} texts, {accepted} accepted by both, the others refused by both")


main()
