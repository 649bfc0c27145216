"""The numbers that a call's arguments are at many points, as arrays: no argument is read twice.

A group of points shares its set-up and with it the values of the outer axes; its points are numbered
by the other, inner axes.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence

from conformance.execution.context import CaseContext
from conformance.model.case import Flags
from conformance.model.space import Axis
from conformance.model.vocabulary import CALLS
from conformance.sweeps.grouping import Numbers
from conformance.tables.arguments import read_argument
from conformance.tables.expansion import names_in
from conformance.tables.sweep import Template
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader


class Columns:
    """Columns of one call in a group."""

    def __init__(
        self, template: Template, call: str, names: Mapping[str, str], outer: Mapping[str, int], context: CaseContext
    ) -> None:
        """`outer` has the values of the axes that the group's points share; `names` are the row's objects."""
        self._template, self._call, self._names, self._outer, self._context = (
            template,
            call,
            dict(names),
            outer,
            context,
        )
        self._inner = [axis for axis in template.space.axes if axis.name not in outer]
        self._first = {**dict.fromkeys((axis.name for axis in self._inner), 0), **outer}

    def column(self, key: str, node: Node, picks: Numbers) -> int | array[int]:
        """An argument written as `node`: a number, or an array('Q') with one for each of `picks`."""
        read = self._flags if CALLS[self._call][key].kind == "flags" else self._numbers
        if isinstance(picks, range):
            return read(key, node, picks)
        whole = read(key, node, range(math.prod(axis.size for axis in self._inner)))
        return whole if isinstance(whole, int) else array("Q", map(whole.__getitem__, picks))

    def _inner_axes(self, node: Node) -> list[Axis]:
        found = names_in(node)
        return [axis for axis in self._inner if axis.name in found]

    def _numbers(self, key: str, node: Node, picks: range) -> int | array[int]:
        axes = self._inner_axes(node)
        names = [axis.name for axis in axes]
        table = array("Q", (
            self._number(key, node, dict(zip(names, values, strict=True)))
            for values in itertools.product(*(range(axis.size) for axis in axes))
        ))  # fmt: skip
        if len(axes) < 2:
            return self._spread(axes[0], table, picks) if axes else table[0]
        places, stride = [], len(table)
        for axis in axes:
            stride //= axis.size
            places.append(self._spread(axis, array("Q", range(0, axis.size * stride, stride)), picks))
        return array("Q", map(table.__getitem__, _together(operator.add, places)))

    def _flags(self, key: str, node: Node, picks: range) -> int | array[int]:
        """The OR of each element's masks."""
        elements = node.value if isinstance(node.value, tuple) else (node,)
        fixed, columns = 0, []
        for element in elements:
            one = Node((element,), element.location)
            axes = self._inner_axes(element)
            if not axes:
                fixed |= self._number(key, one, {})
            else:
                columns.append(self._spread(axes[0], array("Q", self._masks(key, one, axes[0])), picks))
        if not columns:
            return fixed
        if fixed:
            columns.append(array("Q", [fixed]) * len(picks))
        return _together(operator.or_, columns)

    def _masks(self, key: str, node: Node, axis: Axis) -> Sequence[int]:
        if not axis.flags:
            return [self._number(key, node, {axis.name: value}) for value in range(axis.size)]
        masks = [0]
        for bit in range(len(axis.flags)):
            own = self._number(key, node, {axis.name: 1 << bit})
            masks += [mask | own for mask in masks]
        return masks

    def _number(self, key: str, node: Node, values: Mapping[str, int]) -> int:
        reader = Reader()
        filled = self._template.fill(node, {**self._first, **values}, reader)
        argument = read_argument(reader, self._call, key, filled, self._names)
        if reader.mistakes or argument is None:
            raise ValueError("; ".join(map(str, reader.mistakes)))
        # C's int and size_t alike: what they are modulo 2^64 is what a register holds.
        number = argument.mask if isinstance(argument, Flags) else self._context.number(argument)
        return number % (1 << 64)

    def _spread(self, axis: Axis, values: array[int], picks: range) -> array[int]:
        """A number for each value of one axis, for each of `picks`."""
        place = self._inner.index(axis)
        block = math.prod(each.size for each in self._inner[place + 1 :])
        first, last = picks.start // block, -(-picks.stop // block)
        around, first = last - first, first % axis.size
        values = (values * (-(-(first + around) // axis.size)))[first : first + around]
        if block < around:
            column = array("Q", bytes(8 * block * around))
            for offset in range(block):
                column[offset::block] = values
        else:
            data = values.tobytes()
            column = array("Q", b"".join(data[at : at + 8] * block for at in range(0, len(data), 8)))
        before = picks.start % block
        return column[before : before + len(picks)]


def _together(operation: Callable[[int, int], int], columns: Sequence[array[int]]) -> array[int]:
    """The sums or ORs of columns, all places at once; no sum may need more than 64 bits."""
    if len(columns) == 1:
        return columns[0]
    total = functools.reduce(operation, (int.from_bytes(column.tobytes(), sys.byteorder) for column in columns))
    return array("Q", total.to_bytes(8 * len(columns[0]), sys.byteorder))
