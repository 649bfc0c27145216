"""ibv_reg_mr_ex, buffers of ibv_alloc_buf, and what the kernel tells of a region."""

from __future__ import annotations

from dataclasses import replace

from reference.device import Device
from reference.extended import DMAH, KNOWN, Attributes
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, REMOTE_WRITE
from trial.violation import violates


@violates("EX-08")
class ExUnknownBitGrants(Device):
    """A bit of the mask that is not known comes with every right."""

    def mask_fault(self, asked: Attributes) -> int:
        known = asked.comp_mask & KNOWN & ~DMAH
        return super().mask_fault(replace(asked, comp_mask=known))

    def ex_access(self, asked: Attributes) -> int:
        more = asked.comp_mask & ~KNOWN or asked.comp_mask & DMAH
        return super().ex_access(asked) | (LOCAL_WRITE | REMOTE_WRITE if more else 0)


@violates("BUF-07")
class BufferAlwaysExported(Device):
    """Every buffer is exported."""

    def export_buf_dmabuf_fd(self, buf: int) -> int:
        return self.memory.dmabuf(PAGE).fd
