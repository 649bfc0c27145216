"""Mutants that violate REG-05, REMOTE_WRITE, or make a choice that the rule leaves open. Short mutants are in
remote_write.yaml."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.queues import Queue

WRITES = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM")


class _TellingOfRefused(Device):
    """Delivers the immediate data of a refused write, on the types of queue pairs `kinds`; for remote_write.yaml."""

    kinds: tuple[str, ...] = ()
    immediate: SendRequest | None = None

    def write(self, queue: Queue, request: SendRequest) -> str:
        self.immediate = request if request.opcode == "RDMA_WRITE_WITH_IMM" else None
        return super().write(queue, request)

    def refuse(self, queue: Queue, status: str) -> str:
        request, self.immediate = self.immediate, None
        if request and queue.kind in self.kinds and queue.peer.receives:
            self.deliver(queue, None, request.imm, sum(sge.length for sge in request.sges))
        return super().refuse(queue, status)
