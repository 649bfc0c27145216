"""Memory windows of both types: binds, what they open, and their end."""

from __future__ import annotations

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.memory import PAGE, SPACE
from reference.objects import (
    LOCAL_WRITE,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Domain,
    Refused,
    Region,
    Window,
)
from reference.queues import FLUSHED, SUCCESS, Queue
from reference.stack import WHOLE, Stack
from trial.blind.watching import ATOMICS, FENCE, Watching
from trial.violation import violates

_WRITING = REMOTE_WRITE | REMOTE_ATOMIC
_WORD = 8

# Posting and completing


@violates("BIND-01")
class WorkRequestNumberOfThirtyTwoBits(Device):
    """The completion of a bind carries only the lower 32 bits of wr_id."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        return super().ibv_bind_mw(queue, window, info, flags, wr_id & 0xFFFFFFFF)


@violates("BIND-01")
class PostedBindCarriesThePreviousNumber(Device):
    """The completion of a posted bind carries the wr_id of the posted bind before it."""

    _before = 0

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if request.opcode == "BIND_MW" and request.bind is not None:
            told, self._before = self._before or request.wr_id, request.wr_id
            request = request._replace(wr_id=told)
        super().complete(queue, request, status)


@violates("BIND-01")
class RefusedBindIsTold(Device):
    """A bind beyond its region completes with success, and nothing is bound."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, SUCCESS if status == "MW_BIND_ERR" else status)


@violates("BIND-01")
class PostedBindReturnsOne(Device):
    """ibv_bind_mw returns 1 instead of 0 where the window was bound before."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        again = window.region is not None
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return fault or int(again), key


@violates("BIND-02")
class KeyAfterTheSecondBindIsTheFirst(Device):
    """A second bind of a window leaves the key of the first in its structure."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        again, old = window.region is not None, window.key
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return fault, old if again else key


@violates("BIND-02")
class OldKeyOpensTheNewBinding(Device):
    """The key of a window before its bind still opens what the window is bound to."""

    def replace_key(self, window: Window, key: int) -> None:
        window.key = key
        self.keys[key] = window


@violates("BIND-02")
class OldKeyReadsUntilTheRegionIsGone(Device):
    """After a type 1 window is bound to another region its old key goes on reading the old one."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._ghosts: dict[int, Window] = {}

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        if window.kind == 1 and window.region and window.region is not region:
            ghost = Window(1, window.domain, window.key, window.region, window.addr, window.length, window.access)
            self._ghosts[window.key] = ghost
        super().bind(window, region, addr, length, access, key, queue)

    def found(self, key: int) -> Region | Window | None:
        ghost = self._ghosts.get(key)
        alive = ghost and ghost.region and ghost.region.handle in self.regions
        return super().found(key) or (ghost if alive else None)


@violates("BIND-03")
class NoBindsOnUc(Device):
    """Binds on UC are refused."""

    def wrong_queue(self, kind: str) -> bool:
        return super().wrong_queue(kind) or kind == "UC"


@violates("BIND-03")
class BindsOnDatagrams(Device):
    """ibv_bind_mw works on UD."""

    def wrong_queue(self, kind: str) -> bool:
        return kind != "UD" and super().wrong_queue(kind)


@violates("BIND-03")
class NoBindsOnXrc(Device):
    """Binds on XRC_SEND are refused."""

    def wrong_queue(self, kind: str) -> bool:
        return super().wrong_queue(kind) or kind == "XRC_SEND"


@violates("BIND-04")
class EveryBindCompletes(Device):
    """A bind by ibv_bind_mw completes visibly without SIGNALED."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if request.opcode == "BIND_MW" and request.bind is None:
            request = request._replace(flags=request.flags | 2)
        super().complete(queue, request, status)


@violates("BIND-04")
class PostedBindsNeverComplete(Device):
    """A posted bind that succeeds has no completion, even if SIGNALED."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if not (request.opcode == "BIND_MW" and request.bind is not None and status == SUCCESS):
            super().complete(queue, request, status)


@violates("BIND-04")
class FencedBindsRefused(Device):
    """A bind with FENCE is refused."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        if flags & FENCE:
            return errno.EINVAL, window.key
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-04")
class FenceHidesTheCompletion(Device):
    """A bind with FENCE | SIGNALED has no completion."""

    def asks_completion(self, queue: Queue, flags: int) -> bool:
        return super().asks_completion(queue, flags) and not flags & FENCE


@violates("BIND-04")
class UnsignaledPostedBindCompletes(Device):
    """A posted bind without SIGNALED completes visibly on UC."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if request.opcode == "BIND_MW" and request.bind is not None and queue.kind == "UC":
            request = request._replace(flags=request.flags | 2)
        super().complete(queue, request, status)


# Rights of windows


@violates("BIND-05")
class WriteWindowsTakeNoImmediate(Watching):
    """A window with REMOTE_WRITE refuses writes with immediate data."""

    def window_allows(self, window: Window, right: int) -> bool:
        return super().window_allows(window, right) and self.opcode != "RDMA_WRITE_WITH_IMM"


@violates("BIND-05")
class PostedWriteWindowOnReadOnlyRegion(Device):
    """A type 2 window with REMOTE_WRITE is bound to a region without LOCAL_WRITE."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if window.kind == 2:
            access &= ~_WRITING
        return super().bind_refused(window, region, addr, length, access)


@violates("BIND-05")
class WriteWindowBesideReadOnReadOnlyRegion(Device):
    """REMOTE_WRITE | REMOTE_READ on a region without LOCAL_WRITE is bound."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return super().lacks_local_write(region, access) and not access & REMOTE_READ


@violates("BIND-05")
class WriteWindowNeedsRemoteWriteOfTheRegion(Device):
    """A window writes only where its region has REMOTE_WRITE too, though LOCAL_WRITE is all that is required."""

    def window_allows(self, window: Window, right: int) -> bool:
        region = window.region
        denied = right == REMOTE_WRITE and region is not None and not region.access & REMOTE_WRITE
        return super().window_allows(window, right) and not denied


@violates("BIND-06")
class ReadWindowNeedsRemoteReadOfTheRegion(Device):
    """A window reads only where its region has REMOTE_READ too."""

    def window_allows(self, window: Window, right: int) -> bool:
        region = window.region
        denied = right == REMOTE_READ and region is not None and not region.access & REMOTE_READ
        return super().window_allows(window, right) and not denied


@violates("BIND-06")
class ReadWindowNeedsLocalWrite(Device):
    """A window that only reads cannot be bound to a region without LOCAL_WRITE."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return not region.access & LOCAL_WRITE and bool(access & (_WRITING | REMOTE_READ))


@violates("BIND-06")
class ReadLostBesideWriteInPostedWindows(Device):
    """A type 2 window with REMOTE_WRITE | REMOTE_READ cannot be read."""

    def window_allows(self, window: Window, right: int) -> bool:
        lost = right == REMOTE_READ and window.kind == 2 and window.access & REMOTE_WRITE
        return super().window_allows(window, right) and not lost


@violates("BIND-07")
class AtomicWindowOnReadOnlyRegion(Device):
    """A window with REMOTE_ATOMIC alone is bound to a region without LOCAL_WRITE."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return super().lacks_local_write(region, access & ~REMOTE_ATOMIC)


@violates("BIND-07")
class WriteWindowsServeAtomics(Device):
    """A window with REMOTE_WRITE serves atomics as well."""

    def window_allows(self, window: Window, right: int) -> bool:
        return super().window_allows(
            window,
            right & ~REMOTE_ATOMIC | REMOTE_WRITE if right == REMOTE_ATOMIC and window.access & REMOTE_WRITE else right,
        )


@violates("BIND-07")
class PostedAtomicWindowsServeNone(Device):
    """A type 2 window with REMOTE_ATOMIC refuses atomics."""

    def window_allows(self, window: Window, right: int) -> bool:
        return super().window_allows(window, right) and not (right == REMOTE_ATOMIC and window.kind == 2)


@violates("BIND-08")
class ZeroBasedWindowFromItsPage(Device):
    """ZERO_BASED counts from the beginning of the page in which the window starts."""

    def window_base(self, window: Window) -> int:
        return window.addr % PAGE if window.access & ZERO_BASED else super().window_base(window)


@violates("BIND-08")
class ZeroBasedWindowFromItsRegion(Device):
    """ZERO_BASED counts from the region's first byte instead of the window's."""

    def window_base(self, window: Window) -> int:
        if window.access & ZERO_BASED and window.region:
            return window.addr - window.region.iova
        return super().window_base(window)


@violates("BIND-08")
class ZeroBasedIgnoredInPostedBinds(Device):
    """ZERO_BASED is ignored for type 2 windows."""

    def window_base(self, window: Window) -> int:
        return window.addr if window.kind == 2 else super().window_base(window)


@violates("BIND-08")
class ZeroBasedWindowOnZeroBasedRegion(Device):
    """A ZERO_BASED window on a ZERO_BASED region is found at the region's beginning."""

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        place = super().through_window(window, domain, queue, addr, length, right)
        region = window.region
        if place is not None and region and region.access & window.access & ZERO_BASED:
            place -= window.addr
        return place


@violates("BIND-09")
class BindWithoutRightsRefused(Device):
    """A bind with access flags 0 is refused."""

    def bind_argument_fault(
        self, queue: Domain, window: Window, region: Region | None, length: int, access: int
    ) -> int:
        if region is not None and length and not access:
            return errno.EINVAL
        return super().bind_argument_fault(queue, window, region, length, access)


@violates("BIND-09")
class AtomicsByTheRegionsRight(Device):
    """A window without REMOTE_ATOMIC serves atomics where its region allows them."""

    def window_allows(self, window: Window, right: int) -> bool:
        region = window.region
        leaks = right == REMOTE_ATOMIC and region is not None and region.access & REMOTE_ATOMIC
        return bool(leaks) or super().window_allows(window, right)


@violates("BIND-09")
class RightsOfTheBindBefore(Device):
    """A window that is bound anew keeps the rights of its last binding."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._rights: dict[int, int] = {}

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        super().bind(window, region, addr, length, access, key, queue)
        if region is not None and length:
            old = self._rights.get(id(window), 0) & ~ZERO_BASED
            self._rights[id(window)] = access
            window.access |= old

    def dealloc_mw(self, window: Window) -> None:
        super().dealloc_mw(window)
        self._rights.pop(id(window), None)


@violates("BIND-09")
class RightsOfASiblingWindow(Device):
    """A window has the rights of another window on the same range of its region as well."""

    def window_allows(self, window: Window, right: int) -> bool:
        region = window.region
        siblings = region.windows if region else []
        return super().window_allows(window, right) or any(
            each.access & right == right and (each.addr, each.length) == (window.addr, window.length)
            for each in siblings
        )


@violates("BIND-09")
class NoRightsMeanRead(Device):
    """A window bound with access flags 0 can be read."""

    def window_allows(self, window: Window, right: int) -> bool:
        bare = not window.access and window.region is not None and right == REMOTE_READ
        return bare or super().window_allows(window, right)


@violates("BIND-10")
class OneByteBehindTheWindow(Device):
    """One byte behind a type 2 window is open."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        return super().window_contains(window, offset, length - (window.kind == 2))


@violates("BIND-10")
class WindowInWholePages(Device):
    """A window of more than a page is open to the end of its last page."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        size = -(-window.length // PAGE) * PAGE if window.length > PAGE else window.length
        return offset >= 0 and offset + length <= size


@violates("BIND-10")
class BeforeTheWindowReadable(Device):
    """Up to eight bytes before a window, within its region, are open."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        region = window.region
        before = min(_WORD, window.addr - region.iova) if region else 0
        return offset >= -before and offset + length <= window.length


@violates("BIND-10")
class FirstByteOfTheWindowClosed(Device):
    """The first byte of a window that does not begin its region is closed."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        inner = window.region is not None and window.addr != window.region.iova and window.length > 1
        return super().window_contains(window, offset, length) and not (inner and offset == 0 and length == 1)


@violates("BIND-10")
class WindowOfTheLongestBinding(Device):
    """A window bound anew to a shorter range of the same region keeps the longer length."""

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        old = window.length if window.region is region and window.addr == addr else 0
        super().bind(window, region, addr, length, access, key, queue)
        if length and region is not None:
            window.length = max(length, old)


@violates("BIND-11")
class FailureToPostReturnsMinusOne(Device):
    """ibv_bind_mw returns -1 where it fails to post."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return -1 if fault else 0, key


@violates("BIND-11")
class FailureToPostReturnsZero(Device):
    """ibv_bind_mw returns 0 on a queue pair that cannot send yet; nothing is bound and nothing completes."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return (0 if queue.state not in ("RTS", "ERR") else fault), key


@violates("BIND-11")
class FailureToPostReturnsNegativeErrno(Device):
    """A bind that cannot be posted for its flags returns the negative of errno."""

    def bind_argument_fault(
        self, queue: Domain, window: Window, region: Region | None, length: int, access: int
    ) -> int:
        return -super().bind_argument_fault(queue, window, region, length, access)


@violates("BIND-12")
class FailedBindEndsTheOldKey(Device):
    """A failed bind ends the binding that the window had."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        refused = super().bind_refused(window, region, addr, length, access)
        if refused:
            self.unbind(window)
        return refused


@violates("BIND-12")
class FailedBindBindsTheOldKeyAnew(Device):
    """A refused bind gives the old key the rights that were asked for, on the old range."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        refused = super().bind_refused(window, region, addr, length, access)
        if refused and window.region is not None:
            window.access = access
        return refused


@violates("BIND-12")
class NoBindAfterAFailedOne(Device):
    """A window of which a bind has failed cannot be bound any more."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._spoilt: list[Window] = []

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        refused = window in self._spoilt or super().bind_refused(window, region, addr, length, access)
        if refused:
            self._spoilt.append(window)
        return refused


@violates("BIND-12")
class FailedBindCompletesNever(Device):
    """A signaled bind that fails for want of MW_BIND has no completion."""

    _silent = False

    def forbids_binding(self, region: Region) -> bool:
        self._silent = super().forbids_binding(region)
        return self._silent

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        silent, self._silent = self._silent, False
        if silent and request.opcode == "BIND_MW":
            self.fail(queue)
        else:
            super().complete(queue, request, status)


@violates("BIND-13")
class UnsignaledBindComesLate(Device):
    """An unsignaled bind by ibv_bind_mw takes effect only behind the two requests that follow it."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._later: list[tuple[int, Window, Region | None, int, int, int, int, int]] = []
        self._unsignaled = False

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._unsignaled = not self.asks_completion(queue, flags)
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            self._unsignaled = False

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        if self._unsignaled:
            self._later.append((2, window, region, addr, length, access, key, queue))
        else:
            super().bind(window, region, addr, length, access, key, queue)

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        fault = super().post_send(queue, request)
        later, self._later = self._later, []
        for left, window, region, addr, length, access, key, number in later:
            if left > 1:
                self._later.append((left - 1, window, region, addr, length, access, key, number))
            elif window in self.windows:
                super().bind(window, region, addr, length, access, key, number)
        return fault


@violates("BIND-13")
class SendAfterABindIsSkipped(Device):
    """A SEND right after a bind on the same queue pair completes, but its message does not arrive."""

    _bound = 0

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        super().bind(window, region, addr, length, access, key, queue)
        self._bound = queue

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        just = self._bound == queue.number
        self._bound = 0
        if just and request.opcode in ("SEND", "SEND_WITH_IMM") and queue.state == "RTS":
            self.complete(queue, request, SUCCESS)
            return 0
        return super().post_send(queue, request)


@violates("BIND-14")
class PostedBindsOfBothTypes(Device):
    """ibv_bind_mw binds windows of type 2 too."""

    def wrong_type(self, window: Window, posted: bool) -> bool:
        return posted and super().wrong_type(window, posted)


@violates("BIND-14")
class PostedBindsNotTaken(Device):
    """A posted bind on RC is refused; only UC and XRC_SEND take it."""

    def posted_bind_fault(self, queue: Queue, request: SendRequest) -> int:
        return errno.EINVAL if queue.kind == "RC" else super().posted_bind_fault(queue, request)


@violates("BIND-14")
class PostedBindOpensForTheDomain(Device):
    """A type 2 window opens for a bind by ibv_bind_mw that follows an invalidation."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._ended: list[Window] = []

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        window = self.keys.get(key)
        done = super().invalidate(key, queue, domain)
        if done and isinstance(window, Window):
            self._ended.append(window)
        return done

    def wrong_type(self, window: Window, posted: bool) -> bool:
        return super().wrong_type(window, posted) and not (not posted and window in self._ended)


@violates("BIND-15")
class RemoteInvalidationOnlyTold(Device):
    """A SEND with invalidation succeeds and the key lives on."""

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        window = self.keys.get(key)
        good = isinstance(window, Window) and window.kind == 2 and window.region is not None
        return good and isinstance(window, Window) and window.queue == queue.number


@violates("BIND-15")
class NewKeyIsTheDevicesOwn(Device):
    """A second bind of a type 2 window takes the key that follows its own, not the one in the request."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window = self.window_behind(request.window)
        if window.key & 0xFF0000FF != request.rkey & 0xFF0000FF and window.key != request.rkey and self._second(window):
            request = request._replace(rkey=self.next_key(request.rkey))
        return super().posted_bind(queue, request)

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._bound: list[Window] = []

    def _second(self, window: Window) -> bool:
        again = window in self._bound
        self._bound.append(window)
        return again


@violates("BIND-15")
class InvalidatedKeyServesOneMoreRead(Device):
    """After a local invalidation the key serves one more remote read."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._last: dict[int, Window] = {}

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        found = self.keys.get(key)
        if isinstance(found, Window) and found.region:
            ghost = Window(2, found.domain, key, found.region, found.addr, found.length, found.access, found.queue)
            if super().local_invalidate(key, queue):
                self._last[key] = ghost
                return True
            return False
        return super().local_invalidate(key, queue)

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        if right == REMOTE_READ and rkey in self._last:
            ghost = self._last.pop(rkey)
            if ghost.region and ghost.region.handle in self.regions:
                return self.through_window(ghost, domain, queue, addr, length, right)
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("BIND-15")
class InvalidatedAtomicsLiveOn(Device):
    """Invalidation takes every right from a type 2 window but that of atomics."""

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        window = self.keys.get(key)
        bound = isinstance(window, Window) and window.region and window.kind == 2 and window.queue == queue
        if bound and isinstance(window, Window) and window.access & REMOTE_ATOMIC and window.domain is domain:
            window.access &= REMOTE_ATOMIC | ZERO_BASED
            return True
        return super().invalidate(key, queue, domain)


@violates("BIND-15")
class NoBindAfterInvalidation(Device):
    """A type 2 window cannot be bound again once it has been invalidated by its peer."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._spoilt: list[Window] = []

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        window = self.keys.get(key)
        done = super().remote_invalidate(key, queue)
        if done and isinstance(window, Window):
            self._spoilt.append(window)
        return done

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        spoilt = self.window_behind(request.window) in self._spoilt
        return "MW_BIND_ERR" if spoilt else super().posted_bind(queue, request)


@violates("BIND-16")
class UnboundWindowOpensTheLatestRegion(Device):
    """The key of a window that was never bound reads the region that its PD registered last."""

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window.region is None and right == REMOTE_READ and window.domain is domain:
            own = [each for each in self.regions.values() if each.domain is domain and each.access & REMOTE_READ]
            return self.place(own[-1], addr, length) if own else None
        return super().through_window(window, domain, queue, addr, length, right)


@violates("BIND-16")
class DeallocatedWindowOpensStill(Device):
    """A window that is deallocated while it is bound leaves a key that still writes."""

    def dealloc_mw(self, window: Window) -> None:
        region, addr, length, access = window.region, window.addr, window.length, window.access
        super().dealloc_mw(window)
        if region and access & REMOTE_WRITE:
            self.keys[window.key] = Window(1, window.domain, window.key, region, addr, length, access & ~REMOTE_READ)

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window not in self.windows and window.region and window.region.handle not in self.regions:
            return None
        return super().through_window(window, domain, queue, addr, length, right)


@violates("BIND-16")
class BoundWindowCannotBeDeallocated(Device):
    """Deallocating a type 1 window that is bound fails."""

    def dealloc_mw(self, window: Window) -> None:
        if window.kind == 1 and window.region:
            raise Refused(errno.EBUSY)
        super().dealloc_mw(window)


@violates("BIND-16")
class DeallocatedBoundWindowKeepsTheDomain(Device):
    """A type 2 window that is deallocated while it is bound leaves its PD in use for ever."""

    def dealloc_mw(self, window: Window) -> None:
        bound = window.region is not None and window.kind == 2
        super().dealloc_mw(window)
        window.domain.users += bound


# The second list


@violates("BIND-17")
class WrappingBind(Device):
    """The end of a bind is reckoned in 64 bits: one that wraps around to within its region is accepted."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        end = (addr + length) % SPACE
        return addr < region.iova or end > region.iova + region.length


@violates("BIND-17")
class WrappingPostedBind(Device):
    """A posted bind whose end passes the end of the address space is bound."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        if window.kind == 2 and region is not None and addr + length >= SPACE and not self.forbids_binding(region):
            return False
        return super().bind_refused(window, region, addr, length, access)


@violates("BIND-17")
class LengthOfABindOfThirtyTwoBits(Device):
    """Only the lower 32 bits of a bind's length are looked at and used."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        return super().bind_refused(window, region, addr, length & 0xFFFFFFFF, access)

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        super().bind(window, region, addr, length & 0xFFFFFFFF, access, key, queue)


@violates("BIND-18")
class PostedBindToAForeignRegion(Device):
    """A type 2 window is bound to a region of another PD."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        if window.kind == 2:
            return window.domain is not queue
        return super().other_domain(queue, window, region)


@violates("BIND-18")
class QueueOfAnotherDomainBinds(Device):
    """A queue pair of another PD may bind a window to a region of the window's PD."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return window.domain is not region.domain


@violates("BIND-18")
class ForeignWindowForReads(Device):
    """A window of another PD than region and queue pair is bound if it only reads."""

    def bind_argument_fault(
        self, queue: Domain, window: Window, region: Region | None, length: int, access: int
    ) -> int:
        fault = super().bind_argument_fault(queue, window, region, length, access)
        foreign = fault == errno.EPERM and access == REMOTE_READ and region is not None and queue is region.domain
        return 0 if foreign else fault


@violates("BIND-18")
class WindowAtomicsFromAnyDomain(Watching):
    """An atomic through a type 1 window's key is served whatever PD the queue pair is of."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return (window.kind == 1 and self.opcode in ATOMICS) or super().window_opens(window, domain, queue)


@violates("BIND-18")
class PostedWindowForEveryQueue(Device):
    """A type 2 window opens for every queue pair of whatever PD once it is bound."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return window.kind == 2 or super().window_opens(window, domain, queue)


@violates("BIND-19")
class AnyQueueInvalidates(Device):
    """A local invalidation through another queue pair of the same PD ends the window."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        window = self.keys.get(key)
        number = window.queue if isinstance(window, Window) and window.region else queue.number
        return self.invalidate(key, number, queue.domain)


@violates("BIND-19")
class UnknownKeysInvalidate(Device):
    """Invalidating a key that is nobody's succeeds."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        return key not in self.keys or super().local_invalidate(key, queue)


@violates("BIND-19")
class RegionsKeyInvalidated(Device):
    """A SEND with invalidation of a region's key ends that key."""

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        found = self.keys.get(key)
        if isinstance(found, Region) and found.domain is queue.domain:
            found.usable = False
            return True
        return super().remote_invalidate(key, queue)


@violates("BIND-19")
class TypeOneWindowInvalidated(Device):
    """A local invalidation of a type 1 window's key takes it off its region."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        found = self.keys.get(key)
        if isinstance(found, Window) and found.kind == 1 and found.region:
            self.unbind(found)
            return True
        return super().local_invalidate(key, queue)


@violates("BIND-19")
class InvalidatedTwiceSucceeds(Device):
    """A second invalidation of the same key succeeds."""

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        found = self.keys.get(key)
        ended = isinstance(found, Window) and found.kind == 2 and found.region is None and found.domain is domain
        return ended or super().invalidate(key, queue, domain)


@violates("BIND-19")
class FailedInvalidationEndsTheWindow(Device):
    """An invalidation through another queue pair fails, and yet the window is ended."""

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        found = self.keys.get(key)
        done = super().invalidate(key, queue, domain)
        if not done and isinstance(found, Window) and found.kind == 2 and found.region:
            self.unbind(found)
        return done


@violates("BIND-19b")
class NoInvalidationOnUc(Device):
    """SEND with invalidation and local invalidation are refused on UC."""

    def post_fault(self, queue: Queue, opcode: str) -> int:
        refused = queue.kind == "UC" and opcode in ("LOCAL_INV", "SEND_WITH_INV")
        return errno.EINVAL if refused else super().post_fault(queue, opcode)


@violates("BIND-20")
class AnyIndexInTheKey(Device):
    """A posted bind with a key of another index is accepted and the window has that key."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window, info = self.window_behind(request.window), request.bind
        if info is not None and window.region is None and request.rkey >> 8 != window.key >> 8:
            region = self.bound_region(info)
            if request.rkey in self.keys or self.bind_refused(window, region, info.addr, info.length, info.access):
                return "MW_BIND_ERR"
            self.bind(window, region, info.addr, info.length, info.access, request.rkey, queue.number)
            return SUCCESS
        return super().posted_bind(queue, request)


@violates("BIND-20")
class BoundWindowIsBoundAgain(Device):
    """A type 2 window that is still bound can be bound by another posted bind."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window, info = self.window_behind(request.window), request.bind
        if info is not None and window.region is not None and request.rkey >> 8 == window.key >> 8:
            region = self.bound_region(info)
            if not self.bind_refused(window, region, info.addr, info.length, info.access):
                self.bind(window, region, info.addr, info.length, info.access, request.rkey, queue.number)
                return SUCCESS
        return super().posted_bind(queue, request)


@violates("BIND-20")
class RefusedRebindEndsTheBinding(Device):
    """A posted bind of a bound type 2 window is refused, and its old binding is gone."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window = self.window_behind(request.window)
        bound = window.region is not None
        status = super().posted_bind(queue, request)
        if bound and status != SUCCESS:
            self.unbind(window)
        return status


@violates("BIND-20")
class RefusedRebindShortensTheBinding(Device):
    """A posted bind of a bound type 2 window is refused, but the old key now has the length asked for."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window = self.window_behind(request.window)
        bound = window.region is not None
        status = super().posted_bind(queue, request)
        if bound and status != SUCCESS and request.bind and request.bind.length:
            window.length = min(window.length, request.bind.length)
        return status


@violates("BIND-21")
class UnbindWithoutRegionNeverAnswers(Device):
    """An unbind without a region is posted and never completes."""

    _nowhere = False

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._nowhere = info.mr is None
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        nowhere, self._nowhere = self._nowhere, False
        if not (nowhere and request.opcode == "BIND_MW"):
            super().complete(queue, request, status)


@violates("BIND-21")
class UnbindWithoutRegionLeavesItOpen(Device):
    """An unbind without a region completes with success, but the window's new key opens the old range."""

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        if region is None and window.region is not None:
            self.replace_key(window, key)
        else:
            super().bind(window, region, addr, length, access, key, queue)


@violates("BIND-21")
class UnbindWithoutRegionEndsTheQueue(Device):
    """An unbind without a region completes with success and takes the queue pair to ERR."""

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        super().bind(window, region, addr, length, access, key, queue)
        self._ends = region is None

    _ends = False

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if self._ends:
            self._ends = False
            self.fail(queue)


@violates("BIND-22")
class UnsignaledFailureIsSilent(Device):
    """A bind that fails and was not SIGNALED has no completion."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        if request.opcode == "BIND_MW" and status == "MW_BIND_ERR" and not self.asks_completion(queue, request.flags):
            self.fail(queue)
        else:
            super().complete(queue, request, status)


@violates("BIND-22")
class FlushedBindGrants(Device):
    """On a queue pair in ERR ibv_bind_mw completes as flushed and binds the window all the same."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        region = self.bound_region(info)
        flushed = not fault and queue.state == "ERR" and region and info.length
        if flushed and not self.bind_refused(window, region, info.addr, info.length, info.access):
            self.bind(window, region, info.addr, info.length, info.access, key, queue.number)
        return fault, key


@violates("BIND-22")
class FlushedPostedBindSucceeds(Device):
    """A posted bind on a queue pair in ERR completes with success."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        flushed = request.opcode == "BIND_MW" and request.bind is not None and status == FLUSHED
        super().complete(queue, request, SUCCESS if flushed else status)


@violates("BIND-22")
class FlushedBindEndsTheOldOne(Device):
    """A bind that is flushed on a queue pair in ERR takes the window off its region."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if status == FLUSHED and self._binding:
            self.unbind(self._binding)

    _binding: Window | None = None

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._binding = window
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            self._binding = None
