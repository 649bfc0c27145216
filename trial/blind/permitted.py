"""What the documents leave open and real devices do: no case may fail any of these.

The rule named is the one that leaves the choice, or next to which it lies.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from reference.advice import FLUSH, PREFETCH_NO_FAULT, PREFETCH_WRITE
from reference.device import Device
from reference.memory import PAGE
from reference.objects import (
    HUGETLB,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    WORD,
    Domain,
    Refused,
    Region,
    Window,
)
from reference.queues import SUCCESS, Queue
from reference.reregistration import Change
from reference.stack import WHOLE, Stack
from trial.violation import departs_from, violates

_KEPT = LOCAL_WRITE | MW_BIND

# Registration


@violates("REG-02a")
class EveryRefusalIsEinval(Device):
    """Every refused registration has EINVAL for its reason."""

    def reported_errno(self, errno: int) -> int:
        return 22


@violates("REG-18")
class UnknownBitsAreNotSupported(Device):
    """Unknown bits are refused with EOPNOTSUPP."""

    def access_fault(self, access: int) -> int:
        return errno.EOPNOTSUPP if self.unknown_bits(access) else super().access_fault(access)


@violates("REG-23")
class UnmappedMemoryIsEnomem(Device):
    """Memory that is not there is refused with ENOMEM."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        fault = super().range_fault(addr, length, access)
        return errno.ENOMEM if fault == errno.EFAULT else fault


@violates("REG-23")
class LockedLimitIsEagain(Device):
    """Exceeding the limit of locked memory is refused with EAGAIN."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        fault = super().range_fault(addr, length, access)
        return errno.EAGAIN if fault == errno.ENOMEM else fault


@violates("REG-24")
class ZeroLengthGranted(Device):
    """A region of no bytes is granted and opens nothing."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        if length == 0 and not access & HUGETLB:
            return 0
        return super().range_fault(addr, length, access)


@violates("REG-13")
class HugetlbWithoutPagingRefused(Device):
    """HUGETLB without ON_DEMAND, where it does not apply, is refused."""

    def access_fault(self, access: int) -> int:
        alone = access & HUGETLB and not access & ON_DEMAND
        return super().access_fault(access) or (errno.EINVAL if alone else 0)


@violates("REG-21")
class LkeyAndRkeyDiffer(Device):
    """lkey and rkey of a region are two numbers, each good for its own purpose only."""

    _rkeys = 1 << 31

    def reported_keys(self, region: Region) -> tuple[int, int]:
        return region.key, region.key ^ self._rkeys

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        if isinstance(self.found(rkey), Window):
            return super().remote(rkey, domain, queue, addr, length, right)
        if not isinstance(self.found(rkey ^ self._rkeys), Region):
            return None
        return super().remote(rkey ^ self._rkeys, domain, queue, addr, length, right)


@violates("REG-21")
class KeysAreRecycled(Device):
    """The index of a key that has ended is given to the next object, with another tag."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._free: list[int] = []

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        if region.handle not in self.regions:
            self._free.append(region.key)

    def new_key(self) -> int:
        return self.next_key(self._free.pop(0)) if len(self._free) > 3 else super().new_key()


@violates("REG-21")
class KeysHaveTagZero(Device):
    """A new key always has the tag 0."""

    def new_key(self) -> int:
        return super().new_key() & ~0xFF


@violates("REG-21")
class KeysUseTheTopBit(Device):
    """Keys have their highest bit set."""

    def new_key(self) -> int:
        return (super().new_key() | 1 << 31) & WORD


@violates("REG-20")
class HandlesAreReused(Device):
    """The handle of a deregistered region is given to the next one."""

    def __init__(self, stack: Stack = WHOLE, seed: int = 0) -> None:
        super().__init__(stack, seed)
        self._free: list[int] = []

    def keep(self, region: Region) -> Region:
        if self._free:
            region.handle = self._free.pop()
        return super().keep(region)

    def deregister(self, handle: int) -> None:
        super().deregister(handle)
        self._free.append(handle)


@violates("REG-26")
class GoodElementsAreFilledFirst(Device):
    """Elements before a bad one are filled already when the bad one is found."""

    def scatter(self, queue: Queue, sges: Sequence[Sge], content: bytes) -> bool:
        for sge in sges:
            if not super().scatter(queue, [sge], content[: sge.length]):
                return False
            content = content[sge.length :]
        return True


@violates("REG-20")
class WritesStopAtABadPage(Device):
    """Of a write into an on-demand region of which a page is gone, the pages before that one are written."""

    def put(self, addr: int, content: bytes) -> bool:
        while content:
            here = PAGE - addr % PAGE
            if not super().put(addr, content[:here]):
                return False
            addr, content = addr + here, content[here:]
        return True


@violates("REG-05")
@departs_from("STAT-01")
class RefusalsNameAnotherError(Device):
    """A responder that refuses an access answers REM_INV_REQ_ERR where REM_ACCESS_ERR is usual."""

    def refuse(self, queue: Queue, status: str) -> str:
        return super().refuse(queue, "REM_INV_REQ_ERR" if status == "REM_ACCESS_ERR" else status)


@violates("REG-05")
@departs_from("STAT-01")
class RefusalsAreRemoteOperationErrors(Device):
    """A responder that refuses an access answers REM_OP_ERR."""

    def refuse(self, queue: Queue, status: str) -> str:
        return super().refuse(queue, "REM_OP_ERR" if status == "REM_ACCESS_ERR" else status)


@violates("REG-05")
@departs_from("STAT-01")
class ResponderLivesOn(Device):
    """A responder that refuses an access does not go to the error state itself."""

    def refuse(self, queue: Queue, status: str) -> str:
        before = queue.peer.state
        told = super().refuse(queue, status)
        if before in ("RTR", "RTS") and not queue.peer.receives and status == "REM_ACCESS_ERR":
            queue.peer.state = before
        return told


@violates("REG-04")
@departs_from("STAT-03", "STAT-04")
class LocalErrorsAreQueueErrors(Device):
    """An element that is refused locally completes with LOC_ACCESS_ERR instead of LOC_PROT_ERR."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "LOC_ACCESS_ERR" if status == "LOC_PROT_ERR" else status)


@violates("REG-07")
class UnalignedAtomicsAreAccessErrors(Device):
    """An atomic on an address that is no multiple of eight is refused as an access error."""

    def atomic(self, queue: Queue, request: SendRequest) -> str:
        if request.remote_addr % 8 and self.allows_operation(queue, request):
            return self.refuse(queue, "REM_ACCESS_ERR")
        return super().atomic(queue, request)


@violates("REG-19")
class ImplicitRegionsLookAtMemoryFirst(Device):
    """An implicit region refuses memory that is not mapped when it is asked for, as an access error."""

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        place = super().remote(rkey, domain, queue, addr, length, right)
        found = self.found(rkey)
        if place is not None and isinstance(found, Region) and found.length == (1 << 64) - 1:
            return place if self.memory.fault_in(place, length, write=False) else None
        return place


@violates("REG-12")
class OnDemandPagesAreBroughtInAtOnce(Device):
    """An on-demand registration brings in at once what is mapped, and is content with what is not."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        fault = super().range_fault(addr, length, access)
        small = access & ON_DEMAND and not self.is_implicit(addr, length, access) and length <= 1 << 20
        if not fault and small:
            self.memory.fault_in(addr, length, write=False)
        return fault


@violates("REG-14")
class RelaxedOrderingIgnored(Device):
    """RELAXED_ORDERING is dropped without a word."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().register(pd, addr, length, hca_va, access & ~RELAXED_ORDERING)


@violates("REG-14")
class WritesComeInTwoParts(Device):
    """A write to memory is carried out from its end to its beginning."""

    def put(self, addr: int, content: bytes) -> bool:
        half = len(content) // 2
        if half and self.memory.fault_in(addr, len(content), write=True):
            return super().put(addr + half, content[half:]) and super().put(addr, content[:half])
        return super().put(addr, content)


# Regions with addresses of their own, dma-bufs


@violates("DMA-03")
class BuffersWithUnsupportedFlagsAreInvalid(Device):
    """Flags that dma-bufs do not support are refused with EINVAL."""

    def dmabuf_fault(self, offset: int, length: int, iova: int, access: int, size: int) -> int:
        if self.dmabuf_unsupported(access):
            return errno.EINVAL
        return super().dmabuf_fault(offset, length, iova, access, size)


@violates("DMA-04")
class WrongDescriptorsAreEbadf(Device):
    """A descriptor that is no dma-buf is refused with EBADF."""

    def dmabuf(self, fd: int) -> tuple[int, int]:
        try:
            return super().dmabuf(fd)
        except Refused as refused:
            raise Refused(errno.EBADF) from refused


@violates("DMA-04")
class RangesBeyondTheBufferAreEnomem(Device):
    """A range beyond the dma-buf is refused with ENOMEM."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return errno.ENOMEM if super().dmabuf_range_fault(offset, length, size) else 0


@violates("DMA-04")
class BufferWithoutBytesGranted(Device):
    """A region of no bytes of a dma-buf is granted and opens nothing."""

    def dmabuf_range_fault(self, offset: int, length: int, size: int) -> int:
        return errno.EINVAL if offset + length > size else 0


# Deregistration and re-registration


@violates("DEREG-03")
class BoundRegionIsEinval(Device):
    """Deregistering a region with a bound window fails with EINVAL."""

    def deregister(self, handle: int) -> None:
        if handle in self.regions and self.busy(self.regions[handle]):
            raise Refused(errno.EINVAL)
        super().deregister(handle)


@violates("REREG-14")
class KeysStayAfterAChange(Device):
    """A region keeps its keys through a re-registration."""

    def rekey(self, region: Region) -> None:
        """The key stays."""


@violates("REREG-15")
class ChangeGivesANewIndex(Device):
    """A re-registration takes nothing over: the region has a key of another index."""

    def rekey(self, region: Region) -> None:
        self.forget_key(region)
        region.key = self.new_key()
        self.keys[region.key] = region


@violates("REREG-09")
class FailedCommandLeavesTheRegionValid(Device):
    """After a command error the old region works as before, though nobody may count on it."""

    def change(self, handle: int, change: Change) -> Region:
        try:
            return super().change(handle, change)
        except Refused:
            if handle in self.regions:
                self.regions[handle].usable = True
            raise


@violates("REREG-17")
class NoChangeOfOnDemandRegions(Device):
    """A re-registration of an on-demand region is refused whole."""

    def change(self, handle: int, change: Change) -> Region:
        if handle in self.regions and self.regions[handle].access & ON_DEMAND:
            raise Refused(errno.EOPNOTSUPP)
        return super().change(handle, change)


@violates("REREG-17")
class ChangesOfBoundRegionsTakeEffect(Device):
    """A bound window's region may have its access changed, as long as it keeps LOCAL_WRITE and MW_BIND."""

    _changing = False

    def change(self, handle: int, change: Change) -> Region:
        self._changing = change.flags == 4 and change.access & _KEPT == _KEPT
        try:
            return super().change(handle, change)
        finally:
            self._changing = False

    def busy(self, region: Region) -> bool:
        return not self._changing and super().busy(region)


@violates("REREG-06")
class LibraryRefusesTooMuch(Device):
    """The library itself finds REMOTE_WRITE without LOCAL_WRITE and gives ERR_INPUT."""

    def input_fault(self, change: Change) -> bool:
        alone = change.flags & 4 and (self.write_alone(change.access) or self.atomic_alone(change.access))
        return bool(alone) or super().input_fault(change)


@violates("REREG-13")
class LibraryIgnoresUnselectedAccess(Device):
    """An access that no flag selects is ignored instead of refused: the two documents disagree."""

    def input_fault(self, change: Change) -> bool:
        plain = change if change.flags & 4 else Change(change.flags, change.pd, change.addr, change.length, 0)
        return super().input_fault(plain)


@violates("XREREG-03")
class VendorsErrorLeavesTheRegionValid(Device):
    """After an error of the vendor's verb the region works as before."""

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if code and handle in self.regions:
            self.regions[handle].usable = True
        return code, region


# Advice


@violates("ADV-08")
class NoPermissionToWriteIsEfault(Device):
    """PREFETCH_WRITE of a region that cannot be written is EFAULT: the page has wrong write access there too."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        fault = super().element_fault(domain, advice, region, sge)
        unwritable = advice == PREFETCH_WRITE and region.domain is domain and self.not_writable(region)
        return errno.EFAULT if fault == errno.EPERM and unwritable else fault


@violates("ADV-11")
class OtherTagIsEfault(Device):
    """An lkey with another tag is EFAULT, as one that is invalid."""

    def other_tag(self) -> int:
        return errno.EFAULT


@violates("ADV-08")
class NobodysLkeyIsEnoent(Device):
    """An lkey that is nobody's is ENOENT, as one that is not consistent with the region's."""

    def no_such_lkey(self) -> int:
        return errno.ENOENT


@violates("ADV-14")
class OnlyFlushedAdviceIsFollowed(Device):
    """PREFETCH_NO_FAULT and advice without FLUSH do nothing at all."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        return True if not flags & FLUSH or advice == PREFETCH_NO_FAULT else super().follow(addr, length, advice, flags)


@violates("ADV-04")
class FlushBringsWholePagesIn(Device):
    """Advice brings in the whole pages around its range."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        done = super().follow(addr, length, advice, flags)
        if done and advice != PREFETCH_NO_FAULT:
            self.memory.fault_in(addr // PAGE * PAGE, -(-(addr % PAGE + length) // PAGE) * PAGE, write=False)
        return done


@violates("ADV-14")
class AdviceWithoutElementsRefused(Device):
    """Advice on no element at all is refused."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if not sg_list and self.stack.has("advise_mr"):
            raise Refused(errno.EINVAL)
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-15")
class UnflushedAdviceIsNotChecked(Device):
    """Without FLUSH an advice on a region of another PD is taken and nothing is done."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if not flags & FLUSH and self.stack.has("advise_mr") and pd in self.domains and not flags:
            regions = [self.keys.get(each.lkey) for each in sg_list]
            if regions and all(isinstance(each, Region) and each.domain.handle != pd for each in regions):
                return
        super().advise(pd, advice, flags, sg_list)


@violates("ADV-10")
class BoundsAreCheckedBeforeTheDomain(Device):
    """Of several faults of one element the range is found before the domain."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        if self.advice_out_of_bounds(region, sge) and not self.not_on_demand(region):
            return errno.EFAULT
        return super().element_fault(domain, advice, region, sge)


# Windows


@violates("BIND-11")
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


@violates("BIND-12")
class BindFaultsAreFoundWhenPosted(Device):
    """A bind that the region does not allow is refused when it is posted."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        if not fault and self.bind_refused(window, region, info.addr, info.length, info.access):
            return errno.EINVAL
        return fault


@violates("BIND-12")
@departs_from("STAT-06")
class FailedBindsAreProtectionErrors(Device):
    """A failed bind completes with LOC_PROT_ERR instead of MW_BIND_ERR."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, "LOC_PROT_ERR" if status == "MW_BIND_ERR" else status)


@violates("BIND-02")
class KeysOfBindsSkip(Device):
    """The key after a bind is not the next one but seven further."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        self._binding = True
        try:
            return super().ibv_bind_mw(queue, window, info, flags, wr_id)
        finally:
            self._binding = False

    _binding = False

    def next_key(self, key: int) -> int:
        return key & ~0xFF | (key + 7) & 0xFF if self._binding else super().next_key(key)


@violates("BIND-19")
class PostedWindowsOfTheQueuePair(Device):
    """A type 2 window is of the kind 2A, which belongs to a queue pair only; that of a PD is not checked besides."""

    def window_opens(self, window: Window, domain: Domain, queue: int) -> bool:
        return window.queue == queue if window.kind == 2 else super().window_opens(window, domain, queue)


@violates("BIND-21")
class UnbindWithoutRegionRefused(Device):
    """An unbind without a region is refused when it is posted."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        return errno.EINVAL if info.mr is None else super().bind_fault(queue, window, region, info, posted)


@violates("BIND-11")
class WrongQueuesAreNotSupported(Device):
    """A bind on a queue pair of another type is refused with EOPNOTSUPP."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        return errno.EOPNOTSUPP if fault and self.wrong_queue(queue.kind) else fault


@violates("BIND-18")
class ForeignBindsAreInvalid(Device):
    """A bind of objects of two PDs is refused with EINVAL."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        return errno.EINVAL if fault == errno.EPERM else fault


@violates("BIND-19")
class FailedInvalidationsAreProtectionErrors(Device):
    """An invalidation that fails completes with LOC_PROT_ERR."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        failed = request.opcode == "LOCAL_INV" and status not in (SUCCESS, "WR_FLUSH_ERR")
        super().complete(queue, request, "LOC_PROT_ERR" if failed else status)


@violates("BIND-07")
class SuccessesCarryVendorNumbers(Device):
    """A completion with success has a vendor's number beside it."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if queue.polled and status == SUCCESS and self.asks_completion(queue, request.flags):
            queue.polled.append(queue.polled.pop()._replace(vendor_err=1))


@violates("BIND-22")
class FailuresCarryVendorErrors(Device):
    """A completion with an error has a vendor's number, and an opcode and a length that mean nothing."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if status != SUCCESS and queue.polled:
            last = queue.polled.pop()
            queue.polled.append(Completion(last.wr_id, last.status, "SEND", 17, None, 0x81))


# Structures


@violates("REG-01")
class RegionsAreCountedByTheDevice(Device):
    """Handles are those of the kernel's own counting and have gaps."""

    def new_handle(self) -> int:
        self._next += 6
        return super().new_handle()
