"""Has the classes and functions that the alterations of this folder use."""

from conformance.bench.calls import Pd, Return
from conformance.bench.interface import Entry
from conformance.verbs import ENUMS
from trial.altering import Alteration

_ACCESS = ENUMS["ibv_access_flags"]
KNOWN = _ACCESS.mask_of(*_ACCESS.short_names)


def refused(entry: Entry, code: int) -> Return:
    """Returns the result of a registration that an entry refuses."""
    if entry.name == "libibverbs":
        return Return(0, code)
    return Return(code, code)


class Extent(Alteration):
    """Registers a different range than requested; the structure reports the requested range."""

    def extent(self, addr: int, length: int) -> tuple[int, int]:
        """Returns the range to request from the real device."""
        return addr, length

    def register(
        self,
        entry: Entry,
        verb: str,
        pd: Pd,
        where: tuple[int, ...],
        access: int,
    ) -> Return:
        addr, length = where[:2]
        if verb != "reg_mr" or not 64 <= length < 1 << 40:
            return super().register(entry, verb, pd, where, access)
        start, size = self.extent(addr, length)
        returned = super().register(entry, "reg_mr_iova", pd, (start, size, start), access)
        if returned.mr:
            returned.mr.struct.addr, returned.mr.struct.length = addr, length
        return returned
