"""Defines the space of a sweep: its axes and their values. Points are numbers in row-major order. A *column* is a
Boolean property of all points, stored as one integer with one byte, 0 or 1, for each point, because Python's operators
& | ^ then work on all points at once. tables/sweep_reader.py defines how axis values become arguments of a call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from conformance.model.record import Axes, Subsets
from conformance.older_python import bit_count
from conformance.yamldoc.reader import suggestion

# Far more points than a run can execute. Without this bound, a mistake in a table could exhaust memory.
MAX_POINTS = 1 << 20
NONE = "none"  # the label of an empty list of flags


@dataclass(frozen=True)
class Axis:
    """An axis. `labels[i]` is the text of value number i, and `words[i]` are the words that are true for this value. An
    axis over all subsets of some flags has `flags` and no labels: value number i contains `flags[bit]` if that bit is
    set in i."""

    name: str
    labels: tuple[str, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        if self.flags:
            return 1 << len(self.flags)
        return len(self.labels)

    def label(self, value: int) -> str:
        if not self.flags:
            return self.labels[value]
        return "+".join(flag for bit, flag in enumerate(self.flags) if value >> bit & 1) or NONE

    def value(self, label: str) -> int:
        """Returns the value with this text. Raises ValueError with a message for the user."""
        if not self.flags:
            if label not in self.labels:
                raise ValueError(
                    f"axis {self.name!r} has no value {label!r}{suggestion(label, self.labels)}",
                )
            return self.labels.index(label)
        value = 0
        for flag in label.split("+") if label != NONE else ():
            if flag not in self.flags:
                raise ValueError(
                    f"axis {self.name!r} has no flag {flag!r}{suggestion(flag, self.flags)}",
                )
            value |= 1 << self.flags.index(flag)
        return value

    def knows(self, word: str) -> bool:
        """Whether the word is a flag, a value or a part of a value of this axis."""
        return word in self.flags or any(word in words for words in self.words)

    def truths(self, word: str) -> bytes:
        """Returns one byte for each value: 1 if the word is true for the value, else 0."""
        if self.flags:
            # blocks of `run` values alternate: without the flag, with the flag
            run = 1 << self.flags.index(word)
            return (b"\0" * run + b"\1" * run) * (self.size // run // 2)
        return bytes(word in words for words in self.words)

    def weight(self, value: int) -> int:
        """Returns the distance of a value from the simplest: its number of flags; on an axis without flags, 0 or 1."""
        if self.flags:
            return bit_count(value)
        return int(value > 0)

    def as_data(self) -> list[str] | Subsets:
        """Returns the axis as it is written to results: the labels of its values, or the flags of its subsets."""
        if self.flags:
            return {"subsets": list(self.flags)}
        return list(self.labels)


@dataclass(frozen=True)
class Space:
    """The product of the axes; the last axis changes fastest."""

    axes: tuple[Axis, ...]

    @classmethod
    def of_data(cls, axes: Axes) -> Space:
        """Returns the space from data of `as_data`. Raises ValueError for invalid data."""
        axes_here = []
        for name, data in axes.items():
            if isinstance(data, Mapping):
                axes_here.append(Axis(name, flags=tuple(map(str, data["subsets"]))))
            else:
                labels = tuple(map(str, data))
                axes_here.append(Axis(name, labels, tuple((label,) for label in labels)))
        return cls(tuple(axes_here))

    def as_data(self) -> Axes:
        return {axis.name: axis.as_data() for axis in self.axes}

    @cached_property
    def size(self) -> int:
        """The number of points of the product, including points that the sweep's `where` excludes."""
        return math.prod(axis.size for axis in self.axes)

    @cached_property
    def strides(self) -> dict[str, int]:
        """For each axis, the difference between the numbers of neighbouring points along this axis."""
        strides, stride = {}, 1
        for axis in reversed(self.axes):
            strides[axis.name] = stride
            stride *= axis.size
        return strides

    def axis(self, name: str) -> Axis:
        return next(axis for axis in self.axes if axis.name == name)

    def values(self, point: int) -> dict[str, int]:
        return {axis.name: point // self.strides[axis.name] % axis.size for axis in self.axes}

    def point(self, values: Mapping[str, int]) -> int:
        """Returns the point with these values. `values` must have all axes."""
        return sum(values[name] * stride for name, stride in self.strides.items())

    def labels(self, point: int) -> dict[str, str]:
        return {
            axis.name: axis.label(point // self.strides[axis.name] % axis.size)
            for axis in self.axes
        }

    def text(self, point: int) -> str:
        """Returns a point as `axis=label,axis=label`."""
        return ",".join(f"{name}={label}" for name, label in self.labels(point).items())

    def parse(self, text: str) -> int:
        """Returns the point that the text describes. Raises ValueError with a message for the user."""
        values: dict[str, int] = {}
        for part in text.split(","):
            name, equals, label = part.partition("=")
            names = [axis.name for axis in self.axes]
            if not equals or name not in names:
                raise ValueError(f"{part!r} is not AXIS=VALUE{suggestion(name, names)}")
            if name in values:
                raise ValueError(f"duplicate axis {name!r}")
            values[name] = self.axis(name).value(label)
        for axis in self.axes:
            if axis.name not in values:
                raise ValueError(
                    f"the point has no value of axis {axis.name!r}, such as {axis.name}={axis.label(0)}",
                )
        return self.point(values)

    def weight(self, point: int) -> int:
        """Returns the distance of a point from the simplest point: the sum of the weights of its values."""
        return sum(axis.weight(point // self.strides[axis.name] % axis.size) for axis in self.axes)

    def everywhere(self) -> int:
        """Returns the column that is true at every point."""
        return int.from_bytes(b"\1" * self.size, "little")

    def column(self, axis: str, truths: bytes) -> int:
        """Returns the column of a property of one axis. `truths` has one byte, 0 or 1, for each value of the axis."""
        stride, size = self.strides[axis], self.axis(axis).size
        if stride == 1:
            block = truths
        else:
            block = b"".join(map((b"\0" * stride, b"\1" * stride).__getitem__, truths))
        return int.from_bytes(block * (self.size // (stride * size)), "little")

    def bytes_of(self, column: int) -> bytes:
        return column.to_bytes(self.size, "little")
