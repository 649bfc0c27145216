"""What a device declares about its capabilities, and what was found out about a stack before the first case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.model.capability import EVERY_ODP, IMMEDIATES, ODP_OPERATIONS, odp_capability
from conformance.model.transport import INFINIBAND, IWARP, Transport

# For each entry, the preconditions of all its cases.
_OF_ENTRIES = {"uverbs": ("raw_registration",)}

# Bits of device_cap_flags_ex, from enum ibv_device_cap_flags and ib_uverbs_device_cap_flags.
_MEM_WINDOW = 1 << 17
_XRC = 1 << 20
_MEM_WINDOW_TYPE_2A = 1 << 23
_MEM_WINDOW_TYPE_2B = 1 << 24
_FLUSH_GLOBAL = 1 << 38
_FLUSH_PERSISTENT = 1 << 39
_ATOMIC_WRITE = 1 << 40
_ODP_SUPPORT = 1 << 0
_ODP_SUPPORT_IMPLICIT = 1 << 1
_LIST = 3  # the number of SGEs of the longest list in the tables


@dataclass(frozen=True)
class DeviceAttributes:
    """The raw values from ibv_query_device_ex that declare capabilities."""

    device_cap_flags: int
    atomic_cap: int
    odp_general_caps: int
    odp_rc_caps: int
    max_sge_rd: int = 0
    max_sge: int = 0
    odp_uc_caps: int = 0
    odp_ud_caps: int = 0
    odp_xrc_caps: int = 0


def declared_capabilities(
    declared: DeviceAttributes,
    transport: Transport = INFINIBAND,
) -> dict[str, bool]:
    flags = declared.device_cap_flags
    return {
        "atomics": declared.atomic_cap != 0,
        "mw_type_1": bool(flags & _MEM_WINDOW),
        "mw_type_2": bool(flags & (_MEM_WINDOW_TYPE_2A | _MEM_WINDOW_TYPE_2B)),
        "odp": bool(declared.odp_general_caps & _ODP_SUPPORT),
        "odp_implicit": bool(declared.odp_general_caps & _ODP_SUPPORT_IMPLICIT),
        **{
            odp_capability(qp_type, operation): bool(
                getattr(declared, f"odp_{qp_type}_caps") >> EVERY_ODP.index(operation) & 1,
            )
            for qp_type, operations in ODP_OPERATIONS.items()
            for operation in operations
        },
        "flush_global": bool(flags & _FLUSH_GLOBAL),
        "flush_persistent": bool(flags & _FLUSH_PERSISTENT),
        "atomic_write": bool(flags & _ATOMIC_WRITE),
        "xrc": bool(flags & _XRC),
        **dict.fromkeys(IMMEDIATES, transport.immediate_data),
        "iwarp": transport is IWARP,
        "iba_statuses": transport.iba,
        "read_sinks": not transport.read_sink,
        "lists": declared.max_sge not in range(1, _LIST),
        "read_lists": declared.max_sge_rd not in range(1, _LIST),
    }


@dataclass(frozen=True)
class Capabilities:
    """The facts about the stack that are known before the first case. A capability in none of these mappings counts as
    present."""

    declared: Mapping[str, bool]  # whether the device declares a capability
    # by entry: whether execution/offered.py found a capability
    offered: Mapping[str, Mapping[str, bool]]
    reachable: Mapping[str, bool]  # which of PRECONDITIONS are met
    # declared, but missing: the refused call and its errno
    absent: Mapping[str, str] = field(default_factory=dict)

    def undeclared(self, needs: Sequence[str], entry: str) -> list[str]:
        """Returns the capabilities in `needs` that are not declared, not offered at `entry`, or absent."""
        declared, offered = self.declared, self.offered.get(entry, {})
        return [
            need
            for need in needs
            if offered.get(need, declared.get(need)) is False or need in self.absent
        ]

    def unmet(self, needs: Sequence[str], entry: str) -> list[str]:
        """Returns the preconditions because of which a case with these needs cannot be run at `entry`."""
        every = (*needs, *_OF_ENTRIES.get(entry, ()))
        return [need for need in every if self.reachable.get(need) is False]
