"""Which combinations of values stand at the places of several columns of bytes, and which of them at each place.

Python's own loops cost as much a point as the calls that sweeps make; here bytes, slices and long numbers do all
places at once. Only where there are more than 256 combinations each place is looked at alone.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

_MOST = 256  # what a byte can tell apart


@dataclass(frozen=True)
class Combinations:
    """`values[ids[place]]` is what the columns have at a place; kinds are numbered as they first come."""

    ids: bytes | array[int]
    values: Sequence[tuple[int, ...]]

    def first(self, kind: int) -> int:
        """The first place of a kind."""
        return self.ids.index(kind)

    def renumbered(self, numbers: Sequence[int]) -> array[int]:
        """For each place the 16-bit number of its kind."""
        if not isinstance(self.ids, bytes):
            return array("H", map(numbers.__getitem__, self.ids))
        padded = [*numbers, *[0] * (_MOST - len(numbers))]
        halves = bytearray(2 * len(self.ids))
        low, high = (0, 1) if sys.byteorder == "little" else (1, 0)
        halves[low::2] = self.ids.translate(bytes(number & 0xFF for number in padded))
        if any(number > 0xFF for number in numbers):
            halves[high::2] = self.ids.translate(bytes(number >> 8 for number in padded))
        return array("H", bytes(halves))


def kinds(columns: Sequence[bytes]) -> Combinations:
    """The kinds of places in columns of the same length."""
    ids = bytes(len(columns[0]))
    known: list[tuple[int, ...]] = [()]
    for column in columns:
        here = distinct(column)
        if len(here) == 1:
            known = [(*each, here[0]) for each in known]
            continue
        if len(here) * len(known) > _MOST:
            return _one_by_one(columns)
        pairs = list(itertools.product(known, here))
        # No byte of this sum is above 255, so that none carries into the next.
        total = _number(ids.translate(_table(range(0, len(pairs), len(here) or 1))))
        total += _number(column.translate(_table_of(here)))
        both = total.to_bytes(len(column), "little")
        found = distinct(both)
        ids = both.translate(_table_of(found))
        known = [(*pairs[number][0], pairs[number][1]) for number in found]
    return Combinations(ids, known)


def distinct(column: bytes) -> bytes:
    """The bytes of a column, each once, as they first come."""
    found = bytearray()
    while column:
        found.append(column[0])
        column = column.translate(None, column[:1])
    return bytes(found)


def planes(words: array[int]) -> list[bytes]:
    """The low and the high bytes of 16-bit words."""
    data = words.tobytes()
    return [data[0::2], data[1::2]] if sys.byteorder == "little" else [data[1::2], data[0::2]]


def _table(numbers: Sequence[int]) -> bytes:
    return bytes([*numbers, *[0] * (_MOST - len(numbers))])


def _table_of(values: bytes) -> bytes:
    """For each of the values its place among them."""
    table = bytearray(_MOST)
    for place, value in enumerate(values):
        table[value] = place
    return bytes(table)


def _number(column: bytes) -> int:
    return int.from_bytes(column, "little")


def _one_by_one(columns: Sequence[bytes]) -> Combinations:
    known: dict[tuple[int, ...], int] = {}
    ids = array("I", (known.setdefault(each, len(known)) for each in zip(*columns, strict=True)))
    return Combinations(ids, list(known))
