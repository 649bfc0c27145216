"""Defines the capabilities of a device and the preconditions of cases, by the names that rules and tables use. What an
operation needs is in needs.py, what a device declares in declared.py, and what it has to have in profile.py."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.verbs import VERBS, Linkage, Verb

_OLDEST = 44  # the oldest rdma-core of the guest's stacks
# Verbs that an older library does not have. The capability is present if the loaded library exports the verb.
BY_SYMBOL: Mapping[str, Verb] = {
    verb.method: verb
    for verb in VERBS.values()
    if verb.linkage is Linkage.EXPORTED and int(verb.since or 0) > _OLDEST
}
# The operations on on-demand memory for each type of queue pair, in the order of their bits.
EVERY_ODP = ("send", "recv", "write", "read", "atomic", "srq_recv", "flush", "atomic_write")
ODP_OPERATIONS: Mapping[str, tuple[str, ...]] = {
    "rc": EVERY_ODP,
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
# The capabilities that no attribute declares on iWARP, where RFC 7306 permits them: a call shows whether a device has
# them. For each capability, the operation of this call.
IMMEDIATES: Mapping[str, str] = {
    "immediate_data": "RDMA_WRITE_WITH_IMM",
    "send_immediate_data": "SEND_WITH_IMM",
}
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
