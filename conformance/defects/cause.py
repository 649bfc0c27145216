"""The cause of a symptom as far as it can be observed, and the fingerprint that identifies a defect.

A cause is derived from one result alone, never from the others of a run: so it does not depend on which cases ran, in
which order, and how often a defect showed itself. Two symptoms with equal causes are of one defect:

- A kernel that dies in a request does so in one function, whichever rule the request was to prove.
- Whatever reaches outside of a region passes one check of its bounds.
- Otherwise, beyond a registration, a region fails by what kind of region it is: on demand, or with addresses of its
  own. Whether its data come too late, elsewhere, not at all, or take the kernel down depends on what lies in memory.
- A request that never completes is lost on the path of its operation, whatever it was to prove.
- The kernel's core answers every driver's callers in the same way, and a wrong code or status is one line of code
  wherever it shows.
- A missing check is one cause for each rule, and so is a refused registration, because many of its parts can be refused
  with the same errno.
- An unsupported feature is one cause for each rule.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from conformance.defects.kernel_site import site_of
from conformance.defects.symptom import Symptom
from conformance.judging import CORE
from conformance.model.fault import OWN_ADDRESSES, WINDOW, Effect, Fault, FaultKind
from conformance.model.vocabulary import BINDS, PROBES, REGISTRATIONS

REGISTRATION, BIND, INVALIDATION, ACCESS = "registration", "bind", "invalidation", "access"
_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(REGISTRATIONS, REGISTRATION),
    **dict.fromkeys(BINDS, BIND),
    **dict.fromkeys(("bind_and_send", "bind_notified"), BIND),
    **dict.fromkeys(("post_local_inv", "post_send_with_inv"), INVALIDATION),
    **dict.fromkeys(
        (
            *PROBES,
            "list_traffic",
            "send_to_receive",
            "await_traffic",
            "traffic_beside",
            "receives_in_order",
            "immediates_in_order",
            "atomics_in_order",
            "regions_side_by_side",
            "ibv_wr_post",
        ),
        ACCESS,
    ),
}
_NOT_SUPPORTED = ("EOPNOTSUPP", "ENOTSUP", "ENOSYS")
# The word for a wrong report in the fingerprint, where it differs from the kind of fault.
_LASTING: Mapping[FaultKind, str] = {
    FaultKind.WRONG_INVALIDATED_KEY: ": the receiver was told nothing as the invalidated key, not #"
}


@dataclass(frozen=True)
class Cause:
    """The cause that one change of the stack would mend, in words that are the same in every run."""

    key: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        """12 hexadecimal digits."""
        return hashlib.sha256("\0".join(self.key).encode()).hexdigest()[:12]


def cause_of(symptom: Symptom) -> Cause:
    return Cause(tuple(map(str, _key(symptom))))


def _key(symptom: Symptom) -> tuple[str, ...]:
    fault, rule = symptom.fault, sorted(symptom.rules or ("",))[0]
    group, effect = group_of(fault.verb), fault.effect
    if effect in (Effect.KERNEL_DIED, Effect.KERNEL_ALARM):
        return _of_kernel(fault, group, rule)
    if effect is Effect.PROCESS_DIED:
        return (effect, group, fault.ended_by if fault.ended_by.startswith("SIG") else rule)
    if from_core(fault):
        return ("core", group, fault.answer)
    if group == ACCESS and fault.kind is FaultKind.NO_COMPLETION:
        return ("use", "no completion", fault.operation)
    if group == ACCESS and effect in (Effect.MOVED, Effect.ACCEPTED) and _leaves_a_region(fault):
        return ("use", "outside of a region")
    if group == ACCESS and effect in (Effect.MOVED, Effect.MISPLACED, Effect.REFUSED):
        return _of_use(fault, rule)
    if effect is Effect.STATUS:
        return (effect, fault.answer)
    if effect is Effect.REMARK:
        other = fault.kind is FaultKind.OTHER and fault.seen
        return (effect, group, fault.seen[0] if other else _LASTING.get(fault.kind, fault.kind))
    errno = fault.answer if fault.answer.startswith("E") else ""
    if errno and effect is Effect.CODE:
        return ("answered", group, errno)
    if errno and effect is Effect.REFUSED and _is_one_line(group, errno):
        return (effect, group, errno)
    return (effect, group, errno, rule)


def group_of(verb: str) -> str:
    """The operation, for verbs that differ only in their interface; else the verb."""
    return _GROUPS.get(verb, verb)


def from_core(fault: Fault) -> bool:
    """Whether the kernel's RDMA core gave the answer, which every driver's callers get."""
    return fault.layer == CORE


def _leaves_a_region(fault: Fault) -> bool:
    """Whether a missing check of bounds is the cause; for a region with addresses of its own, these may be."""
    return fault.key != WINDOW and fault.outside and OWN_ADDRESSES not in fault.region


def _is_one_line(group: str, errno: str) -> bool:
    return group != REGISTRATION and errno not in _NOT_SUPPORTED


def _of_kernel(fault: Fault, group: str, rule: str) -> tuple[str, ...]:
    """A registration itself seldom kills a kernel; if the case goes on to use the region, that use does."""
    if fault.effect is Effect.KERNEL_DIED and fault.used:
        return _of_use(fault, rule)
    site = site_of(fault)
    return ("kernel", *site.lasting) if site else ("kernel", group, rule)


def _of_use(fault: Fault, rule: str) -> tuple[str, ...]:
    if fault.key == WINDOW:
        return ("use", "window", rule) if fault.effect is Effect.MOVED else ("use", "window", rule, fault.effect)
    if fault.region:
        return ("use", "region", ", ".join(fault.region))
    if fault.dead:
        return ("use", "dead key")
    return ("use", "region", fault.effect, fault.operation)
