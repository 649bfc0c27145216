"""Pictures of sweeps: a small map of a space, a dot a point, and the data-path matrix. No HTML here.

A map is a PNG, so that it needs no script, prints, and stays small with a hundred thousand points.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod, sqrt

from conformance.model.space import Space
from conformance.model.verdict import VERDICTS, Verdict
from conformance.sweeps.outcome import OUTSIDE, Points

# Shades for the outcomes of a verdict, so that what was accepted and what was refused, both as documented,
# stay apart. Chosen to be told apart on white and on black paper; the words are beside them.
SHADES: Mapping[str, Sequence[str]] = {
    Verdict.PASS: ("#2e9e63", "#9bd3b0", "#1f6f6a", "#c9e7cf"),
    Verdict.FAIL: ("#d4313d", "#f08a4b", "#a3123f", "#f5b7a0"),
    Verdict.CRASH: ("#5b1a8b",),
    Verdict.HANG: ("#8e44ad",),
    Verdict.WAIVED: ("#c8a415", "#e3cf76"),
    Verdict.UNSUPPORTED: ("#7f93ad", "#b4c2d4"),
    Verdict.UNREACHABLE: ("#a9a9a9", "#cfcfcf"),
    Verdict.BROKEN: ("#e0559a",),
    Verdict.MISSED: ("#f2a6cc",),
}
_MATRIX_AXES = ("op", "place")
_WIDEST = 512


@dataclass(frozen=True)
class Map:
    """A picture of a space: what varies down and across, each from the slowest to the fastest.

    Point n of the space is pixel n, line by line. `colours` are those of the outcomes by number.
    """

    png: str
    width: int
    height: int
    down: tuple[str, ...]
    across: tuple[str, ...]
    colours: tuple[str, ...]


def draw(points: Points) -> Map:
    """The map of a space, one pixel a point."""
    digits = _digits(points.space)
    size, width, split = len(points.index), 1, len(digits)
    while split and width * width < size and width * digits[split - 1][1] <= _WIDEST:
        split -= 1
        width *= digits[split][1]
    if width * width * 4 < size:  # an axis longer than a picture is wide is folded where it happens to end
        width, split = min(_WIDEST, 1 << ceil(sqrt(size)).bit_length()), 0
    height = ceil(size / width)
    colours = _colours(points)
    known = min(len(colours), 255)
    pixels = bytearray(known if each == OUTSIDE else min(each, known - 1) for each in points.index)
    pixels += bytes([known]) * (width * height - size)
    png = _png(width, height, bytes(pixels), [*colours[:known], "#000000"])
    names = [name for name, _ in digits]
    return Map(
        base64.b64encode(png).decode(), width, height, tuple(names[:split]), tuple(names[split:]), colours
    )  # fmt: skip


def _digits(space: Space) -> list[tuple[str, int]]:
    """What a point's number is made of, the slowest first: an axis, or a single flag of one over subsets."""
    found: list[tuple[str, int]] = []
    for axis in space.axes:
        found += [(flag, 2) for flag in reversed(axis.flags)] or [(axis.name, axis.size)]
    return found


def _colours(points: Points) -> tuple[str, ...]:
    met: Counter[str] = Counter()
    found = []
    for outcome in points.outcomes:
        shades = SHADES[outcome.verdict]
        found.append(shades[met[outcome.verdict] % len(shades)])
        met[outcome.verdict] += 1
    return tuple(found)


def _png(width: int, height: int, pixels: bytes, palette: Sequence[str]) -> bytes:
    """An indexed PNG of 8 bits; the palette's last colour is transparent."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + pixels[start : start + width] for start in range(0, width * height, width))
    return b"".join([
        b"\x89PNG\r\n\x1a\n",
        chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        chunk(b"PLTE", b"".join(bytes.fromhex(colour[1:]) for colour in palette)),
        chunk(b"tRNS", bytes([255] * (len(palette) - 1) + [0])),
        chunk(b"IDAT", zlib.compress(lines, 9)),
        chunk(b"IEND", b""),
    ])  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """What came of an operation at a place under one set of circumstances.

    `counts` are its points by outcome's number; `verdict` is the worst of them.
    """

    verdict: str
    counts: Mapping[int, int]

    @cached_property
    def total(self) -> int:
        """The number of points."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class Matrix:
    """The data path as a picture: operations down, places across, a block for each of the circumstances.

    A circumstance is one value of each other axis, or what is common where there would be too many.
    """

    operations: tuple[str, ...]
    places: tuple[str, ...]
    blocks: tuple[tuple[str, tuple[tuple[Cell | None, ...], ...]], ...]


def is_matrix(axes: Iterable[str]) -> bool:
    """Whether a space is of the data path."""
    return set(_MATRIX_AXES) <= set(axes)


def matrix(points: Points, most_blocks: int = 24) -> Matrix:
    """The matrix of a space of the data path."""
    space = points.space
    others = [axis for axis in space.axes if axis.name not in _MATRIX_AXES]
    while prod(axis.size for axis in others) > most_blocks:
        others.remove(max(others, key=lambda axis: axis.size))
    cells: dict[str, dict[tuple[str, str], Counter[int]]] = {}
    for point, outcome in enumerate(points.index):
        if outcome != OUTSIDE:
            at = space.labels(point)
            block = ", ".join(f"{axis.name} {at[axis.name]}" for axis in others)
            cells.setdefault(block, {}).setdefault((at["op"], at["place"]), Counter())[outcome] += 1
    operations, places = (
        tuple(axis.label(value) for value in range(axis.size)) for axis in map(space.axis, _MATRIX_AXES)
    )
    blocks = tuple(
        (title, tuple(tuple(_cells(found, operation, places, points)) for operation in operations))
        for title, found in cells.items()
    )
    return Matrix(operations, places, blocks)


def _cells(
    found: Mapping[tuple[str, str], Counter[int]], operation: str, places: Sequence[str], points: Points
) -> Iterator[Cell | None]:
    for place in places:
        counts = found.get((operation, place))
        if counts is None:
            yield None
        else:
            worst = min((points.outcomes[each].verdict for each in counts), key=VERDICTS.index)
            yield Cell(worst, counts)
