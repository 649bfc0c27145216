"""Computes the numeric values of a call's arguments at the points of a group, as arrays, without a Python loop over the
points. All points of a group have the same values on the outer axes. The values on the inner axes determine a point's
number in the product of these axes."""

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
from conformance.model.row_template import (
    ArgumentTemplate,
    FlagsPart,
    FlagSubsets,
    FlagsUnion,
    Varying,
)
from conformance.model.space import Axis, Space
from conformance.sweeps.grouping import PointNumbers


class Columns:
    def __init__(self, space: Space, outer: Mapping[str, int], context: CaseContext) -> None:
        """`outer` has the values on the outer axes."""
        self._outer, self._context = outer, context
        self._inner = [axis for axis in space.axes if axis.name not in outer]

    def column(
        self,
        argument: Argument | ArgumentTemplate,
        inner_points: PointNumbers,
    ) -> int | array[int]:
        """Returns an argument modulo 2^64: a number, or an array('Q') with a number for each of `inner_points`. For
        points that the sweep's constraint excludes, the number has no meaning."""
        if not isinstance(argument, (Varying, FlagsUnion)):
            return self._number(argument)
        if isinstance(inner_points, range):
            return self._varying(argument, inner_points)
        spread_whole = self._varying(argument, range(math.prod(axis.size for axis in self._inner)))
        if isinstance(spread_whole, int):
            return spread_whole
        return array("Q", map(spread_whole.__getitem__, inner_points))

    def _varying(self, argument: ArgumentTemplate, inner_points: range) -> int | array[int]:
        if isinstance(argument, Varying):
            return self._numbers(argument, inner_points)
        masks = [self._flags(part, inner_points) for part in argument.parts]
        fixed = functools.reduce(operator.or_, (mask for mask in masks if isinstance(mask, int)), 0)
        columns = [mask for mask in masks if not isinstance(mask, int)]
        if not columns:
            return fixed
        return _combined(
            operator.or_,
            [*columns, array("Q", [fixed]) * len(inner_points)] if fixed else columns,
        )

    def _flags(self, part: FlagsPart, inner_points: range) -> int | array[int]:
        if isinstance(part, Flags):
            return part.mask
        if isinstance(part, Varying):
            return self._numbers(part, inner_points)
        axis = next((axis for axis in self._inner if axis.name == part.axis), None)
        if axis is None:
            return part.at(self._outer).mask
        return self._spread(axis, array("Q", _masks(part)), inner_points)

    def _numbers(
        self,
        part: Varying[Argument] | Varying[Flags],
        inner_points: range,
    ) -> int | array[int]:
        axes = [axis for axis in self._inner if axis.name in part.axes]
        sizes = {axis.name: axis.size for axis in self._inner}
        keys = itertools.product(
            *(range(sizes[name]) if name in sizes else (self._outer[name],) for name in part.axes),
        )
        # `part.values` lacks combinations that no point of the sweep has.
        table = array(
            "Q",
            (self._number(part.values[key]) if key in part.values else 0 for key in keys),
        )
        if len(axes) < 2:
            if axes:
                return self._spread(axes[0], table, inner_points)
            return table[0]
        columns, stride = [], len(table)
        for axis in axes:
            stride //= axis.size
            columns.append(
                self._spread(axis, array("Q", range(0, axis.size * stride, stride)), inner_points),
            )
        return array("Q", map(table.__getitem__, _combined(operator.add, columns)))

    def _number(self, argument: Argument) -> int:
        # Modulo 2^64, as in a register: an int may be negative.
        return self._context.number(argument) % (1 << 64)

    def _spread(self, axis: Axis, values: array[int], inner_points: range) -> array[int]:
        position = self._inner.index(axis)
        block = math.prod(axis.size for axis in self._inner[position + 1 :])
        first, last = inner_points.start // block, -(-inner_points.stop // block)
        around, first = last - first, first % axis.size
        values = (values * (-(-(first + around) // axis.size)))[first : first + around]
        if block < around:
            column = array("Q", bytes(8 * block * around))
            for offset in range(block):
                column[offset::block] = values
        else:
            data = values.tobytes()
            column = array(
                "Q",
                b"".join(data[at : at + 8] * block for at in range(0, len(data), 8)),
            )
        before = inner_points.start % block
        return column[before : before + len(inner_points)]


def _masks(part: FlagSubsets) -> list[int]:
    masks = [0]
    for masks_here in part.masks:
        masks += [mask | masks_here for mask in masks]
    return masks


def _combined(operation: Callable[[int, int], int], columns: Sequence[array[int]]) -> array[int]:
    """Returns the sum or the OR of the columns at each index. No sum may need more than 64 bits."""
    if len(columns) == 1:
        return columns[0]
    total = functools.reduce(
        operation,
        (int.from_bytes(column.tobytes(), sys.byteorder) for column in columns),
    )
    return array("Q", total.to_bytes(8 * len(columns[0]), sys.byteorder))
