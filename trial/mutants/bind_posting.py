"""Binds: posting, completion and queue pairs."""

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import Domain, Region, Window
from reference.queues import SUCCESS, Queue
from trial.violation import permits, violates

FENCE = 1


@violates("BIND-11")
class RefusedBindIsMadeLater(Device):
    """A bind that is refused because the queue pair cannot send yet is carried out once it can."""

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


@permits("BIND-11", written="blind")
class BindFaultsAreFoundInCompletions(Device):
    """A bind of a region and a window of two PDs is accepted and fails in its completion."""

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


@violates("BIND-11")
class PostedBindIsMadeLater(Device):
    """A bind of type 2 that is refused because the queue pair cannot send yet is carried out once it can."""

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
