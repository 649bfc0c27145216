"""The stacks that a reference can simulate, with their capabilities and the preconditions that they meet. There are
several stacks, because some preconditions exclude each other: a library with fork protection and a library without fork
protection return different results."""

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.model import capability
from conformance.model.declared import DeviceAttributes, declared_capabilities
from conformance.model.transport import INFINIBAND, IWARP, UNSPECIFIED, Transport

# The capabilities that a device declares. The suite determines the other capabilities by calls, as on a real stack.
DECLARABLE = tuple(declared_capabilities(DeviceAttributes(0, 0, 0, 0)))


@dataclass(frozen=True)
class Stack:
    """One stack. `lacks` has the capabilities that the stack does not have, and `reaches` the preconditions that it
    meets. `claims` has the capabilities that it declares but does not have, and `hides` the capabilities that it has
    but does not declare."""

    name: str
    lacks: frozenset[str] = frozenset()
    reaches: frozenset[str] = frozenset()
    claims: frozenset[str] = frozenset()
    hides: frozenset[str] = frozenset()

    def has(self, name: str) -> bool:
        return name not in self.lacks

    def reach(self, name: str) -> bool:
        return name in self.reaches

    @property
    def declared(self) -> Mapping[str, bool]:
        return {
            name: name in self.claims or (self.has(name) and name not in self.hides)
            for name in DECLARABLE
        }

    @property
    def transport(self) -> Transport:
        """The transport of the stack. UNSPECIFIED differs from INFINIBAND only in `iba`."""
        if self.has("iba_statuses"):
            return INFINIBAND
        if self.has("immediate_data") and self.has("read_sinks"):
            return UNSPECIFIED
        return IWARP

    @property
    def reachable(self) -> Mapping[str, bool]:
        return {name: self.reach(name) for name in capability.PRECONDITIONS}


# The capability of a stack whose peers send segments of iWARP.
_STREAMS = "iwarp"
# The preconditions that every stack meets.
_EVERYWHERE = ("raw_registration",)


def _stack(name: str, *reaches: str, lacks: tuple[str, ...] = ()) -> Stack:
    return Stack(name, frozenset((*lacks, _STREAMS)), frozenset((*reaches, *_EVERYWHERE)))


# The stacks of the reference. A case runs on the first stack that meets the preconditions of the case.
STACKS = (
    _stack("whole", "experimental_rereg", "swap", "persistent_memory", "pci_bar", "copy_on_fork"),
    _stack("fork-protection", "dontfork"),
    _stack("fork-race", "dontfork", "fork_race"),
    _stack("no-change", "rereg_absent", lacks=("rereg_mr", "rereg_translation")),
    _stack("no-advice", "advise_absent", lacks=("advise_mr",)),
    _stack("failing-allocations", "failing_allocations"),
    _stack("shared-regions", "experimental_rereg", "shared_mr"),
    _stack("peer-memory", "experimental_rereg", "peer_memory"),
)
WHOLE = STACKS[0]
# The stack of rows that need iWARP.
_LACKED_BY_IWARP = "iba_statuses immediate_data send_immediate_data read_sinks atomics".split()
OF_STREAMS = Stack("iwarp", frozenset(_LACKED_BY_IWARP), frozenset(_EVERYWHERE))
# The capabilities that a stack may lack.
OPTIONAL = (
    *DECLARABLE,
    *"""
    rc uc ud rc_srq wr_post wr_post_windows zero_based hugetlb iova_page_offset reg_dmabuf_mr rereg_mr
    rereg_translation advise_mr alloc_null_mr import_mr import_pd alloc_parent_domain alloc_dm dmah alloc_td import_dm
    dmabuf_buffers
    """.split(),
    *capability.BY_SYMBOL,
)
# The capabilities that depend on another capability.
_OPERATIONS = [
    capability.odp_capability(transport, operation)
    for transport, operations in capability.ODP_OPERATIONS.items()
    for operation in operations
]
_DEPENDENT = {
    "odp": ("odp_implicit", "hugetlb", *_OPERATIONS),
    "rereg_mr": ("rereg_translation",),
    "wr_post": ("wr_post_windows",),
}


def without(*names: str) -> Stack:
    """Returns a stack without these capabilities and without capabilities that depend on them."""
    lacks = frozenset(name for item in names for name in (item, *_DEPENDENT.get(item, ())))
    if "rereg_mr" not in lacks:
        reaches = WHOLE.reaches
    else:
        reaches = frozenset(_EVERYWHERE)
    return Stack(f"without {', '.join(names)}", lacks, reaches)
