"""Finds the symptoms in a result (one for a row, and one for each deviation of a sweep), and the cause of each symptom.
The fingerprint of a cause identifies a defect.

A cause is derived from one result, never from the other results of a run. Therefore a cause does not depend on which
cases ran, in which order the cases ran, or how often the cases showed the defect. Two symptoms with equal causes belong
to one defect. The following facts, besides the kind of violation, determine a cause:

- The kernel died: the function in which it died. The rule does not matter.
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
- A region is used after its re-registration: the flags of this call, what it decides about the request, and the effect.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from conformance.judging.answering_layer import CORE
from conformance.judging.kernel_alarms import first_alarm, site_in
from conformance.model.combinations import (
    ATOMIC_AFTER_RESET,
    FENCED,
    SENT_AGAIN,
    circumstance,
)
from conformance.model.fault import (
    ANSWER_FORM,
    NEWER_COMMAND,
    OF_DOMAIN,
    OF_RANGE,
    OF_RIGHTS,
    OWN_ADDRESSES,
    PSN_ALONE,
    UNSENT,
    WINDOW,
    Effect,
    Fault,
    FaultKind,
)
from conformance.model.record import Deviation, ResultRecord
from conformance.model.rules import OF_WIRE
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.model.vocabulary import (
    BINDS,
    BUILT,
    BUILT_INLINE,
    BUILT_LIST,
    PROBES,
    REGISTRATIONS,
    WIRE,
)
from conformance.verbs import VERBS
from conformance.wire.statuses import FLUSHED


class KernelSite(NamedTuple):
    """The function in which the kernel died, its caller, and the module of each; see Fault.site."""

    function: str
    caller: str
    own_module: str
    callers_module: str

    @property
    def module(self) -> str:
        return self.own_module or self.callers_module

    @property
    def lasting(self) -> tuple[str, ...]:
        """The names that identify the site, without functions that are called from everywhere, such as memcpy."""
        generic = self.caller and self.module and not self.own_module
        if generic:
            return (self.caller,)
        return tuple(filter(None, (self.function, self.caller)))

    def __str__(self) -> str:
        if self.caller:
            text = f"{self.function}, called by {self.caller}"
        else:
            text = self.function
        if self.module:
            return f"{text} ({self.module})"
        return text


def site_of(fault: Fault) -> KernelSite | None:
    """Returns the location at which the kernel died or reported an error; None if unknown."""
    if fault.site:
        return KernelSite(*fault.site)
    return None


_UVERBS = "uverbs "
# For each command of the kernel, the first verb that issues the command.
_OF_COMMAND: Mapping[str, str] = {
    verb.command: verb.name for verb in reversed(list(VERBS.values())) if verb.command
}


@dataclass(frozen=True)
class Symptom:
    """One violation in one result. `line` is the fault as a sentence, and `expected` is what the documents require
    instead. `deviation` is a group of points of a sweep, or a random sequence; None for other results."""

    record: ResultRecord
    rules: tuple[str, ...]
    verdict: str
    fault: Fault
    line: str
    expected: str
    repro: str
    deviation: Deviation | None = None

    @property
    def points(self) -> int:
        """The number of deviating points of a sweep; 1 for other results."""
        if self.deviation:
            return int(self.deviation.get("count") or 1)
        return 1

    @property
    def smallest(self) -> Mapping[str, str]:
        """The labels of the smallest deviating point of a sweep; empty for other results."""
        if self.deviation:
            point = self.deviation.get("smallest")
        else:
            point = None
        return {str(axis): str(label) for axis, label in (point or {}).items()}

    @property
    def case(self) -> str:
        return self.record["case"]

    @property
    def call(self) -> str:
        """The call that failed, with its arguments if they are known."""
        return self.fault.call or self.record["call"]

    @property
    def is_zero_based(self) -> bool:
        """Whether the set-up, the judged call or a deviating point has ZERO_BASED."""
        record = self.record
        return any(
            "ZERO_BASED" in str(part)
            for part in (self.repro, record["call"], record["set_up"], record["deviations"])
        )

    @property
    def verb(self) -> str:
        """The name of the called verb, which is the same at both entries."""
        return self.fault.verb

    @property
    def name(self) -> str:
        """The id of the case, with the smallest point of a sweep, in the form that `--only` accepts."""
        if self.point:
            return f"{self.case}#{self.point}"
        return self.case

    @property
    def point(self) -> str:
        """The smallest deviating point of a sweep, as a text; empty for other results."""
        return ",".join(f"{axis}={label}" for axis, label in self.smallest.items())


def symptoms_of(record: ResultRecord) -> Iterator[Symptom]:
    """Yields the symptoms of a result that has every key of record_shape.RESULT; none unless it is a violation."""
    if record["verdict"] not in VIOLATIONS:
        return
    deviations = [
        deviation
        for deviation in record.get("deviations", ())
        if deviation.get("verdict", Verdict.FAIL) in VIOLATIONS
    ]
    covered = {rule for deviation in deviations for rule in deviation["rules"]}
    yield from (_of_deviation(record, deviation) for deviation in deviations)
    if not deviations or record.get("alarms") or _is_of_whole(record, deviations):
        rules = tuple(rule for rule in violated_rules(record) if rule not in covered) or tuple(
            record["rules"],
        )
        fault = fault_of(record)
        expected = _expected(record, fault)
        yield Symptom(
            record,
            rules,
            record["verdict"],
            fault,
            record["reason"],
            expected,
            record["repro"],
        )


def later_steps(data: Mapping[str, object]) -> list[Mapping[str, Any]]:
    """Returns the steps after the judged call, from `expected` or `observed` of a result."""
    steps = data.get("afterwards")
    if isinstance(steps, list):
        return [step for step in steps if isinstance(step, Mapping)]
    return []


def violated_rules(record: ResultRecord) -> list[str]:
    """Returns the rules that a result, or a point of a sweep, violates. Waivers are ignored."""
    of_points = record.get("rule_verdicts", {})
    return [
        rule for rule in record["rules"] if of_points.get(rule, record["verdict"]) in VIOLATIONS
    ]


def _is_of_whole(record: ResultRecord, deviations: list[Deviation]) -> bool:
    """Whether a fault belongs to no deviation of a sweep: the kernel complained, or something was left behind; or the
    process or the kernel died or hung, and no deviation has this verdict."""
    kinds = {deviation.get("fault", {}).get("kind") for deviation in deviations}
    fault = fault_of(record)
    if fault.effect in (Effect.KERNEL_ALARM, Effect.KEPT) and fault.kind not in kinds:
        return True
    died = record["verdict"] in (Verdict.CRASH, Verdict.HANG)
    return died and not any(
        deviation.get("row") or deviation.get("verdict") == record["verdict"]
        for deviation in deviations
    )


def _of_deviation(record: ResultRecord, deviation: Deviation) -> Symptom:
    return Symptom(
        record,
        tuple(deviation["rules"]),
        _verdict(record, deviation),
        fault_of(record, deviation),
        deviation.get("observed") or record["reason"],
        str(deviation.get("expected", "")),
        deviation.get("repro") or record["repro"],
        deviation,
    )


def fault_of(record: ResultRecord, deviation: Deviation | None = None) -> Fault:
    """Returns the fault of a violation. If a result of an older version has no fault, the fault is derived from the
    verdict and the kernel's log."""
    data = (record if deviation is None else deviation).get("fault")
    if data:
        return Fault.of_data(data)
    log, call = record["kernel"].get("log", ()), record["call"]
    if deviation:
        line = deviation.get("observed")
    else:
        line = ""
    kinds = {Verdict.CRASH: FaultKind.KERNEL_DIED, Verdict.HANG: FaultKind.HUNG}
    kind = kinds.get(Verdict(_verdict(record, deviation)), FaultKind.OTHER)
    seen = (line or record["reason"], "", "", first_alarm(log), "")
    return Fault(
        kind,
        call=call,
        verb=verb_of(call),
        entry=record["entry"],
        seen=seen,
        site=site_in(log),
    )


def verb_of(call: str) -> str:
    """Returns the name of the called function; for a command of the kernel, the name of the verb that issues it."""
    title = call.partition("(")[0]
    if title.startswith(_UVERBS):
        return _OF_COMMAND.get(title.removeprefix(_UVERBS), title)
    return title


def _verdict(record: ResultRecord, deviation: Deviation | None) -> str:
    if deviation is None:
        return record["verdict"]
    # The deviation of a random sequence in which the guest died has no verdict.
    if deviation.get("row"):
        died = record["verdict"]
    else:
        died = Verdict.FAIL
    return str(deviation.get("verdict", died) or died)


def _expected(record: ResultRecord, fault: Fault) -> str:
    expected = record["expected"]
    if fault.later:
        expected = next(
            (step for step in later_steps(expected) if step.get("call") == fault.call),
            {},
        )
    codes = [
        item
        for key in ("errno", "code")
        if isinstance(expected.get(key), list)
        for item in expected[key]
    ]
    return " ".join(filter(None, (str(expected.get("outcome", "")), " or ".join(map(str, codes)))))


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
        regions_side_by_side ibv_wr_post
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
        if self.key[:2] == ("use", CHANGED):
            return self.key[:2]
        if self.key[:2] == ("use", "region") and len(self.key) == _WITH_OPERATION:
            return self.key[:3]
        return ()


CHANGED = "ibv_rereg_mr"
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
_EVERY_PACKET: Mapping[str, str] = {"WIRE-08": "RDMA_WRITE_ONLY"}
_CHECKED: Mapping[tuple[str, str, str], str] = {
    ("WIRE-06", Effect.ACCEPTED, UNSENT): UNSENT,
    ("WIRE-06", Effect.ACCEPTED, ANSWER_FORM): "RDMA_WRITE",
    ("WIRE-04", Effect.MOVED, PSN_ALONE): PSN_ALONE,
}
# The rule on messages that are longer than their receives: the responder answers them, and not the check of a key.
_OF_LENGTHS = "STAT-08"
# The call that ends most keys. Older results do not name the call.
_DESTRUCTION = "ibv_dereg_mr"
# By the key of a cause: its fingerprints in earlier versions, which separated what one change of the stack cures.
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
    (WIRE, "WIRE-06", "RDMA_WRITE", Effect.ACCEPTED): ("83d091beff28",),
    (WIRE, "WIRE-08", "RDMA_WRITE_ONLY", Effect.REFUSED): ("50a91f05c63d",),
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
    if fault.verb == "await_traffic" and effect is Effect.MOVED and fault.key == WINDOW:
        return _ENDED_WINDOW
    if changed := _of_change(symptom, rule):
        return changed
    if effect in (Effect.MOVED, Effect.ACCEPTED) and _exceeds_region(fault):
        return ("use", "outside of a region")
    if effect in _OF_USES:
        return _of_use(fault, rule)
    return ()


def _of_change(symptom: Symptom, rule: str) -> tuple[str, ...]:
    """Returns the cause of a wrong use of a region that was registered again: the flags of this call, what it decides
    about the request, and the effect. Empty for other symptoms."""
    fault = symptom.fault
    flags, decides = fault.changed, fault.decides
    if symptom.smallest and symptom.case.startswith(_MODEL) and rule.startswith("REREG-"):
        change = symptom.smallest.get("change", "access")
        flags = tuple(flag for word, flag in _FLAGS.items() if word in change or change == "all")
        decides = _DECIDED.get(rule, "")
    effect = Effect.MOVED if fault.effect is Effect.ACCEPTED else fault.effect
    of_memory = fault.region and effect is not Effect.MOVED
    if not flags or effect not in _OF_USES or of_memory or (fault.dead and not decides):
        return ()
    return ("use", CHANGED, "+".join(flags), decides, effect)


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
