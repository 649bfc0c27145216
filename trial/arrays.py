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
import operator
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from conformance.model.combinations import Conditions, Model, Point
from conformance.model.predicate import And, Expression, HasCapability, Not, Word, parse
from conformance.model.space import Space
from conformance.older_python import zip

_TRIES = 2  # the number of points of which the best is taken
_SEED = 61
FAULT = "fault"  # the parameter behind those of the model
_ORDERS = 4  # the number of orders of the parameters that are tried before the exhaustive search
_MOST_SEARCHED = 500  # sets of values that the exhaustive search examines
_MOST_STEPS = 60  # values that are tried in one order
# A point in the making: the number of a value for each parameter, or None.
_Partial = list[Optional[int]]
# The numbers of parameters, and of their values.
_Combination = tuple[tuple[int, ...], tuple[int, ...]]
_Truth = Callable[[_Partial], Optional[bool]]


class Constraints:
    """What excludes a point, for points in the making: nothing is excluded before it is certain."""

    def __init__(self, model: Model) -> None:
        self._axes = model.parameters
        space = Space(model.parameters)
        self._excluded = [self._truth(parse(text, space, {})) for text in model.excluded.values()]
        self._faults = [self._truth(parse(text, space, {})) for text in model.faults.values()]
        self._by_parameter: list[list[_Truth]] = [[] for _ in (*model.parameters, FAULT)]
        for number, text in enumerate(model.excluded.values()):
            for parameter in _involved(parse(text, space, {}), model.names):
                self._by_parameter[parameter].append(self._excluded[number])
        self._rare = {name: self._truth(parse(model.needs[name], space, {})) for name in model.rare}
        self.permitted: set[str] | None = None  # the rare needs that a point may have; None: all
        self._in_rare = {
            parameter
            for name in model.rare
            for parameter in _involved(parse(model.needs[name], space, {}), model.names)
        }
        self._in_faults = {len(model.parameters)} | {
            parameter
            for text in model.faults.values()
            for parameter in _involved(parse(text, space, {}), model.names)
        }

    def allow(self, point: _Partial, changed: Sequence[int]) -> bool:
        """Returns whether a point whose values of `changed` are new may still become valid."""
        for parameter in changed:
            if any(test(point) for test in self._by_parameter[parameter]):
                return False
        if not self._fits_fault(point, changed):
            return False
        if self.permitted is None or self._in_rare.isdisjoint(changed):
            return True
        return self.rare(point) <= self.permitted

    def _fits_fault(self, point: _Partial, changed: Sequence[int]) -> bool:
        """Returns whether the point may still have the fault that is its last value, or at most one if it has none
        yet."""
        if self._in_faults.isdisjoint(changed):
            return True
        truths = [test(point) for test in self._faults]
        fault = point[-1]
        if fault is None:
            return truths.count(True) <= 1
        return all(
            truth is None or truth is (number == fault) for number, truth in enumerate(truths, 1)
        )

    def rare(self, point: _Partial) -> set[str]:
        """Returns the rare needs that a point certainly has."""
        return {name for name, test in self._rare.items() if test(point)}

    def _truth(self, expression: Expression) -> _Truth:
        """Returns a function whose result is None as long as the expression is undecided."""
        if isinstance(expression, Word):
            names = [axis.name for axis in self._axes]
            number = names.index(expression.axis)
            value = self._axes[number].value(expression.word)
            return lambda point: None if point[number] is None else point[number] == value
        if isinstance(expression, Not):
            return _negated(self._truth(expression.part))
        assert not isinstance(expression, HasCapability)
        parts = [self._truth(part) for part in expression.parts]
        joined = _joined(parts, isinstance(expression, And))
        return _remembered(
            joined,
            sorted(_involved(expression, [each.name for each in self._axes])),
        )


def _remembered(test: _Truth, involved: Sequence[int]) -> _Truth:
    """Returns the test with its results remembered by the values of the parameters that it depends on."""
    if len(involved) < 2:
        return test
    values, results = operator.itemgetter(*involved), dict[Any, Optional[bool]]()

    def remembered(point: _Partial) -> bool | None:
        key = values(point)
        if key not in results:
            results[key] = test(point)
        return results[key]

    return remembered


def _negated(test: _Truth) -> _Truth:
    def negated(point: _Partial) -> bool | None:
        truth = test(point)
        if truth is None:
            return None
        return not truth

    return negated


def _joined(parts: Sequence[_Truth], every: bool) -> _Truth:
    deciding = not every

    def joined(point: _Partial) -> bool | None:
        undecided = False
        for part in parts:
            truth = part(point)
            if truth is deciding:
                return deciding
            undecided = undecided or truth is None
        if undecided:
            return None
        return every

    return joined


def _involved(expression: Expression, names: Sequence[str]) -> set[int]:
    if isinstance(expression, Word):
        return {names.index(expression.axis)}
    assert not isinstance(expression, HasCapability)
    parts = (expression.part,) if isinstance(expression, Not) else expression.parts
    return {number for part in parts for number in _involved(part, names)}


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

    def first(self) -> Iterator[tuple[tuple[int, ...], int]]:
        for chosen, table in self.tables.items():
            at = table.find(1)
            while at >= 0:
                yield chosen, at
                at = table.find(1, at + 1)

    def forget(self, impossible: Iterable[_Combination]) -> None:
        """Marks the combinations that contain one of the impossible combinations."""
        for smaller, values in impossible:
            pairs = dict(zip(smaller, values, strict=True))
            for chosen, table in self.tables.items():
                if pairs.keys() <= {*chosen}:
                    ranges = [
                        [pairs[number]] if number in pairs else range(self.sizes[number])
                        for number in chosen
                    ]
                    for each in itertools.product(*ranges):
                        steps = zip(each, self.strides[chosen], strict=True)
                        table[sum(value * step for value, step in steps)] = 0

    def values(self, chosen: tuple[int, ...], at: int) -> list[int]:
        strides = self.strides[chosen]
        pairs = zip(chosen, strides, strict=True)
        return [at // step % self.sizes[number] for number, step in pairs]


def covering_array(
    model: Model,
    strength: int,
    kept: Sequence[Point] = (),
    progress: Callable[[int], None] = lambda count: None,
) -> tuple[list[Point], Impossible]:
    """Returns the points, of which the first are the valid points `kept`, and the combinations for which none was
    found: almost all are impossible."""
    constraints = Constraints(model)
    axes = model.parameters
    impossible = Impossible(set(), set())
    if strength > 2:
        impossible = covering_array(model, strength - 1)[1]
    uncovered = _Uncovered([*(axis.size for axis in axes), 1 + len(model.faults)], strength)
    uncovered.forget(impossible.always)
    making = _Making(model, constraints, uncovered, impossible)
    # First the combinations without a fault and without rare needs, by points without such needs, and so on. Thus a
    # device that lacks a capability runs all combinations for which the capability is not needed.
    for faultless in (True, False):
        making.keep(kept, faultless)
        for rarities in (*range(strength), None):
            for chosen, at in uncovered.first():
                values = uncovered.values(chosen, at)
                if making.cover(chosen, values, rarities, faultless):
                    progress(len(making.points))
                elif rarities is None:
                    impossible.add((chosen, tuple(values)), faultless)
                    if not faultless:
                        uncovered.tables[chosen][at] = 0
    return making.points, impossible


@dataclass(frozen=True)
class Impossible:
    """Combinations that no point has (`always`), or no point without a fault (`faultless`)."""

    always: set[_Combination]
    faultless: set[_Combination]

    def add(self, combination: _Combination, faultless: bool) -> None:
        if faultless:
            self.faultless.add(combination)
        else:
            self.always.add(combination)

    def needs_fault(self, chosen: Sequence[int], values: Sequence[int]) -> bool:
        """Returns whether only a point with a fault can have the combination, as far as its parts show."""
        pairs = zip(chosen, values, strict=True)
        for part in itertools.combinations(pairs, 2):
            (first, second), (one_value, other_value) = zip(*part, strict=True)
            if ((first, second), (one_value, other_value)) in self.faultless:
                return True
        return False


class _Making:
    """An array in the making."""

    def __init__(
        self,
        model: Model,
        constraints: Constraints,
        uncovered: _Uncovered,
        impossible: Impossible,
    ) -> None:
        self._model, self._constraints, self._uncovered = model, constraints, uncovered
        self._impossible = impossible
        self._chance = random.Random(_SEED)
        self.points: list[Point] = []

    def keep(self, kept: Sequence[Point], faultless: bool) -> None:
        """Adds the valid points, without a fault or with one, of an earlier array, so that their ids stay the same."""
        conditions, axes = Conditions(self._model), self._model.parameters
        for point in filter(conditions.valid, kept):
            faults = conditions.faults(point)
            if bool(faults) is faultless:
                continue
            values = [axis.value(label) for axis, label in zip(axes, point, strict=True)]
            values.append(1 + [*self._model.faults].index(faults[0]) if faults else 0)
            self._uncovered.cover(values)
            self.points.append(point)

    def cover(
        self,
        chosen: tuple[int, ...],
        values: Sequence[int],
        rarities: int | None,
        faultless: bool,
    ) -> bool:
        """Adds a point with these values of the parameters `chosen`. With `rarities`, only if the values have so many
        rare needs; then the point has no others. Returns whether there is such a point."""
        axes = self._model.parameters
        start: _Partial = [None] * (len(axes) + 1)
        if faultless:
            if self._impossible.needs_fault(chosen, values):
                return False
            start[-1] = 0
        for parameter, value in zip(chosen, values, strict=True):
            start[parameter] = value
        if faultless and start[-1]:
            return False
        needs = self._constraints.rare(start)
        if rarities is not None and len(needs) != rarities:
            return False
        self._constraints.permitted = needs if rarities is not None else None
        parts = (start, chosen, self._constraints, self._uncovered, self._chance)
        if first := _completed(*parts):
            tries = [first]
        else:
            tries = []
        while tries and len(tries) < _TRIES:
            again = _completed(*parts)
            tries += [again] if again else []
        if not tries:
            return False
        _, best = max(tries, key=lambda found: found[0])
        self._uncovered.cover(best)
        pairs = zip(axes, best[:-1], strict=True)
        self.points.append(tuple(axis.labels[value] for axis, value in pairs))
        return True


def _completed(
    start: _Partial,
    chosen: Sequence[int],
    constraints: Constraints,
    uncovered: _Uncovered,
    chance: random.Random,
) -> tuple[int, list[int]] | None:
    """Returns the gain and the values of a valid point with the values of `start`; None if there is none."""
    if not constraints.allow(start, chosen):
        return None
    for _ in range(_ORDERS):
        search = _Search(start, constraints, uncovered, chance)
        if search.in_order():
            return search.total, search.values
    search = _Search(start, constraints, uncovered, chance)
    if search.narrowest_first():
        return (search.total, search.values)
    return None


class _Search:
    """A search for a valid point with the values of `start` that covers much. `total` is its gain."""

    def __init__(
        self,
        start: _Partial,
        constraints: Constraints,
        uncovered: _Uncovered,
        chance: random.Random,
    ) -> None:
        self.point, self.total, self._steps = start.copy(), 0, 0
        self._constraints, self._uncovered, self._chance = constraints, uncovered, chance

    @property
    def values(self) -> list[int]:
        return [value for value in self.point if value is not None]

    def in_order(self) -> bool:
        """Sets the parameters in a random order. Gives up after a few dead ends."""
        order = [number for number, value in enumerate(self.point) if value is None]
        self._chance.shuffle(order)
        return self._extend(order)

    def _extend(self, order: Sequence[int]) -> bool:
        if not order:
            return True
        parameter, *rest = order
        for gain, value in self._ranked(parameter):
            self._steps += 1
            if self._steps > _MOST_STEPS:
                break
            self.point[parameter] = value
            if self._constraints.allow(self.point, (parameter,)) and self._extend(rest):
                self.total += gain
                return True
        self.point[parameter] = None
        return False

    def narrowest_first(self) -> bool:
        """Sets the parameter with the fewest possible values first. Returns False if there is no point, or if none is
        found in time."""
        self._steps += 1
        if self._steps > _MOST_SEARCHED:
            return False
        allowed = self._allowed()
        if not allowed:
            return True
        parameter = min(allowed, key=lambda number: len(allowed[number]))
        for gain, value in self._ranked(parameter):
            if value in allowed[parameter]:
                self.point[parameter] = value
                if self.narrowest_first():
                    self.total += gain
                    return True
        self.point[parameter] = None
        return False

    def _allowed(self) -> dict[int, list[int]]:
        """Returns the possible values of each parameter that is not set."""
        allowed: dict[int, list[int]] = {}
        for parameter, size in enumerate(self._uncovered.sizes):
            if self.point[parameter] is not None:
                continue
            allowed[parameter] = []
            for value in range(size):
                self.point[parameter] = value
                if self._constraints.allow(self.point, (parameter,)):
                    allowed[parameter].append(value)
            self.point[parameter] = None
        return allowed

    def _ranked(self, parameter: int) -> list[tuple[int, int]]:
        """Returns (gain, value) for each value of a parameter, the greatest gain first."""
        gains = self._uncovered.gains(self.point, parameter)
        ranked = [(-gain, self._chance.random(), value) for value, gain in enumerate(gains)]
        return [(-gain, value) for gain, _, value in sorted(ranked)]
