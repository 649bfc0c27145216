"""Determines the layer that returned the result of a call, if the call and its errno show the layer.

The kernel's RDMA core checks some arguments before it calls a driver, and returns the same errno for every driver.
According to the core's source code, these checks cause the refusals in `_is_of_core`. For any other refusal by the
kernel, it is unknown whether the core or the driver refused the call. No verdict depends on the layer.
"""

from __future__ import annotations

from conformance.model.case import Arguments, Case, mask_of
from conformance.model.observation import Observation
from conformance.model.quantity import Quantity
from conformance.verbs import ENUMS

KERNEL, CORE = "kernel", "kernel core"
# The smallest page of any machine, in bytes. Results need not record the page size of the run, because addresses with
# different offsets in the smallest page also have different offsets in every larger page.
_SMALLEST_PAGE = 4096
_ACCESS = ENUMS["ibv_access_flags"]
_LOCAL_WRITE = _ACCESS.value_of("LOCAL_WRITE")
_REMOTE_CHANGES = _ACCESS.mask_of("REMOTE_WRITE", "REMOTE_ATOMIC")
_CHANGE_ACCESS = ENUMS["ibv_rereg_mr_flags"].value_of("CHANGE_ACCESS")
_FLUSH = ENUMS["ib_uverbs_advise_mr_flag"].value_of("FLUSH")
# The pairs of arguments that must have the same offset within a page.
_SAME_OFFSET = {"ibv_reg_mr_iova": ("addr", "hca_va"), "ibv_reg_dmabuf_mr": ("offset", "iova")}


def answering_layer(case: Case, seen: Observation) -> str:
    """Returns the layer of the judged call: the observed layer, or CORE if only the core can return this errno."""
    layer = seen.get("layer", "")
    if layer == KERNEL and seen.get("errno") and _is_of_core(case, seen["errno"]):
        return CORE
    return layer


def _is_of_core(case: Case, code: str) -> bool:
    step, arguments = case.when, case.when.arguments
    if step.call == "ibv_advise_mr":
        if arguments.get("pd_handle") == "invented":
            return code == "ENOENT"  # the core looks up the handle before it calls the driver
        return code == "EINVAL" and bool(mask_of(arguments, "flags") & ~_FLUSH)
    if step.call == "ibv_rereg_mr":
        # EACCES (a write right for memory that is pinned read-only) does not count: the core's check returns it, but
        # drivers call this check, and a driver can register the memory again instead of returning EACCES.
        return (
            code == "EINVAL"
            and bool(mask_of(arguments, "flags") & _CHANGE_ACCESS)
            and _only_peers_write(arguments)
        )
    if step.call in _SAME_OFFSET and code == "EINVAL":
        first, other = (_offset(case, arguments.get(name)) for name in _SAME_OFFSET[step.call])
        if None not in (first, other) and first != other:
            return True
    return step.call.startswith("ibv_reg_") and code == "EINVAL" and _only_peers_write(arguments)


def _only_peers_write(arguments: Arguments) -> bool:
    """Whether the access flags permit a peer to change the memory, but do not permit the local device to write."""
    access = mask_of(arguments, "access")
    return bool(access & _REMOTE_CHANGES) and not access & _LOCAL_WRITE


def _offset(case: Case, address: object) -> int | None:
    """Returns the offset of an address within the smallest page; None if a term is neither a number nor the address of
    a memory. Such addresses, and the sizes of (huge) pages, are multiples of the smallest page: they do not count."""
    if not isinstance(address, Quantity):
        return None
    if any(
        term.name and (term.property not in ("", "addr") or term.name not in case.given.memory)
        for term in address.terms
    ):
        return None
    return (
        address.evaluate(_SMALLEST_PAGE, _SMALLEST_PAGE, lambda name, property_: 0) % _SMALLEST_PAGE
    )
