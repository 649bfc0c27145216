"""What a device and its header declare."""

from __future__ import annotations

from dataclasses import replace

from reference.device import Device
from reference.objects import ON_DEMAND
from reference.stack import WHOLE, Stack
from trial.violation import plain, violates


class Claiming(Device):
    """Declares capabilities that it lacks."""

    claims: tuple[str, ...] = ()

    def __init__(self, stack: Stack = WHOLE) -> None:
        lacks, claims = stack.lacks.union(self.claims), stack.claims.union(self.claims)
        super().__init__(replace(stack, lacks=lacks, claims=claims))


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise LookupError(f"{old!r} does not stand in the header")
    return text.replace(old, new, 1)


@violates("API-01", Device.header)
def fields_exchanged(self: Device) -> str:
    """The header's struct ibv_mr has lkey and rkey in reverse order."""
    text = plain(self).header()
    start = text.index("struct ibv_mr {\n")
    struct = text[start : text.index("};", start)]
    swapped = struct.replace("lkey", "key").replace("rkey", "lkey").replace(" key", " rkey")
    return text.replace(struct, swapped)


@violates("API-01")
class BindingsDiffer(Device):
    """The bindings have another number for IBV_REREG_MR_CHANGE_ACCESS."""

    bindings_fault = ("ibv_rereg_mr_flags", "IBV_REREG_MR_CHANGE_ACCESS", 8)


@violates("API-01", written="blind")
class BindingsNumberZeroBasedWrong(Device):
    """The bindings have ZERO_BASED with the value of ON_DEMAND."""

    bindings_fault = ("ibv_access_flags", "IBV_ACCESS_ZERO_BASED", ON_DEMAND)


@violates("CAP-01")
class WindowsClaimed(Claiming):
    """Windows of type 1 are declared, and none can be allocated."""

    claims = ("mw_type_1",)


@violates("CAP-02")
class TypeTwoClaimed(Claiming):
    """Windows of type 2 are declared, and none can be allocated."""

    claims = ("mw_type_2",)


@violates("CAP-03")
class XrcClaimed(Claiming):
    """XRC is declared, and no queue pair of this type can be created."""

    claims = ("xrc",)


@violates("CAP-04")
class AtomicsClaimed(Claiming):
    """Atomic operations are declared, and memory cannot be registered for them."""

    claims = ("atomics",)


@violates("CAP-05")
class PagingClaimed(Claiming):
    """On-demand paging is declared, and no region can be registered with it."""

    claims = ("odp", "odp_implicit")


@violates("CAP-06")
class ImplicitPagingClaimed(Claiming):
    """Implicit on-demand regions are declared, and none can be registered."""

    claims = ("odp_implicit",)


@violates("CAP-09")
class FlushesClaimed(Claiming):
    """FLUSH is declared, and memory cannot be registered for it."""

    claims = ("flush_global",)
