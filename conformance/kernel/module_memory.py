"""Finds memory that kernel modules allocate during a case and never free, whatever type of object it holds.

A kernel with memory allocation profiling counts, for each line of its source that allocates memory, the allocations
that are not freed yet. Memory counts as leaked only if a module has more memory after the case, and again more memory
after each of several repetitions of the case. Memory that is allocated once and then reused does not grow again. Only
modules count, because the rest of the kernel retains memory for other reasons than the calls of a case.
"""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from conformance.kernel.log import KernelFile
from conformance.model.observation import UnfreedMemory

REPETITIONS = 4
# A kernel frees some memory only after a grace period, or in batches every 5 s.
FREED_S, POLL_S = 8.0, 0.1
_PROC = Path("/proc")
_SLAB, _BARRIER = Path("/sys/kernel/slab"), Path("/sys/module/rcutree/parameters/do_rcu_barrier")
_LINE = re.compile(r"^ *(\d+) +(\d+) (\S+:\d+) \[(\w+)\] func:(\S+)", re.MULTILINE)


class Place(NamedTuple):
    """A line of a module's source that allocates memory."""

    function: str
    module: str
    line: str


class Held(NamedTuple):
    """The memory from one place that is not freed."""

    objects: int
    size: int


def free_waiting() -> None:
    """Makes the kernel free the memory that waits in a cache or for a grace period."""
    for file in (*_SLAB.glob("kmalloc-*/shrink"), _BARRIER):
        with suppress(OSError):
            file.write_text("1")


def _unfreed(place: Place, growth: Sequence[Held]) -> UnfreedMemory:
    """Returns the memory of a place that has grown in each repetition."""
    return UnfreedMemory(
        function=place.function,
        module=place.module,
        line=place.line,
        objects=[kind.objects for kind in growth],
        size=growth[-1].size,
    )


class ModuleMemory:
    """The memory that the modules of this kernel have allocated. No other process may use the RDMA devices of this
    kernel. `free` makes the kernel free the memory that waits to be freed."""

    def __init__(self, proc: Path = _PROC, free: Callable[[], None] = free_waiting) -> None:
        self._file, self._free = KernelFile(proc / "allocinfo"), free
        # twice the largest number of objects that waited to be freed
        self._freed_later = Counter[Place]()
        self._settled = self._count()
        self._more()

    @classmethod
    def of_kernel(cls, proc: Path = _PROC) -> "ModuleMemory | None":
        """Returns None if this kernel does not count its memory by place, or if this process may not read it."""
        try:
            if (proc / "sys/vm/mem_profiling").read_text().strip() == "1":
                return cls(proc)
            return None
        except OSError:
            return None

    def leaked_by(self, repeat: Callable[[int], object]) -> list[UnfreedMemory]:
        """Returns the memory that has leaked since the last call, and again in each repetition. `repeat` repeats all
        actions since the last call. Its argument is the number of the repetition."""
        now = self._count()
        if not any(
            held.objects > self._before(place) + self._freed_later[place]
            for place, held in now.items()
        ):
            self._settled = {
                place: min(held, now.get(place, held)) for place, held in self._settled.items()
            }
            return []
        start = self._settled
        places = set(self._more())
        grown = {place: [self._grown(start, place)] for place in places}
        for number in range(1, REPETITIONS + 1):
            if not places:
                return []
            before = self._settled
            repeat(number)
            places &= set(self._more())
            for place in places:
                grown[place].append(self._grown(before, place))
        leaks = sorted(
            self._never_freed(start, places),
            key=lambda place: (-grown[place][-1].size, place),
        )
        return [_unfreed(place, grown[place]) for place in leaks]

    def _count(self) -> dict[Place, Held]:
        text = self._file.read()
        # the lines of modules follow all others
        begin = text.rfind("\n", 0, max(text.find("] func:"), 0)) + 1
        return {
            Place(function, module, line): Held(int(objects), int(size))
            for size, objects, line, module, function in _LINE.findall(text, begin)
        }

    def _before(self, place: Place) -> int:
        if place in self._settled:
            return self._settled[place].objects
        return 0

    def _grown(self, before: Mapping[Place, Held], place: Place) -> Held:
        old, new = before.get(place, Held(0, 0)), self._settled.get(place, Held(0, 0))
        return Held(new.objects - old.objects, new.size - old.size)

    def _more(self) -> list[Place]:
        """Makes the kernel free waiting memory. Returns the places with more objects than after the last call."""
        before, first = self._settled, self._count()
        self._free()
        self._settled = self._count()
        for place, held in first.items():
            self._freed_later[place] = max(
                self._freed_later[place],
                2 * (held.objects - self._before(place)),
            )
        return [place for place in self._settled if self._grown(before, place).objects > 0]

    def _never_freed(self, start: Mapping[Place, Held], places: Iterable[Place]) -> list[Place]:
        """Returns the places that have an object of the case and of each repetition even after FREED_S seconds."""
        until = time.monotonic() + FREED_S
        while True:
            places_grown = [
                place for place in places if self._grown(start, place).objects > REPETITIONS
            ]
            if not places_grown or time.monotonic() > until:
                return places_grown
            time.sleep(POLL_S)
            self._more()
