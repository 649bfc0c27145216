"""Makes the covering array of a model: points such that each combination of `strength` values that is possible occurs
in some point. A point is begun with a combination that is not covered yet, and each other parameter gets the value that
covers most; of several points the best is taken. The same model and the same
points to keep always give the same array.

What a point must be refused for counts as one more parameter, whose first value is that there is no fault: most faults
need four values, such as a region's right, the operation, the side and the key, and each fault must meet each two values.

A refused request shows little of what its other values do. Therefore a combination that can occur in a point without a
fault is covered by such a point; points with a fault only cover the combinations that need a fault.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Optional

from conformance.model.combinations import Conditions, Model, Point
from conformance.older_python import zip
from trial.constraints import Clauses, Constraints, Domains, narrow

_TRIES = 2  # the number of points of which the best is taken
_SEED = 61
# How many values one search after another examines.
_MOST_STEPS = [50 << doubled for doubled in range(9)]
# A point in the making: the number of a value for each parameter, or None.
_Partial = list[Optional[int]]
# The numbers of some parameters, and where the table of these parameters has a combination of their values.
_Place = tuple[tuple[int, ...], int]


class _Uncovered:
    """The combinations that no point has yet: for each tuple of parameters a table of flags."""

    def __init__(self, sizes: Sequence[int], strength: int) -> None:
        self.sizes = sizes
        self.strides: dict[tuple[int, ...], list[int]] = {}
        self.tables: dict[tuple[int, ...], bytearray] = {}
        self.of: list[list[tuple[int, ...]]] = [[] for _ in sizes]
        for chosen in itertools.combinations(range(len(sizes)), strength):
            strides, stride = [], 1
            for parameter in reversed(chosen):
                strides.append(stride)
                stride *= sizes[parameter]
            self.strides[chosen] = strides[::-1]
            self.tables[chosen] = bytearray(b"\1") * stride
            for parameter in chosen:
                self.of[parameter].append(chosen)

    def gains(self, point: _Partial, parameter: int) -> list[int]:
        """Returns for each value of a parameter how many combinations it would cover with the values that are set."""
        gains = [0] * self.sizes[parameter]
        for chosen in self.of[parameter]:
            at, step = 0, 1
            for other, stride in zip(chosen, self.strides[chosen], strict=True):
                if other == parameter:
                    step = stride
                    continue
                value = point[other]
                if value is None:
                    break
                at += value * stride
            else:
                flags = self.tables[chosen][at : at + step * len(gains) : step]
                gains = [gain + flag for gain, flag in zip(gains, flags, strict=False)]
        return gains

    def cover(self, point: Sequence[int]) -> int:
        """Marks the combinations of a point. Returns how many are new."""
        new = 0
        for chosen, strides in self.strides.items():
            at = sum(point[number] * step for number, step in zip(chosen, strides, strict=True))
            new += self.tables[chosen][at]
            self.tables[chosen][at] = 0
        return new

    def first(self) -> Iterator[_Place]:
        for chosen, table in self.tables.items():
            at = table.find(1)
            while at >= 0:
                yield chosen, at
                at = table.find(1, at + 1)

    def values(self, chosen: tuple[int, ...], at: int) -> list[int]:
        strides = self.strides[chosen]
        pairs = zip(chosen, strides, strict=True)
        return [at // step % self.sizes[number] for number, step in pairs]


def covering_array(
    model: Model,
    strength: int,
    kept: Sequence[Point] = (),
    progress: Callable[[int], None] = lambda count: None,
) -> list[Point]:
    """Returns the points, of which the first are the valid points `kept`."""
    making = _Making(model, strength)
    for faultless in (True, False):
        making.keep(kept, faultless)
        # First by points without rare needs, and so on. Thus a device that lacks a capability runs all combinations for
        # which the capability is not needed.
        possible = making.possible(faultless)
        for needs, places in sorted(possible.items()):
            for place in places:
                if making.cover(place, faultless, needs < strength):
                    progress(len(making.points))
        for places in possible.values():
            for place in places:
                if making.cover(place, faultless, False):
                    progress(len(making.points))
    return making.points


class _Making:
    """An array in the making."""

    def __init__(self, model: Model, strength: int) -> None:
        self._model, self._constraints = model, Constraints(model)
        self._uncovered = _Uncovered(self._constraints.sizes, strength)
        self._chance = random.Random(_SEED)
        self._dead_ends = Counter[int]()
        self.points: list[Point] = []

    def keep(self, points: Sequence[Point], faultless: bool) -> None:
        """Adds the valid points, without a fault or with one, of an earlier array, so that their ids stay the same."""
        conditions, axes = Conditions(self._model), self._model.parameters
        for point in filter(conditions.valid, points):
            faults = conditions.faults(point)
            if bool(faults) is faultless:
                continue
            values = [axis.value(label) for axis, label in zip(axes, point, strict=True)]
            values.append(1 + [*self._model.faults].index(faults[0]) if faults else 0)
            self._uncovered.cover(values)
            self.points.append(point)

    def possible(self, faultless: bool) -> dict[int, list[_Place]]:
        """Returns the combinations that no point has and that may be possible, by the number of their rare needs."""
        places: dict[int, list[_Place]] = {}
        for place in self._uncovered.first():
            domains = self._start(place, None, faultless)
            if domains:
                needs = len(self._constraints.rare(domains))
                places.setdefault(needs, []).append(place)
        return places

    def _start(
        self,
        place: _Place,
        permitted: frozenset[str] | None,
        faultless: bool,
    ) -> Domains | None:
        """Returns the domains of a point with a combination; None if there is no such point."""
        domains, clauses = self._constraints.whole(permitted)
        changed = [*place[0]]
        for parameter, value in zip(changed, self._uncovered.values(*place), strict=True):
            domains[parameter] = 1 << value
        if faultless:
            domains[-1] &= 1
            changed.append(len(domains) - 1)
        if domains[-1] and narrow(domains, clauses, changed):
            return domains
        return None

    def cover(self, place: _Place, faultless: bool, thrifty: bool) -> bool:
        """Adds a point with a combination, if no point has it. A `thrifty` point has only the rare needs of the
        combination. Returns whether there is such a point."""
        chosen, at = place
        if not self._uncovered.tables[chosen][at]:
            return False
        permitted = None
        if thrifty:
            start = self._start(place, None, faultless)
            assert start
            permitted = self._constraints.rare(start)
        domains = self._start(place, permitted, faultless)
        if not domains:
            return False
        clauses = self._constraints.whole(permitted)[1]
        points = []
        for _ in range(_TRIES):
            search = _Search(clauses, self._uncovered, self._chance, self._dead_ends)
            values = search.completed(domains)
            if not values:
                return False
            points.append((search.total, values))
        _, best = max(points, key=lambda point: point[0])
        self._uncovered.cover(best)
        pairs = zip(self._model.parameters, best[:-1], strict=True)
        self.points.append(tuple(axis.labels[value] for axis, value in pairs))
        return True


class _GivenUp(Exception):
    """A search has examined too many values."""


class _Search:
    """A search for a valid point that covers much. `total` is its gain. `dead_ends` counts how often no value of a
    parameter was possible: such parameters are set first."""

    def __init__(
        self,
        clauses: Clauses,
        uncovered: _Uncovered,
        chance: random.Random,
        dead_ends: Counter[int],
    ) -> None:
        self.total = self._steps = 0
        self._clauses, self._uncovered, self._chance = clauses, uncovered, chance
        self._dead_ends = dead_ends

    def completed(self, domains: Domains) -> list[int]:
        """Returns the values of a point within the domains; none if there is no such point, or if it is not found in
        time."""
        order = [number for number, mask in enumerate(domains) if mask & (mask - 1)]
        for most in _MOST_STEPS:
            self._chance.shuffle(order)
            order.sort(key=lambda number: -self._dead_ends[number])
            self.total, self._steps = 0, most
            try:
                return self._extended(domains, order)
            except _GivenUp:
                continue
        return []

    def _extended(self, domains: Domains, order: Sequence[int]) -> list[int]:
        point = [_only(mask) for mask in domains]
        if not order:
            return [value for value in point if value is not None]
        parameter, *rest = order
        for gain, value in self._ranked(point, parameter):
            narrower = domains.copy()
            narrower[parameter] &= 1 << value
            if narrower[parameter] and narrow(narrower, self._clauses, [parameter]):
                self._steps -= 1
                if self._steps < 0:
                    raise _GivenUp
                values = self._extended(narrower, rest)
                if values:
                    self.total += gain
                    return values
        self._dead_ends[parameter] += 1
        return []

    def _ranked(self, point: _Partial, parameter: int) -> list[tuple[int, int]]:
        """Returns (gain, value) for each value of a parameter, the greatest gain first."""
        gains = self._uncovered.gains(point, parameter)
        ranked = [(-gain, self._chance.random(), value) for value, gain in enumerate(gains)]
        return [(-gain, value) for gain, _, value in sorted(ranked)]


def _only(mask: int) -> int | None:
    """Returns the only value of a mask; None if it has several."""
    if mask & (mask - 1):
        return None
    return mask.bit_length() - 1
