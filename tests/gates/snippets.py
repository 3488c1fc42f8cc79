"""Gate: the snippets in editors/ compile, and the files for the editors have the same snippets.

usage: snippets.py ROOT CC CXX
Replaces the placeholders of each snippet with their default texts. Compiles a snippet inside a function if needed."""

import json
import re
import subprocess
import sys

import source

WARNINGS = ["-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-fsyntax-only", "-x"]
FUNCTION = """tdict_status planted(tdict_tree *tree);
tdict_status planted(tdict_tree *tree) {{
  tdict_error err = {{0}};
{body}
  goto done;
done:
  return (tdict_status)err.status;
}}
"""


def vim_snippets(text):
    found = re.findall(r'^snippet (\w+) "([^"]*)"\n(.*?)\nendsnippet$', text, re.M | re.S)
    return {prefix: (description, body) for prefix, description, body in found}


def main():
    root = source.root_argument()
    report = source.Report("snippets")
    code = json.loads((root / "editors/tdict.code-snippets").read_text())
    code = {one["prefix"]: (one["description"], "\n".join(one["body"])) for one in code.values()}
    report.checked()
    if code != vim_snippets((root / "editors/tdict.snippets").read_text()):
        report.fail("editors/tdict.snippets", "has other snippets than tdict.code-snippets")
    for prefix, (_, body) in code.items():
        body = re.sub(r"\$\{\d+:((?:[^{}]|\{[^{}]*\})*)\}", r"\1", body).replace("$0", "")
        if re.search(r"\$|^snippet", body):
            report.fail(prefix, f"has a placeholder that this gate cannot fill:\n{body}")
        program = "#include <tdict/tdict.h>\n#include <tdict/try.h>\n"
        if prefix == "tdfunction":
            program += "tdict_status work(tdict_tree **out, tdict_error *error);\n"
        program += body if re.search(r"^\w.*\{$", body, re.M) else FUNCTION.format(body=body)
        for compiler, language in ((sys.argv[2], "c"), (sys.argv[3], "c++")):
            command = [compiler, *WARNINGS, language, f"-I{root}/include", "-"]
            result = subprocess.run(command, input=program, capture_output=True, text=True)
            report.checked()
            if result.returncode != 0:
                report.fail("editors/tdict.code-snippets", f"{prefix} does not compile as {language}:\n{result.stderr}")
    report.end()


main()
