"""Chooses the points of an array that a short run carries out: first the pairs of values, then the triples. A point is
worth the combinations that no chosen point has, each by its weight: triples of what a device must do at once weigh
more than others. The same array always gives the same points."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Sequence

from conformance.model.combinations import Conditions, Model, Point
from conformance.older_python import zip

_PAIR, _TRIPLE = 20, 1
# Triples of these parameters weigh more: most mistakes of drivers that no row has seen were combinations of them.
_CORE = frozenset("region transport operation side size place elements key path_mtu flags".split())
_OF_CORE = 4
_NEARLY = 0.9  # the share of the best value for which no better point is searched
# A combination of values of some parameters, or of a fault with such values.
_Combination = tuple[object, ...]


def dense_points(model: Model, points: Sequence[Point], count: int) -> list[Point]:
    """Returns `count` of the points, in the order in which they were chosen; no slow ones."""
    conditions, worth = Conditions(model), _Worth(model)
    prompt = [point for point in points if not conditions.is_slow(point)]
    chosen: list[Point] = []
    for triples in (False, True):
        chosen += _chosen(worth, prompt, count - len(chosen), triples)
    return chosen


def _chosen(worth: _Worth, points: Sequence[Point], count: int, triples: bool) -> list[Point]:
    """Returns at most `count` points that are worth something, and covers them."""
    # The value of a point only falls, so the first whose value is up to date is the best, or nearly the best.
    waiting = [(-worth.value(point, triples), number) for number, point in enumerate(points)]
    heapq.heapify(waiting)
    chosen: list[Point] = []
    while waiting and len(chosen) < count:
        _, number = heapq.heappop(waiting)
        value = worth.value(points[number], triples)
        if waiting and value < _NEARLY * -waiting[0][0]:
            heapq.heappush(waiting, (-value, number))
        elif value:
            chosen.append(points[number])
            worth.cover(points[number])
    return chosen


class _Worth:
    """The weights of combinations, without those that are covered."""

    def __init__(self, model: Model) -> None:
        self._conditions = Conditions(model)
        self._covered: set[_Combination] = set()
        core = [name in _CORE for name in model.names]
        self._pairs = _weights(core, 2)
        self._triples = _weights(core, 3)

    def value(self, point: Point, triples: bool) -> int:
        """Returns what a point is worth: its pairs, or also its triples."""
        return sum(
            weight
            for combinations, weights in self._parts(point)[: 1 + triples]
            for combination, weight in zip(combinations, weights, strict=False)
            if combination not in self._covered
        )

    def cover(self, point: Point) -> None:
        for combinations, _ in self._parts(point):
            self._covered.update(combinations)

    def _parts(self, point: Point) -> list[tuple[Iterable[_Combination], Iterable[int]]]:
        """Returns the combinations of a point with their weights. A refused request shows little but its fault, so only
        combinations with the fault count."""
        values = [f"{number}{label}" for number, label in enumerate(point)]
        faults = self._conditions.faults(point)
        if not faults:
            pairs = itertools.combinations(values, 2)
            triples = itertools.combinations(values, 3)
            return [(pairs, itertools.repeat(_PAIR)), (triples, self._triples)]
        met = [(faults[0], value) for value in values]
        more = [(faults[0], *pair) for pair in itertools.combinations(values, 2)]
        return [(met, itertools.repeat(_PAIR)), (more, self._pairs)]


def _weights(core: Sequence[bool], strength: int) -> list[int]:
    """Returns the weight of each combination of `strength` parameters, in the order of itertools.combinations."""
    chosen = itertools.combinations(core, strength)
    return [_OF_CORE if all(inside) else _TRIPLE for inside in chosen]
