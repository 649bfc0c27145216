"""The row of a sweep as data: the constant parts, and templates for the parts that depend on axes.

`at` of a template returns its part of the row at a point. A point is the number of the value on each axis.
tables/row_resolution.py creates the templates.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from conformance.model.case import Argument, Expectation, Flags, Given, MemorySpec, MrSpec, QpSpec, Step, WindowSpec
from conformance.model.quantity import Quantity

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
    values: Mapping[tuple[int, ...], T]  # by the number of the value on each axis; some that no point has are absent

    def at(self, values: Values) -> T:
        """The part at a point. Raises KeyError for a point that the sweep excludes."""
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
        return Flags(sum([self.masks[bit] for bit in bits]), tuple([self.names[bit] for bit in bits]))


FlagsPart = Flags | Varying[Flags] | FlagSubsets


@dataclass(frozen=True)
class FlagsUnion:
    """A list of flags with axes among its elements: the OR of its parts, in their order.

    Each axis is a separate part, because the product of two axes of subsets can have a million combinations.
    """

    parts: tuple[FlagsPart, ...]

    @property
    def axes(self) -> frozenset[str]:
        return axes_of(part for part in self.parts if not isinstance(part, Flags))

    def at(self, values: Values) -> Flags:
        if len(self.parts) == 1 and not isinstance(self.parts[0], Flags):
            return self.parts[0].at(values)
        mask, names = 0, list[str]()
        for part in self.parts:
            flags = part if isinstance(part, Flags) else part.at(values)
            mask |= flags.mask
            names += flags.names
        return Flags(mask, tuple(names))


ArgumentTemplate = Varying[Argument] | FlagsUnion


@dataclass(frozen=True)
class StepTemplate:
    """A call: the step at the first point, and the arguments and the expectation, if these depend on axes."""

    first: Step
    arguments: Mapping[str, ArgumentTemplate] = field(default_factory=dict)
    then: Varying[Expectation] | None = None

    @property
    def axes(self) -> frozenset[str]:
        return axes_of([*self.arguments.values(), *([self.then] if self.then else [])])

    def at(self, values: Values, entry: str = "") -> Step:
        first = self.first
        then = self.then.at(values) if self.then else first.then
        return Step(first.call, _at(first.arguments, self.arguments, values), then, first.name, entry or first.entry)


@dataclass(frozen=True)
class _WithArguments(Generic[T]):
    first: T
    arguments: Mapping[str, ArgumentTemplate]

    @property
    def axes(self) -> frozenset[str]:
        return axes_of(self.arguments.values())


class MrTemplate(_WithArguments[MrSpec]):
    """A region of which only the arguments depend on axes."""

    def at(self, values: Values) -> MrSpec:
        return replace(self.first, arguments=_at(self.first.arguments, self.arguments, values))


class WindowTemplate(_WithArguments[WindowSpec]):
    """A window of which only the arguments of the bind depend on axes."""

    def at(self, values: Values) -> WindowSpec:
        return replace(self.first, bound=_at(self.first.bound or {}, self.arguments, values))


@dataclass(frozen=True)
class QpTemplate:
    """A queue pair of which only the access flags depend on axes."""

    first: QpSpec
    access: FlagsUnion

    @property
    def axes(self) -> frozenset[str]:
        return self.access.axes

    def at(self, values: Values) -> QpSpec:
        return replace(self.first, access=self.access.at(values).mask)


@dataclass(frozen=True)
class GivenTemplate:
    """The set-up at the first point, and templates, by name, for the objects that depend on axes."""

    first: Given
    memory: Mapping[str, Varying[MemorySpec]] = field(default_factory=dict)
    dmabufs: Mapping[str, Varying[MemorySpec]] = field(default_factory=dict)
    mrs: Mapping[str, Varying[MrSpec] | MrTemplate] = field(default_factory=dict)
    qps: Mapping[str, Varying[QpSpec] | QpTemplate] = field(default_factory=dict)
    windows: Mapping[str, Varying[WindowSpec] | WindowTemplate] = field(default_factory=dict)
    memlock: Varying[Quantity] | None = None

    @property
    def base_axes(self) -> frozenset[str]:
        """The axes on which the base objects depend: everything except regions and windows."""
        memlock = [self.memlock] if self.memlock else []
        return axes_of([*self.memory.values(), *self.dmabufs.values(), *self.qps.values(), *memlock])

    @property
    def axes(self) -> frozenset[str]:
        return self.base_axes | axes_of([*self.mrs.values(), *self.windows.values()])

    def at(self, values: Values) -> Given:
        if not self.axes:
            return self.first
        first = self.first
        return Given(
            memory=_at(first.memory, self.memory, values),
            dmabufs=_at(first.dmabufs, self.dmabufs, values),
            pds=first.pds,
            mrs=_at(first.mrs, self.mrs, values),
            qps=_at(first.qps, self.qps, values),
            windows=_at(first.windows, self.windows, values),
            memlock=self.memlock.at(values) if self.memlock else first.memlock,
        )


@dataclass(frozen=True)
class RowTemplate:
    given: GivenTemplate
    before: tuple[StepTemplate, ...]
    when: StepTemplate
    afterwards: tuple[StepTemplate, ...]

    @property
    def setup_axes(self) -> frozenset[str]:
        """The axes on which the set-up depends, including the steps before the judged call."""
        return self.given.axes | axes_of(self.before)


def axes_of(templates: Iterable[Template[object]]) -> frozenset[str]:
    return frozenset(axis for template in templates for axis in template.axes)


def _at(first: Mapping[str, T], varying: Mapping[str, Template[T]], values: Values) -> Mapping[str, T]:
    """Values by name at a point; `varying` has templates for some of them."""
    return {**first, **{name: template.at(values) for name, template in varying.items()}}
