"""Posts batches of requests as ibv_wr_post(3) defines them. Either all requests of a batch are executed, or none."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TypeVar

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SendRequest
from conformance.verbs import ENUMS
from trial.reference.queues import Queue
from trial.reference.work import RELIABLE, Work

_INLINE = ENUMS["ibv_send_flags"].value_of("INLINE")
_OPERATIONS = ENUMS["ibv_qp_create_send_ops_flags"]
_DEPTH, _ELEMENTS = 16, 3
_UNRELIABLE = (
    "RDMA_WRITE",
    "RDMA_WRITE_WITH_IMM",
    "SEND",
    "SEND_WITH_IMM",
    "SEND_WITH_INV",
    "LOCAL_INV",
    "BIND_MW",
)
T = TypeVar("T")
_RECEIVED = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "RDMA_WRITE_WITH_IMM")
_SUPPORTED = {
    "RC": _OPERATIONS.mask_of(*_OPERATIONS.short_names) & ~_OPERATIONS.value_of("TSO"),
    "UC": _OPERATIONS.mask_of(*_UNRELIABLE),
    "UD": _OPERATIONS.mask_of("SEND", "SEND_WITH_IMM", "TSO"),
}


class Postings(Work):
    """Queue pairs whose requests are posted by builders."""

    inline_data: bytes | None = None  # the inline data of the request that is being executed

    def capacity(self, queue: Queue) -> tuple[int, int, int]:
        """Returns the maximum number of requests of the send queue, and of SGEs and inline bytes of a request."""
        if self.stack.has("lists"):
            elements = _ELEMENTS
        else:
            elements = 1
        return _DEPTH, elements, queue.inline

    # Lists of ibv_post_send and ibv_post_recv.

    def depth(self, queue: Queue) -> int:
        """Returns how many requests a queue of this queue pair takes."""
        return queue.resized or _DEPTH

    def resize_receives(self, queue: Queue, count: int) -> int:
        """Executes ibv_modify_srq. Returns 0 or errno."""
        queue.resized = count
        return 0

    def first_refused(
        self,
        queue: Queue,
        requests: Sequence[Sequence[Sge]],
        inline: bool,
    ) -> tuple[int, int]:
        """Returns the errno and the index of the first request that cannot be posted; else 0 and the number of requests.
        `requests` are the SGEs of each, and `inline` whether they are copied with the request."""
        _, elements, _ = self.capacity(queue)
        for index, sges in enumerate(requests):
            if index >= self.depth(queue):
                return errno.ENOMEM, index
            if len(sges) > elements:
                return errno.EINVAL, index
            if inline and sum(sge.length for sge in sges) > queue.inline:
                return errno.EINVAL, index
        return 0, len(requests)

    def executed_of(self, requests: Sequence[T], index: int) -> Sequence[T]:
        """Returns those of a list that are posted, if that with the index cannot be."""
        return requests[:index]

    def bad_wr(self, index: int) -> int:
        """Returns the index of the request to which the call sets bad_wr."""
        return index

    def post_sends(self, queue: Queue, requests: Sequence[SendRequest]) -> tuple[int, int]:
        inline = bool(requests[0].flags & _INLINE)
        fault, index = self.first_refused(queue, [request.sges for request in requests], inline)
        for request in self.executed_of(requests, index):
            self.post_send(queue, request)
        return fault, self.bad_wr(index)

    def post_receives(
        self,
        queue: Queue,
        receives: Sequence[tuple[Sequence[Sge], int]],
    ) -> tuple[int, int]:
        fault, index = self.first_refused(queue, [sges for sges, _ in receives], inline=False)
        for sges, wr_id in self.executed_of(receives, index):
            self.post_receive(queue, sges, wr_id)
        return fault, self.bad_wr(index)

    def create_qp_ex_fault(self, kind: str, operations: int) -> int:
        """Returns the errno if a queue pair of this type cannot have the operations, or 0."""
        if operations & ~_SUPPORTED[kind] or not self.stack.has("wr_post"):
            return errno.EOPNOTSUPP
        return 0

    def batch_fault(self, queue: Queue, requests: Sequence[SendRequest]) -> int:
        """Returns the errno for a batch with too many requests, or with a request beyond `capacity`; else 0."""
        depth, elements, inline = self.capacity(queue)
        if len(requests) > depth:
            return errno.ENOMEM
        long = any(
            len(request.sges) > elements or self.inline_length(request) > inline
            for request in requests
        )
        if long:
            return errno.EINVAL
        return 0

    def inline_length(self, request: SendRequest) -> int:
        if request.flags & _INLINE:
            return sum(sge.length for sge in request.sges)
        return 0

    def set_inline(self, queue: Queue, request: SendRequest) -> bytes | None:
        """Executes the setter of inline data, which needs no key. Returns the copied bytes, or None without INLINE."""
        if not request.flags & _INLINE:
            return None
        return b"".join(self.memory.read(sge.addr, sge.length) or b"" for sge in request.sges)

    def gather(self, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
        """Returns the bytes of SGEs as in Work, or the inline data, which were copied earlier."""
        if self.inline_data is None:
            return super().gather(queue, sges)
        return self.inline_data

    def post_batch(
        self,
        queue: Queue,
        requests: Sequence[SendRequest],
        built: Callable[[], bool],
    ) -> int:
        """Executes ibv_wr_start, the builders and ibv_wr_complete. If `built` returns False, executes ibv_wr_abort in
        place of ibv_wr_complete. Returns 0 or errno."""
        fault = self.batch_fault(queue, requests)
        copied = [
            (request, None if fault else self.set_inline(queue, request)) for request in requests
        ]
        if not built():
            return self.abort(queue, requests)
        return fault or self.complete_batch(queue, copied)

    def abort(self, queue: Queue, requests: Sequence[SendRequest]) -> int:
        """Executes ibv_wr_abort, after which no request of the batch is executed. Returns 0."""
        return 0

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        """Executes ibv_post_send for one request. Copies inline data like the setter. Returns 0 or errno."""
        return self.complete_batch(queue, [(request, self.set_inline(queue, request))])

    def complete_batch(
        self,
        queue: Queue,
        requests: Sequence[tuple[SendRequest, bytes | None]],
    ) -> int:
        """Executes ibv_wr_complete. If a request cannot be posted, returns its errno and executes no request. Else
        executes the requests with their inline data and returns 0."""
        for request, _ in requests:
            if fault := self.send_fault(queue, request):
                return fault
        queue.waiting += requests
        self.resume(queue)
        return 0

    def resume(self, queue: Queue) -> None:
        """Executes the requests up to a SEND without data, or a WRITE, that finds no receive. Those behind it wait for theirs, too."""
        while queue.waiting:
            request = queue.waiting[0][0]
            alone = not request.sges or request.opcode == "RDMA_WRITE_WITH_IMM"
            if self.finds_no_receive(queue, request) and (queue.patient or alone):
                queue.patient = True
                return
            request, self.inline_data = queue.waiting.popleft()
            try:
                self.execute(queue, request)
            finally:
                self.inline_data = None
        queue.patient = False

    def finds_no_receive(self, queue: Queue, request: SendRequest) -> bool:
        """Returns whether the device sends a request again until its peer has a receive."""
        peer = queue.peer
        if queue.kind not in RELIABLE or queue.state != "RTS" or peer.receives:
            return False
        return request.opcode in _RECEIVED and peer.state in ("RTR", "RTS")

    def post_receive(self, queue: Queue, sges: Sequence[Sge], wr_id: int) -> int:
        refused = super().post_receive(queue, sges, wr_id)
        self.resume(queue.peer)
        return refused
