"""What a device and its header declare."""

from __future__ import annotations

import errno
from dataclasses import replace

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import ON_DEMAND, REMOTE_ATOMIC
from reference.queues import Queue
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
def flags_exchanged(self: Device) -> str:
    """The header has another bit for IBV_ACCESS_MW_BIND."""
    return _replaced(plain(self).header(), "IBV_ACCESS_MW_BIND = 16,", "IBV_ACCESS_MW_BIND = 32,")


@violates("API-01", Device.header)
def fields_exchanged(self: Device) -> str:
    """The header's struct ibv_mr has lkey and rkey in reverse order."""
    text = plain(self).header()
    start = text.index("struct ibv_mr {\n")
    struct = text[start : text.index("};", start)]
    swapped = struct.replace("lkey", "key").replace("rkey", "lkey").replace(" key", " rkey")
    return text.replace(struct, swapped)


@violates("API-01", Device.header)
def length_is_an_int(self: Device) -> str:
    """The header's ibv_reg_mr takes its length as an int."""
    return _replaced(
        plain(self).header(),
        "ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length",
        "ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, int length",
    )


@violates("API-01")
class BindingsDiffer(Device):
    """The bindings have another number for IBV_REREG_MR_CHANGE_ACCESS."""

    bindings_fault = ("ibv_rereg_mr_flags", "IBV_REREG_MR_CHANGE_ACCESS", 8)


@violates("API-01", Device.header, written="blind")
def length_of_region_is_an_int(self: Device) -> str:
    """The header's struct ibv_mr has an int for the length."""
    before, found, after = plain(self).header().partition("struct ibv_mr {")
    return before + found + after.replace("size_t length;", "int length;", 1)


@violates("API-01", Device.header, written="blind")
def keys_change_places(self: Device) -> str:
    """The header's struct ibv_mr has rkey before lkey."""
    before, found, after = plain(self).header().partition("struct ibv_mr {")
    swapped = after.replace("\tuint32_t lkey;\n\tuint32_t rkey;", "\tuint32_t rkey;\n\tuint32_t lkey;", 1)
    return before + found + swapped


@violates("API-01", written="blind")
class BindingsNumberZeroBasedWrong(Device):
    """The bindings have ZERO_BASED with the value of ON_DEMAND."""

    bindings_fault = ("ibv_access_flags", "IBV_ACCESS_ZERO_BASED", ON_DEMAND)


@violates("API-01", Device.header, written="blind")
def command_error_numbered_otherwise(self: Device) -> str:
    """The header has IBV_REREG_MR_ERR_CMD as -6."""
    return plain(self).header().replace("IBV_REREG_MR_ERR_CMD = -4", "IBV_REREG_MR_ERR_CMD = -6")


@violates("API-01", Device.header, written="blind")
def advice_takes_long_flags(self: Device) -> str:
    """The header's ibv_advise_mr takes its flags as uint64_t."""
    return plain(self).header().replace("uint32_t flags", "uint64_t flags")


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


@violates("CAP-04", Device.post_fault)
def atomics_not_posted(self: Device, queue: Queue, opcode: str) -> int:
    """Atomic operations are declared, and cannot be posted."""
    return plain(self).post_fault(queue, opcode) or (errno.EOPNOTSUPP if opcode.startswith("ATOMIC_") else 0)


@violates("CAP-04", Device.atomic_alone)
def remote_atomic_never(self: Device, access: int) -> bool:
    """REMOTE_ATOMIC is refused with LOCAL_WRITE too."""
    return bool(access & REMOTE_ATOMIC)


@violates("CAP-05")
class PagingClaimed(Claiming):
    """On-demand paging is declared, and no region can be registered with it."""

    claims = ("odp", "odp_implicit")


@violates("CAP-05", Device.unsupported)
def on_demand_missing(self: Device, access: int) -> bool:
    """ON_DEMAND is declared, but refused."""
    return plain(self).unsupported(access) or bool(access & ON_DEMAND)


@violates("CAP-06")
class ImplicitPagingClaimed(Claiming):
    """Implicit on-demand regions are declared, and none can be registered."""

    claims = ("odp_implicit",)


@violates("CAP-06", Device.range_fault)
def implicit_refused(self: Device, addr: int, length: int, access: int) -> int:
    """Implicit regions are declared, but refused."""
    implicit = self.is_implicit(addr, length, access)
    return errno.EINVAL if implicit else plain(self).range_fault(addr, length, access)


@violates("CAP-07", Device.target)
def paging_of_no_operations(self: Device, queue: Queue, request: SendRequest, length: int) -> int | None:
    """Operations of peers on on-demand memory are declared, and all are refused."""
    region = self.keys.get(request.rkey)
    refused = length and getattr(region, "access", 0) & ON_DEMAND
    return None if refused else plain(self).target(queue, request, length)


@violates("CAP-08", Device.post_fault)
def immediate_data_not_posted(self: Device, queue: Queue, opcode: str) -> int:
    """No request with immediate data can be posted, although the transport has it."""
    return plain(self).post_fault(queue, opcode) or (errno.EOPNOTSUPP if opcode.endswith("_IMM") else 0)


@violates("CAP-09")
class FlushesClaimed(Claiming):
    """FLUSH is declared, and memory cannot be registered for it."""

    claims = ("flush_global",)
