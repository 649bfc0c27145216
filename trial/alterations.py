"""Alterations of real calls, between the suite and libibverbs, each of which breaks one rule on the real stack.

Only rules that Soft-RoCE keeps can be broken there. What a device that breaks the rule would allow is allowed by
requesting more from the real device; what it would refuse is refused without calling the real device.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from conformance.bench.calls import Mr, Pd, Return, Sge, Window
from conformance.bench.interface import Bench, Entry, Pair, Queue
from conformance.bench.work_requests import SIGNALED, BindInfo, Completion, SendRequest, next_rkey
from conformance.model.case import QpSpec
from conformance.verbs import ENUMS, OPTIONAL_ACCESS
from trial.altering import Alteration
from trial.violation import violates, violations_in

_ACCESS = ENUMS["ibv_access_flags"]
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND, ON_DEMAND, RELAXED_ORDERING, FLUSH_GLOBAL = (
    _ACCESS.value_of(name)
    for name in (
        "LOCAL_WRITE",
        "REMOTE_WRITE",
        "REMOTE_READ",
        "REMOTE_ATOMIC",
        "MW_BIND",
        "ON_DEMAND",
        "RELAXED_ORDERING",
        "FLUSH_GLOBAL",
    )
)
_KNOWN = _ACCESS.mask_of(*_ACCESS.short_names)
_CHANGES = ENUMS["ibv_rereg_mr_flags"]
CHANGE_PD, CHANGE_ACCESS = _CHANGES.value_of("CHANGE_PD"), _CHANGES.value_of("CHANGE_ACCESS")
_ADVICE = ENUMS["ibv_advise_mr_advice"]
PREFETCH, NO_FAULT = _ADVICE.value_of("PREFETCH"), _ADVICE.value_of("PREFETCH_NO_FAULT")


def _refused(entry: Entry, code: int) -> Return:
    """A registration that an entry refuses."""
    return Return(0, code) if entry.name == "libibverbs" else Return(code, code)


class Rights(Alteration):
    """Registers with other access flags than requested."""

    def rights(self, access: int) -> int:
        """The access flags to request from the real device."""
        return access

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        return super().register(entry, verb, pd, where, self.rights(access))


@violates("REG-15")
class WriteAloneGranted(Rights):
    """LOCAL_WRITE is added if REMOTE_WRITE is given without it."""

    def rights(self, access: int) -> int:
        return access | LOCAL_WRITE if access & REMOTE_WRITE else access


@violates("REG-16")
class AtomicAloneGranted(Rights):
    """LOCAL_WRITE is added if REMOTE_ATOMIC is given without it."""

    def rights(self, access: int) -> int:
        return access | LOCAL_WRITE if access & REMOTE_ATOMIC else access


@violates("REG-18")
class UnknownBitsMasked(Rights):
    """Unknown bits are masked out."""

    def rights(self, access: int) -> int:
        return access & _KNOWN


@violates("REG-18")
class OptionalBitsMadeMandatory(Rights):
    """An unknown optional bit arrives as an unknown mandatory one."""

    def rights(self, access: int) -> int:
        return access | 1 << 12 if access & OPTIONAL_ACCESS & ~RELAXED_ORDERING else access


@violates("REG-04")
class LocalWriteAlways(Rights):
    """Every region can be written locally."""

    def rights(self, access: int) -> int:
        return access | LOCAL_WRITE


@violates("REG-04")
class LocalWriteLost(Rights):
    """LOCAL_WRITE is dropped if it is the only flag."""

    def rights(self, access: int) -> int:
        return 0 if access == LOCAL_WRITE else access


@violates("REG-05")
class RemoteWriteByLocal(Rights):
    """LOCAL_WRITE grants remote writes."""

    def rights(self, access: int) -> int:
        return access | REMOTE_WRITE if access & LOCAL_WRITE else access


@violates("REG-05")
class RemoteWriteTakenAway(Rights):
    """REMOTE_WRITE is dropped."""

    def rights(self, access: int) -> int:
        return access & ~REMOTE_WRITE


@violates("REG-06")
class RemoteReadAlways(Rights):
    """Every region can be read remotely."""

    def rights(self, access: int) -> int:
        return access | REMOTE_READ


@violates("REG-06")
class RemoteReadTakenAway(Rights):
    """REMOTE_READ is dropped."""

    def rights(self, access: int) -> int:
        return access & ~REMOTE_READ


@violates("REG-07")
class AtomicsByWriting(Rights):
    """REMOTE_WRITE grants atomics."""

    def rights(self, access: int) -> int:
        return access | REMOTE_ATOMIC if access & REMOTE_WRITE and access & LOCAL_WRITE else access


@violates("REG-08")
class FlushesByWriting(Rights):
    """REMOTE_WRITE grants flushes."""

    def rights(self, access: int) -> int:
        return access | FLUSH_GLOBAL if access & REMOTE_WRITE else access


@violates("REG-10")
class BindingAlways(Rights):
    """Windows can be bound to every region."""

    def rights(self, access: int) -> int:
        return access | MW_BIND


@violates("REG-12")
class OnDemandLost(Rights):
    """ON_DEMAND is dropped."""

    def rights(self, access: int) -> int:
        return access & ~ON_DEMAND


@violates("REG-03")
class NoAccessZero(Alteration):
    """Access 0 is refused."""

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        return super().register(entry, verb, pd, where, access) if access else _refused(entry, errno.EINVAL)


@violates("REG-14")
class NoRelaxedOrdering(Alteration):
    """RELAXED_ORDERING is refused."""

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        if access & RELAXED_ORDERING:
            return _refused(entry, errno.EINVAL)
        return super().register(entry, verb, pd, where, access)


@violates("REG-02a")
class ReasonLost(Alteration):
    """A refused registration does not set errno."""

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        returned = super().register(entry, verb, pd, where, access)
        return returned if returned.mr or entry.name != "libibverbs" else Return(0, 0)


class Extent(Alteration):
    """Registers another range than requested; the structure has the requested one."""

    def extent(self, addr: int, length: int) -> tuple[int, int]:
        """The range to request from the real device."""
        return addr, length

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        addr, length = where[:2]
        if verb != "reg_mr" or not 64 <= length < 1 << 40:
            return super().register(entry, verb, pd, where, access)
        start, size = self.extent(addr, length)
        returned = super().register(entry, "reg_mr_iova", pd, (start, size, start), access)
        if returned.mr:
            returned.mr.struct.addr, returned.mr.struct.length = addr, length
        return returned


@violates("REG-20")
class RegionOneByteTooLong(Extent):
    """A region ends one byte too late, if there is memory."""

    def extent(self, addr: int, length: int) -> tuple[int, int]:
        return addr, length + 1 if (addr + length) % 4096 else length


@violates("REG-20")
class RegionOneByteTooShort(Extent):
    """A region's last byte cannot be accessed."""

    def extent(self, addr: int, length: int) -> tuple[int, int]:
        return addr, length - 1


@violates("REG-20")
class RegionOfWholePages(Extent):
    """A region extends to the ends of its pages."""

    def extent(self, addr: int, length: int) -> tuple[int, int]:
        start = addr // 4096 * 4096
        return start, -(-(addr + length) // 4096) * 4096 - start


@violates("REG-01")
class PageTold(Alteration):
    """The structure has the address of the region's first page."""

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        returned = super().register(entry, verb, pd, where, access)
        if returned.mr and returned.mr.struct.addr:
            returned.mr.struct.addr = returned.mr.struct.addr // 4096 * 4096
        return returned


@violates("REG-21")
class KeysByIndex(Alteration):
    """Only the index of an rkey is checked: the tag is corrected before the request is posted."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, int] = {}

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        returned = super().register(entry, verb, pd, where, access)
        if returned.mr:
            self._known[returned.mr.struct.rkey >> 8] = returned.mr.struct.rkey
        return returned

    def post_send(self, queue: Queue, request: SendRequest) -> Return:
        return super().post_send(queue, request._replace(rkey=self._known.get(request.rkey >> 8, request.rkey)))


@violates("REG-22")
class OneDomainForAll(Alteration):
    """Queue pairs of every PD can access the regions of the first PD."""

    def __init__(self) -> None:
        super().__init__()
        self._first: Pd | None = None

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        self._first = pd
        return super().register(entry, verb, pd, where, access)

    def pair(self, bench: Bench, spec: QpSpec, requester: Pd, responder: Pd) -> Pair:
        return super().pair(bench, spec, requester, self._first or responder)


@violates("REG-23")
class LimitIgnored(Alteration):
    """The locked-memory limit is not enforced."""

    def locked_memory_limit(self, bench: Bench, size: int) -> AbstractContextManager[None]:
        return nullcontext()


@violates("IOVA-02")
class IovaDropped(Alteration):
    """hca_va is ignored."""

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        if verb == "reg_mr_iova" and where[2] != 0:
            where = (*where[:2], where[0])
        return super().register(entry, verb, pd, where, access)


@violates("IOVA-03")
class IovaZeroDropped(Alteration):
    """hca_va 0 counts as no hca_va, and addr is used."""

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        if verb == "reg_mr_iova" and where[2] == 0:
            where = (*where[:2], where[0])
        return super().register(entry, verb, pd, where, access)


@violates("DEREG-01")
class NotDeregistered(Alteration):
    """Deregistration returns 0 and does nothing."""

    def dereg_mr(self, entry: Entry, mr: Mr) -> Return:
        self.unreleased.append(lambda: entry.dereg_mr(mr))
        return Return(0, 0)


@violates("DEREG-03")
class NegativeCodes(Alteration):
    """A failed deregistration returns the negative errno."""

    def dereg_mr(self, entry: Entry, mr: Mr) -> Return:
        returned = super().dereg_mr(entry, mr)
        return Return(-returned.value, returned.errno)


@violates("DEREG-02")
class BusyHidden(Alteration):
    """Deregistering a busy region returns 0."""

    def dereg_mr(self, entry: Entry, mr: Mr) -> Return:
        returned = super().dereg_mr(entry, mr)
        if returned.value:
            self.unreleased.append(lambda: entry.dereg_mr(mr))
        return Return(0, 0)


@violates("REREG-03")
class ChangeOfAccessSwallowed(Alteration):
    """CHANGE_ACCESS returns 0 and does nothing."""

    def rereg_mr(self, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        return Return(0, 0) if flags == CHANGE_ACCESS else super().rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-02")
class ChangeOfDomainSwallowed(Alteration):
    """CHANGE_PD returns 0 and does nothing."""

    def rereg_mr(self, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        return Return(0, 0) if flags == CHANGE_PD else super().rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-04")
class OneOfTwoChanges(Alteration):
    """CHANGE_PD together with CHANGE_ACCESS changes only the access flags."""

    def rereg_mr(self, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        if flags == CHANGE_PD | CHANGE_ACCESS:
            flags, pd = CHANGE_ACCESS, None
        return super().rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-05")
class CodesReplaced(Alteration):
    """A failed re-registration returns errno instead of a code."""

    def rereg_mr(self, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        returned = super().rereg_mr(entry, mr, flags, pd, addr, length, access)
        return Return(returned.errno, returned.errno) if returned.value else returned


@violates("REREG-06")
class UnknownChangesMasked(Alteration):
    """Unknown flags of a re-registration are masked out, and it does nothing."""

    def rereg_mr(self, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        return Return(0, 0) if flags & ~7 else super().rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-12")
class ChangeToWriteAloneGranted(Alteration):
    """LOCAL_WRITE is added to the access flags of a change."""

    def rereg_mr(self, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        return super().rereg_mr(entry, mr, flags, pd, addr, length, access | LOCAL_WRITE if access else access)


@violates("REREG-13")
class RightsLostWithTheDomain(Alteration):
    """CHANGE_PD removes the remote access flags."""

    def rereg_mr(self, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        if flags == CHANGE_PD:
            flags, access = CHANGE_PD | CHANGE_ACCESS, LOCAL_WRITE
        return super().rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("ADV-02")
class AdviceRefused(Alteration):
    """Advice is refused with EINVAL."""

    def advise_mr(self, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        return Return(errno.EINVAL, errno.EINVAL) if sg_list else super().advise_mr(entry, pd, advice, flags, sg_list)


@violates("ADV-03")
class NoFaultMadePrefetch(Alteration):
    """PREFETCH_NO_FAULT is passed on as PREFETCH."""

    def advise_mr(self, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        return super().advise_mr(entry, pd, PREFETCH if advice == NO_FAULT else advice, flags, sg_list)


@violates("ADV-04")
class AdviceSwallowed(Alteration):
    """Advice returns 0 and has no effect."""

    def advise_mr(self, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        return Return(0, 0)


@violates("ADV-08")
class AbsentPagesHidden(Alteration):
    """Advice returns 0 instead of EFAULT."""

    def advise_mr(self, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        returned = super().advise_mr(entry, pd, advice, flags, sg_list)
        return Return(0, 0) if returned.value == errno.EFAULT else returned


@violates("ADV-13")
class OnlyTheFirstElement(Alteration):
    """Only the first element of the list is passed on."""

    def advise_mr(self, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        return super().advise_mr(entry, pd, advice, flags, sg_list[:1])


@violates("BIND-01")
class OtherNumbers(Alteration):
    """Completions have another wr_id than the request."""

    def completions(self, queue: Queue, found: list[Completion]) -> list[Completion]:
        return [each._replace(wr_id=each.wr_id ^ 1) for each in found]


@violates("BIND-02")
class OldKeyWorks(Alteration):
    """Requests with a window's old key are posted with the new one."""

    def __init__(self) -> None:
        super().__init__()
        self._newer: dict[int, int] = {}

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        old = window.rkey
        returned = super().bind_mw(queue, window, info, flags, wr_id)
        self._newer[old] = window.rkey
        return returned

    def post_send(self, queue: Queue, request: SendRequest) -> Return:
        return super().post_send(queue, request._replace(rkey=self._newer.get(request.rkey, request.rkey)))


@violates("BIND-04")
class AlwaysSignaled(Alteration):
    """A bind without SIGNALED generates a completion."""

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        return super().bind_mw(queue, window, info, flags | SIGNALED, wr_id)


class WindowRights(Alteration):
    """Binds windows with other access flags than requested."""

    def rights(self, access: int) -> int:
        """The access flags to request from the real device."""
        return access

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        return super().bind_mw(queue, window, replace(info, access=self.rights(info.access)), flags, wr_id)


@violates("BIND-05")
class WindowsNotWritten(WindowRights):
    """A window's REMOTE_WRITE is dropped."""

    def rights(self, access: int) -> int:
        return access & ~REMOTE_WRITE


@violates("BIND-06")
class WindowsNotRead(WindowRights):
    """A window's REMOTE_READ is dropped."""

    def rights(self, access: int) -> int:
        return access & ~REMOTE_READ


@violates("BIND-09")
class WindowsWithAllRights(WindowRights):
    """A window grants every access, whatever its access flags."""

    def rights(self, access: int) -> int:
        return access | REMOTE_WRITE | REMOTE_READ


@violates("BIND-10")
class WindowsPushedInside(Alteration):
    """A window that exceeds its region is shortened to fit."""

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        if info.mr and info.length:
            start, end = int(info.mr.struct.addr or 0), int(info.mr.struct.addr or 0) + int(info.mr.struct.length)
            addr = min(max(info.addr, start), end - 1)
            info = replace(info, addr=addr, length=max(1, min(info.length, end - addr)))
        return super().bind_mw(queue, window, info, flags, wr_id)


@violates("BIND-14")
class TypeTwoBound(Alteration):
    """ibv_bind_mw of a window of type 2 posts a bind request, as that type needs."""

    def __init__(self) -> None:
        super().__init__()
        self._second: set[int] = set()

    def alloc_mw(self, bench: Bench, pd: Pd, kind: int) -> tuple[Window | None, Return]:
        window, returned = super().alloc_mw(bench, pd, kind)
        if window and kind == 2:
            self._second.add(window.pointer)
        return window, returned

    def bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        if window.pointer not in self._second:
            return super().bind_mw(queue, window, info, flags, wr_id)
        key = next_rkey(window.rkey)
        return queue.post_send(SendRequest("BIND_MW", wr_id, flags=flags, rkey=key, window=window, bind=info))


@violates("BIND-15")
class InvalidationSwallowed(Alteration):
    """A local invalidation completes and invalidates nothing."""

    def post_send(self, queue: Queue, request: SendRequest) -> Return:
        if request.opcode == "LOCAL_INV":
            request = SendRequest("RDMA_WRITE", request.wr_id, flags=request.flags)
        return super().post_send(queue, request)


@violates("BIND-16")
class WindowKept(Alteration):
    """Deallocating a window returns 0 and does nothing."""

    def dealloc_mw(self, window: Window) -> Return:
        self.unreleased.append(window.dealloc)
        return Return(0, 0)


@violates("BIND-16")
class AnyTypeAllocated(Alteration):
    """Allocating a window of an unknown type makes one of type 1."""

    def alloc_mw(self, bench: Bench, pd: Pd, kind: int) -> tuple[Window | None, Return]:
        return super().alloc_mw(bench, pd, kind if kind in (1, 2) else 1)


ALTERATIONS = tuple(violations_in([sys.modules[__name__]]))
