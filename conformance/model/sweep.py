"""A sweep: one row whose call is made at every point of a space, with what the documents want at each.

Frozen data between the table and the run. Not for reading the table (tables/sweep_reader.py) and not for
running it (sweeps/run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from conformance.model.case import Case, Expectation
from conformance.model.kind import Kind
from conformance.model.predicate import Expression, column
from conformance.model.row_template import RowTemplate
from conformance.model.space import Space


@dataclass(frozen=True)
class Clause:
    """What must come of the points where `when` holds (None: of all that are left).

    A clause with `needs` decides nothing: where it holds, a device without these capabilities may refuse.
    """

    text: str
    when: Expression | None
    then: Expectation | None
    rule: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sweep:
    """The space, which of its points count, and the clauses in their order; the last one takes every point."""

    space: Space
    where: Expression | None
    clauses: tuple[Clause, ...]
    row: RowTemplate
    needs_of: Mapping[str, tuple[str, ...]]  # what each of its rules needs

    @cached_property
    def inside(self) -> int:
        """The column of the points that count."""
        return points_where(self.where, self.space)

    @cached_property
    def size(self) -> int:
        """How many points count."""
        return self.space.count(self.inside)

    @property
    def deciding(self) -> tuple[Clause, ...]:
        """The clauses that say what must come."""
        return tuple(clause for clause in self.clauses if clause.then is not None)

    def in_order(self, axes: Collection[str]) -> list[str]:
        """The names of some axes in the space's order."""
        return [axis.name for axis in self.space.axes if axis.name in axes]

    def clause_numbers(self, declared: Callable[[str], bool]) -> bytes:
        """For each point the number of the clause, among the deciding ones, that says what must come there."""
        left, total = self.inside, 0
        for number, clause in enumerate(self.deciding):
            here = left if clause.when is None else left & column(clause.when, self.space, declared)
            total += number * here
            left ^= here
        return self.space.bytes_of(total)

    def undeclared(self, declared: Callable[[str], bool]) -> tuple[bytes, tuple[str, ...]]:
        """For each point a mask of the capabilities that are needed there and not declared, and their names."""
        names: list[str] = []
        columns: list[int] = []
        for clause in self.clauses:
            for name in clause.needs if clause.then is None else ():
                if declared(name):
                    continue
                here = self.inside if clause.when is None else self.inside & column(clause.when, self.space, declared)
                if name not in names:
                    names.append(name)
                    columns.append(0)
                columns[names.index(name)] |= here
        total = sum(each << bit for bit, each in enumerate(columns))
        return self.space.bytes_of(total), tuple(names)

    def point_case(self, case: Case, text: str) -> Case:
        """The case of the one point that `text` names. Raises ValueError with a sentence for people."""
        point = self.space.parse(text)
        if not self.inside >> 8 * point & 1:
            raise ValueError("the sweep's constraint excludes this point")
        values, row = self.space.values(point), self.row
        return replace(
            case, id=f"{case.id}#{self.space.text(point)}", kind=Kind.POINT, point=point, given=row.given.at(values),
            before=tuple(step.at(values) for step in row.before), when=row.when.at(values),
            afterwards=tuple(step.at(values) for step in row.afterwards),
        )  # fmt: skip

    def judged_row(self, case: Case, declared: Callable[[str], bool]) -> Case:
        """The case of one point as a row would have it on a device that declares these capabilities."""
        assert case.point is not None
        clause = self.deciding[self.clause_numbers(declared)[case.point]]
        masks, names = self.undeclared(declared)
        needs = [name for bit, name in enumerate(names) if masks[case.point] >> bit & 1]
        return self.row_of_clause(case, clause, needs)

    def row_of_clause(self, case: Case, clause: Clause, needs: Sequence[str]) -> Case:
        """The case of one point as a row whose expectation is a clause's."""
        assert clause.then is not None
        return replace(
            case, when=replace(case.when, then=clause.then), rules=(clause.rule,), kind=Kind.ROW, sweep=None,
            needs=tuple(dict.fromkeys([*case.needs, *self.needs_of[clause.rule], *needs])),
        )  # fmt: skip


def points_where(where: Expression | None, space: Space) -> int:
    """The column of the points at which a constraint holds; it may name no capability. None: all points."""
    return space.everywhere() if where is None else column(where, space, lambda name: True)
