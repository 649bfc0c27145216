"""Permitted behaviours of drivers for registration and re-registration. Each behaviour is a Device that overrides one
decision. table.py combines them to personas; trials combine personas with seeded violations."""

import errno
import itertools

from conformance.bench.calls import Sge
from reference.device import Device
from reference.memory import HUGEPAGE, PAGE
from reference.objects import HUGETLB, MW_BIND, ON_DEMAND, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Refused, Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_TRANSLATION, Change

_OTHER_KEY = 1 << 31
_LONGEST = 1 << 45
_REMOTE = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC


class UnsupportedFlagsAreInvalid(Device):
    """A flag that the device does not support is refused with EINVAL, not EOPNOTSUPP."""

    def access_fault(self, access: int) -> int:
        return errno.EINVAL if super().access_fault(access) else 0


class UnusableRightsAreTaken(Device):
    """MW_BIND without windows, and REMOTE_ATOMIC without atomics, are accepted and grant nothing."""

    def unsupported(self, access: int) -> bool:
        return super().unsupported(access & ~(MW_BIND | REMOTE_ATOMIC))

    def keep(self, region: Region) -> Region:
        if not self.stack.has("atomics"):
            region.access &= ~REMOTE_ATOMIC
        return super().keep(region)


class HugePagesNotOffered(Device):
    """HUGETLB is refused: without on-demand paging it does not apply."""

    def access_fault(self, access: int) -> int:
        return super().access_fault(access) or (errno.EOPNOTSUPP if access & HUGETLB else 0)


class PinningFaultsAreEfault(Device):
    """If memory cannot be pinned for any reason, the errno is EFAULT."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return errno.EFAULT if super().range_fault(addr, length, access) else 0


class PinningFaultsAreEnomem(Device):
    """If memory cannot be pinned for any reason, the errno is ENOMEM."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return errno.ENOMEM if super().range_fault(addr, length, access) else 0


class NoBytesWithinAPage(Device):
    """A region of zero bytes is registered if its address is not page-aligned: the page is pinned."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        inside = not length and addr % PAGE
        return super().range_fault(addr, 1 if inside else length, access)


class EmptyArgumentsHaveNoErrno(Device):
    """The library refuses a region at address 0, and a region of zero bytes, without setting errno."""

    _without_reason = False

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        self._without_reason = not addr or not length
        return super().register(pd, addr, length, hca_va, access)

    def reported_errno(self, errno: int) -> int:
        return 0 if self._without_reason else super().reported_errno(errno)


class PinnedForWriting(Device):
    """Writable memory is pinned for writing, so that a change of the rights needs no new pin."""

    def not_there(self, addr: int, length: int, access: int) -> bool:
        return not self.memory.fault_in(addr, length, write=True) and super().not_there(addr, length, access)


class ZeroBasedIsDropped(Device):
    """A region with ZERO_BASED is registered, and addressed like a region without it."""

    def base(self, hca_va: int, access: int) -> int:
        return hca_va


class HcaVaIsDropped(Device):
    """A region is addressed by the address of its memory; hca_va is ignored."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        return super().register(pd, addr, length, addr, access)


class HugePagesKeepTheirOffset(Device):
    """With ON_DEMAND and HUGETLB, a request accesses the byte whose offset in its huge page is equal to the iova's."""

    def place(self, region: Region, addr: int, length: int) -> int | None:
        at = super().place(region, addr, length)
        if at is None or not region.access & ON_DEMAND or not region.access & HUGETLB:
            return at
        at += region.iova % HUGEPAGE - region.addr % HUGEPAGE
        return at if region.addr <= at <= region.addr + region.length - length else None


class NoRemoteKeyWithoutRights(Device):
    """A region that grants peers no right has the rkey 0, with which no access is granted."""

    def reported_keys(self, region: Region) -> tuple[int, int]:
        return region.key, region.key if region.access & _REMOTE else 0


class TwoKeys(Device):
    """The rkey of a region differs from its lkey."""

    def reported_keys(self, region: Region) -> tuple[int, int]:
        return region.key, region.key ^ _OTHER_KEY


class LowestFreeKey(Device):
    """A new region gets the lowest free index and the tag 0, so that the key of a previous region is used again."""

    def new_key(self) -> int:
        return next(index << 8 for index in itertools.count(1) if index << 8 not in self.keys)


class LowestFreeIndex(Device):
    """A new region or window gets the lowest index that is free, with the next tag."""

    def setup(self) -> None:
        self._tags = itertools.cycle(range(1, 255))

    def new_key(self) -> int:
        used = {key >> 8 for key in self.keys}
        return next(index for index in itertools.count(1) if index not in used) << 8 | next(self._tags)


class LastKeyComesBack(Device):
    """A new region gets the key that was released last."""

    def setup(self) -> None:
        self._given_back: list[int] = []

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        self._given_back.append(region.key)

    def new_key(self) -> int:
        while self._given_back:
            key = self._given_back.pop()
            if key not in self.keys:
                return key
        return super().new_key()


# Re-registration


class NoChangeIsACommandError(Device):
    """The library accepts a re-registration without flags, and the kernel refuses it."""

    def change(self, handle: int, change: Change) -> Region:
        if not change.flags and self.stack.has("rereg_mr"):
            raise Refused(errno.EINVAL)
        return super().change(handle, change)


class NoChangeAfterAFailedOne(Device):
    """After a failed re-registration, every further re-registration of the region is refused; it can only be
    deregistered."""

    def change(self, handle: int, change: Change) -> Region:
        if handle in self.regions and not self.regions[handle].usable:
            raise Refused(errno.EINVAL)
        return super().change(handle, change)


class NoNewRightToWrite(Device):
    """A CHANGE_ACCESS that adds a right to write is refused with EACCES if the pages are pinned for reading."""

    def change(self, handle: int, change: Change) -> Region:
        region, selected = self.regions.get(handle), change.flags & (CHANGE_ACCESS | CHANGE_TRANSLATION)
        gains = region and self.writes(change.access) and not self.writes(region.access)
        if gains and selected == CHANGE_ACCESS and self.stack.has("rereg_mr"):
            raise Refused(errno.EACCES)
        return super().change(handle, change)


class LongLengthsAreRefusedUnselected(Device):
    """A re-registration with a length of more than 32 TiB is refused, even if the length is not selected."""

    def change(self, handle: int, change: Change) -> Region:
        if self.stack.has("rereg_mr") and change.length > _LONGEST:
            raise Refused(errno.EINVAL)
        return super().change(handle, change)


class NoWritingOfReadOnlyPins(Device):
    """A CHANGE_ACCESS with a right to write is refused if the region's present memory is not writable, even if the same
    call changes the memory."""

    def change(self, handle: int, change: Change) -> Region:
        region = self.regions.get(handle)
        gains = change.flags & CHANGE_ACCESS and self.writes(change.access)
        if region and gains and not self.memory.fault_in(region.addr, region.length, write=True):
            raise Refused(errno.EPERM if change.flags & CHANGE_TRANSLATION else errno.EACCES)
        return super().change(handle, change)


class AdviceEndsWithThePage(Device):
    """Advice may go beyond a region's last byte, up to the end of its last page."""

    def advice_out_of_bounds(self, region: Region, sge: Sge) -> bool:
        rest = -(region.addr + region.length) % PAGE
        return sge.addr < region.iova or sge.addr + sge.length > region.iova + region.length + rest
