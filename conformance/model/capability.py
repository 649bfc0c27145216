"""Defines the capabilities of a device, by the names that rules and tables use, and how a device declares a capability.
The cases test the device's real behaviour. judging/ applies profiles to verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.errors import UserError
from conformance.model.transport import INFINIBAND, IWARP, Transport
from conformance.model.vocabulary import FLUSHES
from conformance.verbs import ENUMS, VERBS, Linkage, Verb

_OLDEST = 44  # the oldest rdma-core of the guest's stacks
# Verbs that an older library does not have. The capability is present if the loaded library exports the verb.
BY_SYMBOL: Mapping[str, Verb] = {
    verb.method: verb
    for verb in VERBS.values()
    if verb.linkage is Linkage.EXPORTED and int(verb.since or 0) > _OLDEST
}
# The operations on on-demand memory for each type of queue pair, in the order of their bits.
_EVERY_ODP = ("send", "recv", "write", "read", "atomic", "srq_recv", "flush", "atomic_write")
ODP_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "rc": _EVERY_ODP,
    "uc": ("send", "recv", "write"),
    "ud": ("send", "recv"),
    "xrc": (
        "send",
        "write",
        "read",
        "atomic",
        "srq_recv",
    ),  # XRC queue pairs receive only from shared receive queues
}


def odp_capability(transport: str, operation: str) -> str:
    """Returns the name of the capability for an operation of ODP_OPERATIONS. The names for rc have no prefix."""
    if transport == "rc":
        return f"odp_{operation}"
    return f"odp_{transport}_{operation}"


# For each capability: how a device declares it, or how the suite detects it.
MEANING: Mapping[str, str] = {
    "atomics": "atomic_cap of ibv_query_device is not ATOMIC_NONE",
    "mw_type_1": "IBV_DEVICE_MEM_WINDOW",
    "mw_type_2": "IBV_DEVICE_MEM_WINDOW_TYPE_2A or _2B",
    "odp": "odp_caps.general_caps has IBV_ODP_SUPPORT",
    "odp_implicit": "odp_caps.general_caps has IBV_ODP_SUPPORT_IMPLICIT",
    "flush_global": "device_cap_flags_ex has the global flush bit (38)",
    "flush_persistent": "device_cap_flags_ex has the persistent flush bit (39)",
    "atomic_write": "device_cap_flags_ex has the atomic write bit (40)",
    "xrc": "IBV_DEVICE_XRC",
    "immediate_data": "the transport is InfiniBand or RoCE, or an RDMA WRITE with immediate data arrives over iWARP",
    "send_immediate_data": "the transport is InfiniBand or RoCE, or a SEND with immediate data arrives over iWARP",
    "lists": "max_sge of ibv_query_device is at least 3, or 0 because the driver does not report it",
    "read_lists": "max_sge_rd of ibv_query_device is at least 3, or 0 because the driver does not report it",
    "read_sinks": "the memory that an RDMA READ writes needs no remote right: iWARP may require REMOTE_WRITE",
    "iwarp": "the transport is iWARP: RFC 5040 to 5044 define its segments and Terminate messages",
    "iba_statuses": "the transport is InfiniBand or RoCE: only IBA defines statuses, and message lengths in packets",
    **{
        odp_capability(
            transport,
            operation,
        ): f"{transport}_odp_caps has IBV_ODP_SUPPORT_{operation.upper()}"
        for transport, operations in ODP_OPERATIONS.items()
        for operation in operations
    },
    "rc": "a queue pair of type RC can be created: no declaration exists",
    "uc": "a queue pair of type UC can be created: no declaration exists",
    "ud": "a queue pair of type UD can be created: no declaration exists",
    "rc_srq": "a queue pair of type RC with a shared receive queue can be created",
    "wr_post": "a queue pair of type RC can be created for the builders of ibv_wr_post(3)",
    "wr_post_windows": "like wr_post, for a queue pair that also has the builders of binds and invalidations",
    "zero_based": "a region with ZERO_BASED can be registered: no declaration exists",
    "hugetlb": "an on-demand region of huge pages can be registered with HUGETLB: no declaration exists",
    "iova_page_offset": "ibv_reg_mr_iova accepts an hca_va whose offset in its page differs from the offset of addr",
    **dict.fromkeys(
        """
        reg_dmabuf_mr rereg_mr rereg_translation alloc_null_mr import_mr import_pd alloc_dm import_dm alloc_td
        dmabuf_buffers dmah alloc_parent_domain advise_mr
        """.split(),
        "offered by the provider: no declaration exists",
    ),
    "experimental_rereg": "the loaded library exports the vendor's variant of ibv_rereg_mr",
    "shared_mr": "a region that is shared with other processes",
    "peer_memory": "memory of a peer device",
    "dontfork": "libibverbs protects registered ranges from being copied on fork",
    "copy_on_fork": "the kernel copies the pages of regions on fork, and reports this",
    "fork_race": "the fork protection of the new range cannot be removed after the command fails",
    "advise_absent": "the entry does not have ibv_advise_mr",
    "rereg_absent": "the provider does not have ibv_rereg_mr",
    "swap": "pages of this system can be swapped out",
    "persistent_memory": "RDMA_CTS_PMEM names a device DAX",
    "pci_bar": "this system has QEMU's pci-testdev, whose BAR can be mapped without harm",
    "failing_allocations": "the kernel can be set to fail an allocation of memory",
    "raw_registration": "the kernel accepts a registration without the driver-specific part of the command",
    **{
        name: f"the entry has {verb.name}, as rdma-core {verb.since} and later do"
        for name, verb in BY_SYMBOL.items()
    },
}
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
    "RECV_WITH_IMM": "send_immediate_data",
    "RECV_RDMA_WITH_IMM": "immediate_data",
    "immediates_in_order": "immediate_data",
    "READ": "read_sinks",
    "list_traffic": "lists",
    "list_traffic READ": "read_lists",
    **{verb.name: name for name, verb in BY_SYMBOL.items()},
}
# The capabilities that no attribute declares on iWARP, where RFC 7306 permits them: a call shows whether a device has
# them. For each capability, the operation of this call.
IMMEDIATES: Mapping[str, str] = {
    "immediate_data": "RDMA_WRITE_WITH_IMM",
    "send_immediate_data": "SEND_WITH_IMM",
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


# Preconditions of cases that are not properties of the device. If a precondition is not met, the verdict of the case is
# UNREACHABLE, with the text below as the reason.
PRECONDITIONS: Mapping[str, str] = {
    "experimental_rereg": "the loaded libibverbs has the ibv_rereg_mr of rdma-core, not a vendor's experimental one",
    "dontfork": "libibverbs does not exclude registered ranges from forked children here (no `dc` in VmFlags of"
    " smaps): the process also runs other cases, or the library does not support it",
    "copy_on_fork": "this kernel does not report that it copies the pages of regions on fork; Linux 5.12 and later do",
    "shared_mr": "shared regions are created by another experimental verb of the vendor, which the suite does not call",
    "peer_memory": "PeerDirect memory needs a GPU and the vendor's kernel",
    "fork_race": "libibverbs returns this code only if the command fails and no memory is left to remove the fork"
    " protection; but the same call has just freed as much memory as this needs",
    "advise_absent": "this stack has the verb",
    "rereg_absent": "this stack has the verb",
    "swap": "this system has no swap space, so that pages cannot be swapped out: add some with mkswap and swapon",
    "persistent_memory": "this run has no persistent memory: RDMA_CTS_PMEM does not name a device DAX",
    "pci_bar": "this machine has no pci-testdev, QEMU's device whose BAR can be mapped without harm",
    "failing_allocations": "this kernel cannot be told to fail an allocation of memory: --stack forky-instrumented can",
    "raw_registration": "the driver refuses commands without the driver-specific part, which only the provider knows",
}
# The precondition that only kernels built for tests meet. A rule can be verified without a case that needs only it.
OF_TEST_KERNELS = "failing_allocations"
NAMES = tuple(MEANING)


def name_with_release(name: str) -> str:
    """Returns the name of a capability. For a verb of BY_SYMBOL, adds the release that introduced the verb."""
    verb = BY_SYMBOL.get(name)
    if verb:
        return f"{verb.name} (in rdma-core since {verb.since})"
    return name


# Capabilities that no attribute declares. A stack declares that it lacks one only by an errno such as EOPNOTSUPP.
UNDECLARABLE = frozenset(
    name
    for name, meaning in MEANING.items()
    if name in BY_SYMBOL or meaning.endswith("no declaration exists")
)
# For a call that the documents allow unconditionally: the rule whose rows judge its refusal. Where the call is refused,
# the rows of this rule FAIL, and other rows that need it are UNREACHABLE.
JUDGED_BY = {"iova_page_offset": "IOVA-02a"}
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
                getattr(declared, f"odp_{qp_type}_caps") >> _EVERY_ODP.index(operation) & 1,
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


@dataclass(frozen=True)
class Profile:
    """The capabilities that a device must have (`present`) and the capabilities that it lacks (`absent`), with reasons.

    If `present` requires all capabilities that a case lacks, the case fails. The reason of an `absent` capability
    explains why a case is UNSUPPORTED. If a device has an `absent` capability, a remark is recorded: no documented rule
    is violated, but the profile has to be updated.
    """

    device: str = ""  # the name of the kernel driver
    present: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)

    def check(self, name: str, driver: str) -> None:
        """Raises UserError if the device `name` has a different driver than the profile."""
        if self.device and self.device != driver:
            raise UserError(
                f"the profile is for the driver {self.device}, but {name} has the driver {driver}",
            )

    def required_but_absent(self, undeclared: Sequence[str]) -> list[str]:
        """Returns the capabilities of `undeclared` that `present` requires. Returns [] if a capability of `undeclared`
        is neither required nor a part of the name of a required one: odp_ud_recv also requires odp and ud."""
        names = [name for name in undeclared if name in self.present]
        required = [set(name.split("_")) for name in names]
        for name in undeclared:
            parts = set(name.split("_"))
            if not any(parts <= larger for larger in required):
                return []
        return names
