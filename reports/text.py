"""Formats values and ids of rules for reports, and fits lines to a terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TextIO

from conformance.errors import PROGRAM
from conformance.model.record import ResultRecord

# characters of a line on a terminal; a file of somebody else can have texts of any length
MOST_LINE = 4000


def wrapped(
    text: str,
    width: int,
    further: str = "",
    first: str = "",
) -> list[str]:
    """Returns the lines of the text. `first` stands before the first line, and `further` before the others. No word is
    broken."""
    import textwrap  # imported late: most commands print no text that must be wrapped

    return textwrap.wrap(
        text,
        max(width, 20),
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def doubtful_row(record: ResultRecord) -> str:
    """Returns that a row is of the user's own tables, with its location; empty for the suite's rows."""
    file, line = (str(record["source"].get(key, "")) for key in ("file", "line"))
    if not file or file.startswith("cases/"):
        return ""
    return f"the row {file}:{line} is not of the suite: doubt its expectation first"


def without_packets(line: str) -> tuple[str, list[str]]:
    """Returns a line without the packets of a `wire` call in it, and these packets with the calls between them."""
    start = line.find(_PACKETS)
    if start < 0:
        return line, []
    events, depth, first = [], 0, start + len(_PACKETS)
    for position in range(first, len(line)):
        depth += _DEPTHS.get(line[position], 0)
        if depth < 0 or (not depth and line.startswith(", ", position)):
            events.append(line[first:position].lstrip(", ").removesuffix("()"))
            first = position
        if depth < 0:
            return f"{line[:start]}{line[position + 1 :]}", events
    return line, []


def kinds_of(packets: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yields the kinds of the events among packets, each with its meaning."""
    from conformance.model.event_kinds import EVENTS  # imported late: few texts explain packets

    kinds = dict.fromkeys(event.partition(" ")[0] for event in packets)
    yield from ((kind, EVENTS[kind].meaning) for kind in kinds if kind in EVENTS)


_PACKETS = ", packets=["
_DEPTHS = {**dict.fromkeys("([{", 1), **dict.fromkeys(")]}", -1)}


def fitted(line: str, stream: TextIO) -> str:
    """Returns the line, wrapped for a terminal. A line with a command that the user may copy is not wrapped. The end of
    a line that is too long is left out."""
    if len(line) > MOST_LINE:
        line = f"{line[:MOST_LINE]}… ({len(line) - MOST_LINE:,} characters are left out)"
    if not stream.isatty() or f"{PROGRAM} " in line:
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return "\n".join(wrapped(line, columns_of(stream), indent))


def columns_of(stream: TextIO) -> int:
    """Returns the width that COLUMNS or the terminal of `stream` has; 80 without a terminal."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return int(os.environ["COLUMNS"]) or 80
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields nested data as pairs of a dotted name and a text."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, str):  # most values are texts, and a check for a Mapping is slow
            yield name, value
        elif isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            singular = name.removesuffix("s")
            for number, entry in enumerate(value, 1):
                yield from flat(
                    entry if isinstance(entry, Mapping) else {"": entry},
                    f"{singular} {number}: ",
                )
        else:
            yield name, _format_leaf(value)


def format_value(data: Any) -> str:
    if isinstance(data, Mapping):
        return ", ".join(f"{name} {text}" for name, text in flat(data) if text)
    if data is None:
        return "nothing"
    return str(data)


def spaced(text: str) -> str:
    """Returns a name or formula of points with a space before each unit: `length=215pages` is one word to `--only`."""
    return _UNIT.sub(" ", text)


_UNIT = re.compile(r"(?<=\d)(?=(?:huge)?pages?\b)")


def _format_leaf(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_format_leaf(item) for item in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)


def format_rules(ids: Iterable[str], most: int | None = None) -> str:
    """Returns at most `most` of the ids, with each prefix only once, and the number of further ids."""
    every = list(ids)
    parts, last = [], ""
    for id_ in every[:most]:
        prefix, dash, number = id_.rpartition("-")
        parts.append(number if dash and prefix == last else id_)
        last = prefix
    rest = len(every) - len(parts)
    return ", ".join(parts) + (f" +{rest}" if rest else "")
