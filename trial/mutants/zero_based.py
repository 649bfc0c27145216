"""ZERO_BASED, and hca_va 0: addresses that are offsets."""

from reference.device import Device
from reference.memory import PAGE
from reference.objects import ZERO_BASED, Region
from trial.violation import plain, violates


@violates("REG-11", Device.register, name="zero-based-from-the-page", written="blind")
def zero_based_is_offset_in_the_page(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """ZERO_BASED counts from the beginning of the region's first page instead of its first byte."""
    made = plain(self).register(pd, addr, length, hca_va, access)
    if access & ZERO_BASED:
        made.iova = addr % PAGE
    return made
