"""Altered calls of registration: rights, ranges, keys, domains and hca_va."""

from __future__ import annotations

from conformance.bench.calls import Pd, Return
from conformance.bench.interface import Bench, Entry, Pair, Queue
from conformance.bench.work_requests import SendRequest
from conformance.model.case import QpSpec
from conformance.verbs import ENUMS
from trial.altering import Alteration
from trial.violation import violates

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
