"""REMOTE_ATOMIC: what it grants, what is refused without it, and what atomics compute."""

from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import REMOTE_WRITE, Region
from reference.queues import SUCCESS, Queue
from trial.mutants.bases import WORD_LENGTH
from trial.violation import plain, violates


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
