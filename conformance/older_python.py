"""What newer versions of Python have built in, for 3.9, the oldest version that the suite supports (docs/devices.md). On
a newer version, each name is Python's own."""

import builtins
import sys

if sys.version_info >= (3, 11):
    from builtins import zip
    from datetime import UTC
    from enum import StrEnum
    from hashlib import file_digest
    from itertools import pairwise
    from types import UnionType
    from typing import NotRequired, TypeAlias, is_typeddict
else:
    import enum
    import hashlib
    import itertools
    from datetime import timezone
    from typing import Any, Generic, TypeVar, Union, get_origin, get_type_hints

    UTC = timezone.utc
    UnionType = Union  # 3.9 has no type of `A | B`
    TypeAlias = Any
    _T = TypeVar("_T")
    _BLOCK = 1 << 20  # bytes
    _ABSENT = object()

    class StrEnum(str, enum.Enum):
        """An enumeration whose members are texts, also when they are formatted."""

        __str__ = str.__str__
        __format__ = str.__format__

    class NotRequired(Generic[_T]):
        """Marks a key of a TypedDict that may be absent."""

    def is_typeddict(type_):
        return isinstance(type_, type) and hasattr(type_, "__total__")

    def file_digest(file, name):
        content = hashlib.new(name)
        while block := file.read(_BLOCK):
            content.update(block)
        return content

    def pairwise(values):
        items = list(values)
        return builtins.zip(items, items[1:])

    def zip(*columns, strict=False):
        if strict:
            return _equally_long(columns)
        return builtins.zip(*columns)

    def _equally_long(columns):
        for row in itertools.zip_longest(*columns, fillvalue=_ABSENT):
            if any(value is _ABSENT for value in row):
                raise ValueError("the arguments of zip have different lengths")
            yield row


def required_keys(record: type) -> frozenset[str]:
    """Returns the keys of a TypedDict that must be present."""
    keys: frozenset[str] = record.__required_keys__  # type: ignore[attr-defined]
    if sys.version_info < (3, 11):
        hints = get_type_hints(record)
        keys = frozenset(key for key in keys if get_origin(hints[key]) is not NotRequired)
    return keys


def optional_keys(record: type) -> frozenset[str]:
    """Returns the keys of a TypedDict that may be absent."""
    return frozenset(record.__annotations__) - required_keys(record)


def bit_count(number: int) -> int:
    """Returns how many bits of a number that is not negative are 1."""
    if sys.version_info >= (3, 10):
        return number.bit_count()
    return bin(number).count("1")


__all__ = [
    "UTC",
    "NotRequired",
    "StrEnum",
    "TypeAlias",
    "UnionType",
    "bit_count",
    "file_digest",
    "is_typeddict",
    "optional_keys",
    "pairwise",
    "required_keys",
    "zip",
]
