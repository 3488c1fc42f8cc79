#!/usr/bin/env python3
"""Writes the images that train_images learns from: 1797 handwritten digits, each in a file of its own.

usage: make_digits.py FOLDER [png|pgm]

A file has 12 x 12 gray pixels: the 8 x 8 pixels of a digit, and a margin, so that windows of 10 x 10 pixels can be cut
out. The lists train.txt and test.txt have a line with the name of the file and the digit for each image. Every fifth
image is in test.txt.

digits.csv.gz is the unchanged file sklearn/datasets/data/digits.csv.gz of scikit-learn 1.9.1. It has the test set of
"Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (1998), UCI Machine Learning Repository,
https://doi.org/10.24432/C50P49, licence: Creative Commons Attribution 4.0 International (CC BY 4.0)."""

import gzip
import pathlib
import struct
import sys
import zlib

SIDE, MARGIN = 8, 2  # pixels
WIDTH = SIDE + 2 * MARGIN


def rows_of(values):
    """Returns the rows of an image, for pixels from 0 to 16."""
    empty, edge = [bytes(WIDTH)] * MARGIN, bytes(MARGIN)
    pixels = bytes(round(v * 255 / 16) for v in values)
    return empty + [edge + pixels[i:i + SIDE] + edge for i in range(0, SIDE * SIDE, SIDE)] + empty


def png(rows):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", WIDTH, len(rows), 8, 0, 0, 0, 0)  # 8 bits, gray
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def pgm(rows):
    return b"P5 %d %d 255\n" % (WIDTH, len(rows)) + b"".join(rows)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-") or sys.argv[2:] not in ([], ["png"], ["pgm"]):
        print(__doc__)
        return 0 if sys.argv[1:] == ["--help"] else 2
    folder, kind = pathlib.Path(sys.argv[1]), (sys.argv[2:] or ["png"])[0]
    folder.mkdir(parents=True, exist_ok=True)
    text = gzip.decompress(pathlib.Path(__file__).with_name("digits.csv.gz").read_bytes()).decode()
    lists = {"train.txt": [], "test.txt": []}
    for i, line in enumerate(text.split()):
        *values, digit = (int(float(number)) for number in line.split(","))
        name = f"{i:04}.{kind}"
        (folder / name).write_bytes((png if kind == "png" else pgm)(rows_of(values)))
        lists["test.txt" if i % 5 == 4 else "train.txt"].append(f"{name} {digit}\n")
    for name, lines in lists.items():
        (folder / name).write_text("".join(lines))
    return 0


sys.exit(main())
