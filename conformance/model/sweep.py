"""Defines a sweep: one row whose call is issued at each point of a space, with the documented expectation of each
point. tables/sweep_reader.py reads a sweep from a table, and sweeps/run.py runs it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from conformance.model.case import Case, Expectation
from conformance.model.kind import Kind
from conformance.model.predicate import Expression, column
from conformance.model.row_template import RowTemplate
from conformance.model.space import Space
from conformance.older_python import bit_count


@dataclass(frozen=True)
class Clause:
    """The expectation at the points where `when` is true. If a clause has no expectation, a device without the
    capabilities `needs` may refuse the call at these points. If a clause has an expectation, `needs` are added to the
    needs of the rule."""

    text: str
    when: Expression | None  # None: all points without an earlier clause
    then: Expectation | None
    rule: str = ""
    needs: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # further rules whose sentences require the same result

    @property
    def rules(self) -> tuple[str, ...]:
        return (self.rule, *self.also)


@dataclass(frozen=True)
class Sweep:
    """The space and the clauses, in their order. The last clause matches all points."""

    space: Space
    where: Expression | None  # the constraint, which selects points of the space
    clauses: tuple[Clause, ...]
    row: RowTemplate
    needs_of: Mapping[str, tuple[str, ...]]  # for each rule, the needed capabilities
    tries: bool = False  # chance determines at which points a violation occurs

    @cached_property
    def inside(self) -> int:
        """The column (see space.py) that is true at the points that the constraint selects."""
        return points_where(self.where, self.space)

    @cached_property
    def size(self) -> int:
        """The number of points that the constraint selects."""
        return bit_count(self.inside)

    @property
    def deciding(self) -> tuple[Clause, ...]:
        return tuple(clause for clause in self.clauses if clause.then is not None)

    def in_order(self, axes: Collection[str]) -> list[str]:
        """Returns the names of these axes, in the order of the space."""
        return [axis.name for axis in self.space.axes if axis.name in axes]

    def clause_numbers(self, declared: Callable[[str], bool]) -> bytes:
        """Returns, for each point, the index of its clause in `deciding`, the clauses that have an expectation."""
        remaining, total = self.inside, 0
        for number, clause in enumerate(self.deciding):
            if clause.when is None:
                chosen = remaining
            else:
                chosen = remaining & column(clause.when, self.space, declared)
            total += number * chosen
            remaining ^= chosen
        return self.space.bytes_of(total)

    def undeclared(self, declared: Callable[[str], bool]) -> tuple[bytes, tuple[str, ...]]:
        """Returns one byte for each point, a mask of the point's undeclared needs, and then the names of the bits."""
        names: list[str] = []
        columns: list[int] = []
        for clause in self.clauses:
            for name in clause.needs if clause.then is None else ():
                if declared(name):
                    continue
                if clause.when is None:
                    points = self.inside
                else:
                    points = self.inside & column(clause.when, self.space, declared)
                if name not in names:
                    names.append(name)
                    columns.append(0)
                columns[names.index(name)] |= points
        total = sum(column << bit for bit, column in enumerate(columns))
        return self.space.bytes_of(total), tuple(names)

    def point_case(self, case: Case, text: str) -> Case:
        """Returns the case of the point that `text` describes. Raises ValueError with a message for the user."""
        point = self.space.parse(text)
        if not self.inside >> 8 * point & 1:
            raise ValueError("the sweep's constraint excludes this point")
        return self.case_at(case, point)

    def case_at(self, case: Case, point: int) -> Case:
        values, row = self.space.values(point), self.row
        return replace(
            case,
            id=f"{case.id}#{self.space.text(point)}",
            kind=Kind.POINT,
            point=point,
            given=row.given.at(values),
            before=tuple(step.at(values) for step in row.before),
            when=row.when.at(values),
            afterwards=tuple(step.at(values) for step in row.afterwards),
        )

    def judged_row(self, case: Case, declared: Callable[[str], bool]) -> Case:
        """Returns the case of a point as a row, for a device that declares the capabilities of `declared`."""
        assert case.point is not None
        clause = self.deciding[self.clause_numbers(declared)[case.point]]
        masks, names = self.undeclared(declared)
        needs = [name for bit, name in enumerate(names) if masks[case.point] >> bit & 1]
        return self.row_of_clause(case, clause, needs)

    def row_of_clause(self, case: Case, clause: Clause, needs: Sequence[str]) -> Case:
        """Returns the case of a point as a row, with the expectation of a clause."""
        assert clause.then is not None
        of_rules = [need for rule in clause.rules for need in self.needs_of[rule]]
        return replace(
            case,
            when=replace(case.when, then=clause.then),
            rules=clause.rules,
            kind=Kind.ROW,
            sweep=None,
            needs=tuple(dict.fromkeys([*case.needs, *of_rules, *clause.needs, *needs])),
        )


def points_where(where: Expression | None, space: Space) -> int:
    """Returns the column of the points that a constraint selects. None selects all points. A constraint cannot depend
    on capabilities."""
    if where is None:
        return space.everywhere()
    return column(where, space, lambda name: True)
