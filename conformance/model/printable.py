"""Makes foreign text safe to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LEAVES = (int, float, type(None))


def one_line(text: str) -> str:
    """Returns the text as one line that cannot control a terminal or mislead a reader. A tab becomes a space. Every
    other unprintable character (a control code, a mark that changes the direction of writing, a lone surrogate) becomes
    `?`."""
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character == "\t":
        return " "
    if character.isprintable():
        return character
    return "?"


def plain(value: Any) -> Any:
    """Returns the data with `one_line` applied to every text in it."""
    if isinstance(value, str):
        return one_line(value)
    # Checked before Mapping and Sequence, because these checks take longer.
    if isinstance(value, _LEAVES):
        return value
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain(item) for item in value]
    return value
