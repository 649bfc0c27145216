"""Parses and checks only those values of a result that do not occur in earlier lines of the same file, because a large
file repeats most values many times. A value that was accepted once is recognized by its text. All results with this
text share one object; therefore no code may change a part of a result in place."""

from __future__ import annotations

from collections import Counter
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, cast

from conformance.model.record import ResultRecord
from conformance.model.record_shape import RESULT, completed, completed_value, mistake_in
from conformance.results.checked_json import parse, values_in

_OWN = (
    "case",
    "reason",
    "call",
    "repro",
    "duration_us",
)  # keys with a different value in almost every result
_OF_ALL = (
    "verdict",
    "effective",
)  # if one of these values is new, the whole line is parsed and checked
_MOST_LAYOUTS = 24
_TRIED = 10_000  # the number of values of each key that are always stored
_MOST_TEXT = 32 << 20  # characters: the upper bound for the texts of all stored values

# The keys of a result in the order of the line, each with its mark: the text before its value.
_Layout = tuple[tuple[str, str], ...]


class Repeated:
    """The values of the results that were accepted so far, by key and text."""

    def __init__(self) -> None:
        self._layouts: dict[
            tuple[bool, ...],
            _Layout,
        ] = {}  # by the marks of `_optional` that a line contains
        self._optional: tuple[str, ...] = ()  # the marks that some layouts have and others lack
        self._known: dict[
            tuple[str, str],
            tuple[Any, Any],
        ] = {}  # the value in the file, and the completed value
        self._stored: Counter[str] = Counter()  # the values in `_known`, by key
        self._new: Counter[str] = Counter()  # the values that were new when they were read, by key
        self._lines = 0
        self._room = _MOST_TEXT
        self._absent = completed(cast(ResultRecord, {**RESULT}))

    def read(self, line: bytes) -> tuple[ResultRecord, ResultRecord, int] | None:
        """Returns the result in a line as it is in the file, the `completed` result, and the number of values that no
        earlier result has. Returns None if the whole line must be parsed and checked."""
        if not line.isascii() or not line.startswith(b'{"type":'):
            return None
        text = line.decode()
        layout = self._layouts.get(self._marks_in(text))
        if layout:
            parts = _parts(text, layout)
        else:
            parts = None
        if record_read := parts and self._found(parts):
            self._lines += 1
        return record_read or None

    def _marks_in(self, text: str) -> tuple[bool, ...]:
        return tuple([mark in text for mark in self._optional])

    def _found(self, parts: dict[str, str]) -> tuple[ResultRecord, ResultRecord, int] | None:
        raw: dict[str, Any] = {"type": "result"}
        record_read: dict[str, Any] = {**self._absent}
        new: list[str] = []
        known_values = self._known.get
        for key, part in parts.items():
            if part_value := known_values((key, part)):
                raw[key], record_read[key] = part_value
            elif key in _OWN and (value := _own(key, part)) is not None:
                raw[key] = record_read[key] = value
            elif key in _OF_ALL or (value := _parsed(key, part)) is None:
                return None
            else:
                raw[key] = value
                new.append(key)
        if new:
            if mistake_in(
                cast(
                    ResultRecord,
                    {"type": "result", **{key: raw[key] for key in (*_OF_ALL, *new)}},
                ),
            ):
                return None
            for key in new:
                value = completed_value(key, raw[key])
                record_read[key] = raw[key] if value == raw[key] else value
                self._store(key, parts[key], raw[key], record_read[key])
        return (
            cast(ResultRecord, raw),
            cast(ResultRecord, record_read),
            sum(values_in(parts[key]) for key in new),
        )

    def _store(self, key: str, part: str, raw: Any, whole: Any) -> None:
        """Stores a new value, unless there is no room, or nearly every result has a different value for this key."""
        self._new[key] += 1
        stored = self._stored[key]
        if self._room > 0 and (stored < _TRIED or self._lines - self._new[key] > stored // 4):
            self._known[key, part] = raw, whole
            self._stored[key] += 1
            self._room -= len(part)

    def learn(self, line: bytes, raw: ResultRecord, whole: ResultRecord) -> int:
        """Stores the values of an accepted result, and replaces known values in the result by the shared objects.
        Returns the number of the result's values that no earlier result has."""
        layout, new, text = _layout(line, raw), values_in(line), line.decode(errors="replace")
        for key in self._absent.keys() - raw.keys():
            whole[key] = self._absent[key]  # type: ignore[literal-required]
        if not line.isascii() or not (parts := _parts(text, layout)):
            return new
        self._lines += 1
        for key, part in parts.items():
            if part_value := self._known.get((key, part)):
                raw[key], whole[key] = part_value  # type: ignore[literal-required]
                new -= values_in(part)
                continue
            if key not in whole:  # an unknown key whose value is null
                continue
            # If a value contains the mark of the next key, `_parts` has cut it there, and the part is not valid JSON.
            try:
                parse(_value(key, part))
            except ValueError:
                return new
            if raw[key] == whole[key]:  # type: ignore[literal-required]
                raw[key] = whole[key]  # type: ignore[literal-required]
            if part == "null" or key not in ("case", "repro", "duration_us"):
                self._store(key, part, raw[key], whole[key])  # type: ignore[literal-required]
        marks: list[set[str]] = [
            {mark for _, mark in layout_before}
            for layout_before in (*self._layouts.values(), layout)
        ]
        optional = {*self._optional, *(marks[0].union(*marks) - marks[0].intersection(*marks))}
        if len(optional) > len(self._optional) or len(self._layouts) > _MOST_LAYOUTS:
            self._optional, self._layouts = (
                tuple(optional if len(optional) < _MOST_LAYOUTS else ()),
                {},
            )
        self._layouts[self._marks_in(text)] = layout
        # `values_in` counts commas. The commas between the keys of the result are not values.
        return new - len(parts)


def _layout(line: bytes, record: ResultRecord) -> _Layout:
    if line[8:9] == b" ":
        gap = " "
    else:
        gap = ""
    marks = [(key, f',{gap}"{key}":{gap}') for key in record]
    return (("", f'{{"type":{gap}"result"'), *marks[1:])


def _parts(text: str, layout: _Layout) -> dict[str, str] | None:
    """Returns the text of each value, by key, in a line with this layout; None if the line has a different layout. The
    text of a fault begins with the verdict, because the verdict decides whether the fault is valid."""
    parts: dict[str, str] = {}
    head = layout[0][1]
    before, at = "", len(head)
    for key, mark in layout[1:]:
        end = text.find(mark, at)
        while (
            before == "fault" and text.count("{", at, end) != text.count("}", at, end) and end >= 0
        ):
            end = text.find(mark, end + 1)  # skips `call` inside the fault
        if end < 0:
            return None
        parts[before] = text[at:end]
        before, at = key, end + len(mark)
    parts[before] = text[at:-1]
    if not text.startswith(head) or parts.pop("") or text[-1] != "}":
        return None
    if "fault" in parts:
        parts["fault"] = f"{parts['verdict']} {parts['fault']}"
    return parts


def _value(key: str, part: str) -> str:
    if key == "fault":
        return part.partition(" ")[2]
    return part


def _parsed(key: str, part: str) -> Any:
    """Returns the value of a part, if it is one JSON value of printable characters without a backslash; else None."""
    if "\\" in part or not part.isprintable():
        return None
    try:
        (value,) = parse(f"[{_value(key, part)}]")  # one level deep, as it is in the line
    except ValueError:
        return None
    return value


def _own(key: str, part: str) -> str | int | None:
    """Returns the value of a part, if the part is a printable text or, for a duration, a small number; else None."""
    if key == "duration_us":
        if part.isdecimal() and part[0] != "0" and len(part) < 16:
            return int(part)
        return None
    try:
        text, end = scanstring(part, 1) if part[:1] == '"' else ("", -1)
    except ValueError:
        return None
    if end == len(part) and text.isprintable():
        return text
    return None
