"""The vendor's experimental re-registration."""

from __future__ import annotations

import errno
from dataclasses import replace

from reference.device import Device
from reference.objects import LOCAL_WRITE, REMOTE_READ, REMOTE_WRITE, Refused, Region
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD, CHANGE_TRANSLATION, CMD, Change
from trial.violation import permits, plain, violates


@violates("XREREG-01", Device.experimental_code)
def codes_in_the_dialect(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's call returns the codes of the mainline page."""
    error, region = plain(self).experimental_code(handle, change)
    return (CMD if error else 0), region


@violates("XREREG-01", Device.experimental_code)
def dialect_answers_one(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's call returns 1 on success."""
    error, region = plain(self).experimental_code(handle, change)
    return error or 1, region


@violates("XREREG-01", Device.experimental_code, written="blind")
def vendors_minus_one(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's verb returns -1 on failure."""
    code, region = plain(self).experimental_code(handle, change)
    return -1 if code else 0, region


@violates("XREREG-01", Device.experimental_code, written="blind")
def vendors_codes(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's verb returns a code of the mainline enumeration for bad access flags."""
    code, region = plain(self).experimental_code(handle, change)
    return CMD if code == errno.EINVAL else code, region


@violates("XREREG-02", name="vendor-refuses-access-without-its-flag", written="blind")
@violates("XREREG-02", Device.experimental_code)
def dialect_checks_access(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's call refuses access that is not selected."""
    if change.access and not change.flags & CHANGE_ACCESS:
        return errno.EINVAL, None
    return plain(self).experimental_code(handle, change)


@violates("XREREG-02", Device.experimental_code, written="blind")
def vendor_takes_every_domain(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's verb changes the PD whenever one is given."""
    if change.pd is not None:
        change = replace(change, flags=change.flags | CHANGE_PD)
    return plain(self).experimental_code(handle, change)


@violates("XREREG-02", Device.experimental_code, written="blind")
def vendor_takes_every_length(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's verb takes a length that is given without CHANGE_TRANSLATION."""
    code, region = plain(self).experimental_code(handle, change)
    if region and not change.flags & CHANGE_TRANSLATION and 0 < change.length < region.length:
        region.length = change.length
    return code, region


@violates("XREREG-03", Device.experimental_code)
def dialect_releases(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """A failure of the vendor's call releases the region."""
    error, region = plain(self).experimental_code(handle, change)
    if error:
        self.deregister(handle)
    return error, region


class _Hurt(Device):
    """What an error of the vendor's verb leaves in the regions that it was asked to change."""

    def setup(self) -> None:
        self._hurt: set[int] = set()

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        code, region = super().experimental_code(handle, change)
        if code:
            self._hurt.add(handle)
        return code, region


@violates("XREREG-03", written="blind")
class VendorsErrorForbidsDeregistration(_Hurt):
    """After an error of the vendor's verb ibv_dereg_mr fails."""

    def deregister(self, handle: int) -> None:
        if handle in self._hurt:
            raise Refused(errno.EINVAL)
        super().deregister(handle)


@violates("XREREG-03", written="blind")
class VendorsErrorLeaks(_Hurt):
    """After an error of the vendor's verb ibv_dereg_mr returns 0, but the region stays in the account."""

    def deregister(self, handle: int) -> None:
        region = self.regions.get(handle)
        super().deregister(handle)
        if region and handle in self._hurt:
            lost = self.new_handle()
            self.regions[lost] = replace(region, handle=lost, windows=[])


@permits("XREREG-03", Device.experimental_code, written="blind")
def vendors_error_leaves_the_region_valid(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """After an error of the vendor's verb the region works as before."""
    code, region = plain(self).experimental_code(handle, change)
    if code and handle in self.regions:
        self.regions[handle].usable = True
    return code, region


@violates("XREREG-04", Device.experimental_code)
def dialect_knows_no_reads(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's call refuses REMOTE_READ."""
    if change.flags & CHANGE_ACCESS and change.access & REMOTE_READ:
        return errno.EINVAL, None
    return plain(self).experimental_code(handle, change)


@violates("XREREG-04", Device.experimental_code, written="blind")
def vendor_takes_one_right_alone(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's verb refuses LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ together."""
    whole = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ
    if change.flags & CHANGE_ACCESS and change.access & whole == whole:
        return errno.EINVAL, None
    return plain(self).experimental_code(handle, change)


@violates("XREREG-04", Device.experimental_code, written="blind")
def vendor_forgets_remote_read(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """The vendor's verb accepts REMOTE_READ beside LOCAL_WRITE and does not grant it."""
    code, region = plain(self).experimental_code(handle, change)
    if region and change.flags & CHANGE_ACCESS and change.access & LOCAL_WRITE:
        region.access &= ~REMOTE_READ
    return code, region


@violates("XREREG-05", Device.experimental_code)
def shared_stays(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """A shared region cannot be given a new translation."""
    if change.flags & CHANGE_TRANSLATION and self.stack.reach("shared_mr"):
        return errno.EBUSY, None
    return plain(self).experimental_code(handle, change)


@violates("XREREG-06", Device.experimental_code)
def peer_memory_changed(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """A region on peer memory can be re-registered."""
    return 0, self.change(handle, change)


@violates("XREREG-06", Device.experimental_code, written="blind")
def peer_memory_reregisters(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """A region on peer memory can be re-registered."""
    try:
        return 0, self.change(handle, change)
    except Refused as refused:
        return refused.errno, None


@violates("XREREG-06", Device.experimental_code, written="blind")
def peer_memory_changes_its_rights(self: Device, handle: int, change: Change) -> tuple[int, Region | None]:
    """A region on peer memory can have its access changed, and nothing else."""
    if change.flags == CHANGE_ACCESS and handle in self.regions:
        try:
            return 0, self.change(handle, change)
        except Refused as refused:
            return refused.errno, None
    return plain(self).experimental_code(handle, change)
