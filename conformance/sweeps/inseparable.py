"""Finds the values of a formula that always occur together with values of another axis, because a sweep's constraint
excludes their other combinations: no point tells which of the two matters."""

import re
from collections.abc import Iterator, Sequence

from conformance.model.space import Axis, Space

_VALUES = re.compile(r"([\w-]+)!?=(?:\{([^}]*)\}|([^\s&|()!=,{}]+))")


def inseparable(space: Space, inside: int, formulas: Sequence[str]) -> list[str]:
    """Returns a text for each set of values in the formulas that occurs only with other values, and these only with
    it. `inside` is the column (see model/space.py) of the points that the constraint selects."""
    if inside == space.everywhere():
        return []
    values = dict.fromkeys(_named(space, formulas))
    return [
        f"{_text(axis, labels)} and {_text(other, tied)}"
        for axis, labels in values
        for other, tied in _tied(space, inside, axis, labels)
        if (other, tied) not in values
    ]


def _named(space: Space, formulas: Sequence[str]) -> Iterator[tuple[Axis, tuple[str, ...]]]:
    axes = {axis.name: axis for axis in space.axes if axis.labels}
    for name, several, one in _VALUES.findall(" ".join(formulas)):
        if name in axes:
            labels = {label.strip() for label in (several or one).split(",")}
            axis = axes[name]
            yield axis, tuple(label for label in axis.labels if label in labels)


def _tied(
    space: Space, inside: int, axis: Axis, labels: tuple[str, ...]
) -> Iterator[tuple[Axis, tuple[str, ...]]]:
    """Yields the values of other axes that occur exactly at the points of these values."""
    column = _column(space, inside, axis, labels)
    for other in space.axes:
        if other == axis or other.flags:
            continue
        parts = {label: _column(space, inside, other, (label,)) for label in other.labels}
        tied = tuple(label for label, part in parts.items() if part and not part & ~column)
        if tied and _column(space, inside, other, tied) == column != inside:
            yield other, tied


def _column(space: Space, inside: int, axis: Axis, labels: Sequence[str]) -> int:
    return inside & space.column(axis.name, bytes(label in labels for label in axis.labels))


def _text(axis: Axis, labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return f"{axis.name}={labels[0]}"
    return f"{axis.name}={{{','.join(labels)}}}"
