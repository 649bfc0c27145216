"""Reads results whose values all occur in earlier lines of the same file, without parsing and checking them again.

Large files repeat most values many times. A value that was accepted once is recognized by its text. All results share
the value. Therefore no code may change a part of a result in place.
"""

from collections import Counter
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, cast

from conformance.model.record import ResultRecord
from conformance.model.record_shape import RESULT, completed
from conformance.results.checked_json import parse, values_in

_OWN = ("case", "reason", "call", "repro", "duration_us")  # keys with a different value in almost every result
_MOST_LAYOUTS = 24
_TRIED = 10_000  # values of a key that are stored in any case
_MOST_TEXT = 32 << 20  # characters: the upper bound for the texts of all stored values

# The keys of a result in the order of the line, each with the text before its value.
_Layout = tuple[tuple[str, str], ...]


class Repeated:
    """The values of the results that were accepted so far, by key and text."""

    def __init__(self) -> None:
        self._layouts: list[_Layout] = []
        self._known: dict[tuple[str, str], tuple[Any, Any]] = {}  # the value in the file, and the completed value
        self._stored: Counter[str] = Counter()  # the values in `_known`, by key
        self._again: Counter[str] = Counter()  # the values that were found there, by key; "" stands for every key
        self._room = _MOST_TEXT
        self._absent = completed(cast(ResultRecord, {**RESULT}))

    def read(self, line: bytes) -> tuple[ResultRecord, ResultRecord] | None:
        """Returns two forms of the result in a line: as it is in the file, and `completed`. Returns None if the line
        has unknown values."""
        if not line.isascii() or not line.startswith(b'{"type":'):
            return None
        text = line.decode()
        for number, layout in enumerate(self._layouts):
            if (parts := _parts(text, layout)) and (found := self._found(parts)):
                self._again[""] += 1
                if number:
                    self._layouts.insert(0, self._layouts.pop(number))
                return found
        return None

    def _found(self, parts: dict[str, str]) -> tuple[ResultRecord, ResultRecord] | None:
        raw: dict[str, Any] = {"type": "result"}
        whole: dict[str, Any] = {**self._absent}
        known = self._known.get
        for key, part in parts.items():
            if found := known((key, part)):
                raw[key], whole[key] = found
            elif key in _OWN and (value := _own(part)) is not None:
                raw[key] = whole[key] = value
            else:
                return None
        return cast(ResultRecord, raw), cast(ResultRecord, whole)

    def _recurs(self, key: str) -> bool:
        """Returns whether new values of a key are stored: not if nearly every result has a value of its own."""
        stored = self._stored[key]
        return stored < _TRIED or self._again[""] + self._again[key] > stored // 4

    def learn(self, line: bytes, raw: ResultRecord, whole: ResultRecord) -> int:
        """Stores the values of an accepted result, and replaces known values in the result by the shared objects.

        Returns the number of the result's values that no earlier result has.
        """
        layout, new = _layout(line, raw), values_in(line)
        for key in self._absent.keys() - raw.keys():
            whole[key] = self._absent[key]  # type: ignore[literal-required]
        if not line.isascii() or not (parts := _parts(line.decode(), layout)):
            return new
        for key, part in parts.items():
            if found := self._known.get((key, part)):
                raw[key], whole[key] = found  # type: ignore[literal-required]
                new -= values_in(part)
                self._again[key] += 1
            elif self._room > 0 and self._recurs(key):
                # If a value contains the text that announces the next key, `_parts` cuts the value there. Then parsing
                # the part fails.
                try:
                    parse(part.partition(" ")[2] if key == "fault" else part)  # a verdict precedes a fault
                except ValueError:
                    return new
                if key not in whole:  # an unknown key whose value, null, counts as absent
                    return new
                if raw[key] == whole[key]:  # type: ignore[literal-required]
                    raw[key] = whole[key]  # type: ignore[literal-required]
                if part == "null" or key not in ("case", "repro", "duration_us"):
                    self._known[key, part] = raw[key], whole[key]  # type: ignore[literal-required]
                    self._stored[key] += 1
                    self._room -= len(part)
        if layout not in self._layouts:
            self._layouts = [layout, *self._layouts[: _MOST_LAYOUTS - 1]]
        # values_in counts commas. The commas between the keys of the result stand for no values.
        return new - len(parts)


def _layout(line: bytes, record: ResultRecord) -> _Layout:
    gap = " " if line[8:9] == b" " else ""
    marks = [(key, f',{gap}"{key}":{gap}') for key in record]
    return (("", f'{{"type":{gap}"result"'), *marks[1:])


def _parts(text: str, layout: _Layout) -> dict[str, str] | None:
    """Returns the text of each value, by key, in a line with this layout; None if the line has another layout.

    This function puts the verdict before the text of a fault. The same fault may be valid with one verdict and invalid
    with another, so a fault is known only together with its verdict.
    """
    parts: dict[str, str] = {}
    before, at = "", 0
    for key, mark in layout:
        end = text.find(mark, at)
        while before == "fault" and text.count("{", at, end) != text.count("}", at, end) and end >= 0:
            end = text.find(mark, end + 1)  # skips `call` inside the fault
        if end < 0:
            return None
        parts[before] = text[at:end]
        before, at = key, end + len(mark)
    parts[before] = text[at:-1]
    if parts.pop("") or text[-1] != "}":
        return None
    if "fault" in parts:
        parts["fault"] = f"{parts['verdict']} {parts['fault']}"
    return parts


def _own(part: str) -> str | int | None:
    """Returns the value of a part that is a text of printable characters or a small number; None for any other part."""
    if part[:1] == '"':
        try:
            text, end = scanstring(part, 1)
        except ValueError:
            return None
        return text if end == len(part) and text.isprintable() else None
    return int(part) if part.isdecimal() and part[0] != "0" and len(part) < 16 else None
