"""Gate: the figures on a page are of one version, and those that bench/peers/pages writes are of docs/figures.

usage: figures.py ROOT
The files docs/figures/*.json must be of one version. The pages and charts must be what bench/peers/pages makes of them. A
page must not name two versions of tdict, two commits or two dates."""

import subprocess
import sys

import source


def main():
    root = source.root_argument()
    report = source.Report("figures")
    report.checked(len(source.files(root, "README.md", "docs/**/*.md", "docs/figures/*.svg")))
    done = subprocess.run([sys.executable, "-B", str(root / "bench/peers/pages"), "--check"], capture_output=True, text=True)
    for line in (done.stdout + done.stderr).splitlines():
        report.fail(*line.split(": ", 1) if ": " in line else ("bench/peers/pages", line))
    if done.returncode != 0 and not report.complaints:
        report.fail("bench/peers/pages", f"ended with {done.returncode}")
    report.end()


main()
