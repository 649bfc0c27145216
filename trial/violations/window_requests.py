"""Violations of the rules about requests for windows: their range, domains, keys and queue pairs (BIND-17 to 22)."""

from __future__ import annotations

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.memory import SPACE
from reference.objects import REMOTE_ATOMIC, REMOTE_READ, Domain, Region, Window
from reference.queues import FLUSHED, SUCCESS, Queue
from trial.violation import violates


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


@violates("BIND-17")
class EndOfABindWraps(Device):
    """The end of a window is computed in 64 bits, so that a huge length ends within the region."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return addr < region.iova or (addr + length) % SPACE > region.iova + region.length


@violates("BIND-17")
class HugeLengthsAreSigned(Device):
    """A length of 2^63 or more counts as negative, and as no length at all."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return super().beyond(region, addr, 0 if length >= SPACE // 2 else length)


@violates("BIND-17")
class WrappingBindIsCutAtTheRegion(Device):
    """A bind past the end of the address space succeeds, and the window ends where the region ends."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if region is not None and addr + length > SPACE:
            length = region.iova + region.length - addr
        return super().bind_refused(window, region, addr, length, access)

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        if region is not None and addr + length > SPACE:
            length = region.iova + region.length - addr
        super().bind(window, region, addr, length, access, key, queue)


@violates("BIND-18")
class RegionOfAnyDomain(Device):
    """Only window and queue pair have to be of one domain; the region may be of another."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return window.domain is not queue


@violates("BIND-18")
class QueuePairOfAnyDomain(Device):
    """A window may be bound over the queue pair of another domain."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return window.domain is not region.domain


@violates("BIND-18")
class AtomicWindowsIgnoreTheDomain(Device):
    """A window with the right to atomics is open to the queue pairs of every domain."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return bool(window.access & REMOTE_ATOMIC) or super().window_opens(window, domain, queue)


@violates("BIND-19")
class PeersInvalidateAnyWindow(Device):
    """A SEND with invalidation ends a window whatever queue pair it arrives on."""

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        window = self.keys.get(key)
        if isinstance(window, Window) and window.kind == 2 and window.region is not None:
            self.unbind(window)
            return True
        return False


@violates("BIND-19a")
class InvalidationIsNotTold(Device):
    """The receiver of a SEND with invalidation is not told that a key has been invalidated."""

    def told_invalidation(self, key: int) -> int | None:
        return None


@violates("BIND-19a")
class InvalidationOfTheWrongKeyIsTold(Device):
    """The receiver of a SEND with invalidation is told the index of the key without its lowest byte."""

    def told_invalidation(self, key: int) -> int | None:
        return key & ~0xFF


@violates("BIND-19")
class FailedInvalidationsAreReportedAsDone(Device):
    """An invalidation that ends nothing succeeds."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        super().local_invalidate(key, queue)
        return True


@violates("BIND-19b")
class NoLocalInvalidationOverUc(Device):
    """A local invalidation cannot be posted to a queue pair of type UC."""

    def post_fault(self, queue: Queue, opcode: str) -> int:
        refused = queue.kind == "UC" and opcode == "LOCAL_INV"
        return errno.EOPNOTSUPP if refused else super().post_fault(queue, opcode)


@violates("BIND-19b")
class LocalInvalidationOverUcFails(Device):
    """A local invalidation over a queue pair of type UC completes with an error."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        return queue.kind != "UC" and super().local_invalidate(key, queue)


@violates("BIND-19b")
class LocalInvalidationOverUcHoldsTheRegion(Device):
    """A local invalidation over a queue pair of type UC succeeds, and the window holds its region as before."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        return queue.kind == "UC" or super().local_invalidate(key, queue)


@violates("BIND-20")
class IndexOfTheKeyIsIgnored(Device):
    """Of the key in a bind request only the lowest byte is used."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window = self.window_behind(request.window)
        return super().posted_bind(queue, request._replace(rkey=window.key & ~0xFF | request.rkey & 0xFF))


@violates("BIND-20")
class BoundWindowsMoveToTheNewQueuePair(Device):
    """A window that is bound is bound again over another queue pair."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window = self.window_behind(request.window)
        if window.region is not None and window.queue != queue.number:
            self.unbind(window)
        return super().posted_bind(queue, request)


@violates("BIND-20")
class RefusedBindRenamesTheKey(Device):
    """A second bind is refused, and the key of the binding is the requested one from then on."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window = self.window_behind(request.window)
        status = super().posted_bind(queue, request)
        if status != SUCCESS and window.region is not None and request.rkey not in self.keys:
            self.replace_key(window, request.rkey)
        return status


@violates("BIND-21")
class UnbindKeepsTheOldKey(Device):
    """A bind without a region succeeds, and the window stays as it was."""

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        if region is not None:
            super().bind(window, region, addr, length, access, key, queue)


@violates("BIND-21")
class UnboundWindowsStayUnbound(Device):
    """After a bind without a region a window cannot be bound again."""

    _ended: frozenset[Window] = frozenset()

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if region is None:
            self._ended |= {window}
        return (window in self._ended and region is not None) or super().bind_refused(
            window, region, addr, length, access
        )


@violates("BIND-21")
class UnbindHasNoCompletion(Device):
    """A bind without a region is posted and never completes."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        if info.mr is None and not fault:
            queue.polled.pop()
        return fault, key


@violates("BIND-22")
class SilentFailures(Device):
    """A request that was not signaled has no completion, whatever became of it."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if self.asks_completion(queue, request.flags):
            super().complete(queue, request, status)
        elif status not in (SUCCESS, FLUSHED):
            self.fail(queue)


@violates("BIND-22")
class FailedQueuePairsBindForReading(Device):
    """A bind on a queue pair in the error state is flushed, and a window for reading is bound nevertheless."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        info = request.bind
        if request.opcode == "BIND_MW" and status == FLUSHED and info is not None:
            window, region = self.window_behind(request.window), self.bound_region(info)
            if window.region is None:
                self.bind(window, region, info.addr, info.length, REMOTE_READ, request.rkey, queue.number)


@violates("BIND-22")
class FailedQueuePairsStillBind(Device):
    """A window of type 1 is bound over a queue pair in the error state, with success."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        failed, queue.state = queue.state == "ERR", "RTS" if queue.state == "ERR" else queue.state
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            queue.state = "ERR" if failed else queue.state
