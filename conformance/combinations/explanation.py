"""Explains deviating points of a covering array: by the fewest parameters whose values tell them from the points that
are right, as an expression. sweeps/formula.py minimises the expression over these parameters."""

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from conformance.model.combinations import Conditions, Model, Point
from conformance.model.space import Axis, Space
from conformance.older_python import zip
from conformance.sweeps.formula import describe

_MOST_PARAMETERS = 4
# A space of more points is not minimised.
_MOST_POINTS = 4096
# The share of the deviating points that a set of values must have; the rest is explained by further sets.
_SHARE = 0.3
_Chosen = tuple[int, ...]


def explained(
    model: Model,
    conditions: Conditions,
    deviating: Sequence[Point],
    others: Sequence[Point],
) -> str:
    """Returns an expression that is true at the deviating points and false at the others. Its parameters are those of
    the model, which has the `conditions`, and `fault`."""
    if not others:
        return "always"
    axes = (*model.parameters, Axis("fault", ("none", *model.faults)))
    return _Explanation(
        axes,
        [_with_fault(conditions, point) for point in deviating],
        [_with_fault(conditions, point) for point in others],
    ).text()


def _with_fault(conditions: Conditions, point: Point) -> Point:
    return (*point, *(conditions.faults(point) or ["none"]))


class _Widest(NamedTuple):
    """The values that `covered` of the points have and no right point, of the chosen parameters."""

    covered: int
    chosen: _Chosen
    values: Point


class _Explanation:
    """Describes the deviating points by values of the axes that no other point has."""

    def __init__(
        self,
        axes: Sequence[Axis],
        deviating: Sequence[Point],
        others: Sequence[Point],
    ) -> None:
        self.axes, self.deviating, self.others = axes, deviating, others
        self._columns = list(zip(*others, strict=True))  # by parameter, the values of the others
        self._right_values: dict[_Chosen, set[Point]] = {}

    def _values_of_others(self, chosen: _Chosen) -> set[Point]:
        """Returns the values that the other points have. Each product of a formula needs them again."""
        if chosen not in self._right_values:
            columns = [self._columns[number] for number in chosen]
            self._right_values[chosen] = set(zip(*columns, strict=True))
        return self._right_values[chosen]

    def text(self) -> str:
        for size in range(1, _MOST_PARAMETERS + 1):
            for chosen in itertools.combinations(range(len(self.axes)), size):
                right_values = self._values_of_others(chosen)
                if not any(_values_at(point, chosen) in right_values for point in self.deviating):
                    return self._formula(chosen)
        return self._products()

    def _formula(self, chosen: _Chosen) -> str:
        """Returns the shortest expression over the chosen parameters."""
        axes = tuple(self.axes[number] for number in chosen)
        space = Space(tuple(Axis(axis.name, axis.labels, _words(axis)) for axis in axes))
        if space.size > _MOST_POINTS:
            return self._products()
        table = bytearray(space.size)
        for mark, points in ((1, self.others), (2, self.deviating)):
            for point in points:
                labels = zip(axes, _values_at(point, chosen), strict=True)
                values = {axis.name: axis.value(label) for axis, label in labels}
                table[space.point(values)] = mark
        return describe(space, bytes(table))[0]

    def _products(self) -> str:
        """Returns sets of values that no other point has, joined by `|`: several causes, or one that depends on
        much."""
        points = list(dict.fromkeys(self.deviating))
        products: list[str] = []
        while points:
            chosen, values = self._widest(points)
            pairs = zip(chosen, values, strict=True)
            names = [f"{self.axes[number].name}={value}" for number, value in pairs]
            products.append(" & ".join(names))
            points = [point for point in points if _values_at(point, chosen) != values]
        return " | ".join(products)

    def _widest(self, points: Sequence[Point]) -> tuple[_Chosen, Point]:
        """Returns the fewest values that _SHARE of the points and no right point have; else those that most points
        have."""
        best: _Widest | None = None
        columns = list(zip(*points, strict=True))
        for size in range(1, _MOST_PARAMETERS):
            for chosen in itertools.combinations(range(len(self.axes)), size):
                right_values = self._values_of_others(chosen)
                counts = Counter(zip(*(columns[number] for number in chosen), strict=True))
                for values, count in counts.most_common():
                    if best and count <= best.covered:
                        break
                    if values not in right_values:
                        best = _Widest(count, chosen, values)
            if best and best.covered >= _SHARE * len(points):
                break
        if best:
            return best.chosen, best.values
        chosen = tuple(range(len(self.axes)))
        return chosen, points[0]


def _words(axis: Axis) -> tuple[tuple[str, ...], ...]:
    return tuple((label,) for label in axis.labels)


def _values_at(point: Point, chosen: _Chosen) -> Point:
    return tuple(point[number] for number in chosen)
