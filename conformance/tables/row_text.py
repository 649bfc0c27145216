"""The row of a sweep as located YAML, its axes still in it, and what it says where they have certain values.

For the loading of a table only; what a run uses is made by row_resolution.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.model.case import Step, shown
from conformance.model.space import Axis, Space
from conformance.tables.expansion import names_in, substitute
from conformance.tables.row import RowBody, read_row_body
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader


@dataclass(frozen=True)
class RowText:
    """A row whose verb is called by `call`. `table_given` is what the table gives to all of its rows.

    `nodes[axis]` are an axis's values as YAML; there are none for subsets of flags.
    """

    call: str
    table_given: Node | None
    fields: Mapping[str, Node]
    row: Node
    nodes: Mapping[str, tuple[Node, ...]]
    space: Space

    def axes_in(self, *nodes: Node) -> list[Axis]:
        """The axes that occur in parts of the row, in the space's order."""
        found = {name for node in nodes for name in names_in(node)}
        return [axis for axis in self.space.axes if axis.name in found]

    def fill(self, node: Node, axes: Sequence[Axis], key: Sequence[int], reader: Reader) -> Node:
        """A part of the row in which each of `axes` has the value whose number `key` has at its place."""
        binding = {axis.name: self._value(axis, value) for axis, value in zip(axes, key, strict=True)}
        return substitute(node, binding, reader, set())

    def _value(self, axis: Axis, value: int) -> Node:
        if not axis.flags:
            return self.nodes[axis.name][value]
        flags = [flag for bit, flag in enumerate(axis.flags) if value >> bit & 1]
        return Node(tuple(Node(flag, self.row.location) for flag in flags), self.row.location)

    def body(self, key: Sequence[int], reader: Reader) -> RowBody:
        """What the row says where its axes have these values; mistakes are noted."""
        fields = {name: self.fill(node, self.space.axes, key, reader) for name, node in self.fields.items()}
        return read_row_body(reader, self.call, self.table_given, fields, self.row)


def one_at_a_time(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Each value of each axis, the other axes being at their first; of subsets of flags none and all."""
    for place, axis in enumerate(axes):
        for value in (0, axis.size - 1) if axis.flags else range(axis.size):
            yield tuple(value if each == place else 0 for each in range(len(axes)))


def elements(node: Node | None) -> tuple[Node, ...]:
    """The elements of a list; none of anything else."""
    return node.value if node is not None and isinstance(node.value, tuple) else ()


def entries(node: Node | None) -> Mapping[str, Node]:
    """The entries of a mapping; none of anything else."""
    return node.value if node is not None and isinstance(node.value, dict) else {}


def format_arguments(step: Step, written: Node | None) -> dict[str, str]:
    """A step's arguments for people; those in which an axis occurs read as in the table, with the axis's name."""
    nodes = entries(written)
    return {
        key: _format(nodes[key]) if key in nodes and names_in(nodes[key]) else shown(value)
        for key, value in step.arguments.items()
    }


def _format(node: Node) -> str:
    """A value as the table has it. A list is taken to be one of flags, as most are."""
    if isinstance(node.value, tuple):
        return "|".join(_format(each) for each in node.value)
    if isinstance(node.value, dict):
        return f"{{{', '.join(_format(each) for each in node.value.values())}}}"
    return str(node.value)
