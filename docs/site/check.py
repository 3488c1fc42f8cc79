"""Opens each page of the built site in a headless browser. Checks links, messages of the console, the search, the buttons
that copy code, the charts of both themes, and that no code is wider than its box.

usage: check.py HTML [--pictures FOLDER]
The pages are opened as files, so nothing is read from a network: a request for another address is an error, too. With
--pictures, one picture of each kind of page is taken at 390, 1280 and 1920 columns."""

import argparse
import pathlib
import shutil
import sys
import urllib.parse

from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import sync_playwright

KINDS = ["index", "start/first_program", "learn/ownership", "learn/pinned_memory", "howto/rollout", "coming/tensordict",
         "reference/trees", "figures", "performance", "project/contributing"]
WIDTHS = [390, 1280, 1920]
SMALL = {"width": 390, "height": 900}
CODE_WIDTHS = [1280, 1440]  # of windows in which each line of code is visible
SEARCHES = {  # and the end of the address of one of the first results
    "tdict_to_device": "transfers.html#c.tdict_to_device",
    "num_threads": "transfers.html#tdict-transfer-options-num-threads",
    "tdict_loader_options.seed": "loaders.html#tdict-loader-options-seed",
    "pinned memory": "learn/pinned_memory.html",
    "state of a loader": "checkpoints.html#the-state-of-a-loader",
    "ownership": "learn/ownership.html",
}
FIRST_RESULTS = 3


def local(url, html):
    """The file and the anchor of a link; None for other sites."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme != "file":
        return None
    return pathlib.Path(urllib.parse.unquote(parts.path)), urllib.parse.unquote(parts.fragment)


CUT = """[...document.querySelectorAll('pre')].filter(e => e.scrollWidth > e.clientWidth + 1)
         .map(e => e.textContent.split('\\n').reduce((a, b) => a.length < b.length ? b : a))"""


def check_code(page, name, wrong):
    """Reports each box whose longest line is cut at its right edge."""
    for width in CODE_WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        wrong += [f"{name}: in a window of {width} columns, a box cuts the code {line!r}" for line in page.evaluate(CUT)]
    page.set_viewport_size(SMALL)


def visit(page, file, html, wrong):
    """Opens a page. Returns its links and the names of its anchors."""
    page.goto(f"file://{file}")
    check_code(page, file.relative_to(html), wrong)
    overflow = page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth + 1")
    if overflow:
        wrong.append(f"{file.relative_to(html)}: is wider than the window")
    links = page.evaluate("[...document.querySelectorAll('a[href]')].map(a => a.href)")
    pictures = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).map(i => i.src)")
    wrong += [f"{file.relative_to(html)}: the picture {src} is not there" for src in pictures]
    return links, set(page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)"))


def check_links(found, html, wrong):
    anchors = {file: ids for file, (_, ids) in found.items()}
    count = 0
    for file, (links, _) in found.items():
        for url in links:
            target = local(url, html)
            count += target is not None
            if target is None:
                continue
            path, anchor = target
            if not path.is_file():
                wrong.append(f"{file.relative_to(html)}: links to {path}, which is not there")
            elif anchor and path in anchors and anchor not in anchors[path]:
                wrong.append(f"{file.relative_to(html)}: links to {path.name}#{anchor}, which is not there")
    return count


def check_search(page, found, html, wrong):
    """Searches, and checks that one of the first results is the wanted place, and that every result has a text and is there."""
    for query, wanted in SEARCHES.items():
        page.goto(f"file://{html}/search.html?q={urllib.parse.quote(query)}")
        results = page.evaluate("""[...document.querySelectorAll('#search-results li')]
                                   .map(i => [i.querySelector('a').href, i.querySelector('.context').textContent])""")
        if not any(url.endswith(wanted) for url, _ in results[:FIRST_RESULTS]):
            wrong.append(f"search: {query!r} does not lead to {wanted}")
        for url, text in results:
            path, anchor = local(url, html)
            if path not in found or (anchor and anchor not in found[path][1]) or not text.strip():
                wrong.append(f"search: {query!r} has the result {url} with the text {text!r}")


def check_copy(browser, html, wrong):
    """Clicks the button of the first code of a page and compares what was copied."""
    window = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = window.new_page()
    page.goto(f"file://{html}/start/first_program.html")
    code = page.evaluate("document.querySelector('div.highlight pre').textContent")
    try:
        page.locator("button.copy").first.click(timeout=5000)
        page.locator("button.copy", has_text="Copied").wait_for(timeout=5000)
        is_copied = page.evaluate("navigator.clipboard.readText()") == code
    except PlaywrightError:
        is_copied = False
    if not is_copied:
        wrong.append("start/first_program.html: the button does not copy the code")
    window.close()


def check_charts(browser, html, wrong):
    """Checks that dark pages show the dark copies of the charts, and light pages the others."""
    for scheme in ("light", "dark"):
        page = browser.new_page(color_scheme=scheme)
        page.goto(f"file://{html}/figures.html")
        shown = page.evaluate("[...document.images].filter(i => i.src.endsWith('.svg') && i.offsetWidth).map(i => i.src)")
        if len(shown) < 4 or any(src.endswith("-dark.svg") != (scheme == "dark") for src in shown):
            wrong.append(f"figures.html: the {scheme} page shows {shown}")
        page.close()


def take_pictures(browser, html, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for width in WIDTHS:
        page = browser.new_page(viewport={"width": width, "height": 1000})
        for kind in KINDS:
            page.goto(f"file://{html}/{kind}.html")
            page.screenshot(path=str(folder / f"{kind.replace('/', '_')}-{width}.png"))
        page.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("html", type=lambda name: pathlib.Path(name).resolve())
    parser.add_argument("--pictures", type=pathlib.Path)
    options = parser.parse_args()
    wrong, found = [], {}
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SMALL)
        page.on("console", lambda m: wrong.append(f"{page.url}: console: {m.text}") if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: wrong.append(f"{page.url}: {e}"))
        page.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(f"{page.url}: asks for {r.url}"))
        for file in sorted(options.html.rglob("*.html")):
            found[file] = visit(page, file, options.html, wrong)
        count = check_links(found, options.html, wrong)
        check_copy(browser, options.html, wrong)
        check_charts(browser, options.html, wrong)
        check_search(page, found, options.html, wrong)
        if options.pictures:
            take_pictures(browser, options.html, options.pictures)
        browser.close()
    print("\n".join(wrong))
    print(f"site: {len(found)} pages, {count} links, {len(SEARCHES)} searches checked, {len(wrong)} wrong")
    sys.exit(1 if wrong or len(found) < 30 else 0)


main()
