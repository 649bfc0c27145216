"""Violations of the header and the bindings."""

from __future__ import annotations

from reference.device import Device
from trial.violation import violates


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise LookupError(f"{old!r} does not stand in the header")
    return text.replace(old, new, 1)


@violates("API-01")
class FlagsExchanged(Device):
    """The header has another bit for IBV_ACCESS_MW_BIND."""

    def header(self) -> str:
        return _replaced(super().header(), "IBV_ACCESS_MW_BIND = 16,", "IBV_ACCESS_MW_BIND = 32,")


@violates("API-01")
class FieldsExchanged(Device):
    """The header's struct ibv_mr has lkey and rkey in reverse order."""

    def header(self) -> str:
        text = super().header()
        start = text.index("struct ibv_mr {\n")
        struct = text[start : text.index("};", start)]
        swapped = struct.replace("lkey", "key").replace("rkey", "lkey").replace(" key", " rkey")
        return text.replace(struct, swapped)


@violates("API-01")
class LengthIsAnInt(Device):
    """The header's ibv_reg_mr takes its length as an int."""

    def header(self) -> str:
        return _replaced(
            super().header(),
            "ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length",
            "ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, int length",
        )


@violates("API-01")
class BindingsDiffer(Device):
    """The bindings have another number for IBV_REREG_MR_CHANGE_ACCESS."""

    bindings_fault = ("ibv_rereg_mr_flags", "IBV_REREG_MR_CHANGE_ACCESS", 8)
