"""Defines the row of a sweep as data: constant parts, and templates for the parts that depend on axes. `at` of a
template returns this part of the row at a point. A point is given as the number of its value on each axis.
tables/row_resolution.py creates the templates."""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, Protocol, TypeVar, Union, cast

from conformance.model.case import Argument, Flags, Given, Step

Values = Mapping[str, int]  # the number of the value on each axis
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Template(Protocol[T_co]):
    """A part of the row that depends on `axes`."""

    @property
    def axes(self) -> Iterable[str]: ...
    def at(self, values: Values) -> T_co: ...


@dataclass(frozen=True)
class Varying(Generic[T]):
    """A part with one value for each combination of values of its axes."""

    axes: tuple[str, ...]
    # by the numbers of the values; excluded combinations may be absent
    values: Mapping[tuple[int, ...], T]

    def at(self, values: Values) -> T:
        """Returns the part at a point. Raises KeyError for a point that the sweep excludes."""
        return self.values[tuple([values[axis] for axis in self.axes])]


@dataclass(frozen=True)
class FlagSubsets:
    """The flags of an axis over all subsets: flag i is set if bit i of the value is set."""

    axis: str
    masks: tuple[int, ...]  # in the axis's order
    names: tuple[str, ...]  # in the axis's order

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def at(self, values: Values) -> Flags:
        value = values[self.axis]
        bits = [bit for bit in range(len(self.masks)) if value >> bit & 1]
        return Flags(
            sum([self.masks[bit] for bit in bits]),
            tuple([self.names[bit] for bit in bits]),
        )


FlagsPart = Union[Flags, Varying[Flags], FlagSubsets]


@dataclass(frozen=True)
class FlagsUnion:
    """A list of flags of which some elements are axes. The list is the bitwise OR of its parts. Each axis is a separate
    part, because the product of two axes of subsets can have a million combinations."""

    parts: tuple[FlagsPart, ...]

    @property
    def axes(self) -> frozenset[str]:
        return axes_of(part for part in self.parts if not isinstance(part, Flags))

    def at(self, values: Values) -> Flags:
        if len(self.parts) == 1 and not isinstance(self.parts[0], Flags):
            return self.parts[0].at(values)
        mask, names = 0, list[str]()
        for part in self.parts:
            if isinstance(part, Flags):
                flags = part
            else:
                flags = part.at(values)
            mask |= flags.mask
            names += flags.names
        return Flags(mask, tuple(names))


ArgumentTemplate = Union[Varying[Argument], FlagsUnion]


@dataclass(frozen=True)
class Mask:
    """The bit mask of a union of flags, as a number."""

    flags: FlagsUnion

    @property
    def axes(self) -> frozenset[str]:
        return self.flags.axes

    def at(self, values: Values) -> int:
        return self.flags.at(values).mask


@dataclass(frozen=True)
class Composed(Generic[T]):
    """A dataclass or a mapping of which some fields or values depend on axes."""

    first: T  # the value at the first point
    parts: Mapping[str, Template[Any]]

    @property
    def axes(self) -> frozenset[str]:
        return axes_of(self.parts.values())

    @property
    def arguments(self) -> Mapping[str, ArgumentTemplate]:
        """The templates of the arguments of a call or of a region."""
        arguments: Any = self.parts.get("arguments")
        return arguments.parts if arguments else {}

    def at(self, values: Values) -> T:
        if not self.parts:
            return self.first
        first: Any = self.first
        parts = {name: part.at(values) for name, part in self.parts.items()}
        if isinstance(first, dict):
            return cast(T, {**first, **parts})
        kind: Any = type(first)
        fields = {
            name: getattr(first, name) for name in _names_of_fields(kind) if name not in parts
        }
        return cast(T, kind(**fields, **parts))  # like dataclasses.replace, in half the time


StepTemplate = Composed[Step]


@dataclass(frozen=True)
class RowTemplate:
    given: Composed[Given]
    before: tuple[StepTemplate, ...]
    when: StepTemplate
    afterwards: tuple[StepTemplate, ...]

    def objects(self, section: str) -> Mapping[str, Template[Any]]:
        """Returns the templates of the objects in a section of `given` that depend on axes, by name."""
        section_objects: Any = self.given.parts.get(section)
        return section_objects.parts if section_objects else {}

    @property
    def base_axes(self) -> frozenset[str]:
        """The axes on which the base objects depend: all objects in `given` except regions and windows."""
        return axes_of(
            part for section, part in self.given.parts.items() if section not in ("mrs", "windows")
        )

    @property
    def setup_axes(self) -> frozenset[str]:
        """The axes on which the set-up depends, including the steps before the judged call."""
        return self.given.axes | axes_of(self.before)


@functools.cache
def _names_of_fields(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind)]


def axes_of(templates: Iterable[Template[object]]) -> frozenset[str]:
    return frozenset(axis for template in templates for axis in template.axes)
