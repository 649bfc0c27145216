"""Regions as a case describes them: what a registration makes, and what a re-registration changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from conformance.model.case import Argument, Arguments, Step, mask_of
from conformance.model.quantity import Quantity
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_MASK = ENUMS["ibv_mr_init_attr_mask"]
_CHANGES = ENUMS["ibv_rereg_mr_flags"]


@dataclass(frozen=True)
class Region:
    """A region after its registration and re-registrations: the range of its addresses, and its special properties."""

    memory: str
    addr: Quantity | None
    length: Quantity | None
    first: Quantity | None  # the address of the first byte in requests; None means 0
    access: int
    own_addresses: bool
    newer_command: bool = False
    pd: str = "pd"


def registered(call: str, arguments: Arguments, entry: str) -> Region:
    addr = _quantity(arguments, "offset" if call == "ibv_reg_dmabuf_mr" else "addr")
    access = mask_of(arguments, "access")
    first = _quantity(arguments, "iova") or _quantity(arguments, "hca_va") or addr
    own_addresses = call == "ibv_reg_mr_iova"
    if call == "ibv_reg_mr_ex":
        mask = mask_of(arguments, "comp_mask")
        own_addresses = bool(mask & _MASK.value_of("IOVA")) and not mask & _MASK.value_of("FD")
        if not mask & _MASK.value_of("IOVA"):
            first = addr
    if addr:
        memory = next((name for name, _ in addr.names), "")
    else:
        memory = ""
    zero_based = access & _ACCESS.value_of("ZERO_BASED")
    return Region(
        memory,
        addr,
        _quantity(arguments, "length"),
        None if zero_based else first,
        access,
        own_addresses,
        (call, entry) == ("ibv_reg_mr_ex", "uverbs"),
        str(arguments.get("pd", "pd")),
    )


def changed(region: Region, step: Step) -> Region:
    flags = mask_of(step.arguments, "flags")
    if flags & _CHANGES.value_of("CHANGE_TRANSLATION"):
        addr = _quantity(step.arguments, "addr")
        region = replace(
            region,
            addr=addr,
            length=_quantity(step.arguments, "length"),
            first=addr,
            own_addresses=False,
        )
    if flags & _CHANGES.value_of("CHANGE_PD"):
        region = replace(region, pd=str(step.arguments["pd"]))
    if flags & _CHANGES.value_of("CHANGE_ACCESS"):
        region = replace(region, access=mask_of(step.arguments, "access"))
    return region


def _quantity(arguments: Mapping[str, Argument], name: str) -> Quantity | None:
    quantity = arguments.get(name)
    if isinstance(quantity, Quantity):
        return quantity
    return None
