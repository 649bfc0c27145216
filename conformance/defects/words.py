"""Creates the title of a defect, and finds the shortest condition on access flags that is true for all failing calls of
the defect and for no successful call. The title of a defect with one cause is created from this cause and the short
name of the rule, so it does not depend on the cases that have shown the defect. For several causes, see title_of."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from conformance.defects.symptom import (
    ACCESS,
    BIND,
    INVALIDATION,
    REGISTRATION,
    Cause,
    Symptom,
    site_of,
    verb_of,
)
from conformance.model.fault import HUGE, ON_DEMAND, OWN_ADDRESSES, PERSISTENT, Effect, FaultKind
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import WIRE
from conformance.verbs import ENUMS

Flags = frozenset[str]
# By verb: the access flags of each call that had to succeed and succeeded.
Granted = Mapping[str, frozenset[Flags]]
# A condition on the access flags of a call. An empty condition is true for every call of the verb.
Condition = tuple[str, ...]

_ACCESS = frozenset(ENUMS["ibv_access_flags"].short_names)
_FLAGS = re.compile(r"\baccess=([A-Z_|]+)")
_MOST_FLAGS = 2


def granted(results: Iterable[ResultRecord]) -> Granted:
    flags_by_verb: dict[str, set[Flags]] = {}
    for record in results:
        if record["verdict"] == Verdict.PASS and record["expected"].get("outcome") == "success":
            flags_by_verb.setdefault(verb_of(record["call"]), set()).add(
                _flags_in(record["call"]) or Flags(),
            )
    return {verb: frozenset(flags) for verb, flags in flags_by_verb.items()}


def conditions(symptoms: Sequence[Symptom], succeeded: Granted) -> Iterator[Condition]:
    """Yields the conditions of at most two flags that are true for all failing calls and for no successful call, the
    shortest first. Symptoms whose flags are unknown are left out."""
    conditions = [
        (symptom.verb, flags) for symptom in symptoms if (flags := flags_of(symptom)) is not None
    ]
    verbs = {verb for verb, _ in conditions} or {symptom.verb for symptom in symptoms}
    good = [flags for verb in verbs for flags in succeeded.get(verb, ())]
    if conditions:
        common = sorted(Flags.intersection(*(flags for _, flags in conditions)))
    else:
        common = []
    for count in range(_MOST_FLAGS + 1):
        for names in itertools.combinations(common, count):
            if not any(set(names) <= flags for flags in good):
                yield names


def flags_of(symptom: Symptom) -> Flags | None:
    """Returns the access flags of the failed call, from the call, the smallest point or the set-up; None if unknown."""
    of_call = _flags_in(symptom.call)
    if of_call is not None:
        return of_call
    of_point = Flags(re.split(r"\W+", symptom.smallest.get("access", ""))) & _ACCESS
    set_up = (symptom.deviation or symptom.record).get("set_up", {}).get("given", ())
    lines = (line.partition(": ")[2] for line in set_up)
    of_set_up = [
        flags
        for line in lines
        if verb_of(line) == symptom.verb and (flags := _flags_in(line)) is not None
    ]
    return of_point or (of_set_up[0] if of_set_up else None)


def _flags_in(call: str) -> Flags | None:
    match = _FLAGS.search(call)
    if match:
        return Flags(match[1].split("|")) & _ACCESS
    return None


# The short name of each rule, which says what the rule is about, by the rule's id.
Shorts = Mapping[str, str]

_GROUPS = {
    REGISTRATION: "a registration",
    BIND: "a bind",
    INVALIDATION: "an invalidation",
    ACCESS: "an access",
}
# The words before and after the word `region` in a title.
_BEFORE = {ON_DEMAND: "on-demand (ODP) "}
_BEHIND = {
    OWN_ADDRESSES: " with hca_va or ZERO_BASED",
    PERSISTENT: " of persistent memory",
    HUGE: " of huge pages",
}
_REMARKS: Mapping[str, str] = {
    FaultKind.WRONG_INVALIDATED_KEY: "the invalidated key is not reported to the receiver",
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
        return f"a registration with {' and '.join(flags[:_MOST_NAMES])} is refused{_with(first.key[2])}"
    return _TITLES[first.key[0]](first.key[1:], symptoms[0], shorts)


def _packets(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    rule, operation, effect = key
    what = _OF_PACKETS.get(effect, str(effect))
    return f"packets: {operation or 'a request'} {what}: {shorts.get(rule) or rule}"


def _with(errno: str) -> str:
    if errno:
        return f" with {errno}"
    return ""


def _group(group: str) -> str:
    return _GROUPS.get(group, group)


def _kernel(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    fault, site = symptom.fault, site_of(symptom.fault)
    of_tools = fault.effect is Effect.KERNEL_ALARM and len(fault.seen) > 1
    if of_tools:
        what = fault.seen[0]
    else:
        what = "kernel fault"
    if site:
        return f"{what} in {site}"
    return f"{what} during {_group(key[0])}{_short(key[-1], shorts)}"


def _short(rule: str, shorts: Shorts) -> str:
    if rule:
        return f": {shorts.get(rule) or rule}"
    return ""


def _process(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    group, by = key
    return f"{_group(group)} kills the process{f' with {by}' if by.startswith('SIG') else _short(by, shorts)}"


def _use(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    what, *more = key
    if what == "ended window":
        return "a request in flight moves bytes after its window has ended"
    if what == "no completion":
        return f"requests never complete: {more[0] or 'any'}"
    if what == "window":
        rule, effect = more[0], more[1] if len(more) > 1 else Effect.MOVED
        return f"{shorts.get(rule) or rule}: {_THROUGH_A_WINDOW[effect]}"
    if what == "region" and len(more) == 1:
        kinds = more[0].split(", ")
        before = "".join(_BEFORE.get(kind, "") for kind in kinds)
        behind = "".join(_BEHIND.get(kind, "") for kind in kinds)
        return f"{before}region{behind}: bytes are lost, misplaced or refused"
    if what == "region":
        return _THROUGH_A_REGION[more[0]].format(more[1] or "an operation")
    if what == "dead key" and more:
        return f"a key remains valid after {more[0]} has replaced it"
    if what == "dead key":
        return "a key remains valid after its region was destroyed"
    return "requests access bytes outside of a region"


_THROUGH_A_WINDOW: Mapping[str, str] = {
    Effect.MOVED: "its rkey moves bytes that it does not grant",
    Effect.MISPLACED: "data are misplaced or lost under SUCCESS",
    Effect.REFUSED: "valid requests are refused",
}
_THROUGH_A_REGION: Mapping[str, str] = {
    Effect.MOVED: "{} through a region's key moves bytes without the right to do so",
    Effect.MISPLACED: "data of {} are misplaced or lost under SUCCESS",
    Effect.REFUSED: "valid requests are refused: {}",
    Effect.KERNEL_DIED: "the use of a region kills the kernel",
}


def _refused(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    group, errno, *rule = key
    if group == _INHERITED:
        return "a forked child lacks pages that no region has registered any longer"
    if group == INVALIDATION and rule and rule[0].startswith("on "):
        return f"an invalidation {rule[0]} queue pairs is refused{_with(errno)}"
    if not rule:
        return f"a valid {_group(group).partition(' ')[2] or group} is refused{_with(errno)}"
    return f"{_group(group)} is refused{_with(errno)}{_short(rule[0], shorts)}"


def _accepted(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    group, _, rule = key
    if group == "connect_qp":
        return f"a refused request is executed later{_short(rule, shorts)}"
    return f"{_group(group)} is not refused{_short(rule, shorts)}"


_INHERITED = "inherited"
# For calls of the suite that compare values: what it means that the values differ.
_VALUES: Mapping[str, str] = {
    _INHERITED: "a forked child gets only some of the pages that it must get",
    "bind_notified": "the completion of a bind raises no event, or one that was not requested",
    "query_mr": "QUERY_MR reports other values than those of the region",
    "ibv_fork_init": "fork protection differs from what its settings say",
}


def _remark(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    if symptom.fault.verb in _VALUES:
        return _VALUES[symptom.fault.verb]
    remark = _REMARKS.get(symptom.fault.kind)
    if remark:
        return f"{_group(key[0])}: {remark}"
    return f"{_group(key[0])}: {key[1].lstrip(': ')}"


def _answered(key: Sequence[str], symptom: Symptom, shorts: Shorts) -> str:
    returned = symptom.fault.returned
    if returned.startswith("ERR_"):  # the verb's own code, which is judged instead of errno
        return (
            f"{_group(key[0])} returns {returned} instead of {' or '.join(symptom.fault.expected)}"
        )
    if len(key) > 2:
        where = "a range outside of its object"
    else:
        where = "its cause"
    return f"{_group(key[0])} fails{_with(key[1])}, which is not the errno of {where}"


_Title = Callable[[Sequence[str], Symptom, Shorts], str]
# The functions that make titles, by the first element of the key of a cause.
_TITLES: Mapping[str, _Title] = {
    WIRE: _packets,
    "kernel": _kernel,
    Effect.PROCESS_DIED: _process,
    "kernel core": lambda key, symptom, shorts: (
        "UVERBS_METHOD_REG_MR sets neither iova nor length of a region"
    ),
    "core": lambda key, symptom, shorts: (
        f"the RDMA core returns {key[1] or 'an error'} for {_group(key[0])}"
    ),
    "use": _use,
    Effect.STATUS: lambda key, symptom, shorts: (
        f"refused requests complete with {key[0]} instead of their own status"
    ),
    Effect.REMARK: _remark,
    "answered": _answered,
    "never freed": lambda key, symptom, shorts: (
        f"memory is never freed, allocated in {site_of(symptom.fault)}"
    ),
    Effect.ACCEPTED: _accepted,
    Effect.REFUSED: _refused,
    Effect.KEPT: lambda key, symptom, shorts: (
        f"objects remain after {_group(key[0])}{_short(key[2], shorts)}"
    ),
    Effect.HUNG: lambda key, symptom, shorts: (
        f"{_group(key[0])} does not finish{_short(key[2], shorts)}"
    ),
    Effect.CODE: lambda key, symptom, shorts: (
        f"{_group(key[0])} fails with no documented code{_short(key[2], shorts)}"
    ),
}
