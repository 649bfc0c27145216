"""The row of a sweep as located YAML with placeholders for its axes, and the replacement of these by values.

Used only while a table is loaded. Not for the data that a run uses (row_resolution.py).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.model.case import Step, format_argument
from conformance.model.space import Axis, Space
from conformance.tables.expansion import names_in, substitute
from conformance.tables.row import RowBody, read_row_body
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader


@dataclass(frozen=True)
class RowText:
    """A row with the judged call `call`. `table_given` is the `given` of its table.

    `nodes[axis]` are the values of an axis as YAML; an axis over subsets of flags has none.
    """

    call: str
    table_given: Node | None
    fields: Mapping[str, Node]
    row: Node
    nodes: Mapping[str, tuple[Node, ...]]
    space: Space

    def axes_in(self, *nodes: Node) -> list[Axis]:
        """The axes that occur in these parts of the row, in the order of the space."""
        found = {name for node in nodes for name in names_in(node)}
        return [axis for axis in self.space.axes if axis.name in found]

    def fill(self, node: Node, axes: Sequence[Axis], key: Sequence[int], reader: Reader) -> Node:
        """Returns a part of the row with the values of `axes` filled in; `key` has the number of the value of each."""
        binding = {axis.name: self._value(axis, value) for axis, value in zip(axes, key, strict=True)}
        return substitute(node, binding, reader, set())

    def _value(self, axis: Axis, value: int) -> Node:
        if not axis.flags:
            return self.nodes[axis.name][value]
        flags = [flag for bit, flag in enumerate(axis.flags) if value >> bit & 1]
        return Node(tuple(Node(flag, self.row.location) for flag in flags), self.row.location)

    def body(self, key: Sequence[int], reader: Reader) -> RowBody:
        """Reads the body of the row at these values of all axes; notes mistakes in `reader`."""
        fields = {name: self.fill(node, self.space.axes, key, reader) for name, node in self.fields.items()}
        return read_row_body(reader, self.call, self.table_given, fields, self.row)


def one_at_a_time(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Yields each value of each axis, the others at their first value.

    An axis over subsets yields only no flags and all flags.
    """
    for position, axis in enumerate(axes):
        for value in (0, axis.size - 1) if axis.flags else range(axis.size):
            yield tuple(value if each == position else 0 for each in range(len(axes)))


def elements(node: Node | None) -> tuple[Node, ...]:
    """The elements of a list; an empty tuple for any other node."""
    return node.value if node is not None and isinstance(node.value, tuple) else ()


def entries(node: Node | None) -> Mapping[str, Node]:
    """The entries of a mapping; an empty mapping for any other node."""
    return node.value if node is not None and isinstance(node.value, dict) else {}


def format_arguments(step: Step, written: Node | None) -> dict[str, str]:
    """The arguments of a step as texts; an argument with an axis is written as in the table, with the name of the
    axis."""
    nodes = entries(written)
    return {
        key: _format(nodes[key]) if key in nodes and names_in(nodes[key]) else format_argument(value)
        for key, value in step.arguments.items()
    }


def _format(node: Node) -> str:
    """The text of a value in the table. A list is formatted like flags, because most lists are."""
    if isinstance(node.value, tuple):
        return "|".join(_format(each) for each in node.value)
    if isinstance(node.value, dict):
        return f"{{{', '.join(_format(each) for each in node.value.values())}}}"
    return str(node.value)
