"""Binds: posting, completion and queue pairs."""

from __future__ import annotations

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import Domain, Region, Window
from reference.queues import SUCCESS, Queue
from trial.violation import permits, plain, violates

FENCE = 1


@violates("BIND-01", Device.reported_wr_id)
def other_number_completes(self: Device, wr_id: int) -> int:
    """Completions have a wr_id of the device's own."""
    return 0


@violates("BIND-01", Device.ibv_bind_mw)
def bind_answers_one(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """A posted bind returns EINPROGRESS."""
    fault, key = plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)
    return fault or errno.EINPROGRESS, key


@violates("BIND-01", Device.ibv_bind_mw, written="blind")
def work_request_number_of_thirty_two_bits(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """The completion of a bind carries only the lower 32 bits of wr_id."""
    return plain(self).ibv_bind_mw(queue, window, info, flags, wr_id & 0xFFFFFFFF)


@violates("BIND-01", written="blind")
class PostedBindCarriesThePreviousNumber(Device):
    """The completion of a posted bind carries the wr_id of the posted bind before it."""

    _before = 0

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if request.opcode == "BIND_MW" and request.bind is not None:
            text, self._before = self._before or request.wr_id, request.wr_id
            request = request._replace(wr_id=text)
        super().complete(queue, request, status)


@violates("BIND-01", Device.complete, written="blind")
def refused_bind_is_told(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A bind beyond its region completes with success, and nothing is bound."""
    plain(self).complete(queue, request, SUCCESS if status == "MW_BIND_ERR" else status)


@violates("BIND-01", Device.ibv_bind_mw, written="blind")
def posted_bind_returns_one(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """ibv_bind_mw returns 1 instead of 0 where the window was bound before."""
    again = window.region is not None
    fault, key = plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)
    return fault or int(again), key


@permits("BIND-01", Device.complete)
def errors_are_loud(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A queue pair goes to the error state after a failed bind, and so does its peer."""
    plain(self).complete(queue, request, status)
    if request.opcode == "BIND_MW" and status != SUCCESS:
        self.fail(queue.peer)


@violates("BIND-03", Device.wrong_queue)
def datagrams_bind(self: Device, kind: str) -> bool:
    """A window is bound on a queue pair of type UD."""
    return False


@violates("BIND-03", Device.wrong_queue)
def unreliable_does_not_bind(self: Device, kind: str) -> bool:
    """A bind on a queue pair of type UC is refused."""
    return kind == "UC" or plain(self).wrong_queue(kind)


@violates("BIND-03", Device.wrong_queue)
def extended_does_not_bind(self: Device, kind: str) -> bool:
    """A bind on a queue pair of type XRC_SEND is refused."""
    return kind == "XRC_SEND" or plain(self).wrong_queue(kind)


@violates("BIND-03", Device.wrong_queue, written="blind")
def no_binds_on_uc(self: Device, kind: str) -> bool:
    """Binds on UC are refused."""
    return plain(self).wrong_queue(kind) or kind == "UC"


@violates("BIND-03", Device.wrong_queue, written="blind")
def binds_on_datagrams(self: Device, kind: str) -> bool:
    """ibv_bind_mw works on UD."""
    return kind != "UD" and plain(self).wrong_queue(kind)


@violates("BIND-03", Device.wrong_queue, written="blind")
def no_binds_on_xrc(self: Device, kind: str) -> bool:
    """Binds on XRC_SEND are refused."""
    return plain(self).wrong_queue(kind) or kind == "XRC_SEND"


@permits("BIND-03", Device.ibv_bind_mw)
def unconnected_takes_binds(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """A queue pair that is not ready to send accepts a bind and never executes it."""
    if queue.state in ("INIT", "RTR"):
        return 0, self.next_key(window.key)
    return plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-04", Device.asks_completion)
def always_completes(self: Device, queue: Queue, flags: int) -> bool:
    """A bind generates a completion with or without SIGNALED."""
    return True


@violates("BIND-04", Device.asks_completion)
def never_completes(self: Device, queue: Queue, flags: int) -> bool:
    """sq_sig_all has no effect on binds."""
    return plain(self).asks_completion(queue, flags) and not (queue.sq_sig_all and not flags)


@violates("BIND-04", Device.ibv_bind_mw)
def fence_refused(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """A bind with FENCE is refused."""
    if flags & 1:
        return errno.EINVAL, window.key
    return plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-04", Device.complete, written="blind")
def every_bind_completes(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A bind by ibv_bind_mw completes visibly without SIGNALED."""
    if request.opcode == "BIND_MW" and request.bind is None:
        request = request._replace(flags=request.flags | 2)
    plain(self).complete(queue, request, status)


@violates("BIND-04", Device.complete, written="blind")
def posted_binds_never_complete(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A posted bind that succeeds has no completion, even if SIGNALED."""
    if not (request.opcode == "BIND_MW" and request.bind is not None and status == SUCCESS):
        plain(self).complete(queue, request, status)


@violates("BIND-04", Device.ibv_bind_mw, written="blind")
def fenced_binds_refused(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """A bind with FENCE is refused."""
    if flags & FENCE:
        return errno.EINVAL, window.key
    return plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-04", Device.asks_completion, written="blind")
def fence_hides_the_completion(self: Device, queue: Queue, flags: int) -> bool:
    """A bind with FENCE | SIGNALED has no completion."""
    return plain(self).asks_completion(queue, flags) and not flags & FENCE


@violates("BIND-04", Device.complete, written="blind")
def unsignaled_posted_bind_completes(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A posted bind without SIGNALED completes visibly on UC."""
    if request.opcode == "BIND_MW" and request.bind is not None and queue.kind == "UC":
        request = request._replace(flags=request.flags | 2)
    plain(self).complete(queue, request, status)


@violates("BIND-11", name="failure-to-post-returns-minus-one", written="blind")
@violates("BIND-11", Device.ibv_bind_mw)
def bind_answers_minus_one(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """A bind that cannot be posted returns -1."""
    fault, key = plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)
    return (-1 if fault else 0), key


@violates("BIND-11", Device.other_domain)
def foreign_region_bound(self: Device, queue: Domain, window: Window, region: Region) -> bool:
    """It is not checked whether window and region have the same PD."""
    return False


@violates("BIND-11", Device.bind_argument_fault)
def null_region_bound(
    self: Device, queue: Domain, window: Window, region: Region | None, length: int, access: int
) -> int:
    """A bind of a range without a region returns 0."""
    return 0 if region is None else plain(self).bind_argument_fault(queue, window, region, length, access)


@violates("BIND-11")
class RefusedBindIsMadeLater(Device):
    """A bind that is refused because the queue pair cannot send yet is made when it can."""

    waiting: tuple[tuple[Queue, Window, Region, BindInfo, int], ...] = ()

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        if fault and region and queue.state in ("RESET", "INIT", "RTR"):
            key = self.next_key(window.key)
            self.waiting = (*self.waiting, (queue, window, region, info, key))
        return fault

    def move_qp(self, queue: Queue, state: str) -> None:
        super().move_qp(queue, state)
        for waiting, window, region, info, key in self.waiting if state == "RTS" else ():
            if waiting is queue:
                self.bind(window, region, info.addr, info.length, info.access, key, queue.number)
                self.complete(queue, SendRequest("BIND_MW", 0), SUCCESS)


@violates("BIND-11", Device.ibv_bind_mw, written="blind")
def failure_to_post_returns_zero(
    self: Device, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int
) -> tuple[int, int]:
    """ibv_bind_mw returns 0 on a queue pair that cannot send yet; nothing is bound and nothing completes."""
    fault, key = plain(self).ibv_bind_mw(queue, window, info, flags, wr_id)
    return (0 if queue.state not in ("RTS", "ERR") else fault), key


@violates("BIND-11", Device.bind_argument_fault, written="blind")
def failure_to_post_returns_negative_errno(
    self: Device, queue: Domain, window: Window, region: Region | None, length: int, access: int
) -> int:
    """A bind that cannot be posted for its flags returns the negative of errno."""
    return -plain(self).bind_argument_fault(queue, window, region, length, access)


@permits("BIND-11", Device.bind_argument_fault)
def binds_refused_by_completion(
    self: Device, queue: Domain, window: Window, region: Region | None, length: int, access: int
) -> int:
    """Wrong arguments of a bind are refused by its completion, except a missing region or objects of two PDs."""
    fault = plain(self).bind_argument_fault(queue, window, region, length, access)
    return fault if region is None or fault == errno.EPERM else 0


@permits("BIND-11", written="blind")
class BindFaultsAreFoundInCompletions(Device):
    """A bind of region and window of two PDs is taken and fails in its completion."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if region is not None and (window.domain is not region.domain):
            return True
        return super().bind_refused(window, region, addr, length, access)

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        if not fault and region is not None and queue.domain is not region.domain:
            return errno.EPERM
        return fault


@permits("BIND-11", Device.bind_fault, written="blind")
def wrong_queues_are_not_supported(
    self: Device, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool
) -> int:
    """A bind on a queue pair of another type is refused with EOPNOTSUPP."""
    fault = plain(self).bind_fault(queue, window, region, info, posted)
    return errno.EOPNOTSUPP if fault and self.wrong_queue(queue.kind) else fault


@violates("BIND-11")
class PostedBindIsMadeLater(Device):
    """A bind of type 2 that is refused because the queue pair cannot send yet is made when it can."""

    def setup(self) -> None:
        self.waiting: list[tuple[Queue, SendRequest]] = []

    def post_fault(self, queue: Queue, opcode: str) -> int:
        self.early = opcode == "BIND_MW" and queue.state in ("RESET", "INIT", "RTR")
        return super().post_fault(queue, opcode)

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        fault = super().post_send(queue, request)
        if fault and self.early:
            self.waiting.append((queue, request))
        return fault

    def move_qp(self, queue: Queue, state: str) -> None:
        super().move_qp(queue, state)
        for waiting, request in self.waiting if state == "RTS" else ():
            if waiting is queue:
                self.posted_bind(queue, request)
