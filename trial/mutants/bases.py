"""Base classes for mutants of several topics."""

from copy import copy
from typing import NoReturn

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import Domain, Refused, Region
from reference.queues import Queue
from reference.reregistration import Change

WORD_LENGTH = 8
SENDS = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")
ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
Wanted = tuple[Domain, int, int, int, int]


class Knowing(Device):
    """A device that knows which regions are of dma-bufs, and whether it is registering such a region."""

    registering = False

    def setup(self) -> None:
        self.of_buffers: set[int] = set()

    def register_dmabuf(self, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
        """Registers a region of a dma-buf. Raises Refused."""
        self.registering = True
        try:
            made = super().register_dmabuf(pd, offset, length, iova, fd, access)
        finally:
            self.registering = False
        self.of_buffers.add(made.handle)
        return made


class Watching(Device):
    """A device that knows which request it carries out."""

    opcode = ""
    transport = ""

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        """Carries out a request; returns its status."""
        self.opcode, self.transport = request.opcode, queue.kind
        try:
            return super().carry_out(queue, request)
        finally:
            self.opcode = self.transport = ""


class SharedReceives(Device):
    """Receives of a shared receive queue are checked less than other receives."""

    def memory_of_sge(self, queue: Queue, sge: Sge, write: bool) -> int | None:
        found = super().memory_of_sge(queue, sge, write)
        region = self.keys.get(sge.lkey)
        if found is None and write and queue.kind == "RC_SRQ" and isinstance(region, Region):
            return self.unchecked(queue, region, sge)
        return found

    def unchecked(self, queue: Queue, region: Region, sge: Sge) -> int | None:
        """Returns the address for an element that another receive queue would refuse, or None."""
        return None


class Remembering(Device):
    """Remembers each region's state before its last change."""

    def apply(self, region: Region, change: Change) -> None:
        before = copy(region)
        super().apply(region, change)
        self.formers()[region.handle] = before, change

    def formers(self) -> dict[int, tuple[Region, Change]]:
        """Earlier states of regions and their changes, by handle."""
        found: dict[int, tuple[Region, Change]] = self.__dict__.setdefault("_formers", {})
        return found

    def former(self, region: Region, *flags: int) -> Region | None:
        """Returns the region before its last change if the change had all these flags; else None."""
        before, change = self.formers().get(region.handle, (None, None))
        return before if change and all(change.flags & flag for flag in flags) else None


def granted(region: Region, right: int, wrongly: int, by: int) -> bool:
    """Whether a region has a right; the right `by` wrongly counts as the right `wrongly`."""
    return region.access & right == right or (right == wrongly and region.access & by == by)


def refuse(code: int) -> NoReturn:
    """Refuses a call with an errno. Raises Refused."""
    raise Refused(code)
