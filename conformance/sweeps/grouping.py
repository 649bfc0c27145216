"""Which points of a sweep share a set-up, and the order in which all are run."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.model.row_template import StepTemplate
from conformance.model.space import Space
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import NULL

# Calls that leave what was set up as it was, so that the next point can use it too.
_REPEATABLE = (
    "ibv_reg_mr", "ibv_reg_mr_iova", "ibv_reg_dmabuf_mr", "ibv_advise_mr", "ibv_alloc_mw", "traffic", "local_traffic",
    "resident",
)  # fmt: skip
# Points between two set-ups: where each takes Python's time, and where they run in C.
LARGEST, LARGEST_IN_C = 4096, 16384
Numbers = range | array  # type: ignore[type-arg]


@dataclass(frozen=True)
class Group:
    """Points with one set-up, in the order in which they are run.

    `picks` numbers them in the product of the axes that they do not share. `like` is a point whose set-up they have, if
    there may be none of them.
    """

    points: Numbers
    picks: Numbers
    like: int | None = None

    @property
    def set_up_as(self) -> int:
        """A point whose set-up is that of all of them."""
        return self.points[0] if self.like is None else self.like


# Calls that make, change and end objects and leave the memory that they rest on as it was.
_OF_OBJECTS = ("ibv_", "post_")


def setup_axes(swept: Sweep) -> list[str]:
    """The axes whose values decide what has to be set up; all, where the calls change what was."""
    steps = _steps(swept)
    if any(step.first.call not in _REPEATABLE or _uses_own_pair(step) for step in steps):
        return [axis.name for axis in swept.space.axes]
    return swept.in_order(swept.row.setup_axes)


def _uses_own_pair(step: StepTemplate) -> bool:
    """Whether a step goes over a queue pair of the case's, whose state it may change, at any point."""
    return "via" in step.arguments or step.first.arguments.get("via", NULL) != NULL


def shares_ground(swept: Sweep) -> bool:
    """Whether domains, memory and queue pairs can be the same at points whose regions and windows are not."""
    given = swept.row.given
    if swept.row.before or given.ground_axes or given.first.memlock is not None:
        return False
    calls = [step.first.call for step in _steps(swept)]
    return all(call.startswith(_OF_OBJECTS) or call in _REPEATABLE for call in calls)


def _steps(swept: Sweep) -> list[StepTemplate]:
    """The steps of a row from the judged one on."""
    return [swept.row.when, *swept.row.afterwards]


def groups(swept: Sweep, outer: Sequence[str], seed: int | None = None, largest: int = LARGEST) -> Iterator[Group]:
    """The points that count, those that share the values of the `outer` axes together; `seed` shuffles them."""
    space = swept.space
    inside = None if swept.where is None else space.bytes_of(swept.inside)
    chance = random.Random(seed)
    starts = _offsets(space, outer)
    rest = _offsets(space, [axis.name for axis in space.axes if axis.name not in outer])
    if seed is not None:
        starts = array("I", starts)
        chance.shuffle(starts)
    for start in starts:
        picks: Numbers = range(len(rest))
        if inside is not None:
            here = inside[start : start + len(rest)] if isinstance(rest, range) else bytes(
                map(inside.__getitem__, map(start.__add__, rest)))  # fmt: skip
            picks = array("I", itertools.compress(picks, here))
        if seed is not None:
            picks = array("I", picks)
            chance.shuffle(picks)
        for first in range(0, len(picks), largest):
            part = picks[first : first + largest]
            if isinstance(rest, range) and isinstance(part, range):
                yield Group(range(start + part.start, start + part.stop), part)
            else:
                yield Group(array("I", map(start.__add__, map(rest.__getitem__, part))), part)


def _offsets(space: Space, axes: Sequence[str]) -> Numbers:
    """How far the points of the product of some axes lie behind its first, the others being at their first value."""
    found: Numbers = range(1)
    for name in reversed(axes):
        stride, size = space.strides[name], space.axis(name).size
        if isinstance(found, range) and stride == len(found):
            found = range(stride * size)  # the last axes of the space, without a gap
        else:
            found = array("I", (value * stride + offset for value in range(size) for offset in found))
    return found
