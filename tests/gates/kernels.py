"""Gate: src/device/kernels/kernels.ptx supports every required driver and GPU, and was made from the current sources.

usage: kernels.py ROOT
Checks the PTX version, the target, the kernels and the hash of the sources. If the same version of clang-19 is
installed, regenerates the file and compares the two. If ptxas is installed, assembles the file for the oldest and the
newest GPU that ptxas knows."""

import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile

import source

SOURCES = ["core/kernel/words.h", "core/kernel/number.h", *(f"device/kernels/{name}" for name in ("body.h", "body_convert.h", "body_unpack.h", "body_window.h", "kernels.cu"))]
NAMES = ["tdict_copy", "tdict_convert", "tdict_fill", "tdict_check", "tdict_unpack", "tdict_window"]


def check_text(report, root, text):
    """Checks the version, the target, the kernels and the hash in the file."""
    file = "src/device/kernels/kernels.ptx"
    for directive, wanted in ((".version", "8.0"), (".target", "sm_75"), (".address_size", "64")):
        found = re.findall(rf"^{re.escape(directive)}\s+(.*)$", text, re.M)
        report.checked()
        if found != [wanted]:
            report.fail(file, f"{directive} is {found}, wanted {wanted} once")
    for name in NAMES:
        report.checked()
        if not re.search(rf"^\.visible \.entry {name}\(", text, re.M):
            report.fail(file, f"has no kernel {name}")
    for word in re.findall(r"\bfma\.\S+|\S+\.ftz\S*|\.extern.*", text):
        report.fail(file, f"contains {word}, which makes results differ from the host's")
    content = b"".join((root / "src" / name).read_bytes() for name in SOURCES)
    report.checked()
    if f"// sources: {hashlib.sha256(content).hexdigest()}\n" not in text:
        report.fail(file, "was made from other sources: run scripts/make-kernels")


def make_again(report, root, text):
    """Regenerates the file and compares the two. Does nothing if the compiler that made the file is not installed."""
    found = shutil.which("clang-19") and subprocess.run(["clang-19", "--version"], capture_output=True, text=True).stdout
    version = re.search(r"version ([0-9.]+)", found or "")
    wanted = re.search(r"^// compiler: clang (\S+)$", text, re.M)
    if not version or not wanted or version[1] != wanted[1]:
        print(f"not regenerated: clang {wanted[1] if wanted else '?'} is not installed as clang-19")
        return
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "kernels.ptx"
        subprocess.run([root / "scripts/make-kernels", out], check=True)
        report.checked()
        if out.read_text() != text:
            report.fail("src/device/kernels/kernels.ptx", "differs from the output of scripts/make-kernels")


def assemble(report, root):
    """Assembles the file for two GPUs. Does nothing without ptxas."""
    ptxas = shutil.which("ptxas") or shutil.which("/usr/local/cuda/bin/ptxas")
    if not ptxas:
        print("not assembled: no ptxas on PATH or in /usr/local/cuda")
        return
    known = re.findall(r"'sm_(\d+)'", subprocess.run([ptxas, "--help"], capture_output=True, text=True).stdout)
    for gpu in ("sm_75", f"sm_{max(map(int, known), default=75)}"):
        command = [ptxas, f"-arch={gpu}", "-o", "/dev/null", str(root / "src/device/kernels/kernels.ptx")]
        result = subprocess.run(command, capture_output=True, text=True)
        report.checked()
        print(f"assembled for {gpu}")
        if result.returncode != 0:
            report.fail("src/device/kernels/kernels.ptx", f"{gpu}: {(result.stdout + result.stderr).strip()[:300]}")


def main():
    root = source.root_argument()
    report = source.Report("kernels")
    text = (root / "src/device/kernels/kernels.ptx").read_text()
    check_text(report, root, text)
    make_again(report, root, text)
    assemble(report, root)
    report.end()


main()
