"""YAML text with the place of every value: safe, bounded, and never a traceback.

Reads one document into `Node`s that know their line and column, so that whoever finds a mistake
later can say where it stands. Not for meaning: what a table may say is `tables.py`'s business.

Built on PyYAML's event stream, not on its loaders: events need no recursion (deep nesting is an
error message, not a crash), nothing is constructed, and a duplicate key or an alias is seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import yaml

MAX_BYTES = 1 << 20
MAX_DEPTH = 24

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)")
_TRUTH = {"true": True, "false": False}
# What YAML 1.1 readers take for a truth value, where people mostly mean a word.
_TREACHEROUS = {"yes", "no", "on", "off", "y", "n", "true", "false"}
_CORE_TAGS = {"tag:yaml.org,2002:" + name for name in ("str", "int", "bool", "null", "seq", "map")}

Scalar = str | int | bool | None


@dataclass(frozen=True)
class Place:
    """Where something stands: a file as people name it, and line and column counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Mistake:
    """One thing wrong in a file that a person wrote."""

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class TextError(Exception):
    """The text is no YAML of the kind we read; carries the one mistake that stopped the reader."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake


@dataclass(frozen=True)
class Node:
    """A value with its place. `value` is a scalar, a tuple of nodes, or a dict of key to node.

    `keys` gives the place of each key of a mapping; `plain` says that a scalar stood unquoted.
    """

    value: Scalar | tuple[Node, ...] | dict[str, Node]
    place: Place
    plain: bool = True
    keys: dict[str, Place] | None = None

    @property
    def kind(self) -> str:
        """What a person would call this value in an error message."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, tuple):
            return "a list"
        if self.value is None:
            return "nothing"
        if isinstance(self.value, bool):
            return f"the truth value {str(self.value).lower()}"
        if isinstance(self.value, int):
            return f"the number {self.value}"
        return f"the text {self.value!r}"


def read_file(path: Path, name: str | None = None) -> Node:
    """The one document of the file at `path`, called `name` in messages.

    Raises TextError for what cannot be read as UTF-8 YAML within the bounds, or at all.
    """
    shown = name or str(path)
    try:
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        _stop(Place(shown, 1, 1), f"cannot be read: {error.strerror}")
    if size > MAX_BYTES:
        _stop(Place(shown, 1, 1), f"larger than {MAX_BYTES} bytes; split the table")
    return read_bytes(data, shown)


def read_bytes(data: bytes, name: str) -> Node:
    """The one document in `data` (UTF-8). Raises TextError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        _stop(_place_after(before, name), f"byte 0x{data[error.start]:02x} is not UTF-8 text")
    try:
        return _Builder(name).build(text)
    except yaml.reader.ReaderError as error:
        _stop(_place_after(text[: error.position], name), "a control character that YAML forbids")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(name, mark.line + 1, mark.column + 1) if mark else Place(name, 1, 1)
        _stop(place, f"not valid YAML: {error.problem or error.context}")
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets ValueError out for an escape beyond Unicode, such as "\UFFFFFFFF".
        _stop(Place(name, 1, 1), f"not valid YAML: {str(error).splitlines()[0]}")


def _place_after(before: str, name: str) -> Place:
    return Place(name, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _stop(place: Place, message: str) -> NoReturn:
    raise TextError(Mistake(place, message))


class _Open:
    """A list or mapping whose end has not been met yet."""

    def __init__(self, place: Place, mapping: bool) -> None:
        self.place = place
        self.items: list[Node] = []
        self.fields: dict[str, Node] | None = {} if mapping else None
        self.keys: dict[str, Place] = {}
        self.key: str | None = None

    def add(self, node: Node) -> None:
        if self.fields is None:
            self.items.append(node)
        elif self.key is None:
            self.key = self._key(node)
        else:
            self.fields[self.key] = node
            self.key = None

    def _key(self, node: Node) -> str:
        if not isinstance(node.value, str):
            hint = "; write it in quotes" if isinstance(node.value, bool | int) else ""
            _stop(node.place, f"a key must be a word, not {node.kind}{hint}")
        if node.value in self.keys:
            _stop(node.place, f"key {node.value!r} stands twice (first in line {self.keys[node.value].line})")
        self.keys[node.value] = node.place
        return node.value

    def close(self) -> Node:
        if self.fields is None:
            return Node(tuple(self.items), self.place)
        return Node(self.fields, self.place, keys=self.keys)


class _Builder:
    """Turns PyYAML's events into nodes with a stack of its own."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[_Open] = []
        self.root: Node | None = None

    def build(self, text: str) -> Node:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            self._take(event)
        if self.root is None:
            _stop(Place(self.name, 1, 1), "the file is empty")
        return self.root

    def _take(self, event: yaml.Event) -> None:
        place = Place(self.name, event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
            _stop(place, "a second document; a file holds one")
        if isinstance(event, yaml.AliasEvent):
            _stop(place, f"aliases are not allowed (*{event.anchor}); write the value out")
        if isinstance(event, yaml.NodeEvent) and event.anchor is not None:
            _stop(place, f"anchors are not allowed (&{event.anchor}); write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None and tag != "!" and tag not in _CORE_TAGS:
            _stop(place, f"tags are not allowed ({tag})")
        if isinstance(event, yaml.ScalarEvent):
            self._finish(_scalar(event, place))
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self.stack) >= MAX_DEPTH:
                _stop(place, f"nested deeper than {MAX_DEPTH} levels")
            self.stack.append(_Open(place, isinstance(event, yaml.MappingStartEvent)))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._finish(self.stack.pop().close())

    def _finish(self, node: Node) -> None:
        if self.stack:
            self.stack[-1].add(node)
        else:
            self.root = node


def _scalar(event: yaml.ScalarEvent, place: Place) -> Node:
    text = event.value
    if event.style is not None:
        return Node(text, place, plain=False)
    if text in ("", "~", "null"):
        return Node(None, place)
    if text in _TRUTH:
        return Node(_TRUTH[text], place)
    if text.lower() in _TREACHEROUS:
        _stop(place, f"{text!r} is a truth value to some YAML readers and a word to others; write it in quotes")
    if _INTEGER.fullmatch(text):
        if len(text) > 24:
            _stop(place, "a number of more than 64 bits")
        return Node(int(text, 0), place)
    return Node(text, place)
