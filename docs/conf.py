"""Configuration of Sphinx, which makes web pages of this folder: `sphinx-build docs out/docs` (Debian: python3-sphinx,
python3-myst-parser). index.md has the order of the pages. ci/packaging/man_page.py makes the manual page."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import options

project = "rdma-cts"
author = "the rdma-cts authors"
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["findings"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_show_copyright = False
html_theme_options = {"page_width": "70rem", "fixed_sidebar": True, "show_powered_by": False}
# Links to files that are not pages work only in the checkout.
_OUTSIDE = re.compile(r"\[([^]]+)\]\(\.\./[^)]*\)")
_LINK = re.compile(r"^- \[.*?\]\(([\w-]+)\.md\)", re.MULTILINE)


def _completed(app: Any, name: str, source: list[str]) -> None:
    """Rewrites the links of the index as a table of contents in Sphinx's syntax, and adds the options to their page."""
    source[0] = _OUTSIDE.sub(r"\1", source[0])
    if name == "commands":
        source[0] += f"\n{options.text()}"
    if name == root_doc:
        pages = "\n".join(_LINK.findall(source[0]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


def setup(app: Any) -> None:
    """Called by Sphinx at its start."""
    app.connect("source-read", _completed)
