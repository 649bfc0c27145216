"""YAML text with the place of every value: safe, bounded, and never a traceback.

Reads one document into `Node`s that know their line and column, so that whoever finds a mistake
later can say where it stands. Not for meaning: what a table may say is `tables/loader.py`'s business.

Built on PyYAML's event stream, not on its loaders: events need no recursion (deep nesting is an
error message, not a crash), nothing is constructed, and a duplicate key or an alias is seen. All
mistakes that leave the structure readable are collected, and told together.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import yaml

MAX_BYTES = 1 << 18
MAX_DEPTH = 24
MAX_NUMBER = (1 << 64) - 1

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)")
_TRUTH = {"true": True, "false": False}
# What YAML 1.1 readers take for a truth value, where people mostly mean a word.
_TREACHEROUS = {"yes", "no", "on", "off", "y", "n", "true", "false"}
# Characters that YAML allows and that make a place mean something else to YAML than to an editor.
_MISLEADING = re.compile("\ufeff|[\x85\u2028\u2029]|\r(?!\n)")
_BEYOND_UNICODE = re.compile(r"\\U(?!0010|000[0-9a-fA-F])[0-9a-fA-F]{8}")
_CORE_TAG = "tag:yaml.org,2002:"
_OPENING = re.compile(r"while (?:scanning a quoted scalar|parsing a flow (?:sequence|mapping))")

# libyaml reads several times as fast. Only sound text is left to it: its complaints are worded and
# placed differently, so that whatever it objects to is read again by PyYAML's own parser.
_FAST: type | None = getattr(yaml, "CSafeLoader", None)

Scalar = str | int | bool | None


@dataclass(frozen=True)
class Location:
    """Where something stands: a file as people name it, and line and column counted from 1.

    `within` is a remark on how the value came there, such as the text an axis's value was put into.
    """

    file: str
    line: int
    column: int
    within: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Mistake:
    """One thing wrong in a file that a person wrote."""

    location: Location
    message: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}{self.location.within}"


class TextError(Exception):
    """The text is no YAML of the kind we read; carries every mistake that the reader met."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)


@dataclass(frozen=True)
class Node:
    """A value with its place. `value` is a scalar, a tuple of nodes, or a dict of key to node.

    `keys` gives the place of each key of a mapping; `plain` says that a scalar stood unquoted.
    """

    value: Scalar | tuple[Node, ...] | dict[str, Node]
    location: Location
    plain: bool = True
    keys: dict[str, Location] | None = None

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
            return f"the boolean {str(self.value).lower()}"
        if isinstance(self.value, int):
            return f"the number {self.value}"
        return f"the text {quoted(self.value)}"


def quoted(text: str) -> str:
    """The text in quotes for a message, cut where it is longer than people read."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def read_file(path: Path, name: str | None = None) -> Node:
    """The one document of the file at `path`, called `name` in messages.

    Raises TextError for what cannot be read as UTF-8 YAML within the bounds, or at all.
    """
    shown = name or str(path)
    try:
        status = path.stat()
        regular = stat.S_ISREG(status.st_mode)
        data = path.read_bytes() if regular and status.st_size <= MAX_BYTES else b""
    except OSError as error:
        _stop(Location(shown, 1, 1), f"cannot be read: {error.strerror or error}")
    if not regular:
        _stop(Location(shown, 1, 1), "not a regular file")
    if status.st_size > MAX_BYTES:
        _stop(Location(shown, 1, 1), f"larger than {MAX_BYTES} bytes; split the table")
    return read_bytes(data, shown)


def read_bytes(data: bytes, name: str) -> Node:
    """The one document in `data` (UTF-8). Raises TextError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        _stop(_location_after(before, name), f"byte 0x{data[error.start]:02x} is not UTF-8 text")
    misleading = _MISLEADING.search(text)
    if misleading:
        _stop(_location_after(text[: misleading.start()], name), _misleading(misleading[0]))
    if _FAST is not None:
        fast = _Builder(name)
        with suppress(yaml.YAMLError, ValueError, OverflowError, TextError):
            fast.read(text, _FAST)
            return fast.result()
    builder = _Builder(name)
    try:
        builder.read(text, yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        character = ord(text[error.position])
        location = _location_after(text[: error.position], name)
        builder.note(location, f"a control character that YAML forbids (U+{character:04X})")
    except yaml.MarkedYAMLError as error:
        builder.note(*_explained(error, name, builder.stack[-1].location if builder.stack else None))
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # PyYAML lets ValueError out for an escape beyond Unicode, such as "\UFFFFFFFF".
        escape = _BEYOND_UNICODE.search(text)
        location = _location_after(text[: escape.start()], name) if escape else Location(name, 1, 1)
        problem = "an escape beyond the range of Unicode" if escape else str(error).splitlines()[0]
        builder.note(location, f"not valid YAML: {problem}")
    return builder.result()


def _misleading(character: str) -> str:
    if character == "\ufeff":
        return "a byte order mark; save the file as UTF-8 without it"
    return f"a line break that most editors do not show (U+{ord(character):04X}); end lines with a line feed"


def _explained(error: yaml.MarkedYAMLError, name: str, opened: Location | None) -> tuple[Location, str]:
    """Where PyYAML's complaint belongs, and what it means to the person who wrote the file.

    `opened` is where the innermost list or mapping that has not ended begins.
    """
    problem, context = error.problem or "", error.context or ""
    mark = error.problem_mark or error.context_mark
    unfinished = "end of stream" in problem or "'<stream end>'" in problem
    message = f"not valid YAML: {problem or context}"
    if error.context_mark and unfinished and _OPENING.match(context):
        mark, message = error.context_mark, "this quote or bracket is never closed"
    elif opened and problem.startswith("expected the node content") and unfinished:
        return opened, "this quote or bracket is never closed"
    elif "found character '\\t'" in problem:
        message = "a tab; indent with spaces"
    elif error.context_mark and context == "while scanning a simple key":
        mark, message = error.context_mark, "not valid YAML: a ':' or indentation is missing after this"
    elif "expected <block end>" in problem:
        message = "not valid YAML: the indentation differs from the lines before, or a ':', ',' or quote is missing"
    elif error.context_mark and _OPENING.match(context):
        start = error.context_mark
        message += f" (in the bracket or quote that begins at {start.line + 1}:{start.column + 1})"
    return (Location(name, mark.line + 1, mark.column + 1) if mark else Location(name, 1, 1)), message


def _location_after(before: str, name: str) -> Location:
    return Location(name, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _stop(location: Location, message: str) -> NoReturn:
    raise TextError([Mistake(location, message)])


class _Open:
    """A list or mapping whose end has not been met yet. `key` is the one that awaits its value."""

    def __init__(self, location: Location, mapping: bool) -> None:
        self.location = location
        self.items: list[Node] = []
        self.fields: dict[str, Node] | None = {} if mapping else None
        self.keys: dict[str, Location] = {}
        self.key: str | None = None

    def close(self) -> Node:
        if self.fields is None:
            return Node(tuple(self.items), self.location)
        return Node(self.fields, self.location, keys=self.keys)


class _Builder:
    """Turns PyYAML's events into nodes with a stack of its own, and collects mistakes on the way."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.mistakes: list[Mistake] = []

    def note(self, location: Location, message: str) -> None:
        self.mistakes.append(Mistake(location, message))

    def read(self, text: str, loader: type) -> None:
        """Builds the tree up to the end, or up to where nothing sensible can follow."""
        for event in yaml.parse(text, Loader=loader):
            if loader is _FAST and isinstance(event, yaml.ScalarEvent) and not event.value and not event.style:
                raise yaml.YAMLError("the two parsers place a value that is not there differently")
            if not self._take(event):
                return

    def result(self) -> Node:
        """The root. Raises TextError with the mistakes, if there are any."""
        if self.root is None and not self.mistakes:
            self.note(Location(self.name, 1, 1), "the file is empty")
        if self.mistakes or self.root is None:
            raise TextError(sorted(self.mistakes, key=lambda mistake: (mistake.location.line, mistake.location.column)))
        return self.root

    def _take(self, event: yaml.Event) -> bool:
        """Takes one event; False where reading has to end."""
        mark: Any = event.start_mark  # the stubs allow for None, which the parser never gives
        location = Location(self.name, mark.line + 1, mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            if self.root is not None:
                self.note(location, "a second document; a file holds one")
                return False
            if event.version or event.tags:
                self.note(location, "directives (%YAML, %TAG) are not allowed")
        if isinstance(event, yaml.NodeEvent):
            self._refuse_indirection(event, location)
        if isinstance(event, yaml.AliasEvent):
            self._finish(Node(None, location))
        elif isinstance(event, yaml.ScalarEvent):
            self._finish(self._scalar(event, location))
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(self.stack) >= MAX_DEPTH:
                self.note(location, f"nested deeper than {MAX_DEPTH} levels")
                return False
            self.stack.append(_Open(location, isinstance(event, yaml.MappingStartEvent)))
        elif isinstance(event, yaml.CollectionEndEvent):
            self._finish(self.stack.pop().close())
        return True

    def _refuse_indirection(self, event: yaml.NodeEvent, location: Location) -> None:
        """Aliases, anchors and tags make a value come from, or turn into, something else than is seen."""
        if isinstance(event, yaml.AliasEvent):
            self.note(location, f"aliases are not allowed (*{event.anchor}); write the value out")
        elif event.anchor is not None:
            self.note(location, f"anchors are not allowed (&{event.anchor}); write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            shown = "!!" + tag.removeprefix(_CORE_TAG) if tag.startswith(_CORE_TAG) else tag
            self.note(location, f"tags are not allowed ({shown}); write the value without a tag")

    def _finish(self, node: Node) -> None:
        if not self.stack:
            self.root = node
            return
        parent = self.stack[-1]
        if parent.fields is None:
            parent.items.append(node)
        elif parent.key is None:
            parent.key = self._key(node, parent.keys)
        else:
            parent.fields[parent.key] = node
            parent.key = None

    def _key(self, node: Node, met: dict[str, Location]) -> str:
        if not isinstance(node.value, str):
            hint = "; write it in quotes" if isinstance(node.value, bool | int) else ""
            self.note(node.location, f"a key must be a word, not {node.kind}{hint}")
            return ""
        if node.value == "<<" and node.plain:
            self.note(node.location, "merge keys (<<) are not allowed; write the values out")
        elif node.value in met:
            first = met[node.value].line
            self.note(node.location, f"duplicate key {quoted(node.value)} (first in line {first})")
        met.setdefault(node.value, node.location)
        return node.value

    def _scalar(self, event: yaml.ScalarEvent, location: Location) -> Node:
        text = event.value
        if event.style:  # of a plain one PyYAML says None and libyaml nothing
            # An escape can write what the file itself must not hold: half a character, a terminal's control code.
            strange = next(filter(_is_control, text), None)
            if strange is not None:
                self.note(location, f"an escape for U+{ord(strange):04X}, which is not a printable character")
                return Node(None, location)
            return Node(text, location, plain=False)
        if text in ("", "~", "null"):
            return Node(None, location)
        if text in _TRUTH:
            return Node(_TRUTH[text], location)
        if text.lower() in _TREACHEROUS:
            self.note(location, f"{text!r} is a boolean to some YAML readers and text to others; write it in quotes")
        if _INTEGER.fullmatch(text):
            number = int(text, 0) if len(text) <= 24 else MAX_NUMBER + 1
            if abs(number) > MAX_NUMBER:
                self.note(location, "a number of more than 64 bits")
                return Node(0, location)
            return Node(number, location)
        return Node(text, location)


def _is_control(character: str) -> bool:
    """A control code other than tab and line feed, or half of a surrogate pair, which cannot be printed."""
    code = ord(character)
    return (code < 0x20 and character not in "\t\n") or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000
