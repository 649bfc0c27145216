"""Pictures of sweeps as data: the map of a space, and the data-path matrix. The page's script draws them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, prod, sqrt
from typing import Any

from conformance.model.space import Space
from conformance.model.verdict import VERDICTS, VIOLATIONS, Verdict
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points

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
_SIGNS: Mapping[str, str] = {
    Verdict.UNSUPPORTED: "○",
    **dict.fromkeys((*VIOLATIONS, Verdict.WAIVED, Verdict.STACK), "✗"),
}
_MATRIX_AXES = ("op", "place")
_WIDEST = 512


def map_of(points: Points) -> dict[str, Any]:
    """The map of a space: point n of the space is pixel n of lines of this `width`.

    `down` and `across` name what varies in each direction, from the slowest to the fastest; `colours` has the colour of
    each outcome, by its number.
    """
    digits = _digits(points.space)
    size, width, split = len(points.index), 1, len(digits)
    while split and width * width < size and width * digits[split - 1][1] <= _WIDEST:
        split -= 1
        width *= digits[split][1]
    if width * width * 4 < size:  # an axis longer than the widest picture is wrapped at the end of each line
        width, split = min(_WIDEST, 1 << ceil(sqrt(size)).bit_length()), 0
    names = [name for name, _ in digits]
    return {"width": width, "down": names[:split], "across": names[split:], "colours": _colours(points)}


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


def is_matrix(axes: Iterable[str]) -> bool:
    """Whether a space with these axes is one of the data path."""
    return set(_MATRIX_AXES) <= set(axes)


def matrix(points: Points, most_blocks: int = 24) -> dict[str, Any]:
    """The data path as a picture: operations down, positions across, a block for each combination of the other axes.

    If there would be too many blocks, the longest of the other axes are not distinguished.
    """
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
        [axis.label(value) for value in range(axis.size)] for axis in map(space.axis, _MATRIX_AXES)
    )
    blocks = [
        [title, [[_cell(points, found.get((operation, each))) for each in positions] for operation in operations]]
        for title, found in cells.items()
    ]
    return {"operations": operations, "positions": positions, "blocks": blocks}


def _cell(points: Points, counts: Counter[int] | None) -> list[str] | None:
    """The outcomes of one operation at one position: the worst verdict, its sign, and all of them as lines.

    The sign has numbers if the points have different verdicts.
    """
    if counts is None:
        return None
    outcomes = points.outcomes
    verdict = min((outcomes[each].verdict for each in counts), key=VERDICTS.index)
    worst = [each for each in counts if outcomes[each].verdict == verdict]
    sign = _SIGNS.get(verdict, "?")
    if verdict == Verdict.PASS:
        refused = {outcomes[number].expected.startswith("refused") for number in worst}
        sign = "✓⊘" if len(refused) > 1 else "⊘" if True in refused else "✓"
    number = sum(counts[each] for each in worst)
    lines = (f"{count:,} {outcomes[each].verdict}: {outcome_text(outcomes[each])}" for each, count in counts.items())
    return [verdict, sign if number == counts.total() else f"{sign} {number}/{counts.total()}", "\n".join(lines)]


def outcome_text(outcome: Outcome) -> str:
    """An outcome in one line: what the rule expects and what was observed."""
    return f"{outcome.rule} expects {outcome.expected}, {outcome.observed}"
