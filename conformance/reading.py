"""Typed looks at located YAML that collect every mistake instead of stopping at the first.

A look returns the value, or None after it has noted a mistake. Used for tables, rules and every
other file that people write; knows nothing of what the files mean.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from conformance.yamltext import Mistake, Node, Place

T = TypeVar("T")


def suggestion(word: str, known: Collection[str]) -> str:
    """` (did you mean X?)` when one of the known words is close, else the known words or nothing."""
    near = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if not near:
        near = [name for name in known if name.lower() == word.lower()]
    if near:
        return f" (did you mean {near[0]}?)"
    return f" (known: {', '.join(known)})" if 0 < len(known) <= 16 else ""


class Reader:
    """Collects the mistakes of one file."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def note(self, place: Place, message: str) -> None:
        """Adds a mistake; the same one at the same place (seen through two expansions) counts once."""
        mistake = Mistake(place, message)
        if mistake not in self.mistakes:
            self.mistakes.append(mistake)

    def mapping(
        self, node: Node, what: str, known: Collection[str], required: Collection[str] = ()
    ) -> Mapping[str, Node]:
        """The fields of a mapping; unknown keys and lacking ones are mistakes."""
        if not isinstance(node.value, dict):
            self.note(node.place, f"{what} must be a mapping, not {node.kind}")
            return {}
        for key, place in (node.keys or {}).items():
            if key not in known:
                self.note(place, f"unknown key {key!r} in {what}{suggestion(key, known)}")
        for key in required:
            if key not in node.value:
                self.note(node.place, f"{what} lacks the key {key!r}")
        return {key: value for key, value in node.value.items() if key in known}

    def named(self, node: Node | None, what: str) -> Mapping[str, Node]:
        """A mapping from names that the writer chose; they must be plain identifiers."""
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.note(node.place, f"{what} must be a mapping of names, not {node.kind}")
            return {}
        for key, place in (node.keys or {}).items():
            if not key.isidentifier() or not key.isascii():
                self.note(place, f"{key!r} in {what} is no name; use letters, digits and _")
        return node.value

    def items(self, node: Node | None, what: str) -> tuple[Node, ...]:
        """The elements of a list."""
        if node is None:
            return ()
        if not isinstance(node.value, tuple):
            self.note(node.place, f"{what} must be a list, not {node.kind}")
            return ()
        return node.value

    def text(self, node: Node | None, what: str) -> str | None:
        """A non-empty string."""
        if node is None:
            return None
        if not isinstance(node.value, str) or not node.value.strip():
            hint = "; write it in quotes" if isinstance(node.value, bool | int) else ""
            self.note(node.place, f"{what} must be text, not {node.kind}{hint}")
            return None
        return node.value

    def word(self, node: Node | None, what: str, known: Collection[str]) -> str | None:
        """One word out of a closed set."""
        if node is None:
            return None
        if not isinstance(node.value, str):
            hint = "; write it in quotes" if isinstance(node.value, bool | int) else ""
            self.note(node.place, f"{what} must be a word, not {node.kind}{hint}")
            return None
        if node.value not in known:
            self.note(node.place, f"unknown {what} {node.value!r}{suggestion(node.value, known)}")
            return None
        return node.value

    def words(self, node: Node | None, what: str, known: Collection[str]) -> tuple[str, ...]:
        """A list of different words out of a closed set."""
        found: list[str] = []
        for item in self.items(node, f"the list of {what}s"):
            word = self.word(item, what, known)
            if word is not None and word in found:
                self.note(item.place, f"{what} {word} stands twice")
            elif word is not None:
                found.append(word)
        return tuple(found)

    def count(self, node: Node | None, what: str) -> int | None:
        """A number from 0 upwards."""
        if node is None:
            return None
        if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
            self.note(node.place, f"{what} must be a count, not {node.kind}")
            return None
        return node.value

    def parsed(self, node: Node, parse: Callable[[str | int], T]) -> T | None:
        """What `parse` makes of a scalar; its ValueError becomes a mistake."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, str | int):
            self.note(node.place, f"expected a number or an expression, not {node.kind}")
            return None
        try:
            return parse(value)
        except ValueError as error:
            self.note(node.place, str(error))
            return None
