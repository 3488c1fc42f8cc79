"""Tests of the man page of tdict. usage: test_man.py CASE TDICT"""

import pathlib
import re

import support
from support import equal

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/man/tdict.1"


def tool_man_page_has_every_option():
    parts = support.man_options(PAGE)
    commands = re.findall(r"^  ([a-z][a-z-]*) ", support.run("--help").split("Options:")[0], re.M)
    equal(set(parts), {"", *commands})
    for command in commands:
        equal(parts[command] | parts[""], support.help_options(support.run(command, "--help")))
        assert f"tdict {command}".replace("-", "\\-") in PAGE.read_text().partition(".SH DESCRIPTION")[0], command
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"):
        assert f"\n.SH {section}\n" in PAGE.read_text(), section
    support.lint_man_page(PAGE)


if __name__ == "__main__":
    support.main(globals())
