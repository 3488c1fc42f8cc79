"""Sphinx's settings. scripts/docs prepares the source folder: docs/, the reference, and links to the listings."""

import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import search_index  # noqa: E402

project = "tdict"
author = "the tdict authors"
version_lines = (pathlib.Path(__file__).resolve().parents[2] / "include/tdict/tdict.h").read_text()
release = ".".join(re.findall(r"#define TDICT_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", version_lines))
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
exclude_patterns = ["site", "listings", "examples"]
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "furo"
html_title = f"tdict {release}"
html_static_path = [str(pathlib.Path(__file__).resolve().parent / "static")]
templates_path = [str(pathlib.Path(__file__).resolve().parent / "templates")]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "native"
highlight_language = "c"
c_maximum_signature_line_length = 100


def leave_out_script(app, page, template, context, tree):
    files = context.get("script_files", [])
    context["script_files"] = [f for f in files if "furo.js" not in str(getattr(f, "filename", f))]


def setup(app):
    # dh_sphinxdoc accepts only a page that loads Sphinx's index of words. The page does not use it.
    app.connect("html-page-context", lambda app, page, template, context, tree: context.update(is_debian=app.tags.has("debian")))
    app.connect("build-finished", search_index.write)
    # debian/rules sets the tag. Debian's furo has its script as a module, which browsers do not load from files. Without
    # the script, the pages have no button for dark colors, and follow the preference of the browser.
    if app.tags.has("debian"):
        app.connect("html-page-context", leave_out_script, priority=900)
