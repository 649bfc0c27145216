"""Which points of a sweep share a set-up, and the order in which all are run."""

from __future__ import annotations

import itertools
import random
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.model.space import Space
from conformance.model.vocabulary import NULL
from conformance.tables.sweep import Sweep
from conformance.yamldoc.nodes import Node

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

    `picks` numbers them in the product of the axes that they do not share.
    """

    points: Numbers
    picks: Numbers


# Calls that make, change and end objects and leave the memory that they rest on as it was.
_OF_OBJECTS = ("ibv_", "post_")


def setup_axes(swept: Sweep) -> list[str]:
    """The axes whose values decide what has to be set up; all, where the calls change what was."""
    fields = swept.template.fields
    calls, steps = _steps(swept)
    fixed = [node.value["via"] for node in steps if isinstance(node.value, dict) and "via" in node.value]
    if any(call not in _REPEATABLE for call in calls) or any(node.value != NULL for node in fixed):
        return [axis.name for axis in swept.space.axes]
    return swept.template.axes_in(fields.get("given"), fields.get("before"))


def shares_ground(swept: Sweep) -> bool:
    """Whether domains, memory and queue pairs can be the same at points whose regions and windows are not."""
    template = swept.template
    given = template.fields.get("given")
    sections = given.value if given is not None and isinstance(given.value, dict) else {}
    ground = [node for key, node in sections.items() if key not in ("mrs", "windows")]
    calls, _ = _steps(swept)
    alone = "before" in template.fields or template.axes_in(*ground) or "memlock" in sections
    return not alone and all(str(call).startswith(_OF_OBJECTS) or call in _REPEATABLE for call in calls)


def _steps(swept: Sweep) -> tuple[list[object], list[Node]]:
    """The calls of a row from the judged one on, and their arguments."""
    fields = swept.template.fields
    calls: list[object] = [fields["call"].value if "call" in fields else swept.template.call]
    later = fields["afterwards"].value if "afterwards" in fields else ()
    steps = [fields["when"]] if "when" in fields else []
    for node in later if isinstance(later, tuple) else ():
        if isinstance(node.value, dict):
            calls.append(node.value["call"].value)
            steps.append(node)
    return calls, steps


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
