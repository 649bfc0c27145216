"""Creates the title of a defect from its cause, the short names of the rules, and what the symptoms have in common;
their order does not change the title. For several causes, see title_of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from conformance.defects.cause import (
    ACCESS,
    AWAITED,
    BIND,
    CHANGED,
    INVALIDATION,
    OF_CHANGE,
    REGISTRATION,
    Cause,
    group_of,
)
from conformance.defects.conditions import Flags, Granted, conditions, flags_in, flags_of
from conformance.defects.owner import frame_of_driver
from conformance.defects.symptom import KernelSite, Symptom, site_of
from conformance.model.combinations import (
    ATOMIC_AFTER_RESET,
    CUT_READ,
    FENCED,
    NOT_READY,
    SENT_AGAIN,
)
from conformance.model.fault import (
    ANSWER_FORM,
    HUGE,
    ICRC,
    NO_EVENT_OF_FAILURE,
    ON_DEMAND,
    OWN_ADDRESSES,
    PACKET_LENGTHS,
    PERSISTENT,
    PSN_ALONE,
    UNSENT,
    WINDOW,
    Effect,
    Fault,
    FaultKind,
)
from conformance.model.operations import BUILT, BUILT_INLINE
from conformance.model.record import HeaderRecord
from conformance.model.vocabulary import WIRE

# The short name of each rule, which says what the rule is about, by the rule's id.
Shorts = Mapping[str, str]

_GROUPS = {
    REGISTRATION: "a registration",
    BIND: "a bind",
    INVALIDATION: "an invalidation",
    ACCESS: "an access",
    WIRE: "the handling of packets",
}
# What happened to an object when a call changed its access, at any entry.
_CHANGES = {"ibv_rereg_mr": "a re-registration", "ibv_bind_mw": "a bind"}
# The words before and after the word `region` in a title.
_BEFORE = {ON_DEMAND: "on-demand (ODP) "}
_BEHIND = {
    PERSISTENT: " of persistent memory",
    HUGE: " of huge pages",
}
_REMARKS: Mapping[str, str] = {
    FaultKind.WRONG_INVALIDATED_KEY: "the receiver's completion lacks WITH_INV and the invalidated key",
    FaultKind.WRONG_IMMEDIATE: "wrong immediate data are reported to the receiver",
    FaultKind.WRONG_LENGTH: "a wrong length is reported to the receiver",
    FaultKind.WRONG_OPCODE: "the completion has a wrong opcode",
    FaultKind.WRONG_WR_ID: "the completion has a wrong wr_id",
    FaultKind.WRONG_RKEY: "the structure of the window has a wrong rkey",
    FaultKind.NO_EVENT: "an asynchronous event is not reported",
    FaultKind.WRONG_STATE: "the queue pair is in a wrong state",
    FaultKind.WRONG_STRUCTURE: "the structure of the region differs from the arguments",
    FaultKind.SEVERAL_COMPLETIONS: "one request has several completions",
    FaultKind.UNASKED_COMPLETION: "a completion was not requested",
    FaultKind.DIFFERENT: "the reported values differ from the document",
}
_MOST_NAMES = 3
# What a wire peer sees, by effect.
_OF_PACKETS: Mapping[str, str] = {
    Effect.MOVED: "moves bytes that it must not move",
    Effect.MISPLACED: "succeeds without its data",
    Effect.ACCEPTED: "is not refused",
    Effect.REFUSED: "is refused or not answered",
    Effect.HUNG: "never completes",
    Effect.STATUS: "gets a wrong answer",
    Effect.REMARK: "is reported wrongly",
}


def shorts_in(header: HeaderRecord) -> Shorts:
    """Returns the short names of the rules in the header of a run; a header of an older version has none."""
    return {id_: str(texts.get("short", "")) for id_, texts in (header.get("rules") or {}).items()}


def title_of(
    causes: Sequence[Cause],
    symptoms: Sequence[Symptom],
    succeeded: Granted,
    shorts: Shorts,
) -> str:
    """Returns the title of a defect with these causes. If the defect has several causes and its calls share a
    condition, the condition determines the title, else the first cause. For `succeeded`, see `granted`."""
    first = causes[0]
    if len(causes) > 1 and (flags := next(filter(None, conditions(symptoms, succeeded)), ())):
        return f"a valid registration with {' and '.join(flags[:_MOST_NAMES])} is refused{_with(first.key[2])}"
    return _TITLES[first.key[0]](first.key[1:], symptoms, shorts)


def title_of_family(family: Sequence[object], causes: Sequence[Cause]) -> str:
    """Returns what several causes of one family (Defect.family) have in common."""
    keys = [cause.key for cause in causes]
    if family[1] == CHANGED:
        of_uses = [{*key[2].split("+")} for key in keys if key[:2] == OF_CHANGE]
        flags = set.intersection(*of_uses) if of_uses else set()
        return " with ".join([CHANGED, *(["+".join(sorted(flags))] if flags else [])])
    operations = ", ".join(key[-1] or "others" for key in keys)
    return _THROUGH_A_REGION[keys[0][2]].format(operations)


def _packets(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    rule, operation, effect = key
    what, about = _OF_PACKETS.get(effect, str(effect)), shorts.get(rule) or rule
    faults = [symptom.fault for symptom in symptoms]
    checks, operations = {fault.check for fault in faults}, {fault.operation for fault in faults}
    statuses = sorted({code for fault in faults for code in fault.expected} - {"nothing"})
    if rule in _AFTER:
        operation = _AFTER[rule]
    elif rule == "WIRE-21":
        ends = sorted({status for fault in faults for status in fault.seen})
        operation, what = "requests", f"complete with {' or '.join(ends)}"
    elif rule == "WIRE-06" and effect == Effect.STATUS:
        what = f"completes with {faults[0].answer} instead of {' or '.join(statuses)}"
    elif checks in ({ANSWER_FORM}, {PACKET_LENGTHS}, {UNSENT}, {PSN_ALONE}):
        operation = checks.pop()
    elif checks == {ICRC}:
        operation = f"{operation} with {ICRC}"
    elif rule == "WIRE-06" and effect == Effect.ACCEPTED:
        operation, what = " or ".join(sorted(operations)), "completes without its data"
    elif operation == "nothing":
        operation, what = "a packet", "is sent that is not due"
    elif all(fault.kind is FaultKind.WRONG_PACKET for fault in faults):
        operation, what = _sent(operation, faults)
    return f"packets: {operation or 'a request'} {what}: {about}"


def _sent(operation: str, faults: Sequence[Fault]) -> tuple[str, str]:
    """Returns the packets that the device sends instead of an operation, and what is wrong with them."""
    sent: set[str] = set()
    fields: set[str] = set()
    for fault in faults:
        for text in fault.seen if fault.expected else ():
            name, *wrong = text.split("; ")
            sent.add(name)
            fields.update(_FIELDS.get(each.split()[0], each.split()[0]) for each in wrong)
    if not sent:
        return operation, "is followed by packets of the device that are wrong"
    names = " or ".join(sorted(sent))
    if operation not in sent:
        return names, f"is sent instead of {operation}"
    if fields:
        return names, f"is sent with a wrong {', '.join(sorted(fields))}"
    return names, "is sent with a wrong form"


# The names of fields of packets in titles, by those of faults.
_FIELDS: Mapping[str, str] = {
    "va": "address",
    "psn": "PSN",
    "data": "payload",
    "other": "payload",  # "other bytes than …"
}
# By rule: what packets after the fault are, whatever their operation.
_AFTER: Mapping[str, str] = {"WIRE-08": "the next message"}


def _with(errno: str) -> str:
    if errno:
        return f" with {errno}"
    return ""


def _group(group: str) -> str:
    return _GROUPS.get(group, group)


def _call(group: str, symptoms: Sequence[Symptom]) -> str:
    """Returns the name of a group of calls, or more precisely what all failing calls have in common."""
    verbs = {symptom.verb for symptom in symptoms}
    if verbs == {"post_local_inv"}:
        return "a local invalidation"
    titles = {symptom.call.partition("(")[0] for symptom in symptoms}
    if group not in _GROUPS and len(titles) == 1:
        (title,) = titles
        if title.startswith("uverbs "):
            return title
    return _group(group)


def _about(symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    """Returns the short names of the violated rules as the end of a title, those of most symptoms first."""
    count = Counter(rule for symptom in symptoms for rule in symptom.rules)
    rules = sorted(count, key=lambda rule: (-count[rule], rule))[:_MOST_NAMES]
    names = [shorts[rule] for rule in rules if shorts.get(rule)]
    if names:
        return f": {'; '.join(names)}"
    return ""


def _kernel(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    fault, site = symptoms[0].fault, site_of(symptoms[0].fault)
    of_tools = fault.effect is Effect.KERNEL_ALARM and len(fault.seen) > 1
    if of_tools:
        what = fault.seen[0]
    elif fault.kind in (FaultKind.KERNEL_WARNED, FaultKind.KERNEL_TAINTED):
        what = "kernel warning"
    else:
        what = "kernel fault"
    if not site:
        return f"{what} during {_group(key[0])}{_short(key[-1], shorts)}"
    where = f"{site}{_below(site, symptoms)}"
    # Packets show the defects of posted requests, too.
    symptoms = [symptom for symptom in symptoms if symptom.verb != WIRE] or symptoms
    groups = set(map(_group_of, symptoms))
    if len(groups) > 1:
        return f"{what} in {where}"
    during = f"{_group(groups.pop())}{_of_unbound(symptoms)}{_of_memory(symptoms)}"
    if what == "kernel warning":
        during += _about(symptoms, shorts)
    return f"{what} in {where}, during {during}"


def _below(site: KernelSite, symptoms: Sequence[Symptom]) -> str:
    """Returns the function of a driver on the stack, if the site itself is outside of every module; else empty."""
    if site.module:
        return ""
    logs = (symptom.record["kernel"].get("log", ()) for symptom in symptoms)
    frame = next(filter(None, map(frame_of_driver, logs)), None)
    if frame:
        return f" below {frame[0]} ({frame[1]})"
    return ""


def _group_of(symptom: Symptom) -> str:
    if _INVALIDATED.search(symptom.call):
        return INVALIDATION
    return group_of(symptom.verb)


def _of_unbound(symptoms: Sequence[Symptom]) -> str:
    """Returns that each call names a window that is not bound; empty if one names something else."""
    return " of a window that is not bound" if all(map(_is_of_unbound, symptoms)) else ""


def _is_of_unbound(symptom: Symptom) -> bool:
    """Whether a call, or the last packet that invalidates a key, names a window that is not bound, or no longer."""
    keys = _INVALIDATED.findall(symptom.call)
    if not keys:
        return bool(symptom.fault.dead) and symptom.fault.key == WINDOW
    given = symptom.record.get("set_up", {}).get("given", ())
    windows = [line for line in given if line.startswith(f"{keys[-1]}: window ")]
    return bool(windows) and (keys.count(keys[-1]) > 1 or " bound by " not in windows[0])


def _of_memory(symptoms: Sequence[Symptom]) -> str:
    """Returns the special kind of memory that all cases of a fault have; empty for ordinary memory."""
    kinds = []
    for symptom in symptoms:
        set_up = (symptom.deviation or symptom.record).get("set_up", {})
        kinds.append(set(_MEMORY.findall(" ".join(set_up.get("given", ())))))
    common = set.intersection(*kinds) - {"anonymous"}
    if common:
        return f" ({', '.join(sorted(common))} memory)"
    return ""


_INVALIDATED = re.compile(r"_WITH_INV\(inv=(\w+)\.rkey\b")
_MEMORY = re.compile(r": memory, (\w+),")


def _short(rule: str, shorts: Shorts) -> str:
    if rule:
        return f": {shorts.get(rule) or rule}"
    return ""


def _process(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    group, by = key
    if by.startswith("SIG"):
        return f"{_group(group)} kills the process with {by}{_about(symptoms, shorts)}"
    return f"{_group(group)} kills the process{_short(by, shorts)}"


def _use(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    what, *more = key
    if what == CHANGED:
        flags, decides, effect, *_ = more
        in_flight = all(symptom.fault.verb == AWAITED for symptom in symptoms)
        return f"{CHANGED} with {flags}: {_of_change(decides, effect, in_flight)}"
    if what == "ended window":
        return "a request in flight moves bytes after its window has ended"
    if what == ATOMIC_AFTER_RESET:
        read = all(symptom.smallest.get("before") == CUT_READ for symptom in symptoms)
        failed = "an RDMA READ that was cut off" if read else "a failed request"
        return f"atomic operations {_worded(_AFTER_RESET, symptoms)} after a reset of their queue pair, which follows {failed}"
    if what == SENT_AGAIN:
        effects = _worded(_SENT_AGAIN, symptoms)
        return (
            f"{_operations(symptoms)} that is sent again {effects}, which a wrong address explains"
        )
    if what == BUILT_INLINE or more[1:] == [BUILT]:
        return f"{more[-1] if more else what}: {_effects(symptoms)}"
    if more == [FENCED]:
        again = all(symptom.smallest.get("before") == NOT_READY for symptom in symptoms)
        return f"a fenced {_operations(symptoms)} {'that is sent again ' * again}never completes"
    if what == "no completion":
        return f"requests never complete: {more[0] or 'any'}"
    if what == "window":
        rule, effect = more[0], more[1] if len(more) > 1 else Effect.MOVED
        return f"{shorts.get(rule) or rule}: {_THROUGH_A_WINDOW[effect]}"
    if what == "region" and len(more) == 1:
        kinds = more[0].split(", ")
        before = "".join(_BEFORE.get(kind, "") for kind in kinds)
        behind = "".join(_behind(kind, symptoms) for kind in kinds)
        return f"{before}region{behind}: {_effects(symptoms)}"
    if what == "region":
        return _THROUGH_A_REGION[more[0]].format(more[1] or "an operation")
    if what == "dead key" and more:
        return f"the access of before {_CHANGES.get(more[0], more[0])} remains"
    if what == "dead key":
        return "a key remains valid after its region was destroyed"
    return "requests access bytes outside of a region"


def _of_change(decides: str, effect: str, in_flight: bool) -> str:
    words = {
        Effect.MOVED: f"access as before remains{' for requests in flight' * in_flight}",
        Effect.REFUSED: "access that it grants is refused",
    }
    if decides:
        return f"{words.get(Effect(effect), _OF_REGION[effect])} ({decides})"
    return _OF_REGION[effect]


def _behind(kind: str, symptoms: Sequence[Symptom]) -> str:
    """Returns what kind of region it is; of the two kinds of own addresses, those that the cases have."""
    if kind != OWN_ADDRESSES:
        return _BEHIND.get(kind, "")
    based = {symptom.is_zero_based for symptom in symptoms}
    return f" with {' or '.join(_OWN[is_zero_based] for is_zero_based in sorted(based))}"


def _operations(symptoms: Sequence[Symptom]) -> str:
    return " or ".join(sorted({symptom.fault.operation or "request" for symptom in symptoms}))


def _worded(words: Mapping[Effect, str], symptoms: Sequence[Symptom]) -> str:
    """Returns the words for the first of their effects that the symptoms show."""
    effects = {symptom.fault.effect for symptom in symptoms}
    return next((word for effect, word in words.items() if effect in effects), "fail")


_AFTER_RESET: Mapping[Effect, str] = {
    Effect.HUNG: "never complete",
    Effect.MISPLACED: "lose their result under SUCCESS",
    Effect.ACCEPTED: "are not refused",
    Effect.REFUSED: "are refused",
}
_SENT_AGAIN: Mapping[Effect, str] = {
    Effect.MISPLACED: "loses or misplaces its data",
    Effect.REFUSED: "is refused",
}


def _effects(symptoms: Sequence[Symptom]) -> str:
    """Returns what the symptoms show, the worst first."""
    effects = {symptom.fault.effect for symptom in symptoms}
    words = [word for effect, word in _OF_REGION.items() if effect in effects]
    return ", ".join(words) or "the use of the region fails"


_OWN = {False: "hca_va", True: "ZERO_BASED"}
_OF_REGION: Mapping[str, str] = {
    Effect.KERNEL_DIED: "the kernel crashes",
    Effect.MOVED: "forbidden bytes are moved",
    Effect.MISPLACED: "bytes are lost or misplaced",
    Effect.REFUSED: "valid requests are refused",
}
_THROUGH_A_WINDOW: Mapping[str, str] = {
    Effect.MOVED: "its rkey moves bytes that it must not move",
    Effect.MISPLACED: "data are misplaced or lost under SUCCESS",
    Effect.REFUSED: "valid requests are refused",
}
_THROUGH_A_REGION: Mapping[str, str] = {
    Effect.MOVED: "{} through a region's key moves bytes without the right to do so",
    Effect.MISPLACED: "data of {} are misplaced or lost under SUCCESS",
    Effect.REFUSED: "valid requests are refused: {}",
    Effect.KERNEL_DIED: "the use of a region kills the kernel",
}


def _without_local_write(symptoms: Sequence[Symptom]) -> str:
    """Returns that no region of the failing calls has LOCAL_WRITE, which some devices require by mistake; empty if one
    has it, or if the rights are unknown."""
    for symptom in symptoms:
        condition = str(symptom.deviation and symptom.deviation.get("when"))
        given = symptom.record.get("set_up", {}).get("given", ())
        rights = [flags for line in given if (flags := flags_in(line))]
        unknown = not rights or any("LOCAL_WRITE" in flags for flags in rights)
        if "!LOCAL_WRITE" not in condition and unknown:
            return ""
    return " of a region without LOCAL_WRITE"


def _refused(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    group, errno, *rule = key
    name = _call(group, symptoms) or "what is declared, or in the profile,"
    if group == _INHERITED:
        return "a forked child lacks pages that belong to no region"
    if group == INVALIDATION and rule and rule[0].startswith("on "):
        return f"{name} {rule[0]} queue pairs is refused{_with(errno)}"
    if not rule:
        valid = name.partition(" ")[2] if group in _GROUPS else name
        of_regions = _without_local_write(symptoms)
        return f"a valid {valid}{of_regions} is refused{_with(errno)}{_about(symptoms, shorts)}"
    flags = [flags_of(symptom) or Flags() for symptom in symptoms]
    if group == REGISTRATION:
        name = "a valid registration"
        if all("ON_DEMAND" in names for names in flags):
            name += " with ON_DEMAND"
    return f"{name} is refused{_with(errno)}{_short(rule[0], shorts)}"


def _accepted(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    group, _, rule, *checks = key
    if group == BIND and rule == "BIND-18":
        return f"a bind is not refused: {checks[0] if checks else _OF_REGION_DOMAIN}"
    if group == "connect_qp":
        return f"a refused request is executed later{_short(rule, shorts)}"
    operations = {_operation(symptom) for symptom in symptoms}
    if group == ACCESS and len(operations) == 1 and operations != {""}:
        return f"{operations.pop()} is not refused{_short(rule, shorts)}"
    if group not in _GROUPS and all(symptom.fault.outside for symptom in symptoms):
        coded = [symptom.fault for symptom in symptoms if symptom.fault.effect is Effect.CODE]
        documented = sorted({code for fault in coded for code in fault.expected})
        with_code = _with(" or ".join(documented))
        return f"{_call(group, symptoms)} is not refused{with_code}: a range outside of its region"
    return f"{_call(group, symptoms)} is not refused{_short(rule, shorts)}"


_OF_REGION_DOMAIN = "region of another PD than the window"


def _operation(symptom: Symptom) -> str:
    """Returns the operation of the request that failed; empty if the call does not name it."""
    match = _OPERATION.search(symptom.call)
    return match[1] if match else symptom.smallest.get("op", symptom.fault.operation)


_OPERATION = re.compile(r"\bop=([A-Z_]+)")
_INHERITED = "inherited"
# For calls of the suite that compare values: what it means that the values differ.
_VALUES: Mapping[str, str] = {
    _INHERITED: "a forked child gets only some of the pages that it must get",
    "query_mr": "QUERY_MR reports other values than those of the region",
    "ibv_fork_init": "fork protection differs from what its settings say",
}

# Calls that compare the fields of completions.
_OF_COMPLETIONS = (
    "completion_fields",
    "completions_in_turn",
    "failures_in_turn",
    "receives_in_turn",
)
# Calls that compare the events of completions, by whose completion it is.
_NOTIFIED = {"bind_notified": "bind", "message_notified": "receive", "request_notified": "request"}


def _remark(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    fault = symptoms[0].fault
    if all("solicited_only=1" in symptom.call for symptom in symptoms):
        return f"{_group(group_of(fault.verb))} that fails raises no solicited event"
    if NO_EVENT_OF_FAILURE in fault.seen:
        return f"a {_NOTIFIED[fault.verb]} that fails raises no solicited event"
    if fault.verb in _NOTIFIED:
        of = f"the completion of a {_NOTIFIED[fault.verb]} raises"
        if "no completion event" in symptoms[0].line:
            return f"{of} no event, although it was requested"
        return f"{of} an event that was not requested"
    if fault.verb in _OF_COMPLETIONS:
        return f"a completion has {_fields(symptoms)}"
    if fault.verb in _VALUES:
        return _VALUES[fault.verb]
    remark = _REMARKS.get(fault.kind)
    if remark:
        return f"{_group(key[0])}: {remark}"
    return f"{_group(key[0])}: {key[1].lstrip(': ')}"


def _fields(symptoms: Sequence[Symptom]) -> str:
    """Returns the wrong fields of completions: a wrong flag as a text, of a wrong value the field."""
    fields = set()
    for symptom in symptoms:
        for text in symptom.fault.seen:
            name, wrong, _ = text.partition(" instead of ")
            fields.add(f"a wrong {name.split()[0]}" if wrong else name)
    return ", ".join(sorted(fields)) or "a wrong field"


def _answered(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    fault, name = symptoms[0].fault, _call(key[0], symptoms)
    if fault.returned.startswith("ERR_"):  # the verb's own code, which is judged instead of errno
        about = _about(symptoms, shorts)
        return f"{name} returns {fault.returned} instead of {' or '.join(fault.expected)}{about}"
    about = _about(symptoms, shorts)
    documented = sorted({code for symptom in symptoms for code in symptom.fault.expected})
    return f"{name} fails{_with(key[1])} instead of {' or '.join(documented)}{about}"


def _core(key: Sequence[str], symptoms: Sequence[Symptom], shorts: Shorts) -> str:
    """Names an argument that no object has, if all calls have it, instead of all that the rule demands."""
    expected = sorted({code for symptom in symptoms for code in symptom.fault.expected})
    if expected and any(symptom.fault.effect is Effect.REFUSED for symptom in symptoms):
        expected.insert(0, "success")  # some of the calls are valid
    instead = f" instead of {' or '.join(expected)}" if expected else ""
    named = [set(_INVENTED.findall(symptom.call)) for symptom in symptoms]
    common = sorted(set.intersection(*named))
    about = f" with an invented {common[0]}" if common else _about(symptoms, shorts)
    return f"the kernel's core returns {key[1] or 'an error'}{instead} for {_group(key[0])}{about}"


_TOO_LONG = "messages that are longer than their receives"
_INVENTED = re.compile(r"\b(\w+)=invented\b")
_Title = Callable[[Sequence[str], Sequence[Symptom], Shorts], str]
# The functions that make titles, by the first element of the key of a cause.
_TITLES: Mapping[str, _Title] = {
    WIRE: _packets,
    "kernel": _kernel,
    Effect.PROCESS_DIED: _process,
    "kernel core": lambda key, symptoms, shorts: (
        "UVERBS_METHOD_REG_MR sets neither iova nor length of a region"
    ),
    "core": _core,
    "use": _use,
    Effect.STATUS: lambda key, symptoms, shorts: (
        f"{_TOO_LONG if key[1:] else 'refused requests'} complete with {key[0]} instead of their own status"
    ),
    Effect.REMARK: _remark,
    "answered": _answered,
    "never freed": lambda key, symptoms, shorts: (
        f"memory is never freed, allocated in {site_of(symptoms[0].fault)}"
    ),
    Effect.ACCEPTED: _accepted,
    Effect.REFUSED: _refused,
    Effect.KEPT: lambda key, symptoms, shorts: (
        f"objects remain after {_group(key[0])}{_short(key[2], shorts)}"
    ),
    Effect.HUNG: lambda key, symptoms, shorts: (
        f"{_group(key[0])} does not finish{_short(key[2], shorts)}"
    ),
    Effect.CODE: lambda key, symptoms, shorts: (
        f"{_group(key[0])} fails with no documented code{_short(key[2], shorts)}"
    ),
}
