"""Gate: sentences in the public headers and on the pages are not too long.

usage: sentences.py ROOT [FILE ...]
A sentence of a page has at most 32 words, and a sentence of a public header at most 25. Code blocks, tables, link
targets and URLs do not count. Code inside a sentence counts as one word. A doxygen command or a list item begins a new
sentence, and so does a semicolon in a list of errors. A word like tdict_create(), docs/files.md or "true:" after a full
stop also begins a sentence. With FILE, the gate checks only these files, which may also be source files."""

import pathlib
import re
import sys

import source

MOST_WORDS, MOST_WORDS_OF_HEADER = 32, 25
COMMENT = re.compile(r"/\*.*?\*/", re.S)
NEW_PART = re.compile(r"^\s*(?:[-*+]\s|\d+\.\s|#+\s|@(?:param|return|note|brief|p\s*$))")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[^a-z]|[a-z]+(?:[_(/]|:\s|\s\(default\)))")


def parts_of_page(text):
    """Returns (line number, text) for each paragraph, heading and list item."""
    text = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", "", m.group()), text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", lambda m: re.sub(r"[^\n]", "", m.group()), text, flags=re.S)
    lines = ["" if line.lstrip().startswith("|") else line for line in text.split("\n")]
    return join(lines, 1)


def parts_of_source(text):
    for match in COMMENT.finditer(text):
        lines = match.group()[2:-2].split("\n")
        lines = [re.sub(r"^\s*\*+<?(?=\s|$)|^[*<!]+", "", line) for line in lines]
        yield from join(lines, source.line_of(text, match.start()))


def join(lines, first):
    part, start = [], first
    for number, line in enumerate([*lines, ""], first):
        if part and (not line.strip() or NEW_PART.match(line)):
            yield start, " ".join(part)
            part = []
        if line.strip():
            if not part:
                start = number
            part.append(line.strip())


def sentences(part):
    part = re.sub(r"\]\([^)]*\)", "]", part)
    part = re.sub(r"``.*?``|`[^`]*`", "`code`", part)
    part = re.sub(r"\b[a-z]+://\S+", "", part)
    lists_errors = part.startswith("@return") or "#TDICT_E" in part
    for sentence in SENTENCE_END.split(part):
        sentence = re.sub(r"@(?:brief|note|return|p|param(?:\[[a-z,]+\])?)\s", " ", sentence)
        yield from sentence.split(";") if lists_errors else [sentence]


def count_words(sentence):
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def main():
    root = source.root_argument()
    report = source.Report("sentences")
    chosen = [pathlib.Path(name).resolve() for name in sys.argv[2:] if pathlib.Path(name).suffix in (".md", ".h", ".hpp", ".c")]
    pages = source.files(root, "README.md", "CONTRIBUTING.md", "docs/**/*.md", "include/tdict/*.h", "include/tdict/**/*.hpp")
    for file in chosen or pages:
        parts = parts_of_page if file.suffix == ".md" else parts_of_source
        most = MOST_WORDS_OF_HEADER if file.is_relative_to(root / "include") else MOST_WORDS
        for line, part in parts(file.read_text()):
            for sentence in sentences(part):
                report.checked()
                words = count_words(sentence)
                if words > most:
                    where = file.relative_to(root) if file.is_relative_to(root) else file
                    report.fail(f"{where}:{line}", f"a sentence has {words} words, at most {most} are allowed: "
                                f"{' '.join(sentence.split())[:70]}...")
    report.end()


if __name__ == "__main__":
    main()
