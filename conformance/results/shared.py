"""Checks the values of results, and stores equal values of many results once: a large file repeats most of its values.
Results with an equal value share one object; therefore no code may change a part of a result in place."""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Any, cast

from conformance.model.printable import one_line, plain
from conformance.model.record import ResultRecord
from conformance.model.record_shape import RESULT, completed, completed_value, mistake_in
from conformance.model.verdict import Verdict

# The keys with a different value in almost every result, or with few values, and the type of a value that needs no
# further check.
_UNSHARED: Mapping[str, type] = {
    "type": str,
    "case": str,
    "reason": str,
    "call": str,
    "repro": str,
    "duration_us": int,
    "verdict": Verdict,
    "effective": Verdict,
}
_MOST_BYTES = 32 << 20  # the upper bound for the marks of all stored values
MANY = 10_000  # of cases; a larger run has values that occur in very many results
_SHORT = 40  # characters; longer texts seldom occur twice
_VERSION = 2  # of marshal: later versions write equal values differently


class SharedValues:
    """The values of the results that were accepted so far, each with its shown form: complete and printable."""

    def __init__(self, shares_texts: bool = True) -> None:
        """With `shares_texts`, equal texts in different values are stored once: in a large file they take most of the
        memory."""
        self._shares_texts = shares_texts
        self._values: dict[tuple[str, bytes], tuple[Any, Any]] = {}
        self._room = _MOST_BYTES
        self._absent = cast(dict[str, Any], completed(cast(ResultRecord, {**RESULT})))

    def accept(
        self, record: ResultRecord, is_plain: bool = False
    ) -> tuple[ResultRecord, ResultRecord, list[Any]]:
        """Returns the result as it is in the file, its shown form, and those of its values that no earlier result has.
        `is_plain` is whether all texts of the result are known to be printable. Raises ValueError if a value does not
        fit the type of a result."""
        written: dict[str, Any] = {}
        shown = self._absent.copy()
        new: dict[str, bytes] = {}
        content: dict[str, Any] = {**record}
        for key, value in content.items():
            key = intern(key)
            if value is None:  # counts as absent
                written[key] = None
                continue
            if type(value) is _UNSHARED.get(key) and (is_plain or _is_plain(value)):
                written[key] = shown[key] = value
                continue
            if key == "fault":  # the verdict decides whether a fault is valid
                mark = marshal.dumps((str(record["verdict"]), value), _VERSION)
            else:
                mark = marshal.dumps(value, _VERSION)
            stored = self._values.get((key, mark))
            if stored:
                name = key if key in self._absent else one_line(key)
                written[key], shown[name] = stored
            else:
                new[key] = mark
                written[key] = _of_shared_texts(value) if self._shares_texts else value
        if new:
            _check(record, new)
        for key, mark in new.items():
            shown[key if is_plain else one_line(key)] = self._store(
                key, mark, written[key], is_plain
            )
        values = [written[key] for key in new]
        return cast(ResultRecord, written), cast(ResultRecord, shown), values

    def _store(self, key: str, mark: bytes, value: Any, is_plain: bool) -> Any:
        """Returns the shown form of a new value, and stores both forms while there is room."""
        shown = completed_value(key, value)
        if not is_plain:
            shown = plain(shown)
        if shown is not value and shown == value:
            shown = value
        if self._room > 0:
            self._values[key, mark] = value, shown
            self._room -= len(mark)
        return shown


def _of_shared_texts(value: Any) -> Any:
    """Returns an equal value whose keys and short texts are those of equal ones in other values."""
    if isinstance(value, dict):
        return {intern(key): _of_shared_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_of_shared_texts(item) for item in value]
    if type(value) is str and len(value) < _SHORT:
        return intern(value)
    return value


def _is_plain(value: Any) -> bool:
    return type(value) is int or value.isprintable()


def _check(record: ResultRecord, keys: Mapping[str, object]) -> None:
    checked: dict[str, Any] = {
        "type": "result",
        "verdict": record["verdict"],
        "effective": record["effective"],
    }
    for key in keys:
        checked[key] = record[key]  # type: ignore[literal-required]
    if wrong := mistake_in(cast(ResultRecord, checked)):
        raise ValueError(wrong)


def size_of(values: Sequence[Any]) -> int:
    """Returns the number of values in the lists and objects of these values."""
    size = 0
    waiting = [*values]
    while waiting:
        value = waiting.pop()
        if type(value) is dict:
            value = value.values()
        elif type(value) is not list:
            continue
        size += len(value)
        waiting += [item for item in value if type(item) is dict or type(item) is list]
    return size
