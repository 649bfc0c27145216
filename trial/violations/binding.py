"""Violations of memory windows."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable

from conformance.requests import BindInfo, SendRequest
from reference.device import Device
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
from reference.queues import Queue
from trial.violation import violates


@violates("REG-10")
class BindingUnchecked(Device):
    """Nobody looks at MW_BIND."""

    def forbids_binding(self, region: Region) -> bool:
        return False


@violates("REG-10")
class BindingDenied(Device):
    """MW_BIND is not enough to bind a window."""

    def forbids_binding(self, region: Region) -> bool:
        return True


@violates("BIND-01")
class OtherNumberCompletes(Device):
    """Completions carry a number of the device's own."""

    def told_wr_id(self, wr_id: int) -> int:
        return 0


@violates("BIND-01")
class BindAnswersOne(Device):
    """A posted bind answers EINPROGRESS."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return fault or errno.EINPROGRESS, key


@violates("BIND-02")
class OldKeyTold(Device):
    """The structure goes on telling the old key."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        before = window.key
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)[0], before


@violates("BIND-02")
class OldKeyStays(Device):
    """A window's key before its bind goes on working."""

    def replace_key(self, window: Window, key: int) -> None:
        before = window.key
        super().replace_key(window, key)
        if window.kind == 1:
            self.keys[before] = window

    def end_window_key(self, window: Window) -> None:
        for key in [key for key, each in self.keys.items() if each is window]:
            del self.keys[key]


@violates("BIND-02")
class OldKeyOfTheUnboundStays(Device):
    """A bind of no bytes answers 0 and leaves the window as it was."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        if info.length or window.region is None:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        self.complete(queue, SendRequest("BIND_MW", wr_id, flags=flags), "SUCCESS")
        return 0, self.next_key(window.key)


@violates("BIND-03")
class DatagramsBind(Device):
    """A window is bound on a queue pair of type UD."""

    def wrong_queue(self, kind: str) -> bool:
        return False


@violates("BIND-03")
class UnreliableDoesNotBind(Device):
    """A bind on a queue pair of type UC is refused."""

    def wrong_queue(self, kind: str) -> bool:
        return kind == "UC" or super().wrong_queue(kind)


@violates("BIND-03")
class ExtendedDoesNotBind(Device):
    """A bind on a queue pair of type XRC_SEND is refused."""

    def wrong_queue(self, kind: str) -> bool:
        return kind == "XRC_SEND" or super().wrong_queue(kind)


@violates("BIND-04")
class AlwaysCompletes(Device):
    """A bind completes visibly whether it asks for that or not."""

    def asks_completion(self, queue: Queue, flags: int) -> bool:
        return True


@violates("BIND-04")
class NeverCompletes(Device):
    """sq_sig_all does not count for binds."""

    def asks_completion(self, queue: Queue, flags: int) -> bool:
        return super().asks_completion(queue, flags) and not (queue.sq_sig_all and not flags)


@violates("BIND-04")
class FenceRefused(Device):
    """A bind with FENCE is refused."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        if flags & 1:
            return errno.EINVAL, window.key
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-05")
class WriteWindowOfReadOnly(Device):
    """A window that can be written is bound to a region without LOCAL_WRITE."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return bool(access & REMOTE_ATOMIC) and not region.access & LOCAL_WRITE


@violates("BIND-05")
class WindowNeedsTheRegionsRight(Device):
    """A window lets nothing be written where the region itself does not."""

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window.region and right == REMOTE_WRITE and not window.region.access & right:
            return None
        return super().through_window(window, domain, queue, addr, length, right)


@violates("BIND-05")
class WriteWindowIsClosed(Device):
    """A window's REMOTE_WRITE takes no effect."""

    def window_allows(self, window: Window, right: int) -> bool:
        return right != REMOTE_WRITE and super().window_allows(window, right)


@violates("BIND-06")
class ReadWindowIsClosed(Device):
    """A window's REMOTE_READ takes no effect."""

    def window_allows(self, window: Window, right: int) -> bool:
        return right != REMOTE_READ and super().window_allows(window, right)


@violates("BIND-06")
class ReadWindowNeedsLocalWrite(Device):
    """A window that can be read asks for LOCAL_WRITE of its region."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return bool(access) and not region.access & LOCAL_WRITE


@violates("BIND-06")
class ReadWindowsCanBeWritten(Device):
    """A window's REMOTE_READ grants writes."""

    def window_allows(self, window: Window, right: int) -> bool:
        return super().window_allows(window, right) or (right == REMOTE_WRITE and bool(window.access & REMOTE_READ))


@violates("BIND-07")
class AtomicWindowOfReadOnly(Device):
    """A window for atomics is bound to a region without LOCAL_WRITE."""

    def lacks_local_write(self, region: Region, access: int) -> bool:
        return bool(access & REMOTE_WRITE) and not region.access & LOCAL_WRITE


@violates("BIND-07")
class AtomicWindowRefused(Device):
    """A window for atomics is refused although atomics are declared."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        return bool(access & REMOTE_ATOMIC) or super().bind_refused(window, region, addr, length, access)


@violates("BIND-07")
class AtomicWindowIsClosed(Device):
    """A window's REMOTE_ATOMIC takes no effect."""

    def window_allows(self, window: Window, right: int) -> bool:
        return right != REMOTE_ATOMIC and super().window_allows(window, right)


@violates("BIND-08")
class ZeroBasedWindowIgnored(Device):
    """A window with ZERO_BASED is addressed by pointers."""

    def window_base(self, window: Window) -> int:
        return window.addr


@violates("BIND-08")
class ZeroBasedFromTheRegion(Device):
    """A window with ZERO_BASED counts from the beginning of its region."""

    def window_base(self, window: Window) -> int:
        start = window.addr - window.region.iova if window.region else 0
        return start if window.access & ZERO_BASED else window.addr


@violates("BIND-09")
class WindowHasTheRegionsRights(Device):
    """A window lets through what its region does."""

    def window_allows(self, window: Window, right: int) -> bool:
        return super().window_allows(window, right) or (window.region is not None and self.allows(window.region, right))


@violates("BIND-09")
class NoRightsIsAllRights(Device):
    """A window bound with access flags 0 lets everything through."""

    def window_allows(self, window: Window, right: int) -> bool:
        return not window.access or super().window_allows(window, right)


@violates("BIND-09")
class NoRightsRefused(Device):
    """A bind with access flags 0 is refused."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        return (length > 0 and not access) or super().bind_refused(window, region, addr, length, access)


@violates("BIND-10")
class WindowOfTheWholeRegion(Device):
    """A window shows the whole of its region."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        region = window.region
        start = window.addr + offset
        return region is not None and region.iova <= start and start + length <= region.iova + region.length


@violates("BIND-10")
class WindowOneByteTooLong(Device):
    """A window reaches one byte beyond its end."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        return offset >= 0 and offset + length <= window.length + 1


@violates("BIND-10")
class WindowOneByteTooEarly(Device):
    """A window begins one byte before its address."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        return offset >= -1 and offset + length <= window.length


@violates("BIND-10")
class WindowOneByteTooShort(Device):
    """A window's last byte cannot be reached."""

    def window_contains(self, window: Window, offset: int, length: int) -> bool:
        return offset >= 0 and offset + length < window.length


@violates("BIND-10")
class WindowBeyondItsRegion(Device):
    """A window may reach beyond its region."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return False


@violates("BIND-10")
class WindowOneByteBeyondItsRegion(Device):
    """A window may reach one byte beyond its region."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return super().beyond(region, addr, length - 1)


@violates("BIND-11")
class BindAnswersMinusOne(Device):
    """A bind that cannot be posted answers -1."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        fault, key = super().ibv_bind_mw(queue, window, info, flags, wr_id)
        return (-1 if fault else 0), key


@violates("BIND-11")
class ForeignRegionBound(Device):
    """Nobody looks whether window and region are of one domain."""

    def other_domain(self, queue: Domain, window: Window, region: Region) -> bool:
        return False


@violates("BIND-11")
class NullRegionBound(Device):
    """A bind to no region with a range answers 0."""

    def bind_argument_fault(
        self, queue: Domain, window: Window, region: Region | None, length: int, access: int
    ) -> int:
        return 0 if region is None else super().bind_argument_fault(queue, window, region, length, access)


@violates("BIND-12")
class FailedBindSucceeds(Device):
    """A bind that fails completes with success."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "SUCCESS" if status == "MW_BIND_ERR" else status)


@violates("BIND-12")
class FailedBindUnbinds(Device):
    """A bind that fails takes the window off its region."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        refused = super().bind_refused(window, region, addr, length, access)
        if refused:
            self.unbind(window)
        return refused


@violates("BIND-12")
class FailedBindEndsTheWindow(Device):
    """After a bind that failed the window cannot be bound again."""

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        failed = self.__dict__.setdefault("_failed", set())
        refused = window in failed or super().bind_refused(window, region, addr, length, access)
        if refused:
            failed.add(window)
        return refused


@violates("BIND-13")
class SendOvertakesTheBind(Device):
    """A bind that nobody waits for takes effect after what is posted behind it."""

    late: Callable[[], None] | None = None

    def bind(self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int,
             queue: int) -> None:  # fmt: skip
        self.late = functools.partial(super().bind, window, region, addr, length, access, key, queue)

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        waits = request.opcode == "BIND_MW" and self.asks_completion(queue, request.flags)
        if self.late and (waits or request.opcode.startswith("RDMA")):
            self.late()
            self.late = None


@violates("BIND-14")
class TypeTwoByTheVerb(Device):
    """ibv_bind_mw binds windows of type 2."""

    def wrong_type(self, window: Window, posted: bool) -> bool:
        return posted and window.kind != 2


@violates("BIND-14")
class TypeTwoNotPosted(Device):
    """A posted bind of a window of type 2 is refused."""

    def wrong_type(self, window: Window, posted: bool) -> bool:
        return posted or super().wrong_type(window, posted)


@violates("BIND-15")
class KeyOfTheDevicesOwn(Device):
    """The key of a window of type 2 is the one after the request's."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        status = super().posted_bind(queue, request)
        if status == "SUCCESS":
            window = self.window_behind(request.window)
            self.replace_key(window, self.next_key(window.key))
        return status


@violates("BIND-15")
class LocalInvalidationDoesNothing(Device):
    """A local invalidation completes and ends nothing."""

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        return True


@violates("BIND-15")
class RemoteInvalidationDoesNothing(Device):
    """A send with invalidate arrives and ends nothing."""

    def remote_invalidate(self, key: int, queue: Queue) -> bool:
        return True


@violates("BIND-15")
class AnyQueuePairOpens(Device):
    """A window of type 2 serves every queue pair of its domain."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return window.domain is domain


@violates("BIND-15")
class InvalidatedForGood(Device):
    """A window that was invalidated cannot be bound again."""

    def invalidate(self, key: int, queue: int, domain: Domain) -> bool:
        window = self.keys.get(key)
        self.__dict__.setdefault("_ended", set()).add(window)
        return super().invalidate(key, queue, domain)

    def bind_refused(self, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
        ended = window in self.__dict__.get("_ended", ())
        return ended or super().bind_refused(window, region, addr, length, access)


@violates("BIND-15")
class OldKeyOfTypeTwoStays(Device):
    """The key of a window of type 2 before its bind works as well."""

    def replace_key(self, window: Window, key: int) -> None:
        before = window.key
        super().replace_key(window, key)
        if window.kind == 2:
            self.keys[before] = window

    def end_window_key(self, window: Window) -> None:
        for key in [key for key, each in self.keys.items() if each is window]:
            del self.keys[key]


@violates("BIND-16")
class UnboundWindowsOpen(Device):
    """A window that was never bound opens its domain's memory."""

    def through_window(
        self, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
    ) -> int | None:
        if window.region is None and domain is window.domain:
            return addr
        return super().through_window(window, domain, queue, addr, length, right)


@violates("BIND-16")
class AnyTypeOfWindow(Device):
    """A window of a type that does not exist can be had."""

    def no_such_type(self, kind: int) -> bool:
        return False

    def alloc_mw(self, pd: int, kind: int) -> Window:
        return super().alloc_mw(pd, kind if kind in (1, 2) else 1)


@violates("BIND-16")
class TypeTwoMissing(Device):
    """Windows of type 2 are declared and cannot be had."""

    def alloc_mw(self, pd: int, kind: int) -> Window:
        if kind == 2:
            raise Refused(errno.ENOMEM)
        return super().alloc_mw(pd, kind)


@violates("BIND-16")
class WindowLeaks(Device):
    """Deallocating a window answers 0 and leaves it in its domain."""

    def dealloc_mw(self, window: Window) -> None:
        super().dealloc_mw(window)
        window.domain.users += 1


@violates("BIND-16")
class BoundWindowsStay(Device):
    """A bound window cannot be deallocated."""

    def dealloc_mw(self, window: Window) -> None:
        if window.region is not None:
            raise Refused(errno.EBUSY)
        super().dealloc_mw(window)


@violates("BIND-16")
class KeyOutlivesTheWindow(Device):
    """The key of a bound window that is deallocated goes on working."""

    def dealloc_mw(self, window: Window) -> None:
        bound = window.region, window.addr, window.length, window.access, window.queue
        super().dealloc_mw(window)
        window.region, window.addr, window.length, window.access, window.queue = bound
        self.keys[window.key] = window
