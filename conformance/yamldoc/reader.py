"""Reads typed values from YAML nodes, for tables, rules and all other files that users write. Collects every mistake
instead of stopping at the first mistake. Each method of `Reader` returns the value of a node. If the node has a wrong
type, the method records a mistake and returns None or an empty value."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from conformance.errors import UserError
from conformance.yamldoc.nodes import Location, Mistake, Node, TextError, quoted

T = TypeVar("T")


_BEGINNING = 4  # characters with which a word can begin
_PART = 6  # characters; shorter parts occur in many names
_MOST_PARTS = 3
_RULE_NUMBER = re.compile(r"([a-z]+)-\d+[a-z]?")


def suggestion(word: str, words: Collection[str]) -> str:
    """Returns ` (did you mean X?)` if a known word is similar or contains the word; else a list of the known words if
    there are few."""
    if names := similar(word, words):
        return f" (did you mean {' or '.join(names)}?)"
    if 0 < len(words) <= 16:
        return f" (known: {', '.join(words)})"
    return ""


def similar(word: str, words: Collection[str]) -> list[str]:
    """Returns the known words that are similar to a word or contain it, at most _MOST_PARTS."""
    import difflib  # imported late: only mistakes need it

    # Words are compared in lower case, so that remote_wirte is similar to REMOTE_WRITE.
    by_lower = {name.lower(): name for name in words}
    word = word[:100].lower().partition("#")[0]  # without the point of a sweep
    folder, slash, _ = word.rpartition("/")
    if number := _RULE_NUMBER.fullmatch(word):  # DEREG-10 is near to REREG-10, but means a DEREG
        folder, slash = number[1], "-"
    in_folder = [name for name in by_lower if name.startswith(folder + slash)] if slash else ()
    if (padded := re.sub(r"-(\d[a-z]?)$", r"-0\1", word)) in by_lower:  # REG-1 is REG-01
        return [by_lower[padded]]
    parts = [name for lower, name in by_lower.items() if lower in (f"{word}s", f"{word}es")]
    parts += [name for lower, name in by_lower.items() if lower.startswith(f"{word}@")]
    begun = [name for lower, name in by_lower.items() if lower.startswith(word)]
    if len(begun) == 1 and len(word) >= _BEGINNING:
        parts = parts or begun
    if len(word) >= _PART:
        parts = parts or [name for lower, name in by_lower.items() if word in lower[1:]]
    if parts:
        return parts[:_MOST_PARTS]
    # Words in the same folder are compared first, because comparing with thousands of words takes seconds.
    if near := next(
        filter(
            None,
            (difflib.get_close_matches(word, names, n=1) for names in (in_folder, by_lower)),
        ),
        None,
    ):
        return [by_lower[near[0]]]
    return []


_MANY = 3  # so many further mistakes with the same message are one line


class Reader:
    """`sha256` is the hash of the file that is read; empty for data of another origin."""

    def __init__(self, sha256: str = "") -> None:
        self.sha256 = sha256
        self._mistakes: dict[Mistake, None] = {}
        self._unused: dict[Location, str] = {}
        self._used: set[Location] = set()

    @property
    def mistakes(self) -> list[Mistake]:
        """The mistakes so far, in the order in which they were recorded."""
        return list(self._mistakes)

    def note(self, location: Location, message: str) -> None:
        """Records a mistake. If several cases of a row have the same mistake at one location, it is recorded once."""
        self._mistakes.setdefault(Mistake(location, message))

    def use(self, location: Location, lack: str) -> None:
        """Records whether a case uses a key of its row, or else what the case lacks: see `note_unused`."""
        if lack:
            self._unused.setdefault(location, lack)
        else:
            self._used.add(location)

    def note_unused(self) -> None:
        """Records a mistake for each key that no case of its row uses."""
        for location, lack in self._unused.items():
            if location not in self._used:
                self.note(location, lack)

    def mapping(
        self,
        node: Node,
        what: str,
        known: Collection[str],
        required: Collection[str] = (),
    ) -> Mapping[str, Node]:
        """Returns the fields with known keys of a mapping. Unknown and missing keys are mistakes; a misspelt key is one
        mistake, not two."""
        if not isinstance(node.value, dict):
            self.note(node.location, f"{what} must be a mapping, not {node.kind}")
            return {}
        meant: list[list[str]] = []
        for key, location in (node.keys or {}).items():
            if key not in known:
                meant.append(similar(key, known))
                self.note(location, f"unknown key {quoted(key)} in {what}{suggestion(key, known)}")
        for key in required:
            if key not in node.value and [key] not in meant:
                self.note(node.location, f"{what} lacks the key {key!r}")
        return {key: value for key, value in node.value.items() if key in known}

    def named(
        self,
        node: Node | None,
        what: str,
        reserved: Collection[str] = (),
    ) -> Mapping[str, Node]:
        """Returns a mapping whose keys are names that the writer chose: ASCII identifiers that are not reserved."""
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self.note(node.location, f"{what} must be a mapping of names, not {node.kind}")
            return {}
        for key, location in (node.keys or {}).items():
            if not key.isidentifier() or not key.isascii():
                self.note(
                    location,
                    f"invalid name {quoted(key)} in {what}; use letters, digits and _",
                )
            elif key in reserved:
                self.note(location, f"reserved name {key!r} in {what}; choose another name")
        return node.value

    def items(
        self,
        node: Node | None,
        what: str,
        words: Collection[str] = (),
    ) -> tuple[Node, ...]:
        """Returns a list. `words` are the items that it can have, if these are words."""
        if node is None:
            return ()
        if not isinstance(node.value, tuple):
            hint = _list_hint(node, words)
            self.note(node.location, f"{what} must be a list, not {node.kind}{hint}")
            return ()
        return node.value

    def text(self, node: Node | None, what: str) -> str | None:
        """Returns a text that is not blank."""
        if node is None:
            return None
        if isinstance(node.value, str) and not node.value.strip():
            self.note(node.location, f"{what} must not be blank")
            return None
        if not isinstance(node.value, str):
            self.note(node.location, f"{what} must be text, not {node.kind}{_quote_hint(node)}")
            return None
        return node.value

    def word(self, node: Node | None, what: str, known: Collection[str]) -> str | None:
        if node is None:
            return None
        if not isinstance(node.value, str):
            if isinstance(node.value, bool) or str(node.value) in known:
                hint = _quote_hint(node)
            else:
                hint = ""
            self.note(node.location, f"{what} must be a word, not {node.kind}{hint}")
            return None
        if node.value not in known:
            self.note(
                node.location,
                f"unknown {what} {quoted(node.value)}{suggestion(node.value, known)}",
            )
            return None
        return node.value

    def words(self, node: Node | None, what: str, known: Collection[str]) -> tuple[str, ...]:
        """Returns a list of known words without duplicates."""
        if node is not None and not isinstance(node.value, tuple):
            hint = _list_hint(node, known)
            self.note(node.location, f"expected a list of {_plural(what)}, not {node.kind}{hint}")
            return ()
        words_read: list[str] = []
        for item in self.items(node, _plural(what)):
            word = self.word(item, what, known)
            if word is not None and word in words_read:
                self.note(item.location, f"duplicate {what} {word}")
            elif word is not None:
                words_read.append(word)
        return tuple(words_read)

    def count(self, node: Node | None, what: str, most: int | None = None) -> int | None:
        """Returns a whole number from 0 to `most`."""
        if node is None:
            return None
        if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < 0:
            self.note(node.location, f"{what} must be a whole number, 0 or more, not {node.kind}")
            return None
        if most is not None and node.value > most:
            self.note(node.location, f"{what} must be at most {most}")
            return None
        return node.value

    def truth(self, node: Node | None, what: str) -> bool:
        """Returns a boolean; False if the node is omitted."""
        if node is None:
            return False
        if not isinstance(node.value, bool):
            self.note(node.location, f"{what} must be true or false, not {node.kind}")
            return False
        return node.value

    def parsed(self, node: Node, parse: Callable[[str | int], T]) -> T | None:
        """Returns the result of `parse` for a text or number. A ValueError of `parse` becomes a mistake."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            self.note(node.location, f"expected a number or an expression, not {node.kind}")
            return None
        try:
            return parse(value)
        except ValueError as error:
            self.note(node.location, str(error))
            return None


def _quote_hint(node: Node) -> str:
    if isinstance(node.value, (bool, int)):
        return "; write it in quotes"
    return ""


def _list_hint(node: Node, known: Collection[str]) -> str:
    """Returns how a text of known words is written as a list."""
    words = re.split(r"[|,\s]+", node.value) if isinstance(node.value, str) else ()
    if words and all(word in known for word in words):
        return f"; write [{', '.join(words)}]"
    return ""


def _plural(what: str) -> str:
    if what.endswith("y"):
        return f"{what[:-1]}ies"
    return f"{what}s"


@contextmanager
def document(path: Path, name: str = "") -> Iterator[tuple[Node, Reader]]:
    """Yields the root of a file, and a reader. After the block, raises UserError with a line for each mistake. Messages
    name the file `name`, by default the path."""
    shown = name or str(path)
    # Imported late: most commands read no such file.
    from conformance.yamldoc.parsing import read_bytes, read_data

    try:
        data = read_data(path, shown)
        root = read_bytes(data, shown)
    except TextError as error:
        raise UserError(*map(str, error.mistakes)) from error
    reader = Reader(hashlib.sha256(data).hexdigest())
    yield root, reader
    if reader.mistakes:
        raise UserError(*_folded(reader.mistakes))


def _folded(mistakes: Sequence[Mistake]) -> Iterator[str]:
    """Yields a line for each mistake, but one line for many mistakes with the same message."""
    alike: dict[str, list[Mistake]] = {}
    for mistake in mistakes:
        alike.setdefault(mistake.message, []).append(mistake)
    for mistake in mistakes:
        first, *others = alike[mistake.message]
        if len(others) < _MANY:
            yield str(mistake)
        elif mistake is first:
            yield f"{mistake}; and {len(others)} more of these, the next at {others[0].location}"
