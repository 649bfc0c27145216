"""A sweep: one row whose call is made at every point of a space, with what the documents want at each.

Frozen data between the table and the run. Not for reading the table (sweep_reader.py) and not for
running it (sweeps/run.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from conformance.model.case import Case, Expectation, shown
from conformance.model.kind import Kind
from conformance.model.predicate import Expression, column
from conformance.model.space import Axis, Space
from conformance.tables.expansion import names_in, substitute
from conformance.tables.row import RowBody, read_row_body
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

Values = Mapping[str, int]  # the value's number on each axis


@dataclass(frozen=True)
class Clause:
    """What is to come of the points where `when` holds (None: of all that are left).

    A clause with `needs` decides nothing: where it holds, a device without these capabilities may refuse.
    """

    text: str
    when: Expression | None
    then: Expectation | None
    rule: str = ""
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Template:
    """The row with its axes still in it; `nodes[axis]` are its values as YAML, none for subsets of flags."""

    call: str
    table_given: Node | None
    fields: Mapping[str, Node]
    row: Node
    nodes: Mapping[str, tuple[Node, ...]]
    space: Space

    def node(self, axis: Axis, value: int) -> Node:
        """A value of an axis as YAML."""
        if not axis.flags:
            return self.nodes[axis.name][value]
        flags = [flag for bit, flag in enumerate(axis.flags) if value >> bit & 1]
        return Node(tuple(Node(flag, self.row.location) for flag in flags), self.row.location)

    def binding(self, values: Values) -> dict[str, Node]:
        """What each axis stands for at a point."""
        return {axis.name: self.node(axis, values[axis.name]) for axis in self.space.axes}

    def fill(self, node: Node, values: Values, reader: Reader) -> Node:
        """A part of the row with its axes replaced."""
        return substitute(node, self.binding(values), reader, set())

    def axes_in(self, *nodes: Node | None) -> list[str]:
        """Which axes parts of the row rest on, in the space's order."""
        found = {name for node in nodes if node is not None for name in names_in(node)}
        return [axis.name for axis in self.space.axes if axis.name in found]

    def parts(self, values: Values, reader: Reader) -> RowBody:
        """The row's parts at a point; mistakes are noted."""
        fields = {key: self.fill(node, values, reader) for key, node in self.fields.items()}
        return read_row_body(reader, self.call, self.table_given, fields, self.row)


@dataclass(frozen=True, eq=False)
class Sweep:
    """The space, which of its points count, and the clauses in their order; the last one takes every point."""

    space: Space
    where: Expression | None
    clauses: tuple[Clause, ...]
    template: Template
    needs_of: Mapping[str, tuple[str, ...]]  # what each of its rules needs

    @cached_property
    def inside(self) -> int:
        """The column of the points that count."""
        if self.where is None:
            return self.space.everywhere()
        return column(self.where, self.space, lambda name: True)

    @cached_property
    def size(self) -> int:
        """How many points count."""
        return self.space.count(self.inside)

    @property
    def deciding(self) -> tuple[Clause, ...]:
        """The clauses that say what must come."""
        return tuple(clause for clause in self.clauses if clause.then is not None)

    def decided(self, declared: Callable[[str], bool]) -> bytes:
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

    def single(self, case: Case, text: str) -> Case:
        """The case of the one point that `text` names. Raises ValueError with a sentence for people."""
        point = self.space.parse(text)
        if not self.inside >> 8 * point & 1:
            raise ValueError("the sweep's constraint excludes this point")
        parts = self.parts(point)
        return replace(
            case, id=f"{case.id}#{self.space.text(point)}", kind=Kind.POINT, point=point, given=parts.given,
            before=parts.before, when=parts.when, afterwards=parts.afterwards,
        )  # fmt: skip

    def parts(self, point: int) -> RowBody:
        """What the row says at a point."""
        reader = Reader()
        parts = self.template.parts(self.space.values(point), reader)
        if reader.mistakes:
            raise ValueError("; ".join(map(str, reader.mistakes)))
        return parts

    def judged(self, case: Case, declared: Callable[[str], bool]) -> Case:
        """The case of one point as a row would have it on a device that declares these capabilities."""
        assert case.point is not None
        clause = self.deciding[self.decided(declared)[case.point]]
        masks, names = self.undeclared(declared)
        needs = [name for bit, name in enumerate(names) if masks[case.point] >> bit & 1]
        return self.by(case, clause, needs)

    def by(self, case: Case, clause: Clause, needs: Sequence[str]) -> Case:
        """The case of one point as a row whose expectation is a clause's."""
        assert clause.then is not None
        return replace(
            case, when=replace(case.when, then=clause.then), rules=(clause.rule,), kind=Kind.ROW, sweep=None,
            needs=tuple(dict.fromkeys([*case.needs, *self.needs_of[clause.rule], *needs])),
        )  # fmt: skip


def told(parts: RowBody, template: Template) -> dict[str, str]:
    """The judged call's arguments for people, with axes where they vary."""
    when = template.fields.get("when")
    written = when.value if when is not None and isinstance(when.value, dict) else {}
    return {
        key: _written(written[key]) if key in written and names_in(written[key]) else shown(value)
        for key, value in parts.when.arguments.items()
    }


def _written(node: Node) -> str:
    """A value with axes in it as the table has it; a list as the one of flags that it mostly is."""
    if isinstance(node.value, tuple):
        return "|".join(_written(each) for each in node.value)
    if isinstance(node.value, dict):
        return f"{{{', '.join(_written(each) for each in node.value.values())}}}"
    return str(node.value)
