"""The numbers that a call's arguments are at many points, as arrays: no argument is read twice.

A group of points shares its set-up and with it the values of the outer axes; its points are numbered
by the other, inner axes.
"""

from __future__ import annotations

import itertools
import math
import operator
import sys
from array import array
from collections.abc import Mapping, Sequence

from conformance.arguments import read_argument
from conformance.case import Flags
from conformance.expansion import names_in
from conformance.language import CALLS
from conformance.reading import Reader
from conformance.scene import Scene
from conformance.sweeps.grouping import Numbers
from conformance.sweeps.space import Axis
from conformance.sweeps.sweep import Template
from conformance.yamltext import Node


class Columns:
    """Columns of one call in a group."""

    def __init__(
        self, template: Template, call: str, names: Mapping[str, str], outer: Mapping[str, int], scene: Scene
    ) -> None:
        """`outer` has the values of the axes that the group's points share; `names` are the row's objects."""
        self._template, self._call, self._names, self._outer, self._scene = template, call, dict(names), outer, scene
        self._inner = [axis for axis in template.space.axes if axis.name not in outer]
        self._first = {**dict.fromkeys((axis.name for axis in self._inner), 0), **outer}

    def column(self, key: str, node: Node, picks: Numbers) -> int | array[int]:
        """An argument written as `node`: a number, or an array('Q') with one for each of `picks`."""
        whole = self._flags(key, node) if CALLS[self._call][key].kind == "flags" else self._numbers(key, node)
        if isinstance(whole, int):
            return whole
        if isinstance(picks, range):
            return whole[picks.start : picks.stop]
        return array("Q", map(whole.__getitem__, picks))

    def _inner_axes(self, node: Node) -> list[Axis]:
        found = names_in(node)
        return [axis for axis in self._inner if axis.name in found]

    def _numbers(self, key: str, node: Node) -> int | array[int]:
        axes = self._inner_axes(node)
        table = [
            self._number(key, node, dict(zip((axis.name for axis in axes), values, strict=True)))
            for values in itertools.product(*(range(axis.size) for axis in axes))
        ]
        if not axes:
            return table[0]
        index = array("Q", bytes(8 * math.prod(axis.size for axis in self._inner)))
        stride = len(table)
        for axis in axes:
            stride //= axis.size
            index = array("Q", map(operator.add, index, self._spread(axis, range(0, axis.size * stride, stride))))
        return array("Q", map(table.__getitem__, index))

    def _flags(self, key: str, node: Node) -> int | array[int]:
        """The OR of each element's masks."""
        elements = node.value if isinstance(node.value, tuple) else (node,)
        fixed, columns = 0, []
        for element in elements:
            one = Node((element,), element.place)
            axes = self._inner_axes(element)
            if not axes:
                fixed |= self._number(key, one, {})
            else:
                columns.append(self._spread(axes[0], self._masks(key, one, axes[0])))
        if not columns:
            return fixed
        if fixed:
            columns.append(array("Q", [fixed]) * len(columns[0]))
        result = columns[0]
        for column in columns[1:]:
            result = array("Q", map(operator.or_, result, column))
        return result

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
        number = argument.mask if isinstance(argument, Flags) else self._scene.number(argument)
        return number % (1 << 64)

    def _spread(self, axis: Axis, values: Sequence[int]) -> array[int]:
        """A number for each value of one axis, for every point of the group in order."""
        place = self._inner.index(axis)
        block = math.prod(each.size for each in self._inner[place + 1 :])
        data = b"".join(value.to_bytes(8, sys.byteorder) * block for value in values)
        column = array("Q")
        column.frombytes(data * math.prod(each.size for each in self._inner[:place]))
        return column
