"""Device memory, copies to and from device memory, and regions on device memory.

Each decision is a method, as in regions.py.
"""

import ctypes
import errno
from dataclasses import dataclass, field

from reference.memory import Range
from reference.objects import ZERO_BASED, Held, Region, check, refuse_if
from reference.regions import Regions

MAX_DM_SIZE = 1 << 20


@dataclass(eq=False)
class Dm(Held):
    """Device memory; in the reference, memory of this process."""

    memory: Range = field(kw_only=True)

    @property
    def pointer(self) -> int:
        return self.memory.addr


class DeviceMemories(Regions):
    def alloc_dm(self, context: int, length: int, log_align_req: int) -> Dm:
        self.has("alloc_dm")
        check(self.dm_fault(length, log_align_req))
        made = Dm(self.new_handle(), self.free_dm, memory=self.memory.allocate("anonymous", length))
        self.dms[made.handle] = made
        return made

    def dm_fault(self, length: int, log_align_req: int) -> int:
        """Returns the errno for a size or alignment that the device cannot allocate, or 0."""
        return errno.ENOMEM if length > MAX_DM_SIZE else 0

    def free_dm(self, dm: int) -> None:
        memory = self.dms[dm].memory
        regions = [each for each in self.regions.values() if memory.addr <= each.addr < memory.addr + memory.size]
        refuse_if(self.keeps_dm(regions), errno.EBUSY)
        made = self.dms.pop(dm)
        made.gone = True
        made.memory.close()

    def import_dm(self, context: int, dm_handle: int) -> Dm:
        self.has("import_dm")
        refuse_if(dm_handle not in self.dms, errno.ENOENT)
        return Dm(dm_handle, self.unimport_dm, memory=self.dms[dm_handle].memory)

    def unimport_dm(self, dm: int) -> None:
        """ibv_unimport_dm, which does not free the memory."""

    def keeps_dm(self, regions: list[Region]) -> bool:
        """Returns whether device memory with these regions cannot be freed."""
        return bool(regions)

    def leaves_dm(self, dm: Dm, dm_offset: int, length: int) -> bool:
        return dm_offset + length > dm.memory.size

    def memcpy_to_dm(self, dm: int, dm_offset: int, host_addr: int, length: int) -> None:
        refuse_if(self.leaves_dm(self.dms[dm], dm_offset, length), errno.EFAULT)
        ctypes.memmove(self.dms[dm].memory.addr + dm_offset, host_addr, length)

    def memcpy_from_dm(self, host_addr: int, dm: int, dm_offset: int, length: int) -> None:
        refuse_if(self.leaves_dm(self.dms[dm], dm_offset, length), errno.EFAULT)
        ctypes.memmove(host_addr, self.dms[dm].memory.addr + dm_offset, length)

    def reg_dm_mr(self, pd: int, dm: int, dm_offset: int, length: int, access: int) -> Region:
        domain = self.domain_of(pd)
        fault = self.dm_access_fault(access) or self.dm_range_fault(self.dms[dm], dm_offset, length)
        refuse_if(fault, errno.EINVAL)
        start = self.dm_region_place(self.dms[dm], dm_offset)
        return self.keep(Region(self.new_handle(), self.new_key(), domain, start, length, 0, access))

    def dm_access_fault(self, access: int) -> bool:
        """Returns whether these access flags are refused for device memory."""
        return not access & ZERO_BASED

    def dm_range_fault(self, dm: Dm, dm_offset: int, length: int) -> bool:
        return dm_offset + length > dm.memory.size

    def dm_region_place(self, dm: Dm, dm_offset: int) -> int:
        return dm.memory.addr + dm_offset
