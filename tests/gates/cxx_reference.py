"""Gate: every public name of the C++ headers has a comment.

usage: cxx_reference.py ROOT
In include/tdict/hpp, these must have a Doxygen comment: classes, public member functions, public data members,
functions and types of the namespace `tdict`, and macros for users. Copy and move functions, deleted functions, types
that iterators must define, and the namespace `tdict::detail` need no comment. The site shows the comments."""

import pathlib
import sys

import source

SITE = pathlib.Path(__file__).resolve().parents[2] / "docs/site"
sys.path.insert(0, str(SITE))
import classes  # noqa: E402


def main():
    root = source.root_argument()
    if not classes.have_doxygen():
        print("cxx_reference: doxygen is not installed (scripts/setup docs)")
        sys.exit(77)
    report = source.Report("cxx_reference")
    for file, name, comment in classes.read(root).documented():
        report.checked()
        if not comment:
            report.fail(f"include/tdict/hpp/{file}", f"{name} has no comment")
    report.end()


main()
