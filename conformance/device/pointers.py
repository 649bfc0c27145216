"""The C structures behind pyverbs objects, which exact calls need and pyverbs mostly hides.

A pyverbs object holds its C pointer among its own fields, at an offset that depends on the version. The offset is
found by comparing the structure's contents with what pyverbs itself reports, never assumed.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from conformance.bench.calls import IbvAh, IbvMr, IbvMw, IbvPd, IbvSrq
from conformance.device.posting import IbvQp
from conformance.errors import UserError

_WORD = ctypes.sizeof(ctypes.c_void_p)
# Below it no process has anything mapped (vm.mmap_min_addr).
_LOWEST_ADDRESS = 0x10000
# Of the structures that are compared here, in bytes.
_LARGEST = max(ctypes.sizeof(struct) for struct in (IbvAh, IbvPd, IbvMr, IbvMw, IbvQp, IbvSrq))
# The beginning of struct ibv_qp_attr: four enumerations, then qkey, rq_psn, sq_psn and dest_qp_num.
_ATTRIBUTES = Struct("4i4I")


class Pointers:
    """Finds C structures behind pyverbs objects. It belongs to an open device and remembers each type's offset."""

    def __init__(self) -> None:
        self._offsets: dict[type, int] = {}

    def _offset(self, thing: Any, matches: Callable[[int], bool]) -> int:
        """Where in objects of this type the C pointer lies. Raises UserError where it is not found."""
        kind = type(thing)
        if kind not in self._offsets:
            found = [offset for offset in _candidates(thing) if matches(_read(thing, offset))]
            # An extended queue pair holds its pointer twice, since each of its two structures begins with the other.
            _only(kind, {_read(thing, offset) for offset in found})
            self._offsets[kind] = found[0]
        return self._offsets[kind]

    def _pointer(self, thing: Any, matches: Callable[[int], bool]) -> int:
        return _read(thing, self._offset(thing, matches))

    def pd(self, pd: Any) -> int:
        """struct ibv_pd * of a pyverbs PD.

        Its property `pd` is of no use: in rdma-core 56 it takes the pointer for a Python object, and reading it ends
        the process.
        """

        def matches(pointer: int) -> bool:
            return bool(IbvPd.from_address(pointer).handle == pd.handle)

        return self._pointer(pd, matches)

    def mw(self, mw: Any) -> int:
        """struct ibv_mw * of a pyverbs MW."""

        def matches(pointer: int) -> bool:
            struct = IbvMw.from_address(pointer)
            return (struct.rkey, struct.handle, struct.type) == (mw.rkey, mw.handle, mw.type)

        return self._pointer(mw, matches)

    def qp(self, qp: Any) -> int:
        """struct ibv_qp * of a pyverbs QP or QPEx."""

        def matches(pointer: int) -> bool:
            struct = IbvQp.from_address(pointer)
            return (struct.qp_num, struct.qp_type) == (qp.qp_num, qp.qp_type)

        return self._pointer(qp, matches)

    def attributes(self, attributes: Any) -> int:
        """struct ibv_qp_attr * of a pyverbs QPAttr, which holds the structure itself."""
        kind = type(attributes)
        if kind not in self._offsets:
            self._offsets[kind] = _only(kind, set(_places_of_attributes(attributes)))
        return id(attributes) + self._offsets[kind]

    def ah(self, ah: Any, pd: int) -> int:
        """struct ibv_ah * of a pyverbs AH in the PD whose struct ibv_pd * is `pd`."""

        def matches(pointer: int) -> bool:
            return bool(IbvAh.from_address(pointer).pd == pd)

        return self._pointer(ah, matches)

    def srq(self, srq: Any, pd: int) -> int:
        """struct ibv_srq * of a pyverbs SRQ in the PD whose struct ibv_pd * is `pd`."""

        def matches(pointer: int) -> bool:
            return bool(IbvSrq.from_address(pointer).pd == pd)

        return self._pointer(srq, matches)

    def learn_mr(self, mr: Any) -> None:
        """Finds the pointer in an MR that pyverbs itself registered, so that `mr` can put others there."""

        def matches(pointer: int) -> bool:
            struct = IbvMr.from_address(pointer)
            return (struct.lkey, struct.rkey, struct.length) == (mr.lkey, mr.rkey, mr.length)

        self._offset(mr, matches)

    @contextmanager
    def mr(self, pointer: int) -> Iterator[Any]:
        """A pyverbs MR around a struct ibv_mr * that exact calls made; 0 gives one around NULL.

        Only for handing it to pyverbs within the block: it owns nothing and frees nothing. LookupError before
        `learn_mr`.
        """
        from pyverbs.mr import MR

        wrapper = MR.__new__(MR)
        if not pointer:
            yield wrapper
            return
        cell = ctypes.c_uint64.from_address(id(wrapper) + self._offsets[MR])
        cell.value = pointer
        try:
            yield wrapper
        finally:
            cell.value = 0  # pyverbs would deregister the region when the wrapper goes


def _candidates(thing: Any) -> Iterator[int]:
    """Offsets of the object's own words that point to memory of this process."""
    from pyverbs.base import PyverbsCM

    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for offset in range(PyverbsCM.__basicsize__, type(thing).__basicsize__, _WORD):
            value = ctypes.c_uint64.from_address(id(thing) + offset).value
            if _LOWEST_ADDRESS <= value < 1 << 56 and value % _WORD == 0 and _is_mapped(memory, value):
                yield offset
    finally:
        os.close(memory)


def _is_mapped(memory: int, address: int) -> bool:
    """Two small numbers side by side look like a pointer, and to follow it would end the process."""
    try:
        return len(os.pread(memory, _LARGEST, address)) == _LARGEST
    except OSError:
        return False


def _only(kind: type, found: set[int]) -> int:
    """The one that was found. Raises UserError where there is none, or more."""
    if len(found) != 1:
        raise UserError(
            f"this pyverbs keeps the C structure of its {kind.__name__} where the suite does not find it",
            hint="please report the pyverbs version", status=3,
        )  # fmt: skip
    return found.pop()


def _read(thing: Any, offset: int) -> int:
    return ctypes.c_uint64.from_address(id(thing) + offset).value


def _places_of_attributes(attributes: Any) -> Iterator[int]:
    """Offsets in a pyverbs QPAttr at which there stands what it reports of its struct ibv_qp_attr."""
    enumerations = (attributes.qp_state, attributes.cur_qp_state, attributes.path_mtu, attributes.path_mig_state)
    reported = (*enumerations, attributes.qkey, attributes.rq_psn, attributes.sq_psn, attributes.dest_qp_num)
    held = ctypes.string_at(id(attributes), type(attributes).__basicsize__)
    for offset in range(object.__basicsize__, len(held) - _ATTRIBUTES.size + 1, 4):
        if _ATTRIBUTES.unpack_from(held, offset) == reported:
            yield offset
