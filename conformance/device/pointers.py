"""Finds the C structures of pyverbs objects. Calls with exact arguments need the structures, but pyverbs hides most of
them. A pyverbs object contains the C pointer at an offset that depends on the version of pyverbs. This module finds the
offset by comparing the contents of the structure with the properties of the object."""

import ctypes
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from mmap import PAGESIZE
from struct import Struct
from typing import Any

from conformance.bench.calls import IbvAh, IbvMr, IbvMw, IbvPd, IbvSrq, errno_name
from conformance.device.posting import IbvQp
from conformance.errors import SetupRefused, UserError
from conformance.verbs import ENUMS

_WORD = ctypes.sizeof(ctypes.c_void_p)
# No process can map memory below this address (vm.mmap_min_addr).
_LOWEST_ADDRESS = 0x10000
# For each class of pyverbs: the C structure, and the members whose values are also properties of the object. The
# property `pd` of a PD cannot be used: in rdma-core 56, this property treats the pointer as a Python object, and the
# process crashes.
_STRUCTS: Mapping[str, tuple[type[ctypes.Structure], Sequence[str]]] = {
    "PD": (IbvPd, ["handle"]),
    "MR": (IbvMr, ["lkey", "rkey", "length"]),
    "MW": (IbvMw, ["rkey", "handle", "type"]),
    "QP": (IbvQp, ["qp_num", "qp_type"]),
    "QPEx": (IbvQp, ["qp_num", "qp_type"]),
    "AH": (IbvAh, []),
    "SRQ": (IbvSrq, []),
}
# The size of the largest structure that is compared, in bytes.
_LARGEST = max(ctypes.sizeof(struct) for struct, _ in _STRUCTS.values())
# The beginning of struct ibv_qp_attr: four enumerations, then qkey, rq_psn, sq_psn and dest_qp_num.
_ATTRIBUTES = Struct("4i4I")


class Pointers:
    """Finds the C structures of pyverbs objects of an open device, and stores the offset for each class."""

    def __init__(self) -> None:
        self._offsets: dict[type, int] = {}

    def of(self, thing: Any, **known: int) -> int:
        """Returns the C pointer of an object of a class in _STRUCTS. `known` are the values of further members of the
        structure. Raises UserError if the pointer is not found."""
        kind = type(thing)
        if kind not in self._offsets:
            struct, names = _STRUCTS[kind.__name__]
            expected = {**{name: getattr(thing, name) for name in names}, **known}
            offsets = []
            for offset in _candidates(thing):
                candidate = struct.from_address(_read(thing, offset))
                if all(getattr(candidate, name) == value for name, value in expected.items()):
                    offsets.append(offset)
            # An extended queue pair has the same pointer twice: struct ibv_qp_ex begins with struct ibv_qp.
            _only(kind, {_read(thing, offset) for offset in offsets})
            self._offsets[kind] = offsets[0]
        return _read(thing, self._offsets[kind])

    def forget_pd(self, pd: Any) -> None:
        """Sets the pointer in a pyverbs PD to NULL after the PD was deallocated without pyverbs. With the old pointer,
        pyverbs would deallocate the PD again."""
        ctypes.c_uint64.from_address(id(pd) + self._offsets[type(pd)]).value = 0

    def attributes(self, attributes: Any) -> int:
        """Returns struct ibv_qp_attr * of a pyverbs QPAttr. A QPAttr contains the structure, not a pointer."""
        kind = type(attributes)
        if kind not in self._offsets:
            self._offsets[kind] = _only(kind, set(_attribute_offsets(attributes)))
        return id(attributes) + self._offsets[kind]

    @contextmanager
    def mr(self, pointer: int, pd: Any) -> Iterator[Any]:
        """Yields a pyverbs MR with the given struct ibv_mr *, or with NULL for 0. The MR is valid only within the
        block, and does not own the region. The first call registers a region in `pd`, a pyverbs PD, to find the offset.
        Raises SetupRefused."""
        from pyverbs.mr import MR

        wrapper = MR.__new__(MR)
        if not pointer:
            yield wrapper
            return
        if MR not in self._offsets:
            self._find_mr_offset(pd)
        cell = ctypes.c_uint64.from_address(id(wrapper) + self._offsets[MR])
        cell.value = pointer
        try:
            yield wrapper
        finally:
            # so that pyverbs does not deregister the region when it frees the wrapper
            cell.value = 0

    def _find_mr_offset(self, pd: Any) -> None:
        from pyverbs.mr import MR
        from pyverbs.pyverbs_error import PyverbsRDMAError

        # one whole page of this buffer is registered
        memory = ctypes.create_string_buffer(4 * PAGESIZE)
        addr = (ctypes.addressof(memory) // PAGESIZE + 2) * PAGESIZE
        try:
            mr = MR(pd, PAGESIZE, ENUMS["ibv_access_flags"].value_of("LOCAL_WRITE"), address=addr)
        except PyverbsRDMAError as error:
            raise SetupRefused(
                "registering a page through the bindings",
                errno_name(error.error_code),
            ) from error
        try:
            self.of(mr)
        finally:
            with suppress(PyverbsRDMAError):  # the cases detect a failed release
                mr.close()


def _candidates(thing: Any) -> Iterator[int]:
    """Yields the offsets of words in the object that point to mapped memory of this process."""
    from pyverbs.base import PyverbsCM

    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for offset in range(PyverbsCM.__basicsize__, type(thing).__basicsize__, _WORD):
            value = ctypes.c_uint64.from_address(id(thing) + offset).value
            if (
                _LOWEST_ADDRESS <= value < 1 << 56
                and value % _WORD == 0
                and _is_structure(memory, value)
            ):
                yield offset
    finally:
        os.close(memory)


def _is_structure(memory: int, address: int) -> bool:
    """Whether `address` is mapped and its first word points to mapped memory. Every structure begins with a pointer to
    its struct ibv_context; a Python object begins with a reference count, and its second word can look like the handle
    of a PD on a big-endian machine."""
    content = _mapped(memory, address, _LARGEST)
    if len(content) < _LARGEST:
        return False
    context = int.from_bytes(content[:_WORD], sys.byteorder)
    return context >= _LOWEST_ADDRESS and len(_mapped(memory, context, _WORD)) == _WORD


def _mapped(memory: int, address: int, size: int) -> bytes:
    """Returns up to `size` bytes at an address, none if it is not mapped. Two adjacent small numbers can look like a
    pointer, and a direct read from an unmapped address would crash this process."""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""


def _only(kind: type, offsets: set[int]) -> int:
    """Returns the only element of `offsets`. Raises UserError if `offsets` has no element or several elements."""
    if len(offsets) != 1:
        message = f"the C structure of a {kind.__name__} of this pyverbs was not found"
        raise UserError(message, hint="please report the pyverbs version", status=3)
    return offsets.pop()


def _read(thing: Any, offset: int) -> int:
    return ctypes.c_uint64.from_address(id(thing) + offset).value


def _attribute_offsets(attributes: Any) -> Iterator[int]:
    """Yields the offsets in a pyverbs QPAttr at which a struct ibv_qp_attr has the QPAttr's properties."""
    enumerations = (
        attributes.qp_state,
        attributes.cur_qp_state,
        attributes.path_mtu,
        attributes.path_mig_state,
    )
    reported = (
        *enumerations,
        attributes.qkey,
        attributes.rq_psn,
        attributes.sq_psn,
        attributes.dest_qp_num,
    )
    contents = ctypes.string_at(id(attributes), type(attributes).__basicsize__)
    for offset in range(object.__basicsize__, len(contents) - _ATTRIBUTES.size + 1, 4):
        if _ATTRIBUTES.unpack_from(contents, offset) == reported:
            yield offset
