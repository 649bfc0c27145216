"""Mutants that violate REG-05, REMOTE_WRITE, or choose what it leaves open. Not for short ones (the table beside)."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import REMOTE_WRITE, Domain, Region
from reference.queues import Queue
from trial.violation import violates

WRITES = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM")


class _TellingOfRefused(Device):
    """Delivers the immediate data of a refused write, on the types of queue pairs `kinds`; for the table beside."""

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


@violates("REG-05", written="blind")
class WriteRightIsLookedUpOnce(Device):
    """A queue pair through which a peer has written once may write to any region of its PD."""

    def setup(self) -> None:
        self._granted: set[int] = set()

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        place = super().remote(rkey, domain, queue, addr, length, right)
        found = self.found(rkey)
        if right == REMOTE_WRITE and place is not None:
            self._granted.add(queue)
        elif right == REMOTE_WRITE and queue in self._granted and isinstance(found, Region):
            return self.place(found, addr, length) if self.opens(found, domain) else None
        return place
