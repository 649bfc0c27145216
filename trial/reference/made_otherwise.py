"""Executes the verbs of null regions, imported regions and domains, parent and thread domains, and device memory. A
verb that the provider or the library does not have is refused."""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import dataclass, field, replace

from conformance.verbs import ENUMS
from trial.reference.memory import SPACE, Range
from trial.reference.objects import (
    LOCAL_WRITE,
    ZERO_BASED,
    Domain,
    Held,
    Refused,
    Region,
    check,
    refuse_if,
)
from trial.reference.reregistration import Reregistration
from trial.reference.work import Work

UNPROTECTED = ENUMS["ibv_parent_domain_init_attr_mask"].value_of("ALLOW_CC_UNPROTECTED_ALLOC")
MAX_DM_SIZE = 1 << 20


@dataclass(eq=False)
class Dm(Held):
    """Device memory. In the reference, this is memory of the process."""

    memory: Range = field(default_factory=lambda: Range(0, 0, lambda: None))

    @property
    def pointer(self) -> int:
        return self.memory.addr


class MadeOtherwise(Work, Reregistration):
    """The verbs that create a region without registering memory of the process, or a PD without ibv_alloc_pd."""

    nulls: tuple[Region, ...] = ()
    null_length = SPACE - 1
    null_access = LOCAL_WRITE  # without rights of peers or windows
    # the bytes that the latest operation reads from a null region
    _source = ctypes.create_string_buffer(0)

    # Null regions

    def alloc_null_mr(self, pd: int) -> Region:
        self.has("alloc_null_mr")
        domain = self.domain_of(pd)
        region = Region(
            self.new_handle(),
            self.new_key(),
            domain,
            0,
            self.null_length,
            0,
            self.null_access,
        )
        self.nulls += (region,)
        return self.keep(region)

    def is_null(self, region: object) -> bool:
        return any(region is null for null in self.nulls)

    def null_content(self, length: int) -> bytes:
        return bytes(length)

    def place(self, region: Region, addr: int, length: int) -> int | None:
        """Returns an address as in Access. For a null region, returns the address of a copy of its bytes."""
        position = super().place(region, addr, length)
        if position is None or not self.is_null(region):
            return position
        self._source = ctypes.create_string_buffer(self.null_content(length), max(length, 1))
        return ctypes.addressof(self._source)

    def held(self, region: Region) -> bool:
        """Returns whether a region cannot be changed."""
        return self.is_null(region) or super().held(region)

    # Imports

    def import_mr(self, pd: int, mr_handle: int) -> Region:
        self.has("import_mr")
        refuse_if(mr_handle not in self.regions, errno.ENOENT)
        return self.regions[mr_handle]

    def dereg_import(self, mr_handle: int, elsewhere: bool) -> None:
        """Executes ibv_dereg_mr of an imported region: in another process if `elsewhere`. Raises Refused."""
        self.dereg_mr(mr_handle)

    def imported_addr(self, region: Region) -> int:
        return 0

    def import_pd(self, context: int, pd_handle: int) -> Domain:
        self.has("import_pd")
        return self.standing_for(self.domain_of(pd_handle))

    # Parent domains

    def alloc_parent_domain(
        self,
        context: int,
        pd: int | None,
        td: int | None,
        comp_mask: int,
    ) -> Domain:
        self.has("alloc_parent_domain")
        domain = self.standing_for(self.parent_of(pd))
        if comp_mask & UNPROTECTED:
            self.unprotected.add(domain.handle)
        return domain

    def parent_of(self, pd: int | None) -> Domain:
        """Returns the PD from which a parent domain is created. Raises Refused."""
        if pd is None:
            raise Refused(errno.EINVAL)
        return self.domain_of(pd)

    def alloc_td(self, context: int) -> Held:
        self.has("alloc_td")
        held = Held(self.new_handle(), self.dealloc_td)
        self.tds[held.handle] = held
        return held

    def dealloc_td(self, td: int) -> None:
        self.tds.pop(td).gone = True

    def standing_for(self, domain: Domain) -> Domain:
        """Returns a PD with a new handle. Every verb uses `domain` in place of this PD."""
        domain_here = Domain(self.new_handle(), self.context, self.forget_standing)
        self.domains[domain_here.handle] = domain
        return domain_here

    def forget_standing(self, domain: Domain) -> None:
        del self.domains[domain.handle]

    # Device memory

    def alloc_dm(self, context: int, length: int, log_align_req: int) -> Dm:
        self.has("alloc_dm")
        check(self.dm_fault(length, log_align_req))
        buffer = self.memory.dmabuf(length)
        dm = Dm(self.new_handle(), self.free_dm, memory=replace(buffer, size=length))
        self.dms[dm.handle] = dm
        return dm

    def dm_export_dmabuf_fd(self, dm: int) -> int:
        return os.dup(self.dms[dm].memory.fd)

    def dm_fault(self, length: int, log_align_req: int) -> int:
        """Returns the errno for a size or alignment that the device cannot allocate, or 0."""
        if length > MAX_DM_SIZE:
            return errno.ENOMEM
        return 0

    def free_dm(self, dm: int) -> None:
        memory = self.dms[dm].memory
        regions = [
            region
            for region in self.regions.values()
            if memory.addr <= region.addr < memory.addr + memory.size
        ]
        refuse_if(self.keeps_dm(regions), errno.EBUSY)
        dm_here = self.dms.pop(dm)
        dm_here.gone = True
        dm_here.memory.close()

    def import_dm(self, context: int, dm_handle: int) -> Dm:
        self.has("import_dm")
        refuse_if(dm_handle not in self.dms, errno.ENOENT)
        return Dm(dm_handle, self.unimport_dm, memory=self.dms[dm_handle].memory)

    def unimport_dm(self, dm: int) -> None:
        """Executes ibv_unimport_dm, which does not free the memory."""

    def keeps_dm(self, regions: list[Region]) -> bool:
        """Returns whether device memory cannot be freed because of these regions."""
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
        return self.keep(
            Region(self.new_handle(), self.new_key(), domain, start, length, 0, access),
        )

    def dm_access_fault(self, access: int) -> bool:
        return not access & ZERO_BASED

    def dm_range_fault(self, dm: Dm, dm_offset: int, length: int) -> bool:
        return dm_offset + length > dm.memory.size

    def dm_region_place(self, dm: Dm, dm_offset: int) -> int:
        return dm.memory.addr + dm_offset
