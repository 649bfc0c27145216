"""Finds the cause of each symptom. The fingerprint of a cause identifies a defect.

A cause is derived from one result, never from the other results of a run. Therefore a cause does not depend on which
cases ran, in which order the cases ran, or how often the cases showed the defect. Two symptoms with equal causes belong
to one defect. The following facts, besides the kind of violation, determine a cause:

- The kernel died: the function in which it died. The rule does not matter, unless the use must be refused.
- The process died: the verb and the signal, or the rule if it exited without a signal.
- The kernel never frees memory: the function that allocates the memory.
- Packets of a wire peer, if the kernel lives: the rule, the operation of the packet, or the check that handles several
  operations, and the effect.
- A request accessed bytes outside of a region: no further fact, because one check of bounds should refuse all these
  requests.
- A request moved bytes outside of a window: no further fact, as for a region.
- A circumstance of points of a model that explains the failure: inline data or several elements of a builder, an atomic
  operation after a reset of its queue pair, an ATOMIC WRITE or FLUSH that is sent again, a fenced request that never completes.
  The rule and the key do not matter.
- Another failure in the use of a window: the rule. If the window was bound although the bind must be refused, the missing
  refusal is the cause. Requests in flight that move bytes after the window has ended have one cause.
- A region is used after its re-registration: the flags of this call, what it decides about the request, and the effect;
  and whether the request was in flight at the call, because another line of a driver looks up the key of a later packet.
- A key of a region is used after a call has ended it: this call.
- Another failure in the use of a region: its special kind, such as on demand, without the effect, because the contents
  of memory decide whether data are misplaced or the kernel crashes. For other regions: the effect and the operation.
- Another request never completes: the operation. The rule does not matter.
- The kernel's core refused a call, or a code or status is wrong: the verb and the code or status, because the same line
  of code returns it for every rule.
- A check is missing, a registration is refused, or a feature is not supported: the rule. Many parts of a registration
  can be refused with the same errno.
- A refused invalidation on a queue pair that is not of type RC: the type. The rule does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from conformance.defects.symptom import Symptom, site_of, verb_of
from conformance.judging.answering_layer import CORE
from conformance.model.combinations import (
    ATOMIC_AFTER_RESET,
    FENCED,
    RULE_OF,
    SENT_AGAIN,
    circumstance,
)
from conformance.model.fault import (
    ANSWER_FORM,
    NEWER_COMMAND,
    NO_EVENT_OF_FAILURE,
    OF_DOMAIN,
    OF_RANGE,
    OF_RIGHTS,
    ON_DEMAND,
    OWN_ADDRESSES,
    PACKET_LENGTHS,
    PSN_ALONE,
    UNSENT,
    WINDOW,
    Effect,
    Fault,
    FaultKind,
)
from conformance.model.operations import BUILT, BUILT_INLINE, BUILT_LIST, PROBES
from conformance.model.rules import OF_WIRE
from conformance.model.vocabulary import BINDS, REGISTRATIONS, WIRE
from conformance.wire.statuses import FLUSHED

REGISTRATION, BIND, INVALIDATION, ACCESS = "registration", "bind", "invalidation", "access"
_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(REGISTRATIONS, REGISTRATION),
    **dict.fromkeys(BINDS, BIND),
    **dict.fromkeys(("bind_and_send", "bind_notified"), BIND),
    **dict.fromkeys(("post_local_inv", "post_send_with_inv"), INVALIDATION),
    **dict.fromkeys(PROBES, ACCESS),
    **dict.fromkeys(
        """
        list_traffic send_to_receive await_traffic await_statuses traffic_beside receives_in_order immediates_in_order atomics_in_order
        regions_side_by_side ibv_wr_post list_posted
        """.split(),
        ACCESS,
    ),
}
_NOT_SUPPORTED = ("EOPNOTSUPP", "ENOTSUP", "ENOSYS")
# A wrong report has the name of its kind in the fingerprint. These kinds have another text.
_LASTING: Mapping[FaultKind, str] = {
    FaultKind.WRONG_INVALIDATED_KEY: ": the receiver was told nothing as the invalidated key, not #",
}


@dataclass(frozen=True)
class Cause:
    """A cause that one change of the stack would fix, in words that are the same in every run."""

    key: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256("\0".join(self.key).encode()).hexdigest()[:12]

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The fingerprint, and those that the cause had in earlier versions: waivers and trackers still have them."""
        return self.fingerprint, *_EARLIER.get(self.key, ())

    @property
    def family(self) -> tuple[str, ...]:
        """What the causes have in common that one line of a stack may explain: the same call has re-registered the
        region, or the requests differ only in their operation. Empty for other causes. Such causes keep their own
        fingerprints, because they may be several."""
        of_call = self.key[0] in (Effect.ACCEPTED, Effect.REFUSED) and self.key[-1].startswith(
            "REREG-"
        )
        if of_call or self.key[:2] == OF_CHANGE:
            return OF_CHANGE
        if self.key[:2] == ("use", "region") and len(self.key) == _WITH_OPERATION:
            return self.key[:3]
        return ()


CHANGED = "ibv_rereg_mr"
AWAITED = "await_traffic"  # the step that observes requests which were in flight
OF_CHANGE = ("use", CHANGED)  # the family
AT_REST = "at rest"
# What is changed, and what this decides, in the rows with requests in flight. Other causes need not be told apart.
_IN_FLIGHT = (
    ("CHANGE_ACCESS", OF_RIGHTS),
    ("CHANGE_PD", OF_DOMAIN),
    ("CHANGE_TRANSLATION", OF_RANGE),
)
_WITH_OPERATION = 4  # the parts of the key of a cause that has an operation
_NEWER_COMMAND = ("kernel core", "REG_MR")
_ENDED_WINDOW = ("use", "ended window")
_OF_BUILDERS = ("use", "region", Effect.REFUSED, BUILT)
_OF_CIRCUMSTANCE: Mapping[str, tuple[str, ...]] = {
    FENCED: ("use", "no completion", FENCED),
    ATOMIC_AFTER_RESET: ("use", ATOMIC_AFTER_RESET),
    SENT_AGAIN: ("use", SENT_AGAIN),
    BUILT_INLINE: ("use", BUILT_INLINE),
    BUILT_LIST: _OF_BUILDERS,
}
_OF_USES = (Effect.MOVED, Effect.MISPLACED, Effect.REFUSED)
# The model of changes; and by the words of the values of its parameter `change`, the first of which is omitted, the flags.
_MODEL = "access/changes/"
_FLAGS = {"translation": "CHANGE_TRANSLATION", "pd": "CHANGE_PD", "access": "CHANGE_ACCESS"}
# By the rule of the points of such a model.
_DECIDED = {"REREG-01": OF_RANGE, "REREG-02": OF_DOMAIN, "REREG-03": OF_RIGHTS}
_OUTSIDE_OF_WINDOW = ("use", "window", "BIND-10")
# By group and rule: the rule whose check also refuses this. A region of another process is a region of another domain,
# and a comparison with the bounds also refuses long elements.
_SAME_CHECK: Mapping[tuple[str, str], str] = {
    (BIND, "REG-27"): "BIND-18",
    ("ibv_advise_mr", "ADV-16"): "ADV-08",
}
# Packets that one check of the driver handles: rule, operation and effect.
_SAME_PACKETS: Mapping[tuple[str, str, str], tuple[str, str, str]] = {
    ("WIRE-02", "SEND_LAST", Effect.STATUS): ("WIRE-02", "SEND_ONLY", Effect.STATUS),
    ("WIRE-06", "ATOMIC_FETCH_AND_ADD", Effect.ACCEPTED): ("WIRE-06", "RDMA_READ", Effect.ACCEPTED),
}
# Atomic operations and packets that a driver handles like the other kind.
_ATOMICS = {"ATOMIC_CMP_AND_SWP": "ATOMIC_FETCH_AND_ADD", "COMPARE_SWAP": "FETCH_ADD"}
# By rule: what a check of all operations has instead of the operation. By rule, effect and Fault.check: the same of a
# check that is one of several.
_EVERY_PACKET: Mapping[str, str] = {"WIRE-08": "RDMA_WRITE_ONLY", "WIRE-21": "local request"}
_CHECKED: Mapping[tuple[str, str, str], str] = {
    ("WIRE-06", Effect.ACCEPTED, UNSENT): UNSENT,
    ("WIRE-06", Effect.ACCEPTED, ANSWER_FORM): "RDMA_WRITE",
    ("WIRE-06", Effect.ACCEPTED, PACKET_LENGTHS): PACKET_LENGTHS,
    ("WIRE-04", Effect.MOVED, PSN_ALONE): PSN_ALONE,
}
# The rules on uses that must be refused: a kernel that dies in such a use has not refused it, as others that live.
_REFUSED_USES = ("REG-09a",)
# The rule on messages that are longer than their receives: the responder answers them, and not the check of a key.
_OF_LENGTHS = "STAT-08"
# The call that ends most keys. Older results do not name the call.
_DESTRUCTION = "ibv_dereg_mr"
# By the key of a cause: its fingerprints in earlier versions, which separated what one change of the stack cures. None
# is the fingerprint of a cause of today, or one run could show two defects with one fingerprint.
_EARLIER: Mapping[tuple[str, ...], tuple[str, ...]] = {
    _NEWER_COMMAND: ("8258bec575a4", "90a6fe561db5"),
    (Effect.REFUSED, INVALIDATION, "", "on UC"): ("ace5e1427511", "aa9f15e1f036"),
    (Effect.ACCEPTED, BIND, "", "BIND-18"): ("582c1cde0471", "a40880f2cb8c"),
    (Effect.ACCEPTED, "ibv_advise_mr", "", "ADV-08"): ("1e49b15dc0dd", "bf4ee26e70a5"),
    _ENDED_WINDOW: ("5c12bb81389f", "958a64a75930"),
    _OF_BUILDERS: (
        "6fd3db36ec12",
        "f14c2d3cb39c",
        "7f5b153579ce",
        "33dd080fce23",
        "1af76172d1e3",
        "fe886334399a",
    ),
    _OF_CIRCUMSTANCE[BUILT_INLINE]: ("2037c167e8c9",),
    _OF_CIRCUMSTANCE[FENCED]: ("a87ee0c2983b", "7733acfbde7a"),
    _OF_CIRCUMSTANCE[ATOMIC_AFTER_RESET]: ("56bc0b3dc996",),
    _OF_CIRCUMSTANCE[SENT_AGAIN]: ("3f38d98d94d5",),
    (WIRE, "WIRE-02", "SEND_ONLY", Effect.STATUS): ("ae05b115fe48",),
    (WIRE, "WIRE-06", "RDMA_READ", Effect.ACCEPTED): ("03dd320e3952", "5efc2ab174c8"),
    (WIRE, "WIRE-08", "RDMA_WRITE_ONLY", Effect.REFUSED): ("50a91f05c63d",),
    (WIRE, "WIRE-21", "local request", Effect.REFUSED): ("91b69f088c09",),
    _OUTSIDE_OF_WINDOW: ("b1a00b48da88",),
    (Effect.STATUS, "REM_OP_ERR", _OF_LENGTHS): ("2a9af11e2b85",),
}


def cause_of(symptom: Symptom) -> Cause:
    return Cause(tuple(map(str, _key(symptom))))


def _key(symptom: Symptom) -> tuple[str, ...]:
    fault, rule = symptom.fault, sorted(symptom.rules or ("",))[0]
    group = INVALIDATION if _is_of_invalidation(fault) else group_of(fault.verb)
    for cause in (_of_end, _of_layer, _of_circumstance, _of_access):
        if key := cause(symptom, group, rule):
            return key
    return _of_answer(fault, group, rule)


def _of_end(symptom: Symptom, group: str, rule: str) -> tuple[str, ...]:
    """Returns the cause of a death, of memory that is never freed, or of packets."""
    fault = symptom.fault
    if fault.effect in (Effect.KERNEL_DIED, Effect.KERNEL_ALARM):
        return _of_kernel(fault, group, rule)
    if fault.kind is FaultKind.MEMORY_LEAKED and fault.site:
        return ("never freed", fault.site[0])
    if fault.verb == WIRE and not _is_of_invalidation(fault):
        # The rule on packets says more than the memory rule of the row, if the row has both.
        of_packets = [rule for rule in symptom.rules if rule.startswith(OF_WIRE)]
        rule = of_packets[0] if of_packets else rule
        if fault.key == WINDOW and fault.outside:
            return _OUTSIDE_OF_WINDOW
        operation = _CHECKED.get((rule, fault.effect, fault.check)) or _ATOMICS.get(
            fault.operation, fault.operation
        )
        packets = (rule, _EVERY_PACKET.get(rule, operation), fault.effect)
        return (WIRE, *_SAME_PACKETS.get(packets, packets))
    if fault.effect is Effect.PROCESS_DIED:
        signal = fault.ended_by.startswith("SIG")
        return (fault.effect, group, fault.ended_by if signal else rule)
    return ()


def _of_layer(symptom: Symptom, group: str, rule: str) -> tuple[str, ...]:
    """Returns the cause of what the kernel's core or the provider does whatever the rule is."""
    fault = symptom.fault
    if from_core(fault):
        return ("core", group, fault.answer)
    if is_of_newer_command(fault):
        return _NEWER_COMMAND
    if fault.operation == BUILT_INLINE and fault.effect in (Effect.REFUSED, Effect.STATUS):
        return ("use", "region", Effect.REFUSED, BUILT_INLINE)
    return ()


def _of_access(symptom: Symptom, group: str, rule: str) -> tuple[str, ...]:
    """Returns the cause of a wrong use of a key; empty for other symptoms."""
    fault, effect = symptom.fault, symptom.fault.effect
    if fault.verb == "access_elsewhere" and effect is Effect.REFUSED:
        # What another process may still use was ended by the judged call, which had to be refused.
        return _of_acceptance(group_of(verb_of(symptom.record["call"])), rule, fault.check)
    if group != ACCESS:
        return ()
    if fault.kind is FaultKind.NO_COMPLETION:
        return ("use", "no completion", fault.operation)
    if effect is Effect.MOVED and fault.allowed_by:
        return _of_acceptance(group_of(fault.allowed_by), rule, fault.check)
    if fault.verb == AWAITED and effect is Effect.MOVED and fault.key == WINDOW:
        return _ENDED_WINDOW
    if changed := _of_change(symptom, rule):
        return changed
    if effect in (Effect.MOVED, Effect.ACCEPTED) and _exceeds_region(fault):
        return ("use", "outside of a region")
    if effect is Effect.ACCEPTED and fault.key == WINDOW and fault.outside:
        return _OUTSIDE_OF_WINDOW
    if effect in _OF_USES:
        return _of_use(fault, rule)
    return ()


def _of_change(symptom: Symptom, rule: str) -> tuple[str, ...]:
    """Returns the cause of a wrong use of a region that was registered again: the flags of this call, what it decides
    about the request, the effect, and AT_REST if no request was in flight. Empty for other symptoms."""
    fault = symptom.fault
    flags, decides = fault.changed, fault.decides
    if symptom.smallest and symptom.case.startswith(_MODEL) and rule.startswith("REREG-"):
        change = symptom.smallest.get("change", "access")
        flags = tuple(flag for word, flag in _FLAGS.items() if word in change or change == "all")
        decides = _DECIDED.get(rule, "")
    effect = Effect.MOVED if fault.effect is Effect.ACCEPTED else fault.effect
    of_memory = fault.region and effect is not Effect.MOVED and not decides
    if not flags or effect not in _OF_USES or of_memory or (fault.dead and not decides):
        return ()
    key = ("use", CHANGED, "+".join(flags), decides, effect)
    if effect is Effect.MOVED and key[2:4] in _IN_FLIGHT and fault.verb != AWAITED:
        return (*key, AT_REST)
    return key


def _of_answer(fault: Fault, group: str, rule: str) -> tuple[str, ...]:
    """Returns the cause of a wrong acceptance, status, report or code."""
    effect = fault.effect
    errno = fault.answer if fault.answer.startswith("E") else ""
    if effect is Effect.ACCEPTED and group in (BIND, INVALIDATION):
        return _of_acceptance(group, rule, fault.check)
    if effect is Effect.STATUS and rule == _OF_LENGTHS and fault.answer != FLUSHED:
        return (effect, fault.answer, rule)
    if effect is Effect.STATUS:
        return (effect, fault.answer)
    if effect is Effect.REMARK and NO_EVENT_OF_FAILURE in fault.seen:
        return (effect, group, NO_EVENT_OF_FAILURE)
    if effect is Effect.REMARK:
        other = fault.kind is FaultKind.OTHER and fault.seen
        return (effect, group, fault.seen[0] if other else _LASTING.get(fault.kind, fault.kind))
    if errno and effect is Effect.CODE and fault.outside:
        # A range outside of its object that is refused by chance lacks the same check as one that is not refused.
        return _of_acceptance(group, rule)
    if errno and effect is Effect.CODE:
        return ("answered", group, errno)
    if group == INVALIDATION and effect is Effect.REFUSED and fault.qp_type:
        return (effect, group, errno, f"on {fault.qp_type}")
    if errno and effect is Effect.REFUSED and group != REGISTRATION and errno not in _NOT_SUPPORTED:
        return (effect, group, errno)
    return (effect, group, errno, _SAME_CHECK.get((group, rule), rule))


def _is_of_invalidation(fault: Fault) -> bool:
    """Whether an access or packets show how the device executes or reports an invalidation."""
    told = fault.kind is FaultKind.WRONG_INVALIDATED_KEY
    accepted = fault.verb == WIRE and fault.effect is Effect.ACCEPTED
    return fault.operation.endswith("_WITH_INV") and (told or accepted)


def _of_circumstance(symptom: Symptom, group: str, rule: str) -> tuple[str, ...]:
    """Returns the cause of a request that fails at points whose circumstance explains the failure, whatever the request
    addresses; empty for other symptoms."""
    why = circumstance(symptom.smallest, symptom.fault.effect)
    if why == ON_DEMAND and rule == RULE_OF[why]:
        return ("use", "region", ON_DEMAND)
    return _OF_CIRCUMSTANCE.get(why, ())


def _of_acceptance(group: str, rule: str, check: str = "") -> tuple[str, ...]:
    """Returns the cause of a call or request that is not refused."""
    of_queue = (check,) if group == BIND and check else ()
    return (Effect.ACCEPTED, group, "", _SAME_CHECK.get((group, rule), rule), *of_queue)


def group_of(verb: str) -> str:
    """Returns the operation of verbs that differ only in their interface; for any other verb, the verb's name."""
    return _GROUPS.get(verb, verb)


def from_core(fault: Fault) -> bool:
    """Whether the kernel's RDMA core returned the result, which is then the same with every driver."""
    return fault.layer == CORE


def is_of_newer_command(fault: Fault) -> bool:
    """Whether a region that the kernel's newer command has registered lacks its addresses or its length."""
    lacking = group_of(fault.verb) == ACCESS and fault.effect is Effect.REFUSED
    return NEWER_COMMAND in fault.region and (lacking or fault.verb == "query_mr")


def _exceeds_region(fault: Fault) -> bool:
    """Whether a fault shows that a check of bounds is missing. For a region with a chosen address, the reason may be a
    wrong address instead."""
    return fault.key != WINDOW and fault.outside and OWN_ADDRESSES not in fault.region


def _of_kernel(fault: Fault, group: str, rule: str) -> tuple[str, ...]:
    """Returns the cause of a death or a warning of the kernel. If the case uses the region that it has registered, the
    use counts as the cause of a death, because a registration itself seldom kills a kernel."""
    if fault.effect is Effect.KERNEL_DIED and fault.used:
        if rule in _REFUSED_USES:
            return _of_acceptance(ACCESS, rule)
        return _of_use(fault, rule)
    site = site_of(fault)
    if site:
        return ("kernel", *site.lasting)
    return ("kernel", group, rule)


def _of_use(fault: Fault, rule: str) -> tuple[str, ...]:
    if fault.key == WINDOW:
        if fault.effect is Effect.MOVED and fault.outside:
            return _OUTSIDE_OF_WINDOW
        if fault.effect is Effect.MOVED:
            return ("use", "window", rule)
        return ("use", "window", rule, fault.effect)
    if fault.region:
        return ("use", "region", ", ".join(fault.region))
    if fault.dead and fault.ended in ("", _DESTRUCTION):
        return ("use", "dead key")
    if fault.dead:
        return ("use", "dead key", fault.ended)
    return ("use", "region", fault.effect, fault.operation)
