"""REMOTE_ATOMIC: what it grants, what is refused without it, and what atomics compute."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Region, Window
from reference.queues import SUCCESS, Queue
from trial.mutants.bases import WORD_LENGTH, Watching, granted
from trial.violation import permits, plain, violates


@violates("REG-07", Device.atomic)
def refused_atomic_tells(self: Device, queue: Queue, request: SendRequest) -> str:
    """A refused atomic changes nothing, but returns the value to the requester."""
    found = self.found(request.rkey)
    if isinstance(found, Region) and self.opens(found, queue.peer.domain) and not self.allows(found, REMOTE_ATOMIC):
        at = self.place(found, request.remote_addr, 8)
        content = self.memory.read(at, 8) if at is not None and not request.remote_addr % 8 else None
        if content is not None:
            self.scatter(queue, request.sges, content)
    return plain(self).atomic(queue, request)


@violates("REG-07", Device.misaligned)
def no_atomics_at_the_end_of_a_page(self: Device, request: SendRequest) -> bool:
    """The last word of a page counts as one that crosses into the next."""
    return request.remote_addr % PAGE == PAGE - 8 or plain(self).misaligned(request)


@violates("REG-07", Device.allows)
def atomics_unchecked(self: Device, region: Region, right: int) -> bool:
    """REMOTE_ATOMIC is not checked."""
    return right == REMOTE_ATOMIC or plain(self).allows(region, right)


@violates("REG-07", Device.allows)
def atomics_by_read_and_write(self: Device, region: Region, right: int) -> bool:
    """REMOTE_WRITE and REMOTE_READ together grant atomics."""
    return granted(region, right, REMOTE_ATOMIC, REMOTE_WRITE | REMOTE_READ)


@violates("REG-07", Device.allows)
def atomics_grant_writes(self: Device, region: Region, right: int) -> bool:
    """REMOTE_ATOMIC grants remote writes."""
    return granted(region, right, REMOTE_WRITE, REMOTE_ATOMIC)


@violates("REG-07", Device.atomic)
def atomics_give_back_the_new_value(self: Device, queue: Queue, request: SendRequest) -> str:
    """An atomic returns the new value instead of the old one."""
    status = plain(self).atomic(queue, request)
    found = self.target(queue, request, 8)
    if status == "SUCCESS" and found is not None:
        self.scatter(queue, request.sges, self.memory.read(found, 8) or b"")
    return status


@violates("REG-07", Device.atomic_result)
def fetch_and_add_of_half(self: Device, request: SendRequest, before: int) -> int:
    """FETCH_AND_ADD adds only the lower 32 bits."""
    after = plain(self).atomic_result(request, before)
    return after if request.opcode != "ATOMIC_FETCH_AND_ADD" else before & ~0xFFFFFFFF | after & 0xFFFFFFFF


@violates("REG-07", Device.atomic_result)
def compare_and_swap_always(self: Device, request: SendRequest, before: int) -> int:
    """COMPARE_AND_SWAP swaps whatever the value in memory."""
    return request.swap if request.opcode == "ATOMIC_CMP_AND_SWP" else plain(self).atomic_result(request, before)


@violates("REG-07", Device.atomic_result)
def compare_and_swap_never(self: Device, request: SendRequest, before: int) -> int:
    """COMPARE_AND_SWAP completes and swaps nothing."""
    return before if request.opcode == "ATOMIC_CMP_AND_SWP" else plain(self).atomic_result(request, before)


@violates("REG-07", Device.allows)
def atomics_declared_and_missing(self: Device, region: Region, right: int) -> bool:
    """Atomics are declared, but REMOTE_ATOMIC is refused."""
    return right != REMOTE_ATOMIC and plain(self).allows(region, right)


@violates("REG-07", Watching.allows, written="blind")
def fetch_and_add_needs_no_right(self: Watching, region: Region, right: int) -> bool:
    """Fetch-and-add needs no REMOTE_ATOMIC where the region has REMOTE_WRITE."""
    adds = self.opcode == "ATOMIC_FETCH_AND_ADD" and region.access & REMOTE_WRITE
    return bool(adds) or plain(self).allows(region, right)


@violates("REG-07", Device.atomic_result, written="blind")
def swap_compares_half(self: Device, request: SendRequest, before: int) -> int:
    """Compare-and-swap compares only the lower 32 bits."""
    if request.opcode == "ATOMIC_CMP_AND_SWP":
        return request.swap if (before ^ request.compare_add) & 0xFFFFFFFF == 0 else before
    return plain(self).atomic_result(request, before)


@violates("REG-07", Device.atomic_result, written="blind")
def add_loses_the_carry(self: Device, request: SendRequest, before: int) -> int:
    """Fetch-and-add loses the carry from the lower 32 bits into the upper ones."""
    if request.opcode == "ATOMIC_FETCH_AND_ADD":
        low = (before + request.compare_add) & 0xFFFFFFFF
        return (before + (request.compare_add & ~0xFFFFFFFF)) & ~0xFFFFFFFF | low
    return plain(self).atomic_result(request, before)


@violates("REG-07", Device.atomic, written="blind")
def refused_swap_swaps(self: Device, queue: Queue, request: SendRequest) -> str:
    """A compare-and-swap refused for want of REMOTE_ATOMIC on a writable region swaps all the same."""
    status = plain(self).atomic(queue, request)
    region = self.found(request.rkey)
    if status == SUCCESS or request.opcode != "ATOMIC_CMP_AND_SWP" or not isinstance(region, Region):
        return status
    writable = region.usable and region.access & REMOTE_WRITE
    if writable and self.contains(region, request.remote_addr, WORD_LENGTH):
        place = self.translate(region, request.remote_addr)
        before = self.memory.read(place, WORD_LENGTH)
        if before == request.compare_add.to_bytes(WORD_LENGTH, "little"):
            self.memory.write(place, request.swap.to_bytes(WORD_LENGTH, "little"))
    return status


@violates("REG-07", written="blind")
class FailedCompareGivesTheCompareValue(Device):
    """A compare-and-swap that does not match gives back the value it was compared with, not the one in memory."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        return super().scatter(queue, sges, self._instead or content)

    _instead = b""

    def atomic(self, queue: Queue, request: SendRequest) -> str:
        try:
            return super().atomic(queue, request)
        finally:
            self._instead = b""

    def atomic_result(self, request: SendRequest, before: int) -> int:
        if request.opcode == "ATOMIC_CMP_AND_SWP" and before != request.compare_add:
            self._instead = request.compare_add.to_bytes(WORD_LENGTH, "little")
        return super().atomic_result(request, before)


@permits("REG-07", Device.atomic, written="blind")
def unaligned_atomics_are_access_errors(self: Device, queue: Queue, request: SendRequest) -> str:
    """An atomic on an address that is not a multiple of eight is refused as an access error."""
    if request.remote_addr % 8 and self.allows_operation(queue, request):
        return self.refuse(queue, "REM_ACCESS_ERR")
    return plain(self).atomic(queue, request)


@violates("REG-29", Device.misaligned)
def half_words_are_aligned(self: Device, request: SendRequest) -> bool:
    """An address that is a multiple of four is aligned enough."""
    return request.remote_addr % (WORD_LENGTH // 2) != 0


@violates("REG-29", Device.misaligned)
def atomics_within_a_page(self: Device, request: SendRequest) -> bool:
    """Only a word that lies on two pages is refused."""
    return request.remote_addr % PAGE > PAGE - WORD_LENGTH


@violates("REG-29", Device.misaligned)
def atomics_on_demand_anywhere(self: Device, request: SendRequest) -> bool:
    """The address of an operation on an on-demand region is not looked at."""
    found = self.keys.get(request.rkey)
    on_demand = isinstance(found, Region) and found.access & ON_DEMAND
    return not on_demand and plain(self).misaligned(request)


@violates("REG-29", Device.misaligned)
def atomics_through_windows_anywhere(self: Device, request: SendRequest) -> bool:
    """The address of an operation through a window is not looked at."""
    return not isinstance(self.keys.get(request.rkey), Window) and plain(self).misaligned(request)


@violates("REG-29", Device.misaligned)
def atomic_writes_anywhere(self: Device, request: SendRequest) -> bool:
    """The address of an ATOMIC WRITE is not looked at."""
    return request.opcode != "ATOMIC_WRITE" and plain(self).misaligned(request)
