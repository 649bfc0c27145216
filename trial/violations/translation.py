"""Violations of ibv_reg_mr_iova and of deregistration."""

from __future__ import annotations

import errno

from conformance.bench.calls import Return
from reference.device import Device
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, ON_DEMAND, REMOTE_READ, Domain, Refused, Region, Window
from reference.stack import WHOLE, Stack
from trial.violation import violates


@violates("IOVA-01")
class SameAddressIsZeroBased(Device):
    """If hca_va equals addr, the region is addressed from 0."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, 0 if hca_va == addr else hca_va, access)


@violates("IOVA-01")
class SameAddressRefused(Device):
    """hca_va equal to addr is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if hca_va == addr:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02")
class IovaIgnored(Device):
    """hca_va is ignored."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, addr if hca_va else 0, access)


@violates("IOVA-02")
class IovaOfThePage(Device):
    """hca_va loses its offset within the page."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va // PAGE * PAGE if hca_va != addr else addr, access)


@violates("IOVA-02a")
class IovaMustFitThePage(Device):
    """hca_va with another offset within the page than addr is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if hca_va and hca_va % PAGE != addr % PAGE:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02a")
class OnDemandIovaMustFitThePage(Device):
    """Of an on-demand region, hca_va with another offset within the page than addr is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if access & ON_DEMAND and hca_va % PAGE != addr % PAGE:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02a")
class IovaBelowTheKernel(Device):
    """hca_va has to be an address that a process of this machine can have."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if hca_va >= 1 << 47:
            raise Refused(errno.EFAULT)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("IOVA-02")
class IovaAndPointers(Device):
    """A region with another hca_va than addr can be accessed by pointers too."""

    def place(self, region: Region, addr: int, length: int) -> int | None:
        found = super().place(region, addr, length)
        inside = region.addr <= addr and addr + length <= region.addr + region.length
        return addr if found is None and inside and region.iova >= 1 << 32 else found


@violates("IOVA-02")
class IovaCutOff(Device):
    """Addresses of requests are cut off at 32 bits."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va & 0xFFFFFFFF if hca_va != addr else addr, access)


@violates("IOVA-02")
class IovaBoundsOfMemory(Device):
    """A region with another hca_va than addr ends one byte too late."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        more = region.iova not in (0, region.addr)
        return addr >= region.iova and addr + length <= region.iova + region.length + more


@violates("IOVA-03")
class IovaZeroIsNone(Device):
    """hca_va 0 counts as no hca_va, and addr is used."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va or addr, access)


@violates("IOVA-03")
class IovaZeroOfThePage(Device):
    """hca_va 0 denotes the beginning of the region's first page."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va or addr % PAGE, access)


@violates("IOVA-04")
class IovaWriteAlone(Device):
    """REMOTE_WRITE is granted without LOCAL_WRITE."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        region = super().reg_mr_iova(pd, addr, length, hca_va, access | LOCAL_WRITE)
        region.access = access
        return region


@violates("IOVA-04")
class IovaUnknownBits(Device):
    """Unknown bits are ignored."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().reg_mr_iova(pd, addr, length, hca_va, access & ~self.unknown_bits(access))


@violates("IOVA-04")
class IovaNoReads(Device):
    """REMOTE_READ is refused."""

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        if access == REMOTE_READ:
            raise Refused(errno.EINVAL)
        return super().reg_mr_iova(pd, addr, length, hca_va, access)


@violates("DEREG-01")
class KeysOutliveTheRegion(Device):
    """The keys of a deregistered region still work."""

    def forget_key(self, region: Region) -> None:
        """Keeps the key."""


@violates("DEREG-01")
class RkeyOutlivesTheRegion(Device):
    """The rkey of a deregistered region still works."""

    def __init__(self, stack: Stack = WHOLE) -> None:
        super().__init__(stack)
        self._gone: dict[int, Region | Window] = {}

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        self._gone[region.key] = region

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        region = self._gone.get(rkey)
        if isinstance(region, Region) and self.allows(region, right):
            return self.place(region, addr, length)
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("DEREG-01")
class DeregisteredAndKept(Device):
    """Deregistration returns 0 and does nothing."""

    def deregister(self, handle: int) -> None:
        if handle not in self.regions:
            raise Refused(errno.EINVAL)


@violates("DEREG-01")
class DeregisteredAndDenied(Device):
    """Deregistration succeeds, but returns EIO."""

    def dereg_answer(self, returned: Return) -> Return:
        return Return(errno.EIO, errno.EIO) if returned.value == 0 else returned


@violates("DEREG-01")
class TwinsGoTogether(Device):
    """Deregistration deregisters all regions of the same memory."""

    def deregister(self, handle: int) -> None:
        super().deregister(handle)
        for each in [each for each in self.regions.values() if each.length]:
            del self.regions[each.handle]
            self.keys.pop(each.key, None)
            each.domain.users -= 1


@violates("DEREG-02")
class BoundWindowsForgotten(Device):
    """A region is deregistered although windows are bound to it."""

    def busy(self, region: Region) -> bool:
        return False


@violates("DEREG-02")
class OnlyTypeOneIsLookedAt(Device):
    """A region is deregistered although a window of type 2 is bound to it."""

    def busy(self, region: Region) -> bool:
        return any(window.kind == 1 for window in region.windows)


@violates("DEREG-02")
class HalfDestroyed(Device):
    """A refused deregistration invalidates the region."""

    def busy(self, region: Region) -> bool:
        if region.windows:
            region.usable = False
        return super().busy(region)


@violates("DEREG-02")
class WindowUnboundByRefusal(Device):
    """A refused deregistration unbinds the window."""

    def busy(self, region: Region) -> bool:
        bound = super().busy(region)
        for window in list(region.windows):
            window.access = 0
        return bound


@violates("DEREG-02")
class BusyForEver(Device):
    """A region stays busy after its window was unbound."""

    def release_region(self, window: Window, region: Region) -> None:
        """Does not notify the region."""


@violates("DEREG-03")
class NegativeErrno(Device):
    """A failure returns the negative errno of the kernel."""

    def dereg_answer(self, returned: Return) -> Return:
        return Return(-returned.value, returned.errno)


@violates("DEREG-03")
class MinusOne(Device):
    """A failure returns -1, with the reason in errno."""

    def dereg_answer(self, returned: Return) -> Return:
        return Return(-1 if returned.value else 0, returned.errno)


@violates("DEREG-03")
class UnknownHandleIsFine(Device):
    """Deregistering an unknown handle returns 0."""

    def deregister(self, handle: int) -> None:
        if handle in self.regions:
            super().deregister(handle)
