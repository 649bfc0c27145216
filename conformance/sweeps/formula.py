"""Finds the shortest Boolean formula that describes a set of points, such as the deviating points, by flags and values.

First, axes on which the set does not depend are removed, and values of an axis that the set does not distinguish are
merged. Then sympy minimises the formula. The formula distinguishes the deviating points from the other points with the
same expectation; points with a different expectation are ignored.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from conformance import cache
from conformance.model.space import Space
from conformance.model.verdict import NOT_TESTABLE
from conformance.older_python import TypeAlias, zip
from conformance.sweeps.outcome import OUTSIDE, Points

# sympy takes a third of a second for 8 variables and half a minute for 11. A set with more than 8 is first split.
MAX_VARIABLES = 8
# The maximum number of parts of a split set: a longer formula would not help a user.
_MAX_PARTS = 64
# the maximum number of cached sums of products; default runs of one stack need twenty
_MOST_KEPT = 10_000
# The maximum number of sets that are minimised for one sweep, at 0.3 s each; recorded sweeps needed fewer than ten.
_MOST_MINIMISED = 70
ALWAYS, NEVER = "always", "never"
# literals: variable, class, whether negated
_Product: TypeAlias = "Sequence[tuple[int, int, bool]]"
NO_SYMPY = "not described, since sympy is not installed (Debian: python3-sympy)"


@dataclass(frozen=True)
class Explanation:
    """`when` is the formula; `minimal` is whether it is the shortest sum of products. `of` is the number of tested
    points with the same expectation; `smallest` is the simplest deviating point."""

    when: str
    minimal: bool
    of: int
    smallest: int


@dataclass
class Effort:
    """The remaining effort for the formulas of one sweep: the number of sets that may still be minimised."""

    left: int = _MOST_MINIMISED


def explain(
    points: Points,
    number: int,
    effort: Effort | None = None,
    known: str = "",
) -> Explanation:
    """Returns the explanation of the points with the outcome `number`; without a formula if no effort is left. `known`
    is used as the formula if it is given."""
    outcome_here = points.outcomes[number]
    same = (outcome_here.expected, outcome_here.rule, outcome_here.clause)
    marks = [
        int(
            (outcome.expected, outcome.rule, outcome.clause) == same
            and outcome.verdict not in NOT_TESTABLE
        )
        for outcome in points.outcomes
    ]
    marks[number] = 2
    table = bytes(
        0 if outcome_number == OUTSIDE else marks[outcome_number] for outcome_number in points.index
    )
    smallest = min(
        (point for point, mark in enumerate(table) if mark == 2),
        key=lambda point: (points.space.weight(point), point),
    )
    when, minimal = (known, True) if known else describe(points.space, table, effort)
    return Explanation(when, minimal, len(table) - table.count(0), smallest)


def describe(space: Space, table: bytes, effort: Effort | None = None) -> tuple[str, bool]:
    """Returns an expression (see model/predicate.py) for a set of points, and whether the expression is minimal. The
    expression is true at points where `table` is 2, false where `table` is 1, and either where `table` is 0."""
    if find_spec("sympy") is None:
        return NO_SYMPY, False
    return _Set(_variables_of(space), table, effort or Effort()).formula()


def load() -> None:
    """Imports sympy, if it is installed, with the modules that it imports when it finds a formula, and reads the formulas
    that earlier processes have found."""
    _found_before()
    if find_spec("sympy"):
        variables = [_Variable(name, (("no",), ("yes",)), name) for name in "xy"]
        list(_Set(variables, bytes((2, 1, 1, 2)), Effort())._products())


@dataclass(frozen=True)
class _Variable:
    """A property of a point: its value on an axis, or whether it has a flag. A class is a group of values that are not
    distinguished. The classes of a flag are `no` and `yes`."""

    axis: str
    classes: tuple[tuple[str, ...], ...]
    flag: str = ""
    rank: int = 0  # the position among the variables in a formula

    def literal(self, number: int) -> str:
        if self.flag:
            if number:
                return self.flag
            return f"!{self.flag}"
        rest = [
            label
            for other, labels in enumerate(self.classes)
            if other != number
            for label in labels
        ]
        classes = self.classes[number]
        if len(classes) <= len(rest):
            return f"{self.axis}={_one_or_more(classes)}"
        return f"{self.axis}!={_one_or_more(rest)}"

    def negated(self, number: int) -> str:
        """Returns the literal that is true if a point does not have this class."""
        if len(self.classes) == 2:
            return self.literal(1 - number)
        return f"{self.axis}!={_one_or_more(self.classes[number])}"


def _one_or_more(labels: Sequence[str]) -> str:
    if len(labels) == 1:
        return labels[0]
    return f"{{{','.join(labels)}}}"


def _variables_of(space: Space) -> tuple[_Variable, ...]:
    """Returns the variables of a space. In the order of the points, the class of the last variable changes fastest."""
    names = [flag for axis in space.axes for flag in axis.flags]
    variables = []
    for axis in space.axes:
        # The flag of bit 0 changes fastest and is therefore the last variable of the axis.
        for flag in reversed(axis.flags):
            alone = [axis.name for axis in space.axes if axis.knows(flag)] == [axis.name]
            if alone:
                name = flag
            else:
                name = f"{axis.name}.{flag}"
            rank = names.index(flag)
            variables.append(_Variable(axis.name, (("no",), ("yes",)), name, rank))
        if not axis.flags:
            variables.append(
                _Variable(
                    axis.name,
                    tuple((label,) for label in axis.labels),
                    rank=len(names) + len(variables),
                ),
            )
    return tuple(variables)


class _Set:
    """A set of points. `table` has 2 for each point inside, 1 for each point outside, and 0 for ignored points."""

    def __init__(self, variables: Sequence[_Variable], table: bytes, effort: Effort) -> None:
        self.variables, self.table, self.effort = list(variables), table, effort
        for number in range(len(self.variables) - 1, -1, -1):
            self._merge(number)

    def _slices(self, number: int) -> list[bytes]:
        size, stride = len(self.variables[number].classes), _points(self.variables[number + 1 :])
        if stride == 1:
            return [self.table[value::size] for value in range(size)]
        period = stride * size
        slices = []
        for first in range(0, period, stride):
            starts = range(first, len(self.table), period)
            slices.append(b"".join(self.table[start : start + stride] for start in starts))
        return slices

    def _replace(
        self,
        number: int,
        classes: Sequence[tuple[str, ...]],
        slices: Sequence[bytes],
    ) -> None:
        """Replaces the classes of a variable; removes the variable if only one class is left."""
        stride = _points(self.variables[number + 1 :])
        starts = range(0, len(slices[0]), stride)
        self.table = b"".join(part[start : start + stride] for start in starts for part in slices)
        self.variables[number] = replace(self.variables[number], classes=tuple(classes))
        if len(classes) == 1:
            del self.variables[number]

    def _merge(self, number: int) -> None:
        """Merges the classes of a variable that the set does not distinguish."""
        classes: list[tuple[str, ...]] = []
        merged: list[int] = []
        length = 0
        for labels, part in zip(self.variables[number].classes, self._slices(number), strict=True):
            length, value = len(part), int.from_bytes(part, "little")
            for index, group in enumerate(merged):
                # Two classes are not merged if a point is 1 in the slice of one class and 2 in that of the other class.
                if b"\3" not in (group | value).to_bytes(length, "little"):
                    merged[index] |= value
                    classes[index] += labels
                    break
            else:
                merged.append(value)
                classes.append(labels)
        self._replace(number, classes, [value.to_bytes(length, "little") for value in merged])

    def formula(self) -> tuple[str, bool]:
        if not self.variables or 1 not in self.table or 2 not in self.table:
            return (ALWAYS if 2 in self.table else NEVER), True
        if self.effort.left <= 0:
            return self._no_description(), False
        if len(self._variables()) <= MAX_VARIABLES:
            self.effort.left -= 1
            return self._minimised(), True
        for number, variable in enumerate(self.variables):
            for value, part in enumerate(self._slices(number)):
                if 1 not in part:
                    return self._rest(number, value, variable.literal(value), "|")
                if 2 not in part:
                    return self._rest(number, value, variable.negated(value), "&")
        return self._split(), False

    def _rest(self, number: int, value: int, literal: str, operator: str) -> tuple[str, bool]:
        """Returns `literal`, joined with the formula for the points of the other classes. For the points of the class
        `value`, only the literal determines the result."""
        other_values = [
            other for other in range(len(self.variables[number].classes)) if other != value
        ]
        classes, slices = self.variables[number].classes, self._slices(number)
        self._replace(
            number,
            [classes[other] for other in other_values],
            [slices[other] for other in other_values],
        )
        rest, minimal = _Set(self.variables, self.table, self.effort).formula()
        if rest in (ALWAYS, NEVER):
            return literal, minimal
        if operator == "&" and "|" in rest:
            inner = f"({rest})"
        else:
            inner = rest
        return f"{literal} {operator} {inner}", minimal

    def _split(self) -> str:
        if _points(self.variables[:-MAX_VARIABLES]) > min(_MAX_PARTS, self.effort.left):
            return self._no_description()
        terms = []
        for value, part in enumerate(self._slices(0)):
            inner, _ = _Set(self.variables[1:], part, self.effort).formula()
            if inner != NEVER:
                literal = self.variables[0].literal(value)
                terms.append(literal if inner == ALWAYS else f"{literal} & ({inner})")
        return " | ".join(terms)

    def _no_description(self) -> str:
        names = ", ".join(
            dict.fromkeys(variable.flag or variable.axis for variable in self.variables)
        )
        return f"no short description: it depends on {names}"

    def _variables(self) -> list[tuple[int, int]]:
        """Returns the Boolean variables, as (variable, class): one for two classes, else one for each class."""
        numbered = enumerate(len(variable.classes) for variable in self.variables)
        return [
            (number, value)
            for number, size in numbered
            for value in ((1,) if size == 2 else range(size))
        ]

    def _minimised(self) -> str:
        """Returns the minimal sum of products. It is cached by the table and the numbers of classes."""
        key = cache.digest_of(
            [bytes(len(variable.classes) for variable in self.variables), self.table]
        )
        stored = _found_before()
        if key not in stored:
            stored[key] = list(self._products())
            if len(stored) <= _MOST_KEPT:
                cache.store(_cache_name(), json.dumps(stored).encode())
        return " | ".join(text for _, text in sorted(map(self._term, stored[key])))

    def _products(self) -> Iterator[_Product]:
        from sympy import Symbol
        from sympy.logic import SOPform

        variables = self._variables()
        marks = dict.fromkeys(itertools.product((0, 1), repeat=len(variables)), 0)
        points = itertools.product(*(range(len(variable.classes)) for variable in self.variables))
        for values, mark in zip(points, self.table, strict=True):
            marks[tuple(int(values[number] == value) for number, value in variables)] = mark
        symbols = [Symbol(f"x{number}") for number in range(len(variables))]
        inside = [list(bits) for bits, mark in marks.items() if mark == 2]
        either = [list(bits) for bits, mark in marks.items() if mark == 0]
        expression = SOPform(symbols, inside, either)
        for term in _parts(expression, "Or"):
            product = []
            for factor in _parts(term, "And"):
                negated = type(factor).__name__ == "Not"
                index = symbols.index(factor.args[0] if negated else factor)  # type: ignore[attr-defined]
                product.append((*variables[index], negated))
            yield product

    def _term(self, product: _Product) -> tuple[list[int], str]:
        """Returns the key by which products are sorted, and the text of a product."""
        literals = []
        for number, value, negated in product:
            variable = self.variables[number]
            literals.append(
                (variable.rank, variable.negated(value) if negated else variable.literal(value)),
            )
        literals.sort()
        return [rank for rank, _ in literals], " & ".join(text for _, text in literals)


@functools.cache
def _cache_name() -> str:
    return f"formulas-{cache.digest_of([Path(__file__).read_bytes()])}.json"


@functools.cache
def _found_before() -> dict[str, list[_Product]]:
    return cache.recalled(_cache_name()) or {}


def _points(variables: Sequence[_Variable]) -> int:
    return math.prod(len(variable.classes) for variable in variables)


def _parts(expression: object, operator: str) -> Sequence[object]:
    """Returns the operands of an expression with this operator; for any other expression, the expression itself."""
    if type(expression).__name__ == operator:
        return tuple(expression.args)  # type: ignore[attr-defined]
    return (expression,)
