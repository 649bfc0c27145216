"""Operations on on-demand memory: what a device declares of them for each transport, and which of that a request needs.

A transport's capabilities are a mask of enum ibv_odp_transport_cap_bits. Those of XRC are left out: the bindings do
not tell them. Not for on-demand memory as such (capability.py).
"""

from __future__ import annotations

from collections.abc import Mapping

_BITS = {
    "send": 1 << 0,
    "recv": 1 << 1,
    "write": 1 << 2,
    "read": 1 << 3,
    "atomic": 1 << 4,
    "srq_recv": 1 << 5,
    "flush": 1 << 6,
    "atomic_write": 1 << 7,
}
# By transport, what is carried out over it. Nobody can post a datagram to a shared receive queue here.
_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "rc": tuple(_BITS),
    "uc": ("send", "recv", "write"),
    "ud": ("send", "recv"),
}
_TRANSPORT_OF = {"RC": "rc", "RC_SRQ": "rc", "UC": "uc", "UD": "ud"}
# By call and operation, the capability, without its transport.
_NEEDED = {
    "traffic RDMA_WRITE": "write",
    "traffic RDMA_WRITE_WITH_IMM": "write",
    "traffic RDMA_READ": "read",
    "traffic ATOMIC_CMP_AND_SWP": "atomic",
    "traffic ATOMIC_FETCH_AND_ADD": "atomic",
    "traffic UNEQUAL_CMP_AND_SWP": "atomic",
    "traffic UPPER_UNEQUAL_CMP_AND_SWP": "atomic",
    "traffic ZERO_FETCH_AND_ADD": "atomic",
    "traffic ATOMIC_WRITE": "atomic_write",
    "traffic FLUSH_GLOBAL": "flush",
    "traffic FLUSH_PERSISTENT": "flush",
    "local_traffic SEND": "send",
    "local_traffic RECV": "recv",
    "local_traffic RECV_WITH_IMM": "recv",
    "local_traffic WRITE": "write",
    "local_traffic READ": "read",
    "local_traffic FETCH_AND_ADD": "atomic",
}


def _name(transport: str, operation: str) -> str:
    """The capability; those of RC have no transport in their names, which were given when there were no others."""
    return f"odp_{operation}" if transport == "rc" else f"odp_{transport}_{operation}"


_ALL = {_name(of, each): (of, each) for of, operations in _OPERATIONS.items() for each in operations}
NAMES = tuple(_ALL)
MEANING: Mapping[str, str] = {
    name: f"{of}_odp_caps of ibv_query_device_ex has IBV_ODP_SUPPORT_{operation.upper()}"
    for name, (of, operation) in _ALL.items()
}
# The member of struct ibv_device_attr_ex, and the bit in it, by capability. Older headers have no names for the last two.
DECLARED_BY: Mapping[str, tuple[str, str]] = {
    name: (
        f"odp_caps.per_transport_caps.{of}_odp_caps",
        f"{_BITS[each]:#x}" if each in ("flush", "atomic_write") else f"IBV_ODP_SUPPORT_{each.upper()}",
    )
    for name, (of, each) in _ALL.items()
}


def declared(masks: Mapping[str, int]) -> dict[str, bool]:
    """By capability, whether a device declares it; `masks` are the capabilities of each transport."""
    return {name: bool(masks.get(of, 0) & _BITS[operation]) for name, (of, operation) in _ALL.items()}


def needed(call: str, operation: str, qp_type: str) -> str:
    """The capability that an operation on on-demand memory needs; empty if none is defined."""
    found = _NEEDED.get(f"{call} {operation}", "")
    if found == "recv" and qp_type == "RC_SRQ":
        found = "srq_recv"
    name = _name(_TRANSPORT_OF.get(qp_type, ""), found)
    return name if name in _ALL else ""


def of_request(opcode: str, qp_type: str) -> str:
    """The same for the request of a queue pair: its opcode, or RECV for a receive that a message consumes."""
    kind = "local_traffic" if opcode in ("SEND", "RECV") else "traffic"
    return needed(kind, opcode, qp_type)
