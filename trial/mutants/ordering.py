"""Mutants that violate REG-14, relaxed ordering. Short mutants are rows of ordering.yaml."""

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import FLUSH_GLOBAL, FLUSH_PERSISTENT, RELAXED_ORDERING, Region
from reference.queues import Queue
from trial.violation import permits, violates


@violates("REG-14", written="blind")
class RelaxedWritesCompleteTooEarly(Device):
    """The last byte of a write to a relaxed region arrives only after the write's completion, with the next request."""

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


@permits("REG-14", written="blind")
class RelaxedOrderingIgnored(Device):
    """RELAXED_ORDERING is silently dropped."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().register(pd, addr, length, hca_va, access & ~RELAXED_ORDERING)


_BOTH = FLUSH_GLOBAL | FLUSH_PERSISTENT  # for ordering.yaml
