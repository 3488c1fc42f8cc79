"""Sphinx's settings. scripts/docs prepares the source folder: docs/, the reference, and links to the listings."""

import pathlib
import re

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
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_show_search_summary = False  # summaries need a server; the site is also read as files
pygments_style = "friendly"
pygments_dark_style = "native"
highlight_language = "c"
c_maximum_signature_line_length = 100
