"""Checks data from JSON against the TypedDicts and dataclasses that describe them, so that only these types define the
content of a file. Unknown keys are accepted, and keys may be absent. record_shape.py checks the keys that a record must
have."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal, Optional, Union, get_args, get_origin, get_type_hints

from conformance.older_python import NotRequired, UnionType, is_typeddict

_MOST_SHOWN = 80  # characters of the wrong value, and of the list of allowed values, in a message


@dataclass(frozen=True)
class Mismatch:
    """A value that does not fit its type."""

    path: str  # such as `.observed.mr`
    value: Any
    expected: tuple[str, ...]  # the types that are allowed at this path

    def within(self, step: str) -> Mismatch:
        """Returns the mismatch with the path from the containing value; `step` is the key or index in this value."""
        return Mismatch(step + self.path, self.value, self.expected)

    def __str__(self) -> str:
        *first_types, last = self.expected
        may_be = " or ".join(filter(None, [", ".join(first_types), last]))
        return f"{self.path.removeprefix('.') or 'it'} is {_kind(self.value)}, not {may_be}"


# Returns the mismatch of a value, or None if the value fits.
Check = Callable[[Any], Optional[Mismatch]]

_PLAIN: Mapping[Any, tuple[type, str]] = {
    str: (str, "a text"),
    int: (int, "an integer"),
    bool: (bool, "true or false"),
    type(None): (type(None), "null"),
}


def mismatch(value: Any, type_: Any) -> str:
    """Describes a value that does not fit the type, such as `observed.mr.addr is "x", not an integer or null`. Returns
    "" if the value fits. A key of the outermost object may be null, which counts as absent."""
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if inner is not None}
    mismatch = check_of(type_)(value)
    if mismatch:
        return str(mismatch)
    return ""


@functools.cache
def check_of(type_: Any) -> Check:
    """Returns the check of a type. A type may contain itself."""
    origin, arguments = get_origin(type_), get_args(type_)
    if type_ is Any or type_ is object:
        return lambda value: None
    if origin is NotRequired:
        return check_of(arguments[0])
    if origin is Annotated:  # a dict with the fields of a class
        return check_of(arguments[1])
    if is_typeddict(type_) or is_dataclass(type_):
        return _object_check(type_)
    if origin in (Union, UnionType):
        return _union_check([check_of(argument) for argument in arguments])
    if origin is Literal:
        return _choice_check(arguments)
    if isinstance(type_, type) and issubclass(type_, Enum):
        return _choice_check([type_part.value for type_part in type_])
    if origin in (list, tuple, Sequence):
        return _list_check(check_of(arguments[0]))
    if origin in (dict, Mapping):
        return _mapping_check(check_of(arguments[1]))
    if type_ is float:
        return _leaf_check(_is_number, "a number")
    kind, what = _PLAIN[type_]
    return _leaf_check(
        lambda value: type(value) is kind or (kind is str and isinstance(value, str)),
        what,
    )


def _leaf_check(fits: Callable[[Any], bool], what: str) -> Check:
    return lambda value: None if fits(value) else Mismatch("", value, (what,))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _choice_check(choices: Sequence[Any]) -> Check:
    allowed = frozenset(choices)
    listed = ", ".join(map(str, choices))
    return _leaf_check(
        lambda value: isinstance(value, (str, int)) and value in allowed,
        f"one of {listed}" if len(listed) <= _MOST_SHOWN else f"one of {listed[:_MOST_SHOWN]}...",
    )


def _union_check(checks: Sequence[Check]) -> Check:
    def check(value: Any) -> Mismatch | None:
        mistakes = []
        for check in checks:
            wrong = check(value)
            if wrong is None:
                return None
            mistakes.append(wrong)
        # A problem inside the value is more helpful in a message than the fact that no type fits.
        deepest = max(mistakes, key=lambda wrong: bool(wrong.path))
        if deepest.path:
            return deepest
        return Mismatch("", value, tuple(what for wrong in mistakes for what in wrong.expected))

    return check


def _list_check(inner: Check) -> Check:
    def check(value: Any) -> Mismatch | None:
        if not isinstance(value, list):
            return Mismatch("", value, ("a list",))
        wrongs = ((number, wrong) for number, item in enumerate(value) if (wrong := inner(item)))
        return next((wrong.within(f"[{number}]") for number, wrong in wrongs), None)

    return check


def _mapping_check(inner: Check) -> Check:
    def check(value: Any) -> Mismatch | None:
        if not isinstance(value, dict):
            return Mismatch("", value, ("an object",))
        wrongs = ((key, wrong) for key, item in value.items() if (wrong := inner(item)))
        return next((wrong.within(f".{_shown(key)}") for key, wrong in wrongs), None)

    return check


def _object_check(type_: Any) -> Check:
    @functools.cache
    def fields() -> Mapping[
        str,
        Check,
    ]:  # called at the first use, because a type may contain itself
        return {
            name: check_of(hint)
            for name, hint in get_type_hints(type_, include_extras=True).items()
        }

    def check(value: Any) -> Mismatch | None:
        if not isinstance(value, dict):
            return Mismatch("", value, ("an object",))
        names = fields()
        for key, item in value.items():
            inner = names.get(key)
            if inner is not None and (wrong := inner(item)):
                return wrong.within(f".{key}")
        return None

    return check


def _kind(value: Any) -> str:
    """Returns the wrong value as JSON. Returns only the type of a list or an object."""
    if isinstance(value, (dict, list)):
        if isinstance(value, dict):
            return "an object"
        return "a list"
    return json.dumps(value, default=repr)[:_MOST_SHOWN]


def _shown(key: str) -> str:
    """Returns a key in a form that is safe for a message of one line."""
    if key.isprintable() and len(key) <= _MOST_SHOWN:
        return key
    return ascii(key[:_MOST_SHOWN])
