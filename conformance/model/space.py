"""A space of points: axes, each with its values, and the points as numbers in row-major order.

Truth over a whole space is one integer with a byte for each point, 0 or 1 (a *column*): Python's
own arithmetic then works on all points at once. Nothing here knows what a value means to a call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from conformance.model.record import Axes, Subsets
from conformance.yamldoc.reader import suggestion

# Far beyond what a run takes the time for; it keeps a slip from eating the machine.
MAX_POINTS = 1 << 20
NONE = "none"  # how an empty list of flags reads


@dataclass(frozen=True)
class Axis:
    """One axis. `words[i]` are the words that hold at value i, `labels[i]` is how the value reads.

    An axis over the subsets of flags has no labels: value i has the flags whose bits i has, in the
    order of `flags`.
    """

    name: str
    labels: tuple[str, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()
    flags: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many values it has."""
        return 1 << len(self.flags) if self.flags else len(self.labels)

    def label(self, value: int) -> str:
        """How a value reads."""
        if not self.flags:
            return self.labels[value]
        return "+".join(flag for bit, flag in enumerate(self.flags) if value >> bit & 1) or NONE

    def value(self, label: str) -> int:
        """The value that reads like this. Raises ValueError with a sentence for people."""
        if not self.flags:
            if label not in self.labels:
                raise ValueError(f"axis {self.name!r} has no value {label!r}{suggestion(label, self.labels)}")
            return self.labels.index(label)
        value = 0
        for flag in label.split("+") if label != NONE else ():
            if flag not in self.flags:
                raise ValueError(f"axis {self.name!r} has no flag {flag!r}{suggestion(flag, self.flags)}")
            value |= 1 << self.flags.index(flag)
        return value

    def knows(self, word: str) -> bool:
        """Whether the word is a flag, value or part of a value of this axis."""
        return word in self.flags or any(word in words for words in self.words)

    def truths(self, word: str) -> bytes:
        """For each value, 1 where the word holds."""
        if self.flags:
            without = 1 << self.flags.index(word)  # so many values lack the flag, then as many have it
            return (b"\0" * without + b"\1" * without) * (self.size // without // 2)
        return bytes(word in words for words in self.words)

    def weight(self, value: int) -> int:
        """How far a value is from the plainest one: its flags, or 1 for any value but the first."""
        return value.bit_count() if self.flags else int(value > 0)

    def as_data(self) -> list[str] | Subsets:
        """The axis as results have it: the labels of its values, or the flags whose subsets they are."""
        return {"subsets": list(self.flags)} if self.flags else list(self.labels)


@dataclass(frozen=True)
class Space:
    """The product of the axes; the last axis changes fastest."""

    axes: tuple[Axis, ...]

    @classmethod
    def of_data(cls, axes: Axes) -> Space:
        """The space as results have it. Raises ValueError for what is none."""
        found = []
        for name, data in axes.items():
            if isinstance(data, Mapping):
                found.append(Axis(name, flags=tuple(map(str, data["subsets"]))))
            else:
                labels = tuple(map(str, data))
                found.append(Axis(name, labels, tuple((label,) for label in labels)))
        return cls(tuple(found))

    def as_data(self) -> Axes:
        """The axes as results have them."""
        return {axis.name: axis.as_data() for axis in self.axes}

    @cached_property
    def size(self) -> int:
        """How many points the product has, those that a constraint excludes among them."""
        return math.prod(axis.size for axis in self.axes)

    @cached_property
    def strides(self) -> dict[str, int]:
        """How many points lie between one value of an axis and the next."""
        strides, stride = {}, 1
        for axis in reversed(self.axes):
            strides[axis.name] = stride
            stride *= axis.size
        return strides

    def axis(self, name: str) -> Axis:
        """The axis of this name. Raises KeyError."""
        return next(axis for axis in self.axes if axis.name == name)

    def values(self, point: int) -> dict[str, int]:
        """The value on each axis at a point."""
        return {axis.name: point // self.strides[axis.name] % axis.size for axis in self.axes}

    def point(self, values: Mapping[str, int]) -> int:
        """The point with these values on all axes."""
        return sum(values[name] * stride for name, stride in self.strides.items())

    def labels(self, point: int) -> dict[str, str]:
        """How a point's values read."""
        return {axis.name: axis.label(point // self.strides[axis.name] % axis.size) for axis in self.axes}

    def text(self, point: int) -> str:
        """A point as `axis=label,axis=label`."""
        return ",".join(f"{name}={label}" for name, label in self.labels(point).items())

    def parse(self, text: str) -> int:
        """The point of a text as `text` writes it. Raises ValueError with a sentence for people."""
        values: dict[str, int] = {}
        for part in text.split(","):
            name, equals, label = part.partition("=")
            known = [axis.name for axis in self.axes]
            if not equals or name not in known:
                raise ValueError(f"{part!r} is not AXIS=VALUE{suggestion(name, known)}")
            if name in values:
                raise ValueError(f"axis {name!r} stands twice")
            values[name] = self.axis(name).value(label)
        for axis in self.axes:
            if axis.name not in values:
                raise ValueError(f"the point has no value of axis {axis.name!r}, such as {axis.name}={axis.label(0)}")
        return self.point(values)

    def weight(self, point: int) -> int:
        """How far a point is from the plainest one."""
        return sum(axis.weight(point // self.strides[axis.name] % axis.size) for axis in self.axes)

    def everywhere(self) -> int:
        """The column that is true at every point."""
        return int.from_bytes(b"\1" * self.size, "little")

    def column(self, axis: str, truths: bytes) -> int:
        """The column of a property of one axis's value, 1 or 0 for each value."""
        stride, size = self.strides[axis], self.axis(axis).size
        block = truths if stride == 1 else b"".join(map((b"\0" * stride, b"\1" * stride).__getitem__, truths))
        return int.from_bytes(block * (self.size // (stride * size)), "little")

    def bytes_of(self, column: int) -> bytes:
        """A column as one byte for each point."""
        return column.to_bytes(self.size, "little")

    def count(self, column: int) -> int:
        """At how many points a column is true."""
        return column.bit_count()
