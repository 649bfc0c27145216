"""Executes each work request completely when it is posted.

Statuses follow the published rules of the transport. If the requester refuses an operation, the status is a LOC_…
error. If the responder refuses an operation, the status is a REM_… error, and the responder's queue pair enters the
error state. On unreliable queue pairs, the requester gets no error from the responder.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import Completion, SendRequest
from conformance.model.capability import IMMEDIATES
from conformance.model.needs import need_on_demand
from conformance.verbs import ENUMS
from trial.reference.access import RIGHTS
from trial.reference.binding import Binding
from trial.reference.objects import FLUSH_PERSISTENT, ON_DEMAND, Region, Window
from trial.reference.queues import FLUSHED, SUCCESS, Queue

_ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
_SENDS = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")
_WRITES = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
RELIABLE = ("RC", "XRC", "XRC_SEND", "RC_SRQ")
_UNRELIABLE = (*_WRITES, "SEND", "SEND_WITH_IMM", "BIND_MW", "LOCAL_INV", "SEND_WITH_INV")
# The reference never refuses these operations on on-demand memory: every device with such memory declares them.
_ON_EVERY_DEVICE = ("odp_send", "odp_recv", "odp_write", "odp_read", "odp_atomic")
_WORD, _WRAP = 8, 1 << 64
_SOLICITED = ENUMS["ibv_send_flags"].value_of("SOLICITED")
_GRH = 40  # the size of the global route header in bytes


class Work(Binding):
    # Posting

    def post_fault(self, queue: Queue, opcode: str) -> int:
        """Returns the errno for a request that cannot be posted to this queue pair, or 0."""
        if queue.state not in ("RTS", "ERR"):
            return errno.EINVAL
        if not all(self.stack.has(name) for name, item in IMMEDIATES.items() if item == opcode):
            return errno.EINVAL
        fits = (
            queue.kind in RELIABLE
            or (queue.kind == "UC" and opcode in _UNRELIABLE)
            or opcode in _SENDS[:2]
        )
        if fits:
            return 0
        return errno.EINVAL

    def send_fault(self, queue: Queue, request: SendRequest) -> int:
        """Returns the errno for a request that cannot be posted, or 0."""
        fault = self.post_fault(queue, request.opcode)
        return fault or (
            self.posted_bind_fault(queue, request) if request.opcode == "BIND_MW" else 0
        )

    def execute(self, queue: Queue, request: SendRequest) -> None:
        """Executes a posted request, and adds its completion."""
        if queue.state == "ERR":
            status = FLUSHED
        else:
            status = self.carry_out(queue, request)
        if self.stack.has("iba_statuses"):
            reported = status
        else:
            reported = self.without_acknowledgement(request, status)
        self.complete(queue, request, reported)
        if reported != status:
            self.fail(queue)

    def without_acknowledgement(self, request: SendRequest, status: str) -> str:
        """Returns the status without IBA's statuses: FLUSHED for a failure, but SUCCESS if REM_… and unacknowledged."""
        if status in (SUCCESS, FLUSHED):
            return status
        sent = status.startswith("REM_") and not self.stack.transport.acknowledges(request.opcode)
        if sent:
            return SUCCESS
        return FLUSHED

    # The capability that the current operation needs for on-demand memory.
    on_demand_need = ""

    def not_on_demand_here(self, found: Region | Window | None) -> bool:
        """Returns whether memory is on demand, but the current operation cannot use on-demand memory."""
        if isinstance(found, Window):
            region = found.region
        else:
            region = found
        on_demand_region = region is not None and region.access & ON_DEMAND
        need = self.on_demand_need
        return (
            bool(on_demand_region and need)
            and not self.stack.has(need)
            and need not in _ON_EVERY_DEVICE
        )

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        if request.opcode in _SENDS:
            plain = "SEND"
        else:
            plain = request.opcode
        self.on_demand_need = _need_on_demand(plain, queue.kind)
        if request.opcode == "BIND_MW":
            return self.posted_bind(queue, request)
        if request.opcode == "LOCAL_INV":
            done = self.local_invalidate(request.invalidate_rkey, queue)
            if done:
                return SUCCESS
            return "LOC_QP_OP_ERR"
        if request.opcode in _SENDS:
            return self.send(queue, request)
        if request.opcode == "RDMA_READ":
            return self.read(queue, request)
        if request.opcode in _ATOMICS:
            return self.atomic(queue, request)
        if request.opcode in RIGHTS:
            return self.write(queue, request)
        raise LookupError(f"the reference has no {request.opcode}")

    # The local and the remote bytes of an operation

    def gather(self, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
        """Returns the bytes of a request's SGEs, or None if the access to an SGE is refused."""
        content = b""
        for sge in sges:
            memory = self.memory_of_sge(queue, sge, write=False)
            if memory is None:
                part = None
            else:
                part = self.memory.read(memory, sge.length)
            if part is None:
                return None
            content += part
        return content

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        """Writes bytes to SGEs. If the access to an SGE is refused, writes nothing and returns False."""
        targets = []
        for sge in sges:
            memory = self.memory_of_sge(queue, sge, write=True)
            if memory is None or not self.memory.fault_in(memory, sge.length, write=True):
                return False
            targets.append((memory, sge.length))
        for memory, length in targets:
            part, content = content[:length], content[length:]
            self.memory.write(memory, part)
        return True

    def memory_of_sge(self, queue: Queue, sge: Sge, write: bool) -> int | None:
        """Returns the address of an SGE's bytes, or None for a refusal. With length 0, only the first check applies."""
        if self.not_on_demand_here(self.keys.get(sge.lkey)):
            return None
        if sge.length:
            return self.local(sge.lkey, queue.domain, sge.addr, sge.length, write)
        return 0

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        """Returns the address of the responder's bytes, or None for a refusal. An operation of 0 bytes needs no key."""
        if length == 0:
            return 0
        if self.not_on_demand_here(self.keys.get(request.rkey)):
            return None
        responder, right = queue.peer, RIGHTS[request.opcode]
        return self.remote(
            request.rkey,
            responder.domain,
            responder.number,
            request.remote_addr,
            length,
            right,
        )

    def allows_operation(self, queue: Queue, request: SendRequest) -> bool:
        """Returns whether the responder's queue pair permits operations with this opcode."""
        return (
            queue.peer.state in ("RTR", "RTS")
            and queue.peer.access & RIGHTS[request.opcode] == RIGHTS[request.opcode]
        )

    def refuse(self, queue: Queue, status: str) -> str:
        """Refuses an operation at the responder. On a reliable connection, the responder's queue pair enters the error
        state. Returns the requester's status."""
        if queue.kind not in RELIABLE:
            return SUCCESS
        if queue.peer.state == "ERR":
            return "RETRY_EXC_ERR"
        if status == "REM_ACCESS_ERR":
            queue.peer.events.append("QP_ACCESS_ERR")
        self.fail(queue.peer)
        return status

    def write(self, queue: Queue, request: SendRequest) -> str:
        """Executes RDMA WRITE with and without immediate data, ATOMIC WRITE, and FLUSH, which transfers no data."""
        flushes = request.opcode.startswith("FLUSH")
        if request.opcode == "ATOMIC_WRITE":
            content: bytes | None = request.swap.to_bytes(_WORD, sys.byteorder)
        elif flushes:
            content = b""
        else:
            content = self.gather(queue, request.sges)
        if content is None:
            return "LOC_PROT_ERR"
        if not self.allows_operation(queue, request):
            return self.refuse(queue, "REM_INV_REQ_ERR")
        if request.opcode == "ATOMIC_WRITE" and self.misaligned(request):
            return self.refuse(queue, "REM_INV_REQ_ERR")
        target = self.target(queue, request, request.length if flushes else len(content))
        persists = flushes and RIGHTS[request.opcode] & FLUSH_PERSISTENT
        if persists and target and not self.is_persistent(target, request.length):
            target = None
        if target is None or not self.put(target, content):
            return self.refuse(queue, "REM_ACCESS_ERR")
        if request.opcode == "RDMA_WRITE_WITH_IMM":
            return self.deliver(queue, None, request.imm, len(content), request.flags)
        return SUCCESS

    def is_persistent(self, addr: int, length: int) -> bool:
        """Returns whether a range is persistent memory. A persistent FLUSH of other memory must fail."""
        return self.memory.is_special("persistent", addr, length)

    def put(self, addr: int, content: bytes) -> bool:
        """Writes to the responder's memory. Returns False if a page cannot be written."""
        return self.memory.write(addr, content)

    def read(self, queue: Queue, request: SendRequest) -> str:
        length = sum(sge.length for sge in request.sges)
        if not self.allows_operation(queue, request):
            return self.refuse(queue, "REM_INV_REQ_ERR")
        target = self.target(queue, request, length)
        if target is None:
            content = None
        else:
            content = self.memory.read(target, length)
        if content is None:
            return self.refuse(queue, "REM_ACCESS_ERR")
        if self.scatter(queue, request.sges, content):
            return SUCCESS
        return "LOC_PROT_ERR"

    def atomic(self, queue: Queue, request: SendRequest) -> str:
        """Executes FETCH-AND-ADD or COMPARE-AND-SWAP: changes 8 bytes of the responder, and writes the old bytes to the
        requester. Returns the status."""
        if not self.allows_operation(queue, request) or self.misaligned(request):
            return self.refuse(queue, "REM_INV_REQ_ERR")
        target = self.target(queue, request, _WORD)
        if target is None:
            before = None
        else:
            before = self.memory.read(target, _WORD)
        if target is None or before is None or not self.memory.fault_in(target, _WORD, write=True):
            return self.refuse(queue, "REM_ACCESS_ERR")
        after = self.atomic_result(request, int.from_bytes(before, sys.byteorder))
        self.memory.write(target, (after % _WRAP).to_bytes(_WORD, sys.byteorder))
        if self.scatter(queue, request.sges, before):
            return SUCCESS
        return "LOC_PROT_ERR"

    def misaligned(self, request: SendRequest) -> bool:
        return request.remote_addr % _WORD != 0

    def atomic_result(self, request: SendRequest, before: int) -> int:
        if request.opcode == "ATOMIC_FETCH_AND_ADD":
            return before + request.compare_add
        if before == request.compare_add:
            return request.swap
        return before

    def send(self, queue: Queue, request: SendRequest) -> str:
        content = self.gather(queue, request.sges)
        if content is None:
            return "LOC_PROT_ERR"
        if request.opcode == "SEND_WITH_IMM":
            imm = request.imm
        else:
            imm = None
        if request.opcode == "SEND_WITH_INV" and not self.remote_invalidate(
            request.invalidate_rkey,
            queue.peer,
        ):
            return self.refuse(queue, "REM_ACCESS_ERR")
        status = self.deliver(queue, content, imm, len(content), request.flags)
        if (
            request.opcode == "SEND_WITH_INV"
            and queue.peer.polled
            and queue.peer.polled[-1].opcode == "RECV"
        ):
            last = queue.peer.polled.pop()
            queue.peer.polled.append(
                last._replace(invalidated_rkey=self.reported_key(request.invalidate_rkey)),
            )
        return status

    def reported_key(self, key: int) -> int | None:
        """Returns the invalidated key in the completion of the receive, or None."""
        return key

    def deliver(
        self,
        queue: Queue,
        content: bytes | None,
        imm: int | None,
        length: int,
        flags: int = 0,
    ) -> str:
        """Consumes one of the peer's receives and returns the requester's status. `content` is None for a WRITE with
        immediate data, whose bytes are not written to the receive's SGEs. `flags` are those of the request."""
        peer = queue.peer
        if peer.state not in ("RTR", "RTS"):
            return self.refuse(queue, "RETRY_EXC_ERR")
        if not peer.receives:
            if queue.kind in RELIABLE:
                return "RNR_RETRY_EXC_ERR"
            return SUCCESS
        if peer.kind == "UD" and content is not None:  # the global route header precedes a datagram
            content, length = bytes(_GRH) + content, length + _GRH
        wr_id, sges = self.next_receive(peer)
        self.on_demand_need = _need_on_demand("RECV", peer.kind)
        status, reported = SUCCESS, SUCCESS
        if content is not None and len(content) > sum(sge.length for sge in sges):
            status, reported = "LOC_LEN_ERR", "REM_INV_REQ_ERR"
        elif content is not None and not self.scatter(peer, _fitting(sges, len(content)), content):
            status, reported = "LOC_PROT_ERR", "REM_OP_ERR"
        opcode = self.received_opcode(content is not None)
        done = Completion(wr_id, status, qp_num=self.received_number(peer))
        if status == SUCCESS:
            done = done._replace(
                opcode=opcode,
                byte_len=self.received_length(length, sges),
                imm=imm,
                wc_flags=self.received_flags(peer),
            )
        self.complete_receive(peer, done)
        if self.receive_gives_event(peer, bool(flags & _SOLICITED), done):
            self.notify(peer)
        if status != SUCCESS:
            self.fail(peer)
        if queue.kind in RELIABLE:
            return reported
        return SUCCESS

    def received_number(self, queue: Queue) -> int:
        """Returns the qp_num of the completion of a receive that a message has consumed."""
        return queue.number

    def complete_receive(self, peer: Queue, done: Completion) -> None:
        peer.polled.append(done)

    def received_length(self, length: int, sges: Sequence[Sge]) -> int:
        """Returns the byte_len of a receive's completion: the number of transferred bytes."""
        return length

    def next_receive(self, queue: Queue) -> tuple[int, tuple[Sge, ...]]:
        return queue.receives.popleft()


def _need_on_demand(opcode: str, kind: str) -> str:
    """Returns the capability that a request, or a receive (RECV), needs for on-demand memory."""
    if opcode in ("SEND", "RECV"):
        call = "local_traffic"
    else:
        call = "traffic"
    return need_on_demand(call, opcode, kind) or ""


def _fitting(sges: Sequence[Sge], length: int) -> list[Sge]:
    """Returns the SGEs, shortened to the `length` bytes of a message."""
    fitting = []
    for sge in sges:
        size = min(sge.length, length)
        if size:
            fitting.append(Sge(sge.addr, size, sge.lkey))
        length -= size
    return fitting
