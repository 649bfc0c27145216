"""Deregistration: its codes, and the end of the keys."""

from __future__ import annotations

import errno
from dataclasses import replace

from conformance.bench.calls import Return
from reference.device import Device
from reference.objects import ON_DEMAND, REMOTE_READ, Domain, Refused, Region, Window
from trial.violation import permits, plain, violates


class _Haunted(Device):
    """A device that remembers the regions that are gone."""

    def setup(self) -> None:
        self.ghosts: dict[int, Region] = {}

    def deregister(self, handle: int) -> None:
        """Ends a region, not wholly."""
        region = self.regions.get(handle)
        super().deregister(handle)
        if region:
            self.ghosts[region.key] = region


@violates("DEREG-01", Device.forget_key)
def keys_of_other_addresses_outlive(self: Device, region: Region) -> None:
    """Keys of a region with another hca_va than addr still work after its deregistration."""
    if region.iova == region.addr:
        plain(self).forget_key(region)


@violates("DEREG-01", Device.forget_key)
def keys_of_dmabufs_outlive(self: Device, region: Region) -> None:
    """Keys of a dma-buf region still work after its deregistration."""
    if not self.memory.in_dmabuf(region.addr):
        plain(self).forget_key(region)


@violates("DEREG-01")
class KeysOutliveTheRegion(Device):
    """The keys of a deregistered region still work."""

    def forget_key(self, region: Region) -> None:
        """Keeps the key."""


@violates("DEREG-01")
class RkeyOutlivesTheRegion(Device):
    """The rkey of a deregistered region still works."""

    def setup(self) -> None:
        self._gone: dict[int, Region | Window] = {}

    def forget_key(self, region: Region) -> None:
        super().forget_key(region)
        self._gone[region.key] = region

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        region = self._gone.get(rkey)
        if isinstance(region, Region) and self.allows(region, right):
            return self.place(region, addr, length)
        return super().remote(rkey, domain, queue, addr, length, right)


@violates("DEREG-01", Device.deregister)
def deregistered_and_kept(self: Device, handle: int) -> None:
    """Deregistration returns 0 and does nothing."""
    if handle not in self.regions:
        raise Refused(errno.EINVAL)


@violates("REG-31", Device.left_by_a_killed_process)
def regions_of_the_dead_stay(self: Device) -> dict[str, int]:
    """The regions of a process that was killed stay registered."""
    return {"MR": len(self.regions)}


@violates("REG-31", Device.left_by_a_killed_process)
def regions_on_demand_of_the_dead_stay(self: Device) -> dict[str, int]:
    """On-demand regions of a process that was killed stay registered."""
    return {"MR": sum(bool(region.access & ON_DEMAND) for region in self.regions.values())}


@violates("REG-31", Device.left_by_a_killed_process)
def domains_of_dead_windows_stay(self: Device) -> dict[str, int]:
    """A window that a killed process had bound keeps its domain."""
    return {"PD": len({id(window.domain) for window in self.windows if window.region})}


@violates("DEREG-01", Device.dereg_answer)
def deregistered_and_denied(self: Device, returned: Return) -> Return:
    """Deregistration succeeds, but returns EIO."""
    return Return(errno.EIO, errno.EIO) if returned.value == 0 else returned


@violates("DEREG-01", Device.deregister)
def twins_go_together(self: Device, handle: int) -> None:
    """Deregistration deregisters all regions of the same memory."""
    plain(self).deregister(handle)
    for each in [each for each in self.regions.values() if each.length]:
        del self.regions[each.handle]
        self.keys.pop(each.key, None)
        each.domain.users -= 1


@violates("DEREG-01", _Haunted.local, written="blind")
def lkey_serves_once_more(self: _Haunted, lkey: int, domain: Domain, addr: int, length: int, write: bool) -> int | None:
    """After deregistration the lkey serves one more local operation."""
    place = plain(self).local(lkey, domain, addr, length, write)
    ghost = self.ghosts.pop(lkey, None)
    if place is None and ghost and ghost.domain is domain and (not write or self.allows_local_write(ghost)):
        return self.place(ghost, addr, length)
    return place


@violates("DEREG-01", _Haunted.remote, written="blind")
def rkey_reads_on_in_a_busy_domain(
    self: _Haunted, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """After deregistration the rkey still reads while its PD has other regions."""
    ghost = self.ghosts.get(rkey)
    others = any(each.domain is domain for each in self.regions.values())
    if ghost and others and ghost.domain is domain and right == REMOTE_READ and ghost.access & right:
        return self.place(ghost, addr, length)
    return plain(self).remote(rkey, domain, queue, addr, length, right)


@violates("DEREG-01", _Haunted.remote, written="blind")
def on_demand_keys_outlive(
    self: _Haunted, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """The rkey of an on-demand region works after its deregistration."""
    ghost = self.ghosts.get(rkey)
    if ghost and ghost.access & ON_DEMAND and ghost.domain is domain and self.allows(ghost, right):
        return self.place(ghost, addr, length)
    return plain(self).remote(rkey, domain, queue, addr, length, right)


@violates("DEREG-01", written="blind")
class ReregisteredKeysOutlive(Device):
    """Deregistering a region that had been re-registered returns 0 and leaves its keys at work."""

    def setup(self) -> None:
        self._changed: set[int] = set()

    def rekey(self, region: Region) -> None:
        super().rekey(region)
        self._changed.add(region.handle)

    def forget_key(self, region: Region) -> None:
        if region.handle in self.regions or region.handle not in self._changed:
            super().forget_key(region)


@violates("DEREG-03", Device.dereg_answer)
def negative_errno(self: Device, returned: Return) -> Return:
    """A failure returns the negative errno of the kernel."""
    return Return(-returned.value, returned.errno)


@violates("DEREG-03", Device.dereg_answer)
def minus_one(self: Device, returned: Return) -> Return:
    """A failure returns -1, with the reason in errno."""
    return Return(-1 if returned.value else 0, returned.errno)


@violates("DEREG-03", Device.deregister)
def unknown_handle_is_fine(self: Device, handle: int) -> None:
    """Deregistering an unknown handle returns 0."""
    if handle in self.regions:
        plain(self).deregister(handle)


@violates("DEREG-03", Device.dereg_answer, written="blind")
def deregistration_returns_minus_one(self: Device, returned: Return) -> Return:
    """ibv_dereg_mr returns -1 on failure and puts the reason into errno."""
    return replace(returned, value=-1) if returned.value else returned


@violates("DEREG-03", Device.dereg_answer, written="blind")
def deregistration_returns_negative_errno(self: Device, returned: Return) -> Return:
    """ibv_dereg_mr returns the negative of errno on failure."""
    return replace(returned, value=-returned.value)


@violates("DEREG-03", Device.dereg_answer, written="blind")
def deregistration_returns_one(self: Device, returned: Return) -> Return:
    """ibv_dereg_mr returns 1 on failure, whatever errno is."""
    return replace(returned, value=1) if returned.value else returned


@permits("DEREG-03", written="blind")
class BoundRegionIsEinval(Device):
    """Deregistering a region with a bound window fails with EINVAL."""

    def deregister(self, handle: int) -> None:
        if handle in self.regions and self.busy(self.regions[handle]):
            raise Refused(errno.EINVAL)
        super().deregister(handle)
