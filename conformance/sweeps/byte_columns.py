"""Finds the distinct combinations of values in several columns of bytes, and the combination at each index. Operations
on bytes, slices and long integers handle all indices at once, because an iteration of a Python loop takes as long as a
verb. Indices are handled one by one only if there may be more than 256 combinations."""

from __future__ import annotations

import itertools
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.older_python import zip

_MAX_IDS = 256  # the values of a byte


@dataclass(frozen=True)
class Combinations:
    """`values[ids[i]]` are the values of the columns at index i. Ids are numbered in the order of first occurrence."""

    ids: bytes | array[int]
    values: Sequence[tuple[int, ...]]

    def first(self, id_: int) -> int:
        return self.ids.index(id_)

    def renumbered(self, numbers: Sequence[int]) -> array[int]:
        """Returns, for each index, the 16-bit number that `numbers` has for the id at this index."""
        if not isinstance(self.ids, bytes):
            return array("H", map(numbers.__getitem__, self.ids))
        padded = [*numbers, *[0] * (_MAX_IDS - len(numbers))]
        halves = bytearray(2 * len(self.ids))
        low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
        halves[low::2] = self.ids.translate(bytes(number & 0xFF for number in padded))
        if any(number > 0xFF for number in numbers):
            halves[high::2] = self.ids.translate(bytes(number >> 8 for number in padded))
        return array("H", bytes(halves))


def combinations(columns: Sequence[bytes]) -> Combinations:
    """Returns the combinations in columns of the same length."""
    ids = bytes(len(columns[0]))
    combinations_so_far: list[tuple[int, ...]] = [()]
    for column in columns:
        values = distinct(column)
        if len(values) == 1:
            combinations_so_far = [(*combination, values[0]) for combination in combinations_so_far]
            continue
        if len(values) * len(combinations_so_far) > _MAX_IDS:
            return _one_by_one(columns)
        pairs = list(itertools.product(combinations_so_far, values))
        # No byte of this sum is above 255; therefore there is no carry into the next byte.
        total = _number(ids.translate(_table(range(0, len(pairs), len(values) or 1))))
        total += _number(column.translate(_table_of(values)))
        both = total.to_bytes(len(column), "little")
        pairs_distinct = distinct(both)
        ids = both.translate(_table_of(pairs_distinct))
        combinations_so_far = [(*pairs[number][0], pairs[number][1]) for number in pairs_distinct]
    return Combinations(ids, combinations_so_far)


def distinct(column: bytes) -> bytes:
    """Returns the distinct bytes of a column, in the order of first occurrence."""
    values = bytearray()
    while column:
        values.append(column[0])
        column = column.translate(None, column[:1])
    return bytes(values)


def byte_planes(words: array[int]) -> list[bytes]:
    """Returns the low bytes and the high bytes of 16-bit words."""
    data = words.tobytes()
    if sys.byteorder == "little":
        return [data[0::2], data[1::2]]
    return [data[1::2], data[0::2]]


def _table(numbers: Sequence[int]) -> bytes:
    return bytes([*numbers, *[0] * (_MAX_IDS - len(numbers))])


def _table_of(values: bytes) -> bytes:
    """Returns a translation table from each value to its index in `values`."""
    table = bytearray(_MAX_IDS)
    for index, value in enumerate(values):
        table[value] = index
    return bytes(table)


def _number(column: bytes) -> int:
    return int.from_bytes(column, "little")


def _one_by_one(columns: Sequence[bytes]) -> Combinations:
    numbers: dict[tuple[int, ...], int] = {}
    ids = array(
        "I", (numbers.setdefault(values, len(numbers)) for values in zip(*columns, strict=True))
    )
    return Combinations(ids, list(numbers))
