"""Typed looks at located YAML that collect every mistake instead of stopping at the first.

A look returns the value, or None after it has noted a mistake. Used for tables, rules and every
other file that people write; knows nothing of what the files mean.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from conformance.yamldoc.nodes import Location, Mistake, Node, quoted

T = TypeVar("T")


def suggestion(word: str, known: Collection[str]) -> str:
    """` (did you mean X?)` when one of the known words is close, else the known words if they are few."""
    # Lower case on both sides: remote_wirte is nearer to REMOTE_WRITE than its letters' codes say.
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word[:100].lower(), by_lower, n=1, cutoff=0.6)
    if near:
        return f" (did you mean {by_lower[near[0]]}?)"
    return f" (known: {', '.join(known)})" if 0 < len(known) <= 16 else ""


class Reader:
    """Collects the mistakes of one file."""

    def __init__(self) -> None:
        self._mistakes: dict[Mistake, None] = {}

    @property
    def mistakes(self) -> list[Mistake]:
        """The mistakes noted so far, in that order."""
        return list(self._mistakes)

    def note(self, location: Location, message: str) -> None:
        """Adds a mistake; the same one at the same place (seen through two expansions) counts once."""
        self._mistakes.setdefault(Mistake(location, message))

    def mapping(
        self, node: Node, what: str, known: Collection[str], required: Collection[str] = ()
    ) -> Mapping[str, Node]:
        """The fields of a mapping; unknown keys and lacking ones are mistakes."""
        if not isinstance(node.value, dict):
            self.note(node.location, f"{what} must be a mapping, not {node.kind}")
            return {}
        for key, location in (node.keys or {}).items():
            if key not in known:
                self.note(location, f"unknown key {quoted(key)} in {what}{suggestion(key, known)}")
        for key in required:
            if key not in node.value:
                self.note(node.location, f"{what} lacks the key {key!r}")
        return {key: value for key, value in node.value.items() if key in known}

    def named(self, node: Node | None, what: str, reserved: Collection[str] = ()) -> Mapping[str, Node]:
        """A mapping from names that the writer chose; plain identifiers, and none that means something else."""
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.note(node.location, f"{what} must be a mapping of names, not {node.kind}")
            return {}
        for key, location in (node.keys or {}).items():
            if not key.isidentifier() or not key.isascii():
                self.note(location, f"invalid name {quoted(key)} in {what}; use letters, digits and _")
            elif key in reserved:
                self.note(location, f"reserved name {key!r} in {what}; choose another name")
        return node.value

    def items(self, node: Node | None, what: str) -> tuple[Node, ...]:
        """The elements of a list."""
        if node is None:
            return ()
        if not isinstance(node.value, tuple):
            self.note(node.location, f"{what} must be a list, not {node.kind}")
            return ()
        return node.value

    def text(self, node: Node | None, what: str) -> str | None:
        """A non-empty string."""
        if node is None:
            return None
        if not isinstance(node.value, str) or not node.value.strip():
            self.note(node.location, f"{what} must be text, not {node.kind}{_quote_hint(node)}")
            return None
        return node.value

    def word(self, node: Node | None, what: str, known: Collection[str]) -> str | None:
        """One word out of a closed set."""
        if node is None:
            return None
        if not isinstance(node.value, str):
            hint = _quote_hint(node) if isinstance(node.value, bool) or str(node.value) in known else ""
            self.note(node.location, f"{what} must be a word, not {node.kind}{hint}")
            return None
        if node.value not in known:
            self.note(node.location, f"unknown {what} {quoted(node.value)}{suggestion(node.value, known)}")
            return None
        return node.value

    def words(self, node: Node | None, what: str, known: Collection[str]) -> tuple[str, ...]:
        """A list of different words out of a closed set."""
        if node is not None and not isinstance(node.value, tuple):
            hint = f"; write [{node.value}]" if isinstance(node.value, str) and node.value in known else ""
            self.note(node.location, f"expected a list of {_plural(what)}, not {node.kind}{hint}")
            return ()
        found: list[str] = []
        for item in self.items(node, _plural(what)):
            word = self.word(item, what, known)
            if word is not None and word in found:
                self.note(item.location, f"duplicate {what} {word}")
            elif word is not None:
                found.append(word)
        return tuple(found)

    def count(self, node: Node | None, what: str) -> int | None:
        """A number from 0 upwards."""
        if node is None:
            return None
        if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
            self.note(node.location, f"{what} must be a whole number, 0 or more, not {node.kind}")
            return None
        return node.value

    def truth(self, node: Node | None, what: str) -> bool:
        """true or false; false when it is left out."""
        if node is None:
            return False
        if not isinstance(node.value, bool):
            self.note(node.location, f"{what} must be true or false, not {node.kind}")
            return False
        return node.value

    def parsed(self, node: Node, parse: Callable[[str | int], T]) -> T | None:
        """What `parse` makes of a scalar; its ValueError becomes a mistake."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, str | int):
            self.note(node.location, f"expected a number or an expression, not {node.kind}")
            return None
        try:
            return parse(value)
        except ValueError as error:
            self.note(node.location, str(error))
            return None


def _quote_hint(node: Node) -> str:
    return "; write it in quotes" if isinstance(node.value, bool | int) else ""


def _plural(what: str) -> str:
    return f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
