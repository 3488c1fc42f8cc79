#!/usr/bin/env python3
"""Tests of the example train_images.

usage: train_images.py data_path DATA_C
       train_images.py bad_files PROGRAM IMAGES [pgm]
       train_images.py ranks PROGRAM IMAGES JOB...

data_path counts the lines of code of the data path. bad_files damages copies of the images that make_digits.py has
written to IMAGES; with pgm, these are PGM files. ranks compares the losses of one process with those of JOB, a command
that starts two processes."""

import pathlib
import re
import subprocess
import sys
import tempfile

MOST_LINES = 60


def data_path(path):
    text = re.sub(r"/\*.*?\*/", "", pathlib.Path(path).read_text(), flags=re.S)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#include")]
    print(f"{path}: {len(lines)} lines of code")
    assert 20 < len(lines) <= MOST_LINES, f"wanted at most {MOST_LINES}"


def train(program, folder, *arguments):
    command = [program, "--images", str(folder), "--device", "cpu", "--epochs", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def bad_files(program, images, kind="png"):
    images = pathlib.Path(images)
    names = [line.split()[0] for line in (images / "train.txt").read_text().splitlines()]
    bad = names[40]  # of the second batch
    whole = (images / bad).read_bytes()
    small = b"P5 8 8 255\n" + bytes(64)
    faults = [(None, "TDICT_EIO", "No such file"), (b"", "TDICT_EFORMAT", "neither a PNG file nor"), (small, "TDICT_ESHAPE", "8 x 8 pixels"),
              (whole[:-20], "TDICT_EFORMAT", "bytes, wanted" if kind == "pgm" else "libpng: "), (b"GIF89a", "TDICT_EFORMAT", "neither")]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for path in images.iterdir():
            (folder / path.name).symlink_to(path)
        for data, status, reason in faults:
            (folder / bad).unlink(missing_ok=True)
            if data is not None:
                (folder / bad).write_bytes(data)
            done = train(program, folder)
            assert done.returncode == 1, done
            for text in (f"a batch {folder}/{bad}: {status}", "sample 40", reason):
                assert text in done.stderr, (text, done.stderr)
            print(done.stderr, end="")
        done = train(program, folder, "--skip-bad", "--workers", "3")
        assert done.returncode == 0, done
        assert "has skipped 1 image\n" in done.stdout and done.stderr.count(bad) == 1, done
        bad_list(program, folder)


def bad_list(program, folder):
    lines = (folder / "train.txt").read_text()
    (folder / "train.txt").unlink()
    for text, reason in ((lines + "0.png ten\n", "line 1439: wanted the name of a file and a digit"), ("0.png 10\n", "line 1: wanted"),
                         ("", "has no batch of 32 images"), (None, "TDICT_EIO: No such file")):
        (folder / "train.txt").unlink(missing_ok=True)
        if text is not None:
            (folder / "train.txt").write_text(text)
        done = train(program, folder)
        assert done.returncode == 1 and "train.txt" in done.stderr and reason in done.stderr, (reason, done)
        print(done.stderr, end="")


def losses(command):
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    return [float(loss) for loss in re.findall(r"^step .* loss (\S+)$", done.stdout, flags=re.M)]


def ranks(program, images, *job):
    """One process adds the gradients of a batch in one sum, and two processes in two sums. The losses of the first 44
    batches, which are about 2, therefore differ in their last bits only. If a rank read other images, or if gradients
    were not averaged, they would differ by 0.01 or more."""
    arguments = ["--images", images, "--device", "cpu", "--epochs", "1", "--losses"]
    one, two = losses([program, *arguments]), losses([*job, *arguments])
    most = max(abs(a - b) for a, b in zip(one, two))
    print(f"{len(one)} losses differ by at most {most:.2g}")
    assert len(one) == len(two) == 44 and most < 1e-3, most


def main():
    cases = {"data_path": data_path, "bad_files": bad_files, "ranks": ranks}
    if len(sys.argv) < 3 or sys.argv[1] not in cases:
        print(__doc__)
        return 2
    cases[sys.argv[1]](*sys.argv[2:])
    return 0


sys.exit(main())
