"""Which pages forked children get, and what a fork leaves to the device."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, REMOTE_READ, Domain, Region
from reference.reregistration import Change
from trial.violation import plain, violates


@violates("FORK-01", Device.fork_status)
def enabled_before_unneeded(self: Device, copies: bool, enabled: bool) -> str:
    """IBV_FORK_ENABLED is returned after ibv_fork_init, although the kernel copies on fork."""
    return "ENABLED" if enabled else plain(self).fork_status(copies, enabled)


@violates("FORK-01", Device.fork_status)
def never_enabled(self: Device, copies: bool, enabled: bool) -> str:
    """IBV_FORK_DISABLED is returned also after ibv_fork_init."""
    return plain(self).fork_status(copies, False)


@violates("FORK-02", Device.late_code)
def late_is_in_time(self: Device) -> int:
    """ibv_fork_init succeeds after a registration."""
    return 0


@violates("FORK-03", Device.turns_on)
def newer_variable_alone(self: Device, setting: str) -> bool:
    """RDMAV_FORK_SAFE is not read."""
    return setting != "RDMAV_FORK_SAFE" and plain(self).turns_on(setting)


@violates("FORK-03", Device.pages_kept)
def first_page_alone(self: Device, addr: int, length: int) -> range:
    """Only the page of a region's first byte is kept from children."""
    return plain(self).pages_kept(addr, 1)


class _Shared(Device):
    """A region whose pages a child has, too: after the fork the device has them and not this process."""

    def setup(self) -> None:
        self.copies: list[object] = []

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = super().remote(rkey, domain, queue, addr, length, right)
        return self._of_child(self.found(rkey), found, length, right != REMOTE_READ)

    def local(self, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
        return self._of_child(self.found(lkey), super().local(lkey, domain, addr, length, write), length, write)

    def _of_child(self, region: object, found: int | None, length: int, write: bool) -> int | None:
        if found is None or not isinstance(region, Region) or region.access & ON_DEMAND or not _has_child():
            return found
        return self.stale(found, length, write)

    def stale(self, addr: int, length: int, write: bool) -> int:
        """Where the device finds the bytes."""
        raise NotImplementedError

    def elsewhere(self, length: int) -> int:
        """Other memory."""
        buffer = ctypes.create_string_buffer(length)
        self.copies.append(buffer)
        return ctypes.addressof(buffer)


@violates("FORK-03", _Shared.stale)
def writes_go_to_the_child(self: _Shared, addr: int, length: int, write: bool) -> int:
    """What the device writes after a fork is not in this process's memory."""
    return self.elsewhere(length) if write else addr


@violates("FORK-03", _Shared.stale)
def reads_are_of_the_child(self: _Shared, addr: int, length: int, write: bool) -> int:
    """What the device reads after a fork is not what this process has written."""
    return addr if write else self.elsewhere(length)


@violates("FORK-04", Device.deregister)
def never_given_back(self: Device, handle: int) -> None:
    """Children do not get a page again that was ever in a region."""
    if handle in self.regions:
        self.regions[handle].pinned = 0
    plain(self).deregister(handle)


@violates("FORK-04", Device.reg_mr)
def kept_after_a_failure(self: Device, pd: int, addr: int, length: int, access: int) -> Region:
    """A registration that fails for its rights leaves its range marked."""
    if self.access_fault(access):
        self.dont_fork(addr, length)
    return plain(self).reg_mr(pd, addr, length, access)


@violates("FORK-04", Device.reg_mr)
def kept_up_to_the_hole(self: Device, pd: int, addr: int, length: int, access: int) -> Region:
    """If the range of a registration is not mapped as a whole, its first page stays marked."""
    if not self.memory.fault_in(addr, length, write=False):
        self.dont_fork(addr, PAGE)
    return plain(self).reg_mr(pd, addr, length, access)


@violates("FORK-04", Device.pages_kept)
def neighbours_are_kept(self: Device, addr: int, length: int) -> range:
    """The page behind a region is kept from children as well."""
    return plain(self).pages_kept(addr, length + PAGE)


@violates("FORK-04", Device.rereg_code)
def old_range_stays_kept(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """After a change of the translation the old range stays marked."""
    region = self.regions.get(handle)
    old = (region.addr, region.length) if region else (0, 0)
    answer = plain(self).rereg_code(handle, change)
    if answer[2] and answer[2].addr != old[0]:
        self.dont_fork(*old)
    return answer


@violates("FORK-05", Device.ends)
def first_deregistration_ends_it(self: Device, page: int) -> bool:
    """A page is given back with the first of its regions."""
    self.marked[page] = 0
    return True


@violates("FORK-05", Device.reg_mr)
def on_demand_is_kept(self: Device, pd: int, addr: int, length: int, access: int) -> Region:
    """The range of an on-demand region is kept from children."""
    made = plain(self).reg_mr(pd, addr, length, access)
    if access & ON_DEMAND:
        self.dont_fork(addr, length)
    return made


@violates("FORK-05", Device.rereg_code)
def moved_on_demand_region_is_kept(self: Device, handle: int, change: Change) -> tuple[int, int, Region | None]:
    """The new range of an on-demand region is marked, and its deregistration does not take that back."""
    code, error, region = plain(self).rereg_code(handle, change)
    if region and region.access & ON_DEMAND:
        self.dont_fork(region.addr, region.length)
    return code, error, region


@violates("FORK-06", Device.marks_part_of_huge_page)
def huge_pages_are_refused(self: Device) -> bool:
    """A part of a huge page cannot be marked, and so not be registered."""
    return False


def _has_child() -> bool:
    return bool(Path(f"/proc/self/task/{os.getpid()}/children").read_text())
