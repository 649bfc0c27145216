"""Reads JSON of any origin, and returns only values that the rest of the suite can handle. All code that reads results,
plans, side files or the lines of workers uses this module. model/record_shape.py checks the shape of records."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from conformance.model.bounds import MOST_VALUES

MOST_LEVELS = 40  # levels of nesting; the files of the suite have at most half as many
_LARGE = 1 << 20  # bytes; the values of a longer text are counted before it is parsed
# the range of the integers that the kernel or a library can return
_LEAST, _MOST = (-(1 << 63), (1 << 64) - 1)
_LONG = len(str(1 << 63))  # characters; a number with fewer is in the range
_LONG_NUMBER = b"0" * _LONG
_ZEROS = bytes.maketrans(b"123456789", _LONG_NUMBER[:9])
_LONGEST = len(str(_LEAST))


def parse(data: bytes | str) -> Any:
    """Returns the value of a JSON text. Raises ValueError if the text is not JSON, has a key twice in an object, is
    nested too deeply, has a huge number, or is long and has more than MOST_VALUES values."""
    if len(data) > _LARGE and values_in(data) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} values")
    try:
        if isinstance(data, str):
            text = data
        else:
            text = data.decode(json.detect_encoding(data))
        value = (_CAREFUL if _has_long_number(data) else _DECODER).decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg}, at character {error.pos + 1}") from error
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8") from error
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    # fewer brackets cannot be nested too deeply
    if text.count("[") + text.count("{") >= MOST_LEVELS:
        _check_depth(value)
    return value


def _has_long_number(data: bytes | str) -> bool:
    """Whether the text could have a number with so many digits that it may be out of range. Most texts have none, and
    then no number needs to be checked."""
    if isinstance(data, str):
        data = data.encode(errors="replace")
    return _LONG_NUMBER in data.translate(_ZEROS)


def values_in(data: bytes | str) -> int:
    """Returns an upper bound of the number of values in the lists and objects of a JSON text."""
    if isinstance(data, str):
        return data.count(",") + data.count("[") + data.count("{")
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _check_depth(value: Any) -> None:
    if isinstance(value, (dict, list)):
        level = [value]
    else:
        level = []
    for _ in range(MOST_LEVELS):
        if not level:
            return
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
    if level:
        raise ValueError("nested too deeply")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        twice = next(key for number, (key, _) in enumerate(pairs) if key in dict(pairs[:number]))
        raise ValueError(f"the key {twice[:40]!r} occurs twice in an object")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


def _bounded(text: str) -> int:
    if len(text) < _LONG:
        return int(text)
    if len(text) > _LONGEST or not _LEAST <= int(text) <= _MOST:
        raise ValueError("a number is too large")
    return int(text)


_DECODER = json.JSONDecoder(
    parse_constant=_refuse,
    parse_float=_finite,
    object_pairs_hook=_once,
)
_CAREFUL = json.JSONDecoder(
    parse_constant=_refuse,
    parse_float=_finite,
    parse_int=_bounded,
    object_pairs_hook=_once,
)
