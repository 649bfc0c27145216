"""The capabilities that access flags and operations need, although a row does not name them."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.model.capability import BY_SYMBOL, ODP_OPERATIONS, odp_capability
from conformance.model.operations import FLUSHES
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
# For each access flag, the capability without which a device may refuse the flag; empty for a flag that every device
# must accept. According to ibv_reg_mr(3), a device may refuse some flags if it does not support them. Sweeps (`needs
# of`) and the reference use this mapping.
FLAG_NEEDS: Mapping[str, str] = {
    _ACCESS.short(flag.name): flag.needs for flag in _ACCESS if not flag.mask
}
# The flags whose capability is implicit: each row that registers memory with such a flag needs the capability.
UNNAMED_FLAG_NEEDS = {flag: FLAG_NEEDS[flag] for flag in ("ZERO_BASED", "HUGETLB")}
# For each operation or call that some devices do not have, the needed capability. The capability is implicit: each row
# with the operation or call needs it. A key is an operation, a call, or a call with an operation.
OPERATION_NEEDS: Mapping[str, str] = {
    "RDMA_WRITE_WITH_IMM": "immediate_data",
    "SEND_WITH_IMM": "send_immediate_data",
    "RECV_WITH_IMM": "send_immediate_data",
    "RECV_RDMA_WITH_IMM": "immediate_data",
    "immediates_in_order": "immediate_data",
    "READ": "read_sinks",
    "list_traffic": "lists",
    "list_traffic READ": "read_lists",
    **{verb.name: name for name, verb in BY_SYMBOL.items()},
}
# For operations on on-demand memory, by call and operation: the name in ODP_OPERATIONS.
_ON_DEMAND_NEEDS: Mapping[str, str] = {
    "traffic RDMA_WRITE": "write",
    "traffic RDMA_WRITE_WITH_IMM": "write",
    "traffic RDMA_READ": "read",
    "traffic ATOMIC_CMP_AND_SWP": "atomic",
    "traffic ATOMIC_FETCH_AND_ADD": "atomic",
    "traffic UNEQUAL_CMP_AND_SWP": "atomic",
    "traffic UPPER_UNEQUAL_CMP_AND_SWP": "atomic",
    "traffic ZERO_FETCH_AND_ADD": "atomic",
    "traffic ATOMIC_WRITE": "atomic_write",
    **{f"traffic {flush}": "flush" for flush in FLUSHES},
    "local_traffic SEND": "send",
    "local_traffic RECV": "recv",
    "local_traffic RECV_WITH_IMM": "recv",
    "local_traffic WRITE": "write",
    "local_traffic READ": "read",
    "local_traffic FETCH_AND_ADD": "atomic",
}


def need_on_demand(call: str, operation: str, qp_type: str) -> str | None:
    """Returns the capability that an operation on on-demand memory needs on a type of queue pair, or None."""
    needs = _ON_DEMAND_NEEDS.get(f"{call} {operation}")
    if qp_type in ("RC_SRQ", "XRC") and needs == "recv":
        needs = "srq_recv"
    transport = qp_type.lower().removesuffix("_srq")
    if needs in ODP_OPERATIONS.get(transport, ()):
        return odp_capability(transport, needs)
    return None
