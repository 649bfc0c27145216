"""REMOTE_ATOMIC: what it grants, what is refused without it, and what atomics compute."""

from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.queues import Queue
from trial.mutants.bases import WORD_LENGTH
from trial.violation import violates


@violates("REG-07", written="blind")
class FailedCompareGivesTheCompareValue(Device):
    """A compare-and-swap that does not match returns the compared value, not the value in memory."""

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
