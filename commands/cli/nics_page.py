"""Reads the tables about drivers on the page docs/nics.md, so that what a driver does is written only there."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.tables.suite import DOCS

PAGE = DOCS / "nics.md"
# The first columns of the tables.
VIOLATIONS, ERRORS = "| driver | rules ", "| driver | for each refused request "
EVERY_DRIVER = "every driver"
_MARKDOWN = re.compile(r"\[([^]]*)\]\([^)]*\)")  # a link, with its text


def text_of_page(page: Path = PAGE) -> str:
    """Returns the page; empty if it is not installed."""
    return page.read_text() if page.is_file() else ""


def rows_about(driver: str, table: str, text: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the name in the first cell, and the other cells without markup, of the rows about a driver or about every
    driver. `table` is the beginning of the table's heading."""
    lines = itertools.dropwhile(lambda line: not line.startswith(table), text.splitlines())
    rows = itertools.takewhile(lambda line: line.startswith("|"), itertools.islice(lines, 2, None))
    for row in rows:
        names, *cells = row.strip("| ").split(" | ")
        if driver in names.split(", ") or names == EVERY_DRIVER:
            plain = [_MARKDOWN.sub(r"\1", cell).replace("`", "").strip() for cell in cells]
            yield driver if names != EVERY_DRIVER else names, plain
