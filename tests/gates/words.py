"""Gate: one word has one meaning on the path of a transfer.

usage: words.py ROOT
Reads the two tables under "## Words of a transfer" in docs/architecture.md. The first table has at most MOST_WORDS
words, which a reader of the path must know. The second table has the words of optional features. The column "not" has
former words for the same thing, which no name in src/engine may contain. The column "only in" lists the files of
src/engine that may use the word in names; if it is empty, all files may. Names of files directly in src/engine, and of
structs in their headers, may contain only words of the tables and the plain words of the line that begins with PLAIN.
Names defined in other folders or in public headers may contain any word."""

import pathlib
import re

import source

MOST_WORDS = 25
PAGE = "docs/architecture.md"
TITLE = "## Words of a transfer"
PLAIN = "Plain words in names: "
CELL = re.compile(r"(?<!\\)\|")


def tables(page):
    """Returns the rows of each table under the title, and the plain words."""
    found = re.search(rf"^{TITLE}$(.*?)(?=^## |\Z)", page, re.M | re.S)
    text = found.group(1) if found else ""
    blocks = [block for block in re.split(r"\n\s*\n", text) if block.lstrip().startswith("|")]
    rows = [[[cell.strip() for cell in CELL.split(line)[1:-1]] for line in block.strip().split("\n")[2:]] for block in blocks]
    plain = re.search(rf"^{PLAIN}(.*?)\.(?=\s)", text, re.M | re.S)
    return rows, re.findall(r"\w+", plain.group(1)) if plain else []


def names(file):
    """Yields (line, identifier) for each name, but not for fields. Ignores comments, strings and includes."""
    text = source.blank(file.read_text())
    text = re.sub(r"^[ \t]*#[ \t]*include.*", "", text, flags=re.M)
    for match in re.finditer(r"(?<!->)(?<!\.)\b[A-Za-z_]\w*", text):
        yield source.line_of(text, match.start()), match.group()


def tokens(name):
    """Yields each word of a name. Yields a word that ends in s a second time, without the s."""
    for token in name.lower().split("_"):
        yield token
        if token.endswith("s"):
            yield token[:-1]


def foreign_names(root):
    """Returns the names in the public headers and in the headers of core and device."""
    files = [*root.glob("include/tdict/*.h"), *root.glob("src/core/**/*.h"), *root.glob("src/device/**/*.h")]
    return {name for file in files for _, name in names(file) if "_" in name}


def check_names(report, root, rows):
    foreign = foreign_names(root)
    former = {word: row[0] for table in rows for row in table for word in re.findall(r"\w+", row[2])}
    places = {row[0]: set(re.findall(r"\w+", row[3])) for table in rows for row in table if row[3]}
    for file in sorted(root.glob("src/engine/**/*.[ch]")):
        seen = set()
        for line, name in names(file):
            report.checked()
            if name in foreign or name in seen:
                continue
            seen.add(name)
            for token in set(tokens(name)):
                where = f"{file.relative_to(root)}:{line}"
                if token in former:
                    report.fail(where, f"{name} has the word '{token}': say '{former[token]}', see {PAGE}")
                if token in places and file.stem not in places[token]:
                    report.fail(where, f"{name}: '{token}' is a word of {', '.join(sorted(places[token]))} only, see {PAGE}")


def check_path(report, root, words, plain):
    for file in sorted(root.glob("src/engine/*.[ch]")):
        structs = re.findall(r"^\} (tdict_\w+);|^struct (tdict_\w+) \{", source.blank(file.read_text()), re.M)
        for name in [file.stem, *(a or b for a, b in structs if file.suffix == ".h")]:
            report.checked()
            for token in name.split("_"):
                if token != "tdict" and not {token, token.removesuffix("s")} & (words | set(plain)):
                    report.fail(str(file.relative_to(root)), f"{name}: '{token}' is no word of {PAGE}")


def main():
    report, root = source.Report("words"), source.root_argument()
    rows, plain = tables((root / PAGE).read_text())
    if len(rows) != 2 or any(len(row) != 4 for table in rows for row in table):
        report.fail(PAGE, f"wanted two tables with four columns under '{TITLE}'")
        return report.end()
    words = [row[0] for table in rows for row in table]
    if len(rows[0]) > MOST_WORDS:
        report.fail(PAGE, f"the first table has {len(rows[0])} words, at most {MOST_WORDS} are allowed")
    for word in sorted({word for word in words if words.count(word) > 1}):
        report.fail(PAGE, f"'{word}' has two meanings")
    check_names(report, root, rows)
    check_path(report, root, set(words), plain)
    return report.end()


if __name__ == "__main__":
    main()
