"""Implements entries that replace a verb by a newer verb with the same effect. At the entry `reg_mr_ex`, ibv_reg_mr_ex
registers all regions, so the rows of the older verbs also test ibv_reg_mr_ex. A separate folder has rows that call
ibv_reg_mr_ex directly."""

from collections.abc import Callable, Mapping
from typing import Any

from conformance.bench.calls import Pd, Return
from conformance.bench.interface import Entry
from conformance.verbs import ENUMS

_MASK = ENUMS["ibv_mr_init_attr_mask"]
ADDR, IOVA = _MASK.value_of("ADDR"), _MASK.value_of("IOVA")
DMABUF = _MASK.mask_of("FD", "FD_OFFSET", "IOVA")


def start_of(given: Mapping[str, Any]) -> int:
    """Returns the offset or address of a region's first byte, from the arguments of the registration."""
    if "comp_mask" in given:
        return int(
            given["fd_offset"] if given["comp_mask"] & _MASK.value_of("FD") else given["addr"],
        )
    return int(given["addr"] if "addr" in given else given.get("offset", 0))


class RegMrEx:
    """The entry `libibverbs` with ibv_reg_mr_ex instead of ibv_reg_mr, ibv_reg_mr_iova and ibv_reg_dmabuf_mr."""

    name = "reg_mr_ex"

    def __init__(self, library: Entry) -> None:
        self.library = library

    def __getattr__(self, verb: str) -> Callable[..., Return]:
        return getattr(self.library, verb)  # type: ignore[no-any-return]

    def offers(self, verb: str) -> bool:
        return self.library.offers("reg_mr_ex") and self.library.offers(verb)

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        return self.library.reg_mr_ex(pd, length, access, ADDR, 0, addr, 0, 0, "NULL", None)

    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return:
        return self.library.reg_mr_ex(
            pd,
            length,
            access,
            ADDR | IOVA,
            hca_va,
            addr,
            0,
            0,
            "NULL",
            None,
        )

    def reg_dmabuf_mr(
        self,
        pd: Pd,
        offset: int,
        length: int,
        iova: int,
        fd: int,
        access: int,
    ) -> Return:
        return self.library.reg_mr_ex(pd, length, access, DMABUF, iova, 0, fd, offset, "NULL", None)
