"""The uverbs entry: the same verbs by the kernel's stable ABI, below library and provider.

A write() of `struct ib_uverbs_cmd_hdr` and the command's structure to the context's command fd, or the
RDMA_VERBS_IOCTL of <rdma/rdma_user_ioctl_cmds.h>; numbers and layouts are those of
<rdma/ib_user_verbs.h> and <rdma/ib_user_ioctl_cmds.h>. A result is 0 or errno, whatever codes the
manual page of the library's verb has. Not for the library (libibverbs.py).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable, Sequence

from conformance.bench.calls import IbvMr, Mr, Pd, Return, Sge
from conformance.verbs import of_method

_REG_MR, _REREG_MR, _DEREG_MR = 9, 11, 13  # enum ib_uverbs_write_cmds
_OBJECT_MR = 7  # enum uverbs_default_objects
_ADVISE_MR, _REG_DMABUF_MR = 2, 4  # enum uverbs_methods_mr
_MANDATORY = 1
_RDMA_VERBS_IOCTL = 0xC0181B01  # _IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)
_HEADER, _ATTRIBUTE = struct.Struct("=HHHHQII"), struct.Struct("=HHHH8s")


class Uverbs:
    """Calls by the kernel's ABI, on the command fd of an open context. `value` of a result is 0 or errno."""

    name = "uverbs"

    def __init__(self, cmd_fd: int, driver_id: int) -> None:
        """`driver_id` is the device's value of the kernel's enum rdma_driver_id, which ioctls contain."""
        self._fd = cmd_fd
        self._driver_id = driver_id

    @property
    def fd(self) -> int:
        """The descriptor to which commands are written."""
        return self._fd

    @property
    def driver_id(self) -> int:
        """The device's value of enum rdma_driver_id."""
        return self._driver_id

    def __getattr__(self, name: str) -> Callable[..., Return]:
        """A verb that no command of the kernel expresses."""
        of_method(name)
        return lambda *arguments: Return(errno.EOPNOTSUPP, errno.EOPNOTSUPP, layer="libibverbs")

    def _write(self, command: int, body: bytes, response: int) -> int:
        header = struct.pack("=IHH", command, (8 + len(body)) // 4, response // 4)
        try:
            os.write(self._fd, header + body)
        except OSError as error:
            return error.errno or 0
        return 0

    def _ioctl(self, method: int, attributes: Sequence[tuple[int, int, int | bytes]]) -> tuple[int, bytearray]:
        """`attributes` are (id, length, data): a handle or an address, or the value itself as bytes.

        Returns errno and the command with the attributes that the kernel has changed. EPROTONOSUPPORT if the kernel
        does not tell the driver's id, without which it takes no ioctl.
        """
        if not self._driver_id:
            return errno.EPROTONOSUPPORT, bytearray()
        length = _HEADER.size + _ATTRIBUTE.size * len(attributes)
        data = bytearray(_HEADER.pack(length, _OBJECT_MR, method, len(attributes), 0, self._driver_id, 0))
        for number, size, value in attributes:
            # The kernel reads a value from the first bytes of the field, which struct fills up with zeros.
            field = value if isinstance(value, bytes) else _u64(value)
            data += _ATTRIBUTE.pack(number, size, _MANDATORY, 0, field)
        try:
            fcntl.ioctl(self._fd, _RDMA_VERBS_IOCTL, data, True)
        except OSError as error:
            return error.errno or 0, data
        return 0, data

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        """IB_USER_VERBS_CMD_REG_MR with the address as the IOVA, as ibv_reg_mr does."""
        return self.reg_mr_iova(pd, addr, length, addr, access)

    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return:
        """IB_USER_VERBS_CMD_REG_MR. The region is in `mr` if errno is 0."""
        response = (ctypes.c_uint32 * 3)()
        body = struct.pack("=QQQQII", ctypes.addressof(response), addr, length, hca_va, pd.handle, access)
        error = self._write(_REG_MR, body, ctypes.sizeof(response))
        mr = None if error else _region(pd, addr, length, *response)
        return Return(error, error, mr)

    def reg_dmabuf_mr(self, pd: Pd, offset: int, length: int, iova: int, fd: int, access: int) -> Return:
        """UVERBS_METHOD_REG_DMABUF_MR."""
        lkey, rkey = ctypes.c_uint32(), ctypes.c_uint32()
        error, data = self._ioctl(
            _REG_DMABUF_MR,
            [
                (0, 0, 0),
                (1, 0, pd.handle),
                (2, 8, _u64(offset)),
                (3, 8, _u64(length)),
                (4, 8, _u64(iova)),
                (5, 4, _u32(fd)),
                (6, 4, _u32(access)),
                (7, 4, ctypes.addressof(lkey)),
                (8, 4, ctypes.addressof(rkey)),
            ],
        )
        if error:
            return Return(error, error)
        handle = int.from_bytes(_ATTRIBUTE.unpack_from(data, _HEADER.size)[4], sys.byteorder)
        return Return(0, 0, _region(pd, offset, length, handle, lkey.value, rkey.value))

    def dereg_mr(self, mr: Mr) -> Return:
        """IB_USER_VERBS_CMD_DEREG_MR."""
        error = self._write(_DEREG_MR, struct.pack("=I", mr.handle), 0)
        return Return(error, error)

    def rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        """IB_USER_VERBS_CMD_REREG_MR; on success the keys in the structure are updated as by the library."""
        response = (ctypes.c_uint32 * 2)()
        handle = pd.handle if pd else 0
        body = struct.pack(
            "=QIIQQQII", ctypes.addressof(response), mr.handle, flags, addr, length, addr, handle, access
        )
        error = self._write(_REREG_MR, body, ctypes.sizeof(response))
        if error == 0:
            mr.struct.lkey, mr.struct.rkey = response
        return Return(error, error)

    def advise_mr(self, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        """UVERBS_METHOD_ADVISE_MR."""
        packed = b"".join(struct.pack("=QII", sge.addr, sge.length, sge.lkey) for sge in sg_list)
        array = (ctypes.c_char * max(1, len(packed))).from_buffer_copy(packed or b"\0")
        error, _ = self._ioctl(
            _ADVISE_MR,
            [(0, 0, pd.handle), (1, 8, _u64(advice)), (2, 4, _u32(flags)), (3, len(packed), ctypes.addressof(array))],
        )
        return Return(error, error)


def _u64(value: int) -> bytes:
    return struct.pack("=Q", value % (1 << 64))


def _u32(value: int) -> bytes:
    return struct.pack("=I", value % (1 << 32))


def _region(pd: Pd, addr: int, length: int, handle: int, lkey: int, rkey: int) -> Mr:
    fields = IbvMr()
    fields.context, fields.pd, fields.addr, fields.length = pd.context_pointer, pd.pointer, addr, length
    fields.handle, fields.lkey, fields.rkey = handle, lkey, rkey
    return Mr(fields)
