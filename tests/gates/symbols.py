"""Gate: the libraries export exactly the public functions.

usage: symbols.py ROOT SHARED STATIC [HEADER...]
The shared library must export exactly the functions marked TDICT_API. The symbol list of the Debian package must have
the same names. The functions of each HEADER are not in this build. In the static library, every global symbol must
begin with tdict_ (or nvtx). Mutable globals are not allowed, except thread-local variables and NVTX's own. Only NVTX's
file may use environment variables."""

import re
import subprocess
import sys

import source


# NVTX's header finds NVIDIA's profilers. Its symbols are weak and hidden.
OURS = re.compile(r"tdict_|nvtx|InitializeInjectionNvtx")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main():
    root = source.root_argument()
    shared, static = sys.argv[2:4]
    report = source.Report("symbols")
    exported = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--defined-only", shared).splitlines()}
    wanted = {name: header for name, header in source.api_functions(root).items() if header not in sys.argv[4:]}
    report.checked(len(exported | set(wanted)))
    for name in sorted(exported - set(wanted)):
        report.fail(shared, f"exports {name}, which no public header declares")
    for name in sorted(set(wanted) - exported):
        report.fail(shared, f"does not export {name} of {wanted[name]}")
    for file in root.glob("debian/libtdict[0-9]*.symbols"):
        listed = set(re.findall(r"^ (\w+)@", file.read_text(), re.M))
        for name in sorted((exported & set(wanted)) - listed):
            report.fail(file.relative_to(root), f"{name} is missing: run scripts/abi --record")
        for name in sorted(listed - set(source.api_functions(root))):
            report.fail(file.relative_to(root), f"{name} is listed in vain: run scripts/abi --record")
    for line in run("nm", "-g", "--defined-only", static).splitlines():
        parts = line.split()
        if len(parts) == 3:
            report.checked()
            if not OURS.match(parts[2]):
                report.fail(static, f"the global symbol {parts[2]} does not begin with tdict_")
    member = ""
    for line in run("nm", "-u", static).splitlines():
        if line.endswith(":"):
            member = line[:-1]
        elif line and source.ENVIRONMENT.fullmatch(line.split()[-1].split("@")[0]) and not member.startswith("nvtx"):
            report.fail(static, f"{member} uses {line.split()[-1]}: the library reads no environment variables")
    for line in run("objdump", "-t", static).splitlines():
        match = re.match(r"[0-9a-f]+ .{7} (\.data|\.bss|\*COM\*)(?:\.(?!rel\.ro)\S+)?\t([0-9a-f]+)\s+(?:\.hidden )?(\S+)$", line)
        if match and int(match.group(2), 16) > 0 and not re.search("nvtx", match.group(3), re.I):
            report.fail(static, f"{match.group(3)} is a mutable global")
    report.end()


main()
