"""The exact calls of both entries, answered by the reference device.

The same interface as device/libibverbs.py and device/uverbs.py. Not for the behaviour (device.py and its parts).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

from conformance.bench.calls import Mr, Pd, Return, Sge
from reference.device import Device
from reference.objects import Refused, Region
from reference.reregistration import CHANGE_PD, CHANGE_TRANSLATION, INPUT, Change


class Library:
    """The libibverbs entry."""

    name = "libibverbs"

    def __init__(self, device: Device) -> None:
        self._device = device

    def _made(self, pd: Pd, addr: int, length: int, register: Callable[[], Region]) -> Return:
        try:
            region = register()
        except Refused as refused:
            return Return(0, self._device.reported_errno(refused.errno))
        struct = self._device.structure(region, pd, addr, length)
        pointer = ctypes.addressof(struct)
        return Return(pointer, 0, Mr(struct, pointer))

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        """ibv_reg_mr."""
        device = self._device
        return self._made(pd, addr, length, lambda: device.reg_mr(pd.handle, addr, length, access))

    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return:
        """ibv_reg_mr_iova."""
        device = self._device
        return self._made(pd, addr, length, lambda: device.reg_mr_iova(pd.handle, addr, length, hca_va, access))

    def reg_dmabuf_mr(self, pd: Pd, offset: int, length: int, iova: int, fd: int, access: int) -> Return:
        """ibv_reg_dmabuf_mr."""
        device = self._device
        return self._made(
            pd, offset, length, lambda: device.register_dmabuf(pd.handle, offset, length, iova, fd, access)
        )

    def dereg_mr(self, mr: Mr) -> Return:
        """ibv_dereg_mr: 0, or the value of errno."""
        return self._device.dereg_answer(_code(lambda: self._device.deregister(mr.handle)))

    def rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        """ibv_rereg_mr: 0, or a code of enum ibv_rereg_mr_err_code."""
        change = Change(flags, pd.handle if pd else None, addr, length, access)
        code, error, region = self._device.rereg_code(mr.handle, change)
        if region:
            _update_structure(self._device, mr, region, change, pd)
        return Return(code, error, layer="libibverbs" if code == INPUT else "kernel")

    def experimental_rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        """The vendor's ibv_rereg_mr: 0, or the value of errno."""
        change = Change(flags, pd.handle if pd else None, addr, length, access)
        code, region = self._device.experimental_code(mr.handle, change)
        if region:
            _update_structure(self._device, mr, region, change, pd)
        return Return(code, max(0, code))

    def advise_mr(self, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        """ibv_advise_mr: 0, or the value of errno."""
        return _code(lambda: self._device.advise(pd.handle, advice, flags, sg_list))


class Kernel:
    """The uverbs entry. It returns 0 or errno, also where the page of the library defines other codes."""

    name = "uverbs"

    def __init__(self, device: Device) -> None:
        self._device = device

    def _made(self, pd: Pd, addr: int, length: int, register: Callable[[], Region]) -> Return:
        try:
            region = register()
        except Refused as refused:
            return Return(refused.errno, refused.errno)
        return Return(0, 0, Mr(self._device.structure(region, pd, addr, length)))

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        """REG_MR with the address as the IOVA."""
        device = self._device
        return self._made(pd, addr, length, lambda: device.reg_mr(pd.handle, addr, length, access))

    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return:
        """REG_MR."""
        device = self._device
        return self._made(pd, addr, length, lambda: device.reg_mr_iova(pd.handle, addr, length, hca_va, access))

    def reg_dmabuf_mr(self, pd: Pd, offset: int, length: int, iova: int, fd: int, access: int) -> Return:
        """REG_DMABUF_MR."""
        device = self._device
        return self._made(
            pd, offset, length, lambda: device.register_dmabuf(pd.handle, offset, length, iova, fd, access)
        )

    def dereg_mr(self, mr: Mr) -> Return:
        """DEREG_MR."""
        return self._device.dereg_answer(_code(lambda: self._device.deregister(mr.handle)))

    def rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        """REREG_MR; only the keys in the structure change, because the kernel returns nothing else."""
        change = Change(flags, pd.handle if pd else None, addr, length, access)
        try:
            region = self._device.change(mr.handle, change)
        except Refused as refused:
            return Return(refused.errno, refused.errno)
        mr.struct.lkey, mr.struct.rkey = self._device.reported_keys(region)
        return Return(0, 0)

    def advise_mr(self, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        """ADVISE_MR."""
        return _code(lambda: self._device.advise(pd.handle, advice, flags, sg_list))


def _code(call: Callable[[], object]) -> Return:
    try:
        call()
    except Refused as refused:
        return Return(refused.errno, refused.errno)
    return Return(0, 0)


def _update_structure(device: Device, mr: Mr, region: Region, change: Change, pd: Pd | None) -> None:
    """Writes into the structure what the library writes after a change."""
    if change.flags & CHANGE_TRANSLATION:
        mr.struct.addr, mr.struct.length = device.reported_range(change)
    if change.flags & CHANGE_PD and pd:
        mr.struct.pd = device.reported_pd(pd, int(mr.struct.pd or 0))
    mr.struct.lkey, mr.struct.rkey = device.reported_keys(region)
