"""Reads a YAML document into nodes with locations. Input is bounded; bad input never causes a traceback.

`tables/loader.py` and other modules check the meaning of the content. If the content is cached, these modules import
neither this module nor PyYAML.

The module uses PyYAML's event stream and not its loaders, because events need no recursion (deep nesting causes an
error message, not a crash), construct no Python objects, and show duplicate keys and aliases. Mistakes after which the
structure can still be read are collected and reported together.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import yaml

from conformance.regular_file import read_regular
from conformance.yamldoc.nodes import MAX_NUMBER, Location, Mistake, Node, TextError, quoted

MAX_BYTES = 1 << 18
MAX_DEPTH = 24

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)")
_BOOLEANS = {"true": True, "false": False}
# Words that parsers of YAML 1.1 convert to booleans, although the writer usually means text.
_AMBIGUOUS = {"yes", "no", "on", "off", "y", "n", "true", "false"}
# Characters that YAML allows, but after which a YAML parser and an editor count lines or columns differently.
_MISLEADING = re.compile("\ufeff|[\x85\u2028\u2029]|\r(?!\n)")
_BEYOND_UNICODE = re.compile(r"\\U(?!0010|000[0-9a-fA-F])[0-9a-fA-F]{8}")
_CORE_TAG = "tag:yaml.org,2002:"
_CANNOT_BEGIN = re.compile(r"found character ('.+') that cannot start any token")
# Spaces that look like one, such as U+00A0, which a web page or a keyboard can leave behind.
_NO_PLAIN_SPACE = re.compile(r"(?:^|[-:,[{]) *([^\S\t\n\r ])")
_OPENING = re.compile(r"while (?:scanning a quoted scalar|parsing a flow (?:sequence|mapping))")

# libyaml is several times as fast as PyYAML's own parser, but reports errors with different texts and locations. If
# libyaml rejects a text, PyYAML's parser therefore reads the text again.
_FAST: type | None = getattr(yaml, "CSafeLoader", None)


def read_file(path: Path, name: str | None = None) -> Node:
    """Returns the single document of the file at `path`. Messages name the file `name`, by default the path. Raises
    TextError if the file cannot be read, is larger than MAX_BYTES, or is not UTF-8 YAML of the supported kind."""
    shown = name or str(path)
    return read_bytes(read_data(path, shown), shown)


def read_data(path: Path, shown: str) -> bytes:
    """Returns the contents of the file at `path`. Raises TextError if the file cannot be read or is too large."""
    try:
        return read_regular(path, MAX_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            hint = "; split it"
        else:
            hint = ""
        _stop(Location(shown, 0, 0), f"cannot be read: {error.strerror}{hint}")


def read_bytes(data: bytes, name: str) -> Node:
    """Returns the single document in `data` (UTF-8 text). Raises TextError if `data` is invalid."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        _stop(_location_after(before, name), f"byte 0x{data[error.start]:02x} is not UTF-8 text")
    misleading = _MISLEADING.search(text)
    if misleading:
        _stop(_location_after(text[: misleading.start()], name), _misleading_message(misleading[0]))
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
        builder.note(
            *_location_and_message(
                error,
                name,
                builder.stack[-1].location if builder.stack else None,
                text.splitlines(),
            ),
        )
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # For an escape beyond the range of Unicode, such as "\UFFFFFFFF", PyYAML raises ValueError.
        escape = _BEYOND_UNICODE.search(text)
        if escape:
            location = _location_after(text[: escape.start()], name)
        else:
            location = Location(name, 1, 1)
        if escape:
            problem = "an escape beyond the range of Unicode"
        else:
            problem = str(error).splitlines()[0]
        builder.note(location, f"not valid YAML: {problem}")
    return builder.result()


def _misleading_message(character: str) -> str:
    if character == "\ufeff":
        return "a byte order mark; save the file as UTF-8 without it"
    return f"a line break that most editors do not show (U+{ord(character):04X}); end lines with a line feed"


def _location_and_message(
    error: yaml.MarkedYAMLError,
    name: str,
    opened: Location | None,
    lines: Sequence[str],
) -> tuple[Location, str]:
    """Returns the location of the mistake that caused a PyYAML error, and a message for the writer of the file.
    `opened` is the location of the innermost list or mapping without an end, and `lines` are those of the file."""
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
    elif mark and (wide := _NO_PLAIN_SPACE.search(_line(lines, mark.line))):
        message = (
            f"a space that YAML does not take for one (U+{ord(wide[1]):04X}); write a plain one"
        )
        return Location(name, mark.line + 1, wide.start(1) + 1), message
    elif problem == "mapping values are not allowed here":
        message = "not valid YAML: a second ': '; put a text that has one in quotes, or write {key: value}"
        if mark and ": " not in _line(lines, mark.line)[: mark.column]:
            message = "not valid YAML: a ': ' in the continuation of a value; indent the line less, or put the text in quotes"
    elif unable := _CANNOT_BEGIN.fullmatch(problem):
        message = f"a text cannot begin with {unable[1]}; put it in quotes"
    elif error.context_mark and context == "while scanning a simple key":
        mark, message = (
            error.context_mark,
            "not valid YAML: a ':' or indentation is missing after this",
        )
    elif "expected <block end>" in problem:
        message = "not valid YAML: the indentation differs from the lines before, or a ':', ',' or quote is missing"
    elif error.context_mark and _OPENING.match(context):
        start = error.context_mark
        message += f" (in the bracket or quote that begins at {start.line + 1}:{start.column + 1})"
    return (
        Location(name, mark.line + 1, mark.column + 1) if mark else Location(name, 1, 1)
    ), message


def _line(lines: Sequence[str], number: int) -> str:
    return lines[number] if number < len(lines) else ""


def _location_after(before: str, name: str) -> Location:
    return Location(name, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)


def _stop(location: Location, message: str) -> NoReturn:
    raise TextError([Mistake(location, message)])


class _Open:
    """A list or mapping whose end has not been read yet. `key` is the key of the value that will be read next."""

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
    """Builds nodes from PyYAML's events, with an explicit stack, and collects mistakes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[_Open] = []
        self.root: Node | None = None
        self.mistakes: list[Mistake] = []

    def note(self, location: Location, message: str) -> None:
        self.mistakes.append(Mistake(location, message))

    def read(self, text: str, loader: type) -> None:
        """Reads `text` to the end, or to the first mistake after which the rest cannot be interpreted."""
        for event in yaml.parse(text, Loader=loader):
            if (
                loader is _FAST
                and isinstance(event, yaml.ScalarEvent)
                and not event.value
                and not event.style
            ):
                raise yaml.YAMLError("the two parsers give different locations to an omitted value")
            if not self._process(event):
                return

    def result(self) -> Node:
        if self.root is None and not self.mistakes:
            self.note(Location(self.name, 1, 1), "the file is empty")
        if self.mistakes or self.root is None:
            raise TextError(
                sorted(
                    self.mistakes,
                    key=lambda mistake: (mistake.location.line, mistake.location.column),
                ),
            )
        return self.root

    def _process(self, event: yaml.Event) -> bool:
        """Processes one event. Returns False if the rest of the text cannot be interpreted."""
        mark: Any = event.start_mark  # the type stubs allow None, but the parser always sets it
        location = Location(self.name, mark.line + 1, mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent):
            if self.root is not None:
                self.note(location, "a second document; a file can have only one")
                return False
            if event.version or event.tags:
                self.note(location, "directives (%YAML, %TAG) are not allowed")
        if isinstance(event, yaml.NodeEvent):
            self._reject_indirection(event, location)
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

    def _reject_indirection(self, event: yaml.NodeEvent, location: Location) -> None:
        """Reports aliases, anchors and tags, because they give a value a meaning that its text does not show."""
        if isinstance(event, yaml.AliasEvent):
            self.note(location, f"aliases are not allowed (*{event.anchor}); write the value out")
        elif event.anchor is not None:
            self.note(location, f"anchors are not allowed (&{event.anchor}); write the value out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            if tag.startswith(_CORE_TAG):
                shown = "!!" + tag.removeprefix(_CORE_TAG)
            else:
                shown = tag
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

    def _key(self, node: Node, earlier: dict[str, Location]) -> str:
        if not isinstance(node.value, str):
            if isinstance(node.value, (bool, int)):
                hint = "; write it in quotes"
            else:
                hint = ""
            self.note(node.location, f"a key must be a word, not {node.kind}{hint}")
            return ""
        if node.value == "<<" and node.plain:
            self.note(node.location, "merge keys (<<) are not allowed; write the values out")
        elif node.value in earlier:
            first = earlier[node.value].line
            self.note(node.location, f"duplicate key {quoted(node.value)} (first in line {first})")
        earlier.setdefault(node.value, node.location)
        return node.value

    def _scalar(self, event: yaml.ScalarEvent, location: Location) -> Node:
        text = event.value
        if event.style:  # for a plain scalar the style is None in PyYAML and empty in libyaml
            # An escape can produce characters that a file cannot have: half of a surrogate pair, or control codes.
            unprintable = next(filter(_is_unprintable, text), None)
            if unprintable is not None:
                self.note(
                    location,
                    f"an escape for U+{ord(unprintable):04X}, which is not a printable character",
                )
                return Node(None, location)
            return Node(text, location, plain=False)
        if text in ("", "~", "null"):
            return Node(None, location)
        if text in _BOOLEANS:
            return Node(_BOOLEANS[text], location)
        if text.lower() in _AMBIGUOUS:
            self.note(
                location,
                f"{text!r} is a boolean to some YAML readers; write true or false, or a text in quotes",
            )
        if _INTEGER.fullmatch(text):
            if len(text) <= 24:
                number = int(text, 0)
            else:
                number = MAX_NUMBER + 1
            if abs(number) > MAX_NUMBER:
                self.note(location, "a number of more than 64 bits")
                return Node(0, location)
            return Node(number, location)
        return Node(text, location)


def _is_unprintable(character: str) -> bool:
    """Returns whether a character is a control code other than tab and line feed, or half of a surrogate pair."""
    code = ord(character)
    return (
        (code < 0x20 and character not in "\t\n") or 0x7F <= code < 0xA0 or 0xD800 <= code < 0xE000
    )
