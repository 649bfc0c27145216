"""ibv_reg_mr_ex, buffers of ibv_alloc_buf, and what the kernel tells of a region."""

from __future__ import annotations

import errno
from dataclasses import replace

from conformance.bench.calls import Return
from conformance.bench.memory_areas import Part
from conformance.verbs import OPTIONAL_ACCESS
from reference.device import Device
from reference.extended import BUF, DMAH, FD, FD_OFFSET, IOVA, KNOWN, Attributes, Buffer
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_WRITE, Region
from trial.violation import plain, violates


@violates("EX-01", Device.register_ex)
def ex_from_the_page(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A region of ibv_reg_mr_ex begins at the beginning of the first page."""
    return plain(self).register_ex(pd, addr // PAGE * PAGE, length, hca_va, access)


@violates("EX-01", Device.ex_base)
def ex_zero_based(self: Device, asked: Attributes) -> int:
    """Without an iova the keys of ibv_reg_mr_ex address the region from 0 on."""
    return asked.iova


@violates("EX-02", Device.ex_base)
def ex_iova_ignored(self: Device, asked: Attributes) -> int:
    """The iova is ignored."""
    return asked.addr


@violates("EX-02", Device.ex_base)
def ex_iova_zero_is_none(self: Device, asked: Attributes) -> int:
    """An iova of 0 counts as none."""
    return plain(self).ex_base(asked) or asked.addr


@violates("EX-03", Device.register_dmabuf)
def ex_fd_offset_ignored(self: Device, pd: int, offset: int, length: int, iova: int, fd: int, access: int) -> Region:
    """Regions of dma-bufs begin where the dma-buf does."""
    return plain(self).register_dmabuf(pd, 0, length, iova, fd, access)


@violates("EX-03", Device.mask_fault)
def ex_no_dma_bufs(self: Device, asked: Attributes) -> int:
    """The newer call takes no dma-bufs, which the older one takes."""
    return errno.EOPNOTSUPP if asked.comp_mask & FD else plain(self).mask_fault(asked)


@violates("EX-04", Device.ex_base)
def ex_iova_without_its_bit(self: Device, asked: Attributes) -> int:
    """An iova that is not 0 counts without its bit."""
    return asked.iova or asked.addr


@violates("EX-04", Device.mask_fault)
def ex_fd_without_its_bit(self: Device, asked: Attributes) -> int:
    """A descriptor counts without its bit."""
    taken = asked.comp_mask | (FD if asked.fd >= 0 and asked.fd_offset else 0)
    return plain(self).mask_fault(replace(asked, comp_mask=taken))


@violates("EX-04", Device.mask_fault)
def ex_dmah_without_its_bit(self: Device, asked: Attributes) -> int:
    """A dma handle counts without its bit."""
    taken = asked.comp_mask | (DMAH if asked.dmah != "NULL" else 0)
    return plain(self).mask_fault(replace(asked, comp_mask=taken))


@violates("EX-05", Device.is_ambiguous)
def ex_both(self: Device, comp_mask: int) -> bool:
    """Of memory and a dma-buf that come together, the memory is registered."""
    return False


@violates("EX-05", Device.is_incomplete)
def ex_neither(self: Device, comp_mask: int) -> bool:
    """Without memory and dma-buf the address is registered that the field has."""
    return False


@violates("EX-06", Device.register_ex)
def ex_write_alone_granted(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """ibv_reg_mr_ex adds LOCAL_WRITE where a right of peers needs it."""
    added = LOCAL_WRITE if access & (REMOTE_WRITE | REMOTE_ATOMIC) else 0
    return plain(self).register_ex(pd, addr, length, hca_va, access | added)


@violates("EX-06", Device.register_ex)
def ex_optional_bits_refused(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """ibv_reg_mr_ex hands an unknown optional bit on as an unknown mandatory one."""
    unknown = 1 << 12 if access & OPTIONAL_ACCESS else 0
    return plain(self).register_ex(pd, addr, length, hca_va, access | unknown)


@violates("EX-06", Device.register_ex)
def ex_one_byte_more(self: Device, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
    """A region of ibv_reg_mr_ex is one byte longer."""
    return plain(self).register_ex(pd, addr, length + 1, hca_va, access)


@violates("EX-07", Device.reported_errno)
def ex_without_a_reason(self: Device, errno: int) -> int:
    """A registration that returns NULL leaves errno 0."""
    return 0


@violates("EX-08")
class ExUnknownBitGrants(Device):
    """A bit of the mask that is not known comes with every right."""

    def mask_fault(self, asked: Attributes) -> int:
        known = asked.comp_mask & KNOWN & ~DMAH
        return super().mask_fault(replace(asked, comp_mask=known))

    def ex_access(self, asked: Attributes) -> int:
        more = asked.comp_mask & ~KNOWN or asked.comp_mask & DMAH
        return super().ex_access(asked) | (LOCAL_WRITE | REMOTE_WRITE if more else 0)


@violates("EX-09", Device.dereg_answer)
def ex_not_deregistered(self: Device, returned: Return) -> Return:
    """A region of ibv_reg_mr_ex cannot be deregistered."""
    return (
        replace(returned, value=errno.EINVAL, errno=errno.EINVAL)
        if self.extended
        else plain(self).dereg_answer(returned)
    )


@violates("KREG-01", Device.is_ambiguous)
def kreg_both(self: Device, comp_mask: int) -> bool:
    """The kernel takes an address and a dma-buf together."""
    return False


@violates("KREG-01", Device.mask_fault)
def kreg_unknown_attribute(self: Device, asked: Attributes) -> int:
    """The kernel ignores an attribute that it does not know."""
    return plain(self).mask_fault(replace(asked, comp_mask=asked.comp_mask & KNOWN))


@violates("QMR-01", Device.query_mr)
def query_first_length(self: Device, handle: int) -> tuple[int, int, int, int]:
    """The kernel tells whole pages as the length."""
    lkey, rkey, length, iova = plain(self).query_mr(handle)
    return lkey, rkey, -(-length // PAGE) * PAGE, iova


@violates("QMR-01", Device.query_mr)
def query_without_iova(self: Device, handle: int) -> tuple[int, int, int, int]:
    """The kernel tells the address in the process as the iova."""
    lkey, rkey, length, _ = plain(self).query_mr(handle)
    return lkey, rkey, length, self.regions[handle].addr


@violates("BUF-01", Device.not_there)
def buffer_of_a_page(self: Device, addr: int, length: int, access: int) -> bool:
    """Of a buffer the device finds only the first page mapped; the process has all of it, to which the suite writes."""
    first = any(each.addr <= addr < each.addr + PAGE < addr + length for each in self.buffers.values())
    return first or plain(self).not_there(addr, length, access)


@violates("BUF-02", Device.reg_buf_mr)
def buffer_always_whole(self: Device, pd: int, buf: int, addr: int, length: int, access: int) -> Region:
    """Every region of a buffer is the whole buffer."""
    whole: Buffer = self.buffers[buf]
    return plain(self).reg_buf_mr(pd, buf, whole.addr, whole.size, access)


@violates("BUF-02", Device.reg_buf_mr)
def buffer_writable(self: Device, pd: int, buf: int, addr: int, length: int, access: int) -> Region:
    """A region of a buffer has the rights to write."""
    return plain(self).reg_buf_mr(pd, buf, addr, length, access | LOCAL_WRITE | REMOTE_WRITE)


@violates("BUF-03", Device.leaves_buffer)
def buffer_in_whole_pages(self: Device, buffer: Part, addr: int, length: int) -> bool:
    """A range may end where the last page of the buffer does, and one page later."""
    return addr < buffer.addr or addr + length > buffer.addr + buffer.size + PAGE


@violates("BUF-03", Device.leaves_buffer)
def buffer_below(self: Device, buffer: Part, addr: int, length: int) -> bool:
    """The beginning of a range is not compared."""
    return addr + length > buffer.addr + buffer.size


@violates("BUF-03", Device.reg_buf_mr)
def buffer_length_cut(self: Device, pd: int, buf: int, addr: int, length: int, access: int) -> Region:
    """Of a length with more than 32 bits the range is registered up to the end of the buffer."""
    whole: Buffer = self.buffers[buf]
    return plain(self).reg_buf_mr(pd, buf, addr, whole.addr + whole.size - addr if length >> 32 else length, access)


@violates("BUF-04", Device.is_foreign)
def buffer_of_any_domain(self: Device, buffer: Buffer, pd: int) -> bool:
    """Every protection domain may register a buffer."""
    return False


@violates("BUF-04", Device.buffer_fault)
def buffer_of_another_domain_forbidden(self: Device, pd: int, asked: Attributes) -> int:
    """For another protection domain the reason is EPERM."""
    foreign = self.is_foreign(self.buffers[asked.buf or 0], pd)
    return errno.EPERM if foreign else plain(self).buffer_fault(pd, asked)


@violates("BUF-05", Device.is_incomplete)
def buffer_without_addr(self: Device, comp_mask: int) -> bool:
    """A buffer needs no address of its own."""
    return False if comp_mask & BUF else plain(self).is_incomplete(comp_mask)


@violates("BUF-05", Device.is_ambiguous)
def buffer_beside_a_descriptor(self: Device, comp_mask: int) -> bool:
    """A descriptor that comes with a buffer is ignored."""
    return False if comp_mask & BUF and comp_mask & (FD | FD_OFFSET) else plain(self).is_ambiguous(comp_mask)


@violates("BUF-06", Device.ex_base)
def buffer_without_iova(self: Device, asked: Attributes) -> int:
    """Of a buffer the iova is granted and ignored."""
    return asked.addr if asked.comp_mask & BUF and asked.comp_mask & IOVA else plain(self).ex_base(asked)


@violates("BUF-07")
class BufferAlwaysExported(Device):
    """Every buffer is exported."""

    def export_buf_dmabuf_fd(self, buf: int) -> int:
        return self.memory.dmabuf(PAGE).fd
