"""Mutants that violate REG-14, relaxed ordering. Not for short ones, which are rows of the table beside."""

from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.objects import FLUSH_GLOBAL, FLUSH_PERSISTENT, RELAXED_ORDERING, Region
from reference.queues import SUCCESS, Queue
from trial.mutants.bases import ATOMICS
from trial.violation import permits, violates


@violates("REG-14", written="blind")
class RelaxedWritesCompleteTooEarly(Device):
    """The last byte of a write to a relaxed region comes only after its completion, with the next request."""

    def setup(self) -> None:
        self._late: list[tuple[int, bytes]] = []
        self._relaxed = False

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        for addr, content in self._late:
            self.memory.write(addr, content)
        self._late.clear()
        return super().post_send(queue, request)

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        found = self.found(request.rkey)
        self._relaxed = isinstance(found, Region) and bool(found.access & RELAXED_ORDERING)
        return super().target(queue, request, length)

    def put(self, addr: int, content: bytes) -> bool:
        if self._relaxed and len(content) > 1:
            self._late.append((addr + len(content) - 1, content[-1:]))
            content = content[:-1]
        return super().put(addr, content)


@violates("REG-14", written="blind")
class AtomicsOvertakeRelaxedWrites(Device):
    """An unsignaled write to a relaxed region is carried out after the atomic that follows it."""

    def setup(self) -> None:
        self._held: list[tuple[Queue, SendRequest]] = []

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        found = self.found(request.rkey)
        relaxed = isinstance(found, Region) and found.access & RELAXED_ORDERING
        if request.opcode == "RDMA_WRITE" and relaxed and not self.asks_completion(queue, request.flags):
            self._held.append((queue, request))
            return SUCCESS
        held, self._held = self._held, []
        status = super().carry_out(queue, request) if request.opcode in ATOMICS else ""
        for each in held:
            super().carry_out(*each)
        return status or super().carry_out(queue, request)


@violates("REG-14", written="blind")
class FifthSendIsLost(Device):
    """Every fifth SEND on a relaxed region completes at both sides, but its data is not in memory."""

    _sends = 0

    def deliver(self, queue: Queue, content: bytes | None, imm: int | None, length: int) -> str:
        peer = queue.peer
        if content and peer.receives and peer.kind != "UD":
            sges = peer.receives[0][1]
            found = self.found(sges[0].lkey) if sges else None
            if isinstance(found, Region) and found.access & RELAXED_ORDERING:
                self._sends += 1
                if self._sends % 5 == 0 and self.memory_of_sge(peer, sges[0], write=True) is not None:
                    wr_id, _ = self.next_receive(peer)
                    peer.polled.append(Completion(wr_id, SUCCESS, "RECV", length, imm))
                    return SUCCESS
        return super().deliver(queue, content, imm, length)


@permits("REG-14", written="blind")
class RelaxedOrderingIgnored(Device):
    """RELAXED_ORDERING is dropped without a word."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().register(pd, addr, length, hca_va, access & ~RELAXED_ORDERING)


_BOTH = FLUSH_GLOBAL | FLUSH_PERSISTENT  # for the table beside
