"""The numbers that a call's arguments are at many points, as arrays made without a look at each point.

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
from conformance.model.case import Argument, Flags
from conformance.model.row_template import ArgumentTemplate, FlagsPart, FlagSubsets, FlagsUnion, Varying
from conformance.model.space import Axis, Space
from conformance.sweeps.grouping import Numbers


class Columns:
    """Columns of one call in a group."""

    def __init__(self, space: Space, outer: Mapping[str, int], context: CaseContext) -> None:
        """`outer` has the values of the axes that the group's points share."""
        self._outer, self._context = outer, context
        self._inner = [axis for axis in space.axes if axis.name not in outer]

    def column(self, argument: Argument | ArgumentTemplate, picks: Numbers) -> int | array[int]:
        """An argument modulo 2^64: a number, or an array('Q') with one for each of `picks`.

        What it is at points that the sweep's constraint excludes is of no meaning.
        """
        if not isinstance(argument, Varying | FlagsUnion):
            return self._number(argument)
        if isinstance(picks, range):
            return self._varying(argument, picks)
        whole = self._varying(argument, range(math.prod(axis.size for axis in self._inner)))
        return whole if isinstance(whole, int) else array("Q", map(whole.__getitem__, picks))

    def _varying(self, argument: ArgumentTemplate, picks: range) -> int | array[int]:
        if isinstance(argument, Varying):
            return self._numbers(argument, picks)
        found = [self._flags(part, picks) for part in argument.parts]
        fixed = functools.reduce(operator.or_, (each for each in found if isinstance(each, int)), 0)
        columns = [each for each in found if not isinstance(each, int)]
        if not columns:
            return fixed
        return _together(operator.or_, [*columns, array("Q", [fixed]) * len(picks)] if fixed else columns)

    def _flags(self, part: FlagsPart, picks: range) -> int | array[int]:
        if isinstance(part, Flags):
            return part.mask
        if isinstance(part, Varying):
            return self._numbers(part, picks)
        axis = next((axis for axis in self._inner if axis.name == part.axis), None)
        return part.at(self._outer).mask if axis is None else self._spread(axis, array("Q", _masks(part)), picks)

    def _numbers(self, part: Varying[Argument] | Varying[Flags], picks: range) -> int | array[int]:
        axes = [axis for axis in self._inner if axis.name in part.axes]
        known = part.values
        keys = itertools.product(*(
            (self._outer[name],) if name in self._outer else range(self._size(name)) for name in part.axes
        ))  # fmt: skip
        # A combination that no point of the sweep has is not known.
        table = array("Q", (self._number(known[key]) if key in known else 0 for key in keys))
        if len(axes) < 2:
            return self._spread(axes[0], table, picks) if axes else table[0]
        places, stride = [], len(table)
        for axis in axes:
            stride //= axis.size
            places.append(self._spread(axis, array("Q", range(0, axis.size * stride, stride)), picks))
        return array("Q", map(table.__getitem__, _together(operator.add, places)))

    def _size(self, name: str) -> int:
        return next(axis.size for axis in self._inner if axis.name == name)

    def _number(self, argument: Argument) -> int:
        # C's int and size_t alike: what they are modulo 2^64 is what a register holds.
        return self._context.number(argument) % (1 << 64)

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


def _masks(part: FlagSubsets) -> list[int]:
    """The mask of each subset, in the axis's order."""
    masks = [0]
    for own in part.masks:
        masks += [mask | own for mask in masks]
    return masks


def _together(operation: Callable[[int, int], int], columns: Sequence[array[int]]) -> array[int]:
    """The sums or ORs of columns, all places at once; no sum may need more than 64 bits."""
    if len(columns) == 1:
        return columns[0]
    total = functools.reduce(operation, (int.from_bytes(column.tobytes(), sys.byteorder) for column in columns))
    return array("Q", total.to_bytes(8 * len(columns[0]), sys.byteorder))
