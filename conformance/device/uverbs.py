"""Calls the verbs as commands of the kernel's stable ABI, without libibverbs and provider (the entry `uverbs`).

A call is a write() of `struct ib_uverbs_cmd_hdr` and the command's structure to the context's command fd, or the
RDMA_VERBS_IOCTL of <rdma/rdma_user_ioctl_cmds.h>. <rdma/ib_user_verbs.h> and <rdma/ib_user_ioctl_cmds.h> define the
numbers and layouts. A result is 0 or errno, even for a verb whose manual page documents different codes.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, Union

from conformance.bench.calls import IbvMr, Mr, MrInitAttr, Pd, QueriedMr, Return, Sge
from conformance.verbs import ENUMS, of_method

# The commands of enum ib_uverbs_write_cmds: the number, the layout, and the number of words of the response. If a
# command has a response, the command's first field is the address of the response.
_COMMANDS = {
    "GET_CONTEXT": (0, "Q", 16),  # two words, and room for those of a driver
    "ALLOC_PD": (3, "Q", 1),
    "DEALLOC_PD": (4, "I", 0),
    "REG_MR": (9, "QQQQII", 3),  # address, length, IOVA, PD, access
    "REREG_MR": (11, "QIIQQQII", 2),  # region, flags, address, length, IOVA, PD, access
    "DEREG_MR": (13, "I", 0),
    "ALLOC_MW": (14, "QIB3x", 2),  # PD, type
    "DEALLOC_MW": (16, "I", 0),
    "DESTROY_QP": (27, "QI4x", 1),
}
# For each type of object, the commands that create, change and destroy it.
_LIVES = (
    ("REG_MR", "REREG_MR", "DEREG_MR"),
    ("ALLOC_MW", "DEALLOC_MW"),
    ("ALLOC_PD", "DEALLOC_PD"),
)
# a value of enum ib_uverbs_ex_write_cmds, with the bit of an extended command
_EX_QUERY_DEVICE = 0x80000001
_OBJECT_MR = 7  # enum uverbs_default_objects
_ADVISE_MR, _QUERY_MR, _REG_DMABUF_MR, _METHOD_REG_MR = 2, 3, 4, 5  # enum uverbs_methods_mr
_UNKNOWN = 0x3FF  # an attribute id that no method has
_FLAGS = ENUMS["ibv_rereg_mr_flags"]
_CHANGE_PD, _CHANGE_ACCESS = _FLAGS.value_of("CHANGE_PD"), _FLAGS.value_of("CHANGE_ACCESS")
_MASK = ENUMS["ibv_mr_init_attr_mask"]
ADDR, IOVA, FD, FD_OFFSET = (_MASK.value_of(name) for name in ("ADDR", "IOVA", "FD", "FD_OFFSET"))
_KNOWN = _MASK.mask_of("ADDR", "IOVA", "FD", "FD_OFFSET")
_MANDATORY = 1
_RDMA_VERBS_IOCTL = 0xC0181B01  # _IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)
_HEADER, _ATTRIBUTE = struct.Struct("=HHHHQII"), struct.Struct("=HHHH8s")


# (id, length, data). The data are a handle, an address, or a value as bytes.
_Attribute = tuple[int, int, Union[int, bytes]]


class Uverbs:
    """The entry `uverbs`, on the command fd of an open context. `value` of a result is 0 or errno."""

    name = "uverbs"

    def __init__(self, cmd_fd: int, driver_id: int) -> None:
        """`driver_id` is the driver's value of the kernel's enum rdma_driver_id. Each ioctl contains this value."""
        self.fd, self.driver_id = cmd_fd, driver_id

    def __getattr__(self, name: str) -> Callable[..., Return]:
        """Returns a function that reports that the kernel has no command for the verb."""
        of_method(name)
        return lambda *arguments: Return(errno.EOPNOTSUPP, errno.EOPNOTSUPP, layer="libibverbs")

    def offers(self, verb: str) -> bool:
        """Whether the kernel's ABI has a command for a verb. For reg_mr_ex, whether this host's kernel has it."""
        if verb == "reg_mr_ex":  # a kernel without the method returns EPROTONOSUPPORT
            return self._ioctl(_METHOD_REG_MR, [])[0] != errno.EPROTONOSUPPORT
        return verb in vars(type(self))

    def command(self, name: str, *fields: int) -> tuple[int, list[int]]:
        """Calls one of _COMMANDS. Returns errno and the response."""
        number, layout, words = _COMMANDS[name]
        response = (ctypes.c_uint32 * words)()
        body = struct.pack(
            f"={layout}",
            *((ctypes.addressof(response), *fields) if words else fields),
        )
        header = struct.pack("=IHH", number, (8 + len(body)) // 4, words)
        try:
            os.write(self.fd, header + body)
        except OSError as error:
            return error.errno or 0, list(response)
        return 0, list(response)

    def _ioctl(self, method: int, attributes: Sequence[_Attribute]) -> tuple[int, bytearray]:
        """Returns errno and the ioctl's data, into which the kernel has written the results. errno is EPROTONOSUPPORT
        if the kernel does not report the driver's id, which each ioctl must contain."""
        if not self.driver_id:
            return errno.EPROTONOSUPPORT, bytearray()
        length = _HEADER.size + _ATTRIBUTE.size * len(attributes)
        data = bytearray(
            _HEADER.pack(length, _OBJECT_MR, method, len(attributes), 0, self.driver_id, 0),
        )
        for number, size, value in attributes:
            # The value is in the first bytes of the field. The module `struct` fills the other bytes with zeros.
            if isinstance(value, bytes):
                field = value
            else:
                field = _u64(value)
            data += _ATTRIBUTE.pack(number, size, _MANDATORY, 0, field)
        try:
            fcntl.ioctl(self.fd, _RDMA_VERBS_IOCTL, data, True)
        except OSError as error:
            return error.errno or 0, data
        return 0, data

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        """Calls IB_USER_VERBS_CMD_REG_MR with the address as the IOVA, like ibv_reg_mr."""
        return self.reg_mr_iova(pd, addr, length, addr, access)

    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return:
        """Calls IB_USER_VERBS_CMD_REG_MR. If errno is 0, `mr` is the region."""
        error, response = self.command("REG_MR", addr, length, hca_va, pd.handle, access)
        return Return(error, error, None if error else _region(pd, addr, length, *response))

    def reg_dmabuf_mr(
        self,
        pd: Pd,
        offset: int,
        length: int,
        iova: int,
        fd: int,
        access: int,
    ) -> Return:
        numbers = (
            (2, 8, _u64(offset)),
            (3, 8, _u64(length)),
            (4, 8, _u64(iova)),
            (5, 4, _u32(fd)),
            (6, 4, _u32(access)),
        )
        attributes: list[_Attribute] = [(0, 0, 0), (1, 0, pd.handle), *numbers]
        return self._register(_REG_DMABUF_MR, attributes, 7, pd, offset, length)

    def _register(
        self,
        method: int,
        attributes: Sequence[_Attribute],
        at_keys: int,
        pd: Pd,
        addr: int,
        length: int,
    ) -> Return:
        """Registers memory by an ioctl. The attributes `at_keys` and `at_keys` + 1 are the addresses of the keys."""
        keys = (ctypes.c_uint32 * 2)()
        first = ctypes.addressof(keys)
        addresses = ((at_keys, 4, first), (at_keys + 1, 4, first + 4))
        error, data = self._ioctl(method, [*attributes, *addresses])
        if error:
            return Return(error, error)
        return Return(0, 0, _region(pd, addr, length, _handle(data), *keys))

    def reg_mr_ex(self, pd: Pd, *arguments: Any) -> Return:
        """Calls UVERBS_METHOD_REG_MR with the fields of MrInitAttr. The bits ADDR, FD and FD_OFFSET of the mask become
        optional attributes; unknown bits become one attribute that the kernel does not have."""
        attr = MrInitAttr(*arguments)
        mask, base = attr.comp_mask, attr.iova if attr.comp_mask & IOVA else attr.addr
        numbers = (3, 8, _u64(base)), (5, 8, _u64(attr.length)), (6, 4, _u32(attr.access))
        attributes: list[_Attribute] = [(0, 0, 0), (1, 0, pd.handle), *numbers]
        optional: dict[int, _Attribute] = {
            ADDR: (4, 8, _u64(attr.addr)),
            FD: (7, 0, attr.fd % (1 << 32)),
            FD_OFFSET: (8, 8, _u64(attr.fd_offset)),
        }
        attributes += [attribute for bit, attribute in optional.items() if mask & bit]
        if mask & ~_KNOWN:
            attributes.append((_UNKNOWN, 8, _u64(0)))
        start = attr.addr
        if mask & FD:
            start = attr.fd_offset
        return self._register(_METHOD_REG_MR, attributes, 9, pd, start, attr.length)

    def query_mr(self, mr: Mr) -> Return:
        types = (ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64)
        fields: list[Any] = [type_() for type_ in types]
        attributes = [
            (number, ctypes.sizeof(field), ctypes.addressof(field))
            for number, field in enumerate(fields, 1)
        ]
        error, _ = self._ioctl(_QUERY_MR, [(0, 0, mr.handle), *attributes])
        if error:
            return Return(error, error)
        return Return(0, 0, queried=QueriedMr(*(field.value for field in fields)))

    def dereg_mr(self, mr: Mr) -> Return:
        error, _ = self.command("DEREG_MR", mr.handle)
        return Return(error, error)

    def forged(self, command: str, handle: int, mr: Mr) -> Return:
        """Calls a command with `handle` instead of the handle of the PD or of the object to release. REG_MR registers
        the memory of the region `mr` again, and REREG_MR changes the region `mr`. REREG_MR_REGION is REREG_MR with
        `handle` instead of the region's."""
        error, _ = self._by_handle(command, handle, mr.handle, mr.struct.addr)
        return Return(error, error)

    def by_right_handle(self, command: str, pd: int, mr: Mr) -> Return:
        """Creates, changes and destroys an object of the command's type with valid handles. Returns the first errno."""
        command = command.removesuffix("_REGION")
        make, *then = next(life for life in _LIVES if command in life)
        error, region = self._by_handle(make, pd, 0, mr.struct.addr)
        if error:
            return Return(error, error)
        for next_command in then:
            handle = pd if next_command == "REREG_MR" else region
            failed, _ = self._by_handle(next_command, handle, region, mr.struct.addr)
            error = error or failed
        return Return(error, error)

    def _by_handle(self, command: str, handle: int, region: int, addr: int) -> tuple[int, int]:
        """Calls a command. Returns errno and the handle of the new object, or 0 if there is no new object."""
        fields = {
            "ALLOC_PD": (),
            "REG_MR": (addr, 1, addr, handle, 0),
            "ALLOC_MW": (handle, 1),
            "REREG_MR": (region, _CHANGE_PD, 0, 0, 0, handle, 0),
            "REREG_MR_REGION": (handle, _CHANGE_ACCESS, 0, 0, 0, 0, 0),
        }.get(command, (handle,))
        error, response = self.command(command.removesuffix("_REGION"), *fields)
        return error, response[0] if response else 0

    def rereg_mr(
        self,
        mr: Mr,
        flags: int,
        pd: Pd | None,
        addr: int,
        length: int,
        access: int,
    ) -> Return:
        """Calls IB_USER_VERBS_CMD_REREG_MR. After a success, updates the keys in struct ibv_mr, like the library."""
        handle = pd.handle if pd else 0
        fields = (mr.handle, flags, addr, length, addr, handle, access)
        error, keys = self.command("REREG_MR", *fields)
        if error == 0:
            mr.struct.lkey, mr.struct.rkey = keys
        return Return(error, error)

    def advise_mr(self, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        packed = b"".join(struct.pack("=QII", sge.addr, sge.length, sge.lkey) for sge in sg_list)
        array = (ctypes.c_char * max(1, len(packed))).from_buffer_copy(packed or b"\0")
        attributes: list[_Attribute] = [
            (0, 0, pd.handle),
            (1, 8, _u64(advice)),
            (2, 4, _u32(flags)),
            (3, len(packed), ctypes.addressof(array)),
        ]
        error, _ = self._ioctl(_ADVISE_MR, attributes)
        return Return(error, error)


def _handle(data: bytearray) -> int:
    """Returns the handle of a new object. The kernel writes the handle into the first attribute."""
    return int.from_bytes(_ATTRIBUTE.unpack_from(data, _HEADER.size)[4], sys.byteorder)


def _u64(value: int) -> bytes:
    return struct.pack("=Q", value % (1 << 64))


def _u32(value: int) -> bytes:
    return struct.pack("=I", value % (1 << 32))


def _region(pd: Pd, addr: int, length: int, handle: int, lkey: int, rkey: int) -> Mr:
    return Mr(IbvMr(pd.context_pointer, pd.pointer, addr, length, handle, lkey, rkey))


def xrc_odp_caps(cmd_fd: int) -> int:
    """Returns the member `xrc_odp_caps` of struct ib_uverbs_ex_query_device_resp, or 0 if the query fails. pyverbs does
    not provide this member."""
    response = ctypes.create_string_buffer(304)
    header = struct.pack(
        "=IHHQHHI",
        _EX_QUERY_DEVICE,
        1,
        len(response) // 8,
        ctypes.addressof(response),
        0,
        0,
        0,
    )
    try:
        os.write(cmd_fd, header + bytes(8))
    except OSError:
        return 0
    return int(struct.unpack_from("=I", response, 296)[0])
