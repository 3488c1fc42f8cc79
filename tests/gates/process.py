"""Gate: the library does not use the environment of the process, and names its threads.

usage: process.py ROOT
A library that reads environment variables behaves differently for reasons that its caller cannot see. So src/ and
include/ neither read nor change the environment. A file that starts threads must also name them. The gate `symbols`
also searches the built library for these functions, because headers of other libraries may use them."""

import re

import source


def main():
    root = source.root_argument()
    report = source.Report("process")
    for file in source.files(root, "src/**/*.[ch]", "include/**/*.h", "include/**/*.hpp"):
        name = file.relative_to(root)
        code = source.blank(file.read_text())
        report.checked()
        for match in source.ENVIRONMENT.finditer(code):
            report.fail(f"{name}:{source.line_of(code, match.start())}",
                        f"uses {match.group()}: make it an option of the context or of the call")
        if file.suffix == ".c" and file.stem != "thread":
            starts, names = (len(re.findall(rf"\btdict_thread_{verb}\(", code)) for verb in ("create", "set_name"))
            if starts != names:
                report.fail(name, f"starts threads in {starts} places, and names threads in {names}")
            if re.search(r"\bpthread_create\(", code):
                report.fail(name, "calls pthread_create(): tdict_thread_create() starts threads")
    report.end()


main()
