"""Checks plain data, as it is read from JSON, against the types that describe it: TypedDicts and what they hold.

So the types of records and observations are the one place that says what a file may have. Keys that a type does not
name are let pass, and absent ones are not missed. Not for what a record must have (record_shape.py).
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

_MOST_SHOWN = 80  # characters of a foreign value in a message
# What is wrong with a value, after the path to it; empty if nothing is.
Check = Callable[[Any], str]

_PLAIN: Mapping[Any, tuple[type, str]] = {
    str: (str, "a text"), int: (int, "an integer"), bool: (bool, "true or false"), type(None): (type(None), "null"),
}  # fmt: skip


def mismatch(value: Any, type_: Any) -> str:
    """What does not fit the type, with the path to it, as in `observed.mr.addr is not an integer`; empty if all fits.

    A key of the outermost object may be null, which counts as absent.
    """
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if inner is not None}
    return check_of(type_)(value)


@functools.cache
def check_of(type_: Any) -> Check:
    """The check of a type. A type may contain itself."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ is Any or type_ is object:
        return lambda value: ""
    if is_typeddict(type_):
        return _object_check(type_)
    if origin in (Union, types.UnionType):
        return _union_check([check_of(each) for each in arguments])
    if origin is Literal:
        return _choice_check(arguments)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _choice_check([each.value for each in type_])
    if origin in (list, Sequence):
        return _list_check(check_of(arguments[0]))
    if origin in (dict, Mapping):
        return _mapping_check(check_of(arguments[1]))
    if type_ is float:
        return _check_number
    return _plain_check(*_PLAIN[type_])


def _plain_check(type_: type, what: str) -> Check:
    return lambda value: "" if type(value) is type_ or (type_ is str and isinstance(value, str)) else f" is not {what}"


def _check_number(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return ""
    return " is not a number"


def _choice_check(choices: Sequence[Any]) -> Check:
    allowed = frozenset(choices)

    def check(value: Any) -> str:
        if isinstance(value, str | int) and value in allowed:
            return ""
        return f" has the unknown value {ascii(value)[:_MOST_SHOWN]}"

    return check


def _union_check(checks: Sequence[Check]) -> Check:
    def check(value: Any) -> str:
        found = ""
        for each in checks:
            found = each(value)
            if not found:
                return ""
        return found

    return check


def _list_check(inner: Check) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, list):
            return " is not a list"
        return next((f"[{number}]{wrong}" for number, each in enumerate(value) if (wrong := inner(each))), "")

    return check


def _mapping_check(inner: Check) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return " is not an object"
        return next((f".{_shown(key)}{wrong}" for key, each in value.items() if (wrong := inner(each))), "")

    return check


def _object_check(type_: Any) -> Check:
    @functools.cache
    def fields() -> Mapping[str, Check]:  # when first used, because a type may contain itself
        return {name: check_of(hint) for name, hint in get_type_hints(type_).items()}

    def check(value: Any) -> str:
        if not isinstance(value, dict):
            return " is not an object"
        known = fields()
        for key, each in value.items():
            inner = known.get(key)
            if inner is not None and (wrong := inner(each)):
                return f".{key}{wrong}"
        return ""

    return check


def _shown(key: str) -> str:
    """A key in a form that is safe for a message of one line."""
    return key if key.isprintable() and len(key) <= _MOST_SHOWN else ascii(key[:_MOST_SHOWN])
