"""Groups the points of a sweep by their set-up, determines the order of execution, and creates the case of each point.
run.py runs the points."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Union

from conformance.model.case import Case, Given, Step
from conformance.model.kind import Kind
from conformance.model.row_template import StepTemplate, Values
from conformance.model.space import Space
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import NULL
from conformance.verbs import VERBS

# The calls that do not change the set-up; the next point can therefore use the same set-up.
_REPEATABLE = (
    *(name for name, verb in VERBS.items() if verb.leaves_objects),
    "traffic",
    "local_traffic",
    "list_traffic",
    "resident",
)
# The maximum number of points of a group, for a loop in Python and for a loop in C.
MAX_GROUP, MAX_GROUP_IN_C = 4096, 16384
PointNumbers = Union[range, array]  # type: ignore[type-arg]


@dataclass(frozen=True)
class Group:
    """Points with the same set-up, in the order of execution. They differ only on the inner axes; `inner_points` are
    their numbers in the product of these axes. An empty group has the set-up of the point `like`."""

    points: PointNumbers
    inner_points: PointNumbers
    like: int | None = None

    @property
    def set_up_as(self) -> int:
        if self.like is None:
            return self.points[0]
        return self.like


# The prefixes of the names of calls that create, change and destroy objects, but do not change memory.
_OF_OBJECTS = ("ibv_", "post_")
_OF_TRIES = ("await_traffic",)  # calls of tries alone, whose memory is cleared before each


def setup_axes(sweep: Sweep) -> list[str]:
    """Returns the axes on which the set-up depends; all axes, if the calls change the set-up."""
    steps = _steps(sweep)
    if any(step.first.call not in _REPEATABLE or _uses_own_pair(step) for step in steps):
        return [axis.name for axis in sweep.space.axes]
    return sweep.in_order(sweep.row.setup_axes)


def _uses_own_pair(step: StepTemplate) -> bool:
    """Whether a step, at any point, uses a queue pair of the case, whose state it may change."""
    return "via" in step.arguments or step.first.arguments.get("via", NULL) != NULL


def shares_base(sweep: Sweep) -> bool:
    """Whether points with different regions and windows can share PDs, memory and queue pairs. Tries of a race share
    PDs and memory alone."""
    row = sweep.row
    first = row.given.first
    if row.base_axes or first.memlock is not None:
        return False
    repeated = _REPEATABLE
    if sweep.tries:
        if first.dmabufs or any(memory.kind != "anonymous" for memory in first.memory.values()):
            return False
        repeated += _OF_TRIES
    elif row.before:
        return False
    calls = [step.first.call for step in (*row.before, *_steps(sweep))]
    return all(call.startswith(_OF_OBJECTS) or call in repeated for call in calls)


def _steps(sweep: Sweep) -> list[StepTemplate]:
    return [sweep.row.when, *sweep.row.afterwards]


def groups(
    sweep: Sweep,
    outer: Sequence[str],
    seed: int | None = None,
    largest: int = MAX_GROUP,
) -> Iterator[Group]:
    """Yields the points of the sweep in groups with the same values on the `outer` axes. With a `seed`, the groups and
    the points in a group are shuffled."""
    space = sweep.space
    if sweep.where is None:
        inside = None
    else:
        inside = space.bytes_of(sweep.inside)
    chance = random.Random(seed)
    starts = _offsets(space, outer)
    rest = _offsets(space, [axis.name for axis in space.axes if axis.name not in outer])
    if seed is not None:
        starts = array("I", starts)
        chance.shuffle(starts)
    for start in starts:
        inner_points: PointNumbers = range(len(rest))
        if inside is not None:
            if isinstance(rest, range):
                included = inside[start : start + len(rest)]
            else:
                included = bytes(map(inside.__getitem__, map(start.__add__, rest)))
            inner_points = array("I", itertools.compress(inner_points, included))
        if seed is not None:
            inner_points = array("I", inner_points)
            chance.shuffle(inner_points)
        for first in range(0, len(inner_points), largest):
            part = inner_points[first : first + largest]
            if isinstance(rest, range) and isinstance(part, range):
                yield Group(range(start + part.start, start + part.stop), part)
            else:
                yield Group(array("I", map(start.__add__, map(rest.__getitem__, part))), part)


def _offsets(space: Space, axes: Sequence[str]) -> PointNumbers:
    """Returns the numbers of the points that have the first value on every other axis, for all values on `axes`."""
    offsets: PointNumbers = range(1)
    for name in reversed(axes):
        stride, size = space.strides[name], space.axis(name).size
        if isinstance(offsets, range) and stride == len(offsets):
            offsets = range(stride * size)  # the last axes of the space: consecutive numbers
        else:
            offsets = array(
                "I",
                (value * stride + offset for value in range(size) for offset in offsets),
            )
    return offsets


_KEPT = 4096  # the number of cached steps of each call


class _Steps:
    """The steps of one call of a row. Points that differ only on axes that the call does not use share a step."""

    def __init__(self, template: StepTemplate, sweep: Sweep, entry: str) -> None:
        self._template = replace(template, first=replace(template.first, entry=entry))
        self._axes = sweep.in_order(template.axes)
        self._known: dict[tuple[int, ...], Step] = {}

    def at(self, values: Values) -> Step:
        key = tuple([values[axis] for axis in self._axes])
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = self._template.at(values)
        return self._known[key]


class PointTemplate:
    """Creates the cases of a sweep's points. Caches the set-up of the last point, because most points have the same
    set-up as the previous point."""

    def __init__(self, case: Case, sweep: Sweep) -> None:
        alone = replace(case, kind=Kind.ROW, sweep=None)
        self._fields = {field.name: getattr(alone, field.name) for field in fields(alone)}
        self._sweep, self._given = sweep, sweep.row.given
        self._setup_axes = sweep.in_order(sweep.row.setup_axes)
        self._before = [_Steps(step, sweep, case.entry) for step in sweep.row.before]
        when = sweep.row.when
        # An event can only be read when its point runs, so execution must know that it is judged.
        awaited = [clause.then for clause in sweep.deciding if clause.then and clause.then.event]
        if awaited:
            when = replace(when, first=replace(when.first, then=awaited[0]))
        self._when = _Steps(when, sweep, case.entry)
        self._afterwards = [_Steps(step, sweep, case.entry) for step in sweep.row.afterwards]
        self._setup: tuple[list[int], Given, tuple[Step, ...]] | None = None

    def case(self, point: int) -> Case:
        """Returns the case of a point; the expectation of its judged call is open, unless it is an event."""
        values = self._sweep.space.values(point)
        key = [values[axis] for axis in self._setup_axes]
        if self._setup is None or self._setup[0] != key:
            self._setup = (
                key,
                self._given.at(values),
                tuple(steps.at(values) for steps in self._before),
            )
        _, given_objects, before = self._setup
        # dataclasses.replace would take ten times as long. The steps already have the entry of the case.
        case = Case.__new__(Case)
        case.__dict__.update(
            self._fields,
            given=given_objects,
            before=before,
            when=self._when.at(values),
            afterwards=tuple([steps.at(values) for steps in self._afterwards]),
        )
        return case
