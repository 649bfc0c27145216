"""Executes ibv_reg_mr_ex of ibv_reg_mr(3), and the verbs of dma handles and of buffers (ibv_alloc_buf(3))."""

import errno
import os
from dataclasses import dataclass
from typing import Any

from conformance.bench.calls import MrInitAttr
from conformance.bench.memory_areas import Part
from conformance.verbs import ENUMS
from trial.reference.memory import PAGE, Range
from trial.reference.objects import Held, Region, check, refuse_if
from trial.reference.regions import Regions

_MASK = ENUMS["ibv_mr_init_attr_mask"]
IOVA, ADDR, FD, FD_OFFSET, DMAH, BUF = (_MASK.value_of(name) for name in _MASK.short_names)
MEM_TYPE = ENUMS["ibv_dmah_init_attr_mask"].value_of("TPH_MEM_TYPE")
KNOWN = _MASK.mask_of(*_MASK.short_names)


@dataclass
class Buffer:
    """A buffer: its handle, its memory, and the PD for which it was allocated. `fd` is the descriptor of its dma-buf,
    or -1."""

    handle: int
    memory: Range
    pd: int
    size: int

    @property
    def fd(self) -> int:
        return self.memory.fd

    @property
    def addr(self) -> int:
        """The address of the buffer. A buffer without a dma-buf has other memory on both sides, as with malloc."""
        return self.memory.addr + (PAGE if self.fd < 0 else 0)


class Extended(Regions):
    extended = False  # whether ibv_reg_mr_ex has been called with valid fields

    def reg_mr_ex(self, pd: int, *fields: Any) -> Region:
        """Executes ibv_reg_mr_ex. `fields` are the fields of MrInitAttr. Raises Refused."""
        attributes = MrInitAttr(*fields)
        mask, access = attributes.comp_mask, attributes.access
        check(
            self.mask_fault(attributes) or (self.buffer_fault(pd, attributes) if mask & BUF else 0)
        )
        self.extended = True
        if mask & BUF:
            of = self.buffers[attributes.buf or 0]
        else:
            of = None
        if of and of.fd >= 0:
            region = self.reg_dmabuf_mr(
                pd,
                self.offset_in(of, attributes.addr),
                attributes.length,
                attributes.addr,
                of.fd,
                access,
            )
        elif mask & FD and not mask & ADDR:
            region = self.reg_dmabuf_mr(
                pd,
                attributes.fd_offset,
                attributes.length,
                attributes.iova,
                attributes.fd,
                access,
            )
        else:
            region = self.register_ex(
                pd,
                attributes.addr,
                attributes.length,
                self.ex_base(attributes),
                self.ex_access(attributes),
            )
        if mask & DMAH:
            self.steered[region] = attributes.dmah
        return region

    def ex_access(self, asked: MrInitAttr) -> int:
        return asked.access

    def mask_fault(self, asked: MrInitAttr) -> int:
        """Returns the errno for a mask that does not describe a region, or 0."""
        if asked.comp_mask & ~KNOWN or (asked.comp_mask & DMAH and asked.dmah not in self.dmahs):
            return errno.EOPNOTSUPP
        if self.is_ambiguous(asked.comp_mask) or self.is_incomplete(asked.comp_mask):
            return errno.EINVAL
        return 0

    def is_ambiguous(self, comp_mask: int) -> bool:
        """Returns whether the mask selects both memory and a dma-buf."""
        return bool(comp_mask & (ADDR | BUF)) and bool(comp_mask & (FD | FD_OFFSET))

    def is_incomplete(self, comp_mask: int) -> bool:
        """Returns whether the mask selects neither memory nor all fields of a dma-buf."""
        return not comp_mask & ADDR and comp_mask & (FD | FD_OFFSET | IOVA) != FD | FD_OFFSET | IOVA

    def ex_base(self, asked: MrInitAttr) -> int:
        """Returns the address by which requests name the first byte: the iova if the mask selects it, else addr."""
        if asked.comp_mask & IOVA:
            return asked.iova
        return asked.addr

    def register_ex(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        """Registers memory as ibv_reg_mr_iova does. Raises Refused."""
        return self.register(pd, addr, length, hca_va, access)

    # Dma handles

    def alloc_dmah(
        self,
        context: int,
        comp_mask: int,
        cpu_id: int,
        ph: int,
        tph_mem_type: int,
    ) -> Held:
        self.has("dmah")
        refuse_if(comp_mask & MEM_TYPE and self.is_no_memory_type(tph_mem_type), errno.EINVAL)
        held = Held(self.new_handle(), self.dealloc_dmah)
        self.dmahs[held.handle] = held
        return held

    def is_no_memory_type(self, tph_mem_type: int) -> bool:
        """Returns whether a number is not a value of enum ibv_tph_mem_type."""
        return tph_mem_type > 1

    def dealloc_dmah(self, dmah: int) -> None:
        refuse_if(self.keeps_dmah(dmah), errno.EBUSY)
        self.dmahs.pop(dmah).gone = True

    def keeps_dmah(self, dmah: int) -> bool:
        """Returns whether a dma handle cannot be deallocated because a region uses it."""
        return any(self.steered.get(region) == dmah for region in self.regions.values())

    # Buffers

    def alloc_buf(self, pd: int, size: int) -> Buffer:
        self.domain_of(pd)
        refuse_if(size > 1 << 47, errno.ENOMEM)
        shared = pd in self.unprotected and self.stack.has("dmabuf_buffers")
        if shared:
            memory = self.memory.dmabuf(size)
        else:
            memory = self.memory.allocate("anonymous", size + 2 * PAGE)
        buffer = Buffer(self.new_handle(), memory, pd, size)
        self.buffers[buffer.handle] = buffer
        return buffer

    def free_buf(self, handle: int) -> None:
        self.buffers.pop(handle).memory.close()

    def reg_buf_mr(self, pd: int, buf: int, addr: int, length: int, access: int) -> Region:
        return self.reg_mr_ex(pd, length, access, BUF | ADDR, 0, addr, -1, 0, "NULL", buf)

    def buffer_fault(self, pd: int, asked: MrInitAttr) -> int:
        """Returns the errno for a range outside of the buffer, a different PD, or an iova of a dma-buf; else 0."""
        buffer = self.buffers[asked.buf or 0]
        if buffer.fd >= 0 and self.is_moved(asked):
            return errno.EINVAL
        if self.is_foreign(buffer, pd) or self.leaves_buffer(
            Part(buffer.addr, buffer.size),
            asked.addr,
            asked.length,
        ):
            return errno.EINVAL
        return 0

    def is_moved(self, asked: MrInitAttr) -> bool:
        """Returns whether an iova is selected. A region of a buffer with a dma-buf cannot have an iova."""
        return bool(asked.comp_mask & IOVA)

    def offset_in(self, buffer: Buffer, addr: int) -> int:
        """Returns the offset in the buffer's dma-buf of the region that begins at `addr`."""
        return addr - buffer.addr

    def is_foreign(self, buffer: Buffer, pd: int) -> bool:
        return buffer.pd != pd

    def leaves_buffer(self, buffer: Part, addr: int, length: int) -> bool:
        return addr < buffer.addr or addr + length > buffer.addr + buffer.size

    def export_buf_dmabuf_fd(self, buf: int) -> int:
        refuse_if(self.buffers[buf].fd < 0, errno.ENODATA)
        return self.exported(self.buffers[buf])

    def exported(self, buffer: Buffer) -> int:
        return os.dup(buffer.fd)
