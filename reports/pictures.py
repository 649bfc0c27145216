"""Pictures of sweeps: a map of a space, with a pixel for each point, and the data-path matrix. No HTML here.

The page's script draws a map, a pixel for each point, from its width and colours and the points themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod, sqrt

from conformance.model.space import Space
from conformance.model.verdict import VERDICTS, Verdict
from conformance.sweeps.outcome import OUTSIDE, Points

# Several shades for a verdict, so that calls accepted as documented and calls refused as documented look different.
# The shades can be distinguished on white and on black; the legend has the verdicts as text.
SHADES: Mapping[str, Sequence[str]] = {
    Verdict.PASS: ("#2e9e63", "#9bd3b0", "#1f6f6a", "#c9e7cf"),
    Verdict.FAIL: ("#d4313d", "#f08a4b", "#a3123f", "#f5b7a0"),
    Verdict.CRASH: ("#5b1a8b",),
    Verdict.HANG: ("#8e44ad",),
    Verdict.WAIVED: ("#c8a415", "#e3cf76"),
    Verdict.STACK: ("#b08a5b", "#d9c3a3"),
    Verdict.UNSUPPORTED: ("#7f93ad", "#b4c2d4"),
    Verdict.UNREACHABLE: ("#a9a9a9", "#cfcfcf"),
    Verdict.BROKEN: ("#e0559a",),
    Verdict.MISSED: ("#f2a6cc",),
}
_MATRIX_AXES = ("op", "place")
_WIDEST = 512


@dataclass(frozen=True)
class Map:
    """A picture of a space; `down` and `across` name what varies in each direction, from the slowest to the fastest.

    Point n of the space is pixel n, line by line. `colours` has the colour of each outcome, by its number.
    """

    width: int
    down: tuple[str, ...]
    across: tuple[str, ...]
    colours: tuple[str, ...]


def map_of(points: Points) -> Map:
    """The map of a space, one pixel for each point."""
    digits = _digits(points.space)
    size, width, split = len(points.index), 1, len(digits)
    while split and width * width < size and width * digits[split - 1][1] <= _WIDEST:
        split -= 1
        width *= digits[split][1]
    if width * width * 4 < size:  # an axis longer than the widest picture is wrapped at the end of each line
        width, split = min(_WIDEST, 1 << ceil(sqrt(size)).bit_length()), 0
    names = [name for name, _ in digits]
    return Map(width, tuple(names[:split]), tuple(names[split:]), _colours(points))


def _digits(space: Space) -> list[tuple[str, int]]:
    """The digits of a point's number, the slowest first: each is an axis, or a single flag of an axis of subsets."""
    found: list[tuple[str, int]] = []
    for axis in space.axes:
        found += [(flag, 2) for flag in reversed(axis.flags)] or [(axis.name, axis.size)]
    return found


def _colours(points: Points) -> tuple[str, ...]:
    used: Counter[str] = Counter()
    colours = []
    for outcome in points.outcomes:
        shades = SHADES[outcome.verdict]
        colours.append(shades[used[outcome.verdict] % len(shades)])
        used[outcome.verdict] += 1
    return tuple(colours)


@dataclass(frozen=True)
class Cell:
    """The outcomes of one operation at one position, under the conditions of a block.

    `counts` has the number of points by the number of their outcome; `verdict` is the worst verdict.
    """

    verdict: str
    counts: Mapping[int, int]

    @cached_property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True)
class Matrix:
    """The data path as a picture: operations down, positions across, a block for each combination of the other axes.

    If there would be too many blocks, the longest of the other axes are not distinguished.
    """

    operations: tuple[str, ...]
    positions: tuple[str, ...]
    blocks: tuple[tuple[str, tuple[tuple[Cell | None, ...], ...]], ...]


def is_matrix(axes: Iterable[str]) -> bool:
    """Whether a space with these axes is one of the data path."""
    return set(_MATRIX_AXES) <= set(axes)


def matrix(points: Points, most_blocks: int = 24) -> Matrix:
    """The matrix of a data-path space, in at most `most_blocks` blocks."""
    space = points.space
    others = [axis for axis in space.axes if axis.name not in _MATRIX_AXES]
    while prod(axis.size for axis in others) > most_blocks:
        others.remove(max(others, key=lambda axis: axis.size))
    cells: dict[str, dict[tuple[str, str], Counter[int]]] = {}
    for point, outcome in enumerate(points.index):
        if outcome != OUTSIDE:
            labels = space.labels(point)
            block = ", ".join(f"{axis.name} {labels[axis.name]}" for axis in others)
            cells.setdefault(block, {}).setdefault((labels["op"], labels["place"]), Counter())[outcome] += 1
    operations, positions = (
        tuple(axis.label(value) for value in range(axis.size)) for axis in map(space.axis, _MATRIX_AXES)
    )
    blocks = tuple(
        (title, tuple(tuple(_cells(found, operation, positions, points)) for operation in operations))
        for title, found in cells.items()
    )
    return Matrix(operations, positions, blocks)


def _cells(
    found: Mapping[tuple[str, str], Counter[int]], operation: str, positions: Sequence[str], points: Points
) -> Iterator[Cell | None]:
    for position in positions:
        counts = found.get((operation, position))
        if counts is None:
            yield None
        else:
            worst = min((points.outcomes[each].verdict for each in counts), key=VERDICTS.index)
            yield Cell(worst, counts)
