"""Altered calls of registration: rights, ranges, keys, domains and hca_va."""

from __future__ import annotations

import errno
from contextlib import AbstractContextManager, nullcontext

from conformance.bench.calls import Pd, Return
from conformance.bench.interface import Bench, Entry, Pair, Queue
from conformance.bench.work_requests import SendRequest
from conformance.model.case import QpSpec
from conformance.verbs import ENUMS, OPTIONAL_ACCESS
from reference.objects import (
    FLUSH_GLOBAL,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
)
from trial.altering import Alteration
from trial.violation import plain, violates

_ACCESS = ENUMS["ibv_access_flags"]
_KNOWN = _ACCESS.mask_of(*_ACCESS.short_names)


def _refused(entry: Entry, code: int) -> Return:
    """A registration that an entry refuses."""
    return Return(0, code) if entry.name == "libibverbs" else Return(code, code)


class Rights(Alteration):
    """Registers with other access flags than requested."""

    def rights(self, access: int) -> int:
        """The access flags to request from the real device."""
        return access

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        return super().register(entry, verb, pd, where, self.rights(access))


@violates("REG-15", Rights.rights)
def write_alone_granted(self: Rights, access: int) -> int:
    """LOCAL_WRITE is added if REMOTE_WRITE is given without it."""
    return access | LOCAL_WRITE if access & REMOTE_WRITE else access


@violates("REG-16", Rights.rights)
def atomic_alone_granted(self: Rights, access: int) -> int:
    """LOCAL_WRITE is added if REMOTE_ATOMIC is given without it."""
    return access | LOCAL_WRITE if access & REMOTE_ATOMIC else access


@violates("REG-18", Rights.rights)
def unknown_bits_masked(self: Rights, access: int) -> int:
    """Unknown bits are masked out."""
    return access & _KNOWN


@violates("REG-18", Rights.rights)
def optional_bits_made_mandatory(self: Rights, access: int) -> int:
    """An unknown optional bit arrives as an unknown mandatory one."""
    return access | 1 << 12 if access & OPTIONAL_ACCESS & ~RELAXED_ORDERING else access


@violates("REG-04", Rights.rights)
def local_write_always(self: Rights, access: int) -> int:
    """Every region can be written locally."""
    return access | LOCAL_WRITE


@violates("REG-04", Rights.rights)
def local_write_lost(self: Rights, access: int) -> int:
    """LOCAL_WRITE is dropped if it is the only flag."""
    return 0 if access == LOCAL_WRITE else access


@violates("REG-05", Rights.rights)
def remote_write_by_local(self: Rights, access: int) -> int:
    """LOCAL_WRITE grants remote writes."""
    return access | REMOTE_WRITE if access & LOCAL_WRITE else access


@violates("REG-05", Rights.rights)
def remote_write_taken_away(self: Rights, access: int) -> int:
    """REMOTE_WRITE is dropped."""
    return access & ~REMOTE_WRITE


@violates("REG-06", Rights.rights)
def remote_read_always(self: Rights, access: int) -> int:
    """Every region can be read remotely."""
    return access | REMOTE_READ


@violates("REG-06", Rights.rights)
def remote_read_taken_away(self: Rights, access: int) -> int:
    """REMOTE_READ is dropped."""
    return access & ~REMOTE_READ


@violates("REG-07", Rights.rights)
def atomics_by_writing(self: Rights, access: int) -> int:
    """REMOTE_WRITE grants atomics."""
    return access | REMOTE_ATOMIC if access & REMOTE_WRITE and access & LOCAL_WRITE else access


@violates("REG-08", Rights.rights)
def flushes_by_writing(self: Rights, access: int) -> int:
    """REMOTE_WRITE grants flushes."""
    return access | FLUSH_GLOBAL if access & REMOTE_WRITE else access


@violates("REG-10", Rights.rights)
def binding_always(self: Rights, access: int) -> int:
    """Windows can be bound to every region."""
    return access | MW_BIND


@violates("REG-12", Rights.rights)
def on_demand_lost(self: Rights, access: int) -> int:
    """ON_DEMAND is dropped."""
    return access & ~ON_DEMAND


@violates("REG-03", Alteration.register)
def no_access_zero(self: Alteration, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
    """Access 0 is refused."""
    return plain(self).register(entry, verb, pd, where, access) if access else _refused(entry, errno.EINVAL)


@violates("REG-14", Alteration.register)
def no_relaxed_ordering(
    self: Alteration, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int
) -> Return:
    """RELAXED_ORDERING is refused."""
    if access & RELAXED_ORDERING:
        return _refused(entry, errno.EINVAL)
    return plain(self).register(entry, verb, pd, where, access)


@violates("REG-02a", Alteration.register)
def reason_lost(self: Alteration, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
    """A refused registration does not set errno."""
    returned = plain(self).register(entry, verb, pd, where, access)
    return returned if returned.mr or entry.name != "libibverbs" else Return(0, 0)


class Extent(Alteration):
    """Registers another range than requested; the structure has the requested one."""

    def extent(self, addr: int, length: int) -> tuple[int, int]:
        """The range to request from the real device."""
        return addr, length

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        addr, length = where[:2]
        if verb != "reg_mr" or not 64 <= length < 1 << 40:
            return super().register(entry, verb, pd, where, access)
        start, size = self.extent(addr, length)
        returned = super().register(entry, "reg_mr_iova", pd, (start, size, start), access)
        if returned.mr:
            returned.mr.struct.addr, returned.mr.struct.length = addr, length
        return returned


@violates("REG-20", Extent.extent)
def region_one_byte_too_long(self: Extent, addr: int, length: int) -> tuple[int, int]:
    """A region ends one byte too late, if there is memory."""
    return addr, length + 1 if (addr + length) % 4096 else length


@violates("REG-20", Extent.extent)
def region_one_byte_too_short(self: Extent, addr: int, length: int) -> tuple[int, int]:
    """A region's last byte cannot be accessed."""
    return addr, length - 1


@violates("REG-20", Extent.extent)
def region_of_whole_pages(self: Extent, addr: int, length: int) -> tuple[int, int]:
    """A region extends to the ends of its pages."""
    start = addr // 4096 * 4096
    return start, -(-(addr + length) // 4096) * 4096 - start


@violates("REG-01", Alteration.register)
def page_told(self: Alteration, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
    """The structure has the address of the region's first page."""
    returned = plain(self).register(entry, verb, pd, where, access)
    if returned.mr and returned.mr.struct.addr:
        returned.mr.struct.addr = returned.mr.struct.addr // 4096 * 4096
    return returned


@violates("REG-21")
class KeysByIndex(Alteration):
    """Only the index of an rkey is checked: the tag is corrected before the request is posted."""

    def setup(self) -> None:
        self._known: dict[int, int] = {}

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        returned = super().register(entry, verb, pd, where, access)
        if returned.mr:
            self._known[returned.mr.struct.rkey >> 8] = returned.mr.struct.rkey
        return returned

    def post_send(self, queue: Queue, request: SendRequest) -> Return:
        return super().post_send(queue, request._replace(rkey=self._known.get(request.rkey >> 8, request.rkey)))


@violates("REG-22")
class OneDomainForAll(Alteration):
    """Queue pairs of every PD can access the regions of the first PD."""

    def setup(self) -> None:
        self._first: Pd | None = None

    def register(self, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
        self._first = pd
        return super().register(entry, verb, pd, where, access)

    def pair(self, bench: Bench, spec: QpSpec, requester: Pd, responder: Pd) -> Pair:
        return super().pair(bench, spec, requester, self._first or responder)


@violates("REG-23", Alteration.locked_memory_limit)
def limit_ignored(self: Alteration, bench: Bench, size: int) -> AbstractContextManager[None]:
    """The locked-memory limit is not enforced."""
    return nullcontext()


@violates("IOVA-02", Alteration.register)
def iova_dropped(self: Alteration, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
    """hca_va is ignored."""
    if verb == "reg_mr_iova" and where[2] != 0:
        where = (*where[:2], where[0])
    return plain(self).register(entry, verb, pd, where, access)


@violates("IOVA-03", Alteration.register)
def iova_zero_dropped(self: Alteration, entry: Entry, verb: str, pd: Pd, where: tuple[int, ...], access: int) -> Return:
    """hca_va 0 counts as no hca_va, and addr is used."""
    if verb == "reg_mr_iova" and where[2] == 0:
        where = (*where[:2], where[0])
    return plain(self).register(entry, verb, pd, where, access)
