"""Which pages forked children get, and what libibverbs says of that."""

from __future__ import annotations

from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, Region
from reference.reregistration import Change
from trial.violation import plain, violates


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
