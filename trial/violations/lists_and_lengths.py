"""Violations of the rules about lists of elements, no bytes, very many bytes, and requests in flight.

REG-24 to 27 and DEREG-04.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import LOCAL_WRITE, ON_DEMAND, REMOTE_ATOMIC, Domain, Region, Window
from reference.queues import Queue
from trial.violation import violates

_GIB = 1 << 30


@violates("REG-24")
class NoBytesOpenAWord(Device):
    """A region of no bytes is granted and opens the eight bytes at its address."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or 8, access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return super().contains(region, addr, length) or (
            not region.length and region.iova <= addr and addr + length <= region.iova + 8
        )


@violates("REG-24")
class NoBytesOpenEverything(Device):
    """A region of no bytes is granted and has no end."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length or 1, access)

    def contains(self, region: Region, addr: int, length: int) -> bool:
        return not region.length or super().contains(region, addr, length)


@violates("REG-24a")
class ReadsOfNoBytesAreChecked(Device):
    """A read of no bytes beyond the region is refused."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        if length or request.opcode != "RDMA_READ":
            return super().target(queue, request, length)
        found = self.keys.get(request.rkey)
        return self.place(found, request.remote_addr, 1) if isinstance(found, Region) else 0


@violates("REG-25")
class LengthsOfThirtyTwoBits(Device):
    """Of a length only the lower 32 bits are kept."""

    def keep(self, region: Region) -> Region:
        if region.length < 1 << 40:
            region.length &= 0xFFFFFFFF
        return super().keep(region)


@violates("REG-25")
class OffsetsOfThirtyTwoBits(Device):
    """In a region of more than 4 GiB the offset of an access is computed in 32 bits."""

    def translate(self, region: Region, addr: int) -> int:
        if region.length > 1 << 40:
            return super().translate(region, addr)
        return region.addr + (addr - region.iova & 0xFFFFFFFF)


@violates("REG-25")
class HugeRegionsAreRefused(Device):
    """More than 4 GiB cannot be registered."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        huge = 4 * _GIB < length < 1 << 40
        return errno.ENOMEM if huge else super().range_fault(addr, length, access)


@violates("REG-25")
class PinnedPagesBeginAgain(Device):
    """Beyond 256 MiB of a pinned region its first pages come again."""

    def translate(self, region: Region, addr: int) -> int:
        found = super().translate(region, addr)
        beyond = not region.access & ON_DEMAND and found - region.addr >= _GIB // 4
        return found - _GIB // 4 if beyond else found


@violates("REG-26")
class OnlyTheFirstElementIsChecked(Device):
    """The elements behind the first are read without a check of their key."""

    def gather(self, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
        first = super().gather(queue, sges[:1])
        rest = [self.memory.read(sge.addr, sge.length) for sge in sges[1:]]
        return None if first is None or None in rest else first + b"".join(part or b"" for part in rest)


@violates("REG-26")
class ListsAreFilledBackwards(Device):
    """What comes for a list is put into its elements from the last to the first."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        return super().scatter(queue, sges[::-1], content)


@violates("REG-26")
class BadElementsAreSkipped(Device):
    """Of a list the elements that are refused are left out, and the request succeeds."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        good = [sge for sge in sges if self.memory_of_sge(queue, sge, write=True) is not None]
        return super().scatter(queue, good or sges, content)


@violates("REG-26")
class BadElementsAreFilledAllTheSame(Device):
    """A request with a bad element fails after that element has been filled."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        if super().scatter(queue, sges, content):
            return True
        if len(sges) > 1:
            for sge in sges:
                self.memory.write(sge.addr, bytes(sge.length))
        return False


@violates("REG-27")
class DomainsOfOtherProcessesCount(Device):
    """A queue pair can use the regions of other processes by their rkeys."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return region.usable and (region.domain is domain or region.domain.context_pointer != self.context)


@violates("REG-27")
class LocalKeysOfOtherProcesses(Device):
    """Work requests can name the lkeys of other processes."""

    def opens_locally(self, region: Region, domain: Domain) -> bool:
        return super().opens_locally(region, domain) or region.domain.context_pointer != self.context


@violates("REG-27")
class AtomicsOnOtherProcesses(Device):
    """A region with REMOTE_ATOMIC is open to the queue pairs of every process."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return super().opens(region, domain) or bool(region.access & REMOTE_ATOMIC)


@violates("DEREG-04")
class PostedReceivesKeepTheirRegion(Device):
    """A region can be written as long as a receive that names it is posted."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._named: dict[int, Region] = {}

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        for sge in sges:
            found = self.keys.get(sge.lkey)
            if isinstance(found, Region):
                self._named[sge.lkey] = found
        return super().post_receive(queue, sges, wr_id)

    def found(self, key: int) -> Region | Window | None:
        return super().found(key) or self._named.get(key)


@violates("DEREG-04")
class PostedReceivesHoldTheRegion(Device):
    """A region cannot be deregistered while a receive that names it is posted."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._named: set[int] = set()

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        self._named |= {sge.lkey for sge in sges}
        return super().post_receive(queue, sges, wr_id)

    def busy(self, region: Region) -> bool:
        return region.key in self._named or super().busy(region)


@violates("DEREG-04")
class WindowsOutliveTheirDeallocation(Device):
    """After a window has been deallocated its region cannot be deregistered."""

    def release_region(self, window: Window, region: Region) -> None:
        if window.queue:
            super().release_region(window, region)


class _SharedReceives(Device):
    """Receives of a shared receive queue are checked less than others."""

    def memory_of_sge(self, queue: Queue, sge: Sge, write: bool) -> int | None:
        found = super().memory_of_sge(queue, sge, write)
        region = self.keys.get(sge.lkey)
        if found is None and write and queue.kind == "RC_SRQ" and isinstance(region, Region):
            return self.unchecked(queue, region, sge)
        return found

    def unchecked(self, queue: Queue, region: Region, sge: Sge) -> int | None:
        """Returns the address of an element that would be refused elsewhere, or None."""
        return None


@violates("REG-04")
class SharedReceivesNeedNoLocalWrite(_SharedReceives):
    """A message into a shared receive queue is written to a region without LOCAL_WRITE."""

    def unchecked(self, queue: Queue, region: Region, sge: Sge) -> int | None:
        return self.place(region, sge.addr, sge.length) if region.domain is queue.domain else None


@violates("REG-20")
class SharedReceivesHaveNoEnd(_SharedReceives):
    """A message into a shared receive queue may end behind its region."""

    def unchecked(self, queue: Queue, region: Region, sge: Sge) -> int | None:
        fits = region.access & LOCAL_WRITE and region.domain is queue.domain
        return self.translate(region, sge.addr) if fits and sge.addr >= region.iova else None


@violates("REG-22")
class SharedReceivesOfEveryDomain(_SharedReceives):
    """A message into a shared receive queue is written to a region of another domain."""

    def unchecked(self, queue: Queue, region: Region, sge: Sge) -> int | None:
        return self.place(region, sge.addr, sge.length) if region.access & LOCAL_WRITE else None


@violates("REG-26")
class LaterElementsOfSharedReceivesUnchecked(_SharedReceives):
    """Only the first element of a receive in a shared receive queue is checked."""

    first = 0

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        self.first = sges[0].addr if sges else 0
        return super().scatter(queue, sges, content)

    def unchecked(self, queue: Queue, region: Region, sge: Sge) -> int | None:
        return self.translate(region, sge.addr) if sge.addr != self.first else None
