"""Registration: what a region is, what a refusal leaves behind, and access 0."""

import errno

from reference.device import Device
from reference.extended import BUF, Attributes
from reference.objects import Refused, Region
from trial.violation import permits, plain, violates


@violates("REG-02", Device.register)
def refused_and_kept(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A registration that is refused because of its memory stays registered."""
    try:
        return plain(self).register(pd, addr, length, hca_va, access)
    except Refused:
        self.keep(Region(self.new_handle(), self.new_key(), self.domain_of(pd), addr, length, addr, access))
        raise


@violates("REG-02", Device.register)
def kept_without_memory(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A registration for which an allocation fails stays registered."""
    try:
        return plain(self).register(pd, addr, length, hca_va, access)
    except Refused as refused:
        if refused.errno == errno.ENOMEM and self.allocations_left == 0:
            self.keep(Region(self.new_handle(), self.new_key(), self.domain_of(pd), addr, length, addr, access))
        raise


@permits("REG-02")
class OtherErrnos(Device):
    """Every refusal of a registration has another errno, but for those of buffers, whose page says EINVAL."""

    _named = False  # whether the page names the errno

    def buffer_fault(self, pd: int, asked: Attributes) -> int:
        fault = super().buffer_fault(pd, asked)
        self._named = bool(fault)
        return fault

    def mask_fault(self, asked: Attributes) -> int:
        fault = super().mask_fault(asked)
        self._named = bool(fault and asked.comp_mask & BUF)
        return fault

    def reported_errno(self, errno: int) -> int:
        named, self._named = self._named, False
        return errno if named else errno + 1
