"""Judges the points of a model by the answers of the reference. A point is judged in two steps: whether the request was
granted or refused with all its bytes; and if so, what its completions report. A defect of a report hides no other."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.model.combinations import (
    ANY,
    ATOMIC_AFTER_RESET,
    CALLED,
    COMPLETED,
    FIELDS,
    GRANTED,
    LACKING,
    PAGES,
    POSTED,
    RECEIVE,
    REFUSED,
    RULE_OF,
    STATUS,
    Conditions,
    CoveringArray,
    Point,
    check_of,
    circumstance,
    is_of_call,
)
from conformance.model.fault import Effect, Fault, FaultKind, verdict_of
from conformance.model.observation import AccessSeen, CombinationsSeen, PointClass
from conformance.model.operations import BUILT_INLINE
from conformance.model.point_index import decode_index
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.wire.statuses import FLUSHED

SET_UP = "set_up"
_UNCHANGED = ("nothing", "same")
# Statuses of a receive that cannot be written; the specification permits both.
_OF_RECEIVES = ("LOC_PROT_ERR", "LOC_QP_OP_ERR")
_ANOTHER = "another wr_id"  # of a completion that is not the request's own


@dataclass(frozen=True)
class Deviation:
    """What differs from the answer: the aspect that is wrong, and the fault."""

    aspect: str
    fault: Fault


def is_granted(answer: AccessSeen) -> bool:
    statuses = _statuses(answer.get("requester", ())) + _statuses(answer.get("receiver", ()))
    changed = (answer.get("tested"), answer.get("other"))
    return all(status == "SUCCESS" for status in statuses) and not {"nothing"} & {*changed}


def _statuses(completions: Sequence[Sequence[str]]) -> list[str]:
    return [words[0] for words in completions]


def deviation(point_class: PointClass, iba: bool) -> Deviation | None:
    """Returns what is wrong at the points of a class, or None. `iba` is whether the statuses of the specification
    apply."""
    answer, seen = point_class["answer"], point_class["observed"]
    if "setup_failed" in seen:
        return Deviation(SET_UP, Fault(FaultKind.REFUSED, seen=(seen["setup_failed"],)))
    if "called" in answer and (wrong := _of_call(answer, seen)):
        return wrong
    if answer.get("called", "0") != "0":  # then nothing is used
        return _of_bytes(point_class)
    if is_granted(answer):
        return _of_granted(answer, seen) or _of_fields(answer, seen)
    refused = _of_refused(point_class, iba)
    if refused or answer["posted"] != "0":  # then a request may be posted that completes in error
        return refused
    return _of_statuses(point_class, iba) or _of_fields(answer, seen)


def _of_call(answer: AccessSeen, seen: AccessSeen) -> Deviation | None:
    """Compares the call before the use, and the pages that are present afterwards."""
    permitted, code = answer["called"].split(), seen["called"]
    if permitted == ["0"] != [code]:
        return Deviation(CALLED, Fault(FaultKind.REFUSED, errno=code))
    if code not in permitted and (code == "0" or ANY not in permitted):
        kind = FaultKind.ACCEPTED if code == "0" else FaultKind.WRONG_CODE
        errno = "" if code == "0" else code
        return Deviation(REFUSED, Fault(kind, errno=errno, expected=(*permitted,), seen=(code,)))
    if answer.get("pages") != seen.get("pages"):
        kind = FaultKind.ACCEPTED if answer.get("pages") == "absent" else FaultKind.REFUSED
        return Deviation(PAGES, Fault(kind, verb="resident", seen=(seen.get("pages", ""),)))
    return None


def _of_granted(answer: AccessSeen, seen: AccessSeen) -> Deviation | None:
    if seen["posted"] != "0":
        return Deviation(GRANTED, Fault(FaultKind.REFUSED, errno=seen["posted"]))
    requester, receiver = _statuses(seen["requester"]), _statuses(seen["receiver"])
    failed = [status for status in (*requester, *receiver) if status != "SUCCESS"]
    if failed:
        return Deviation(GRANTED, Fault(FaultKind.REFUSED, statuses=(*failed,), seen=(*failed,)))
    if len(requester) < len(answer["requester"]):
        return Deviation(GRANTED, Fault(FaultKind.NO_COMPLETION, statuses=()))
    wrong = [f"{side}: {seen[side]}" for side in ("tested", "other") if seen[side] != answer[side]]
    if wrong:
        nothing = all(text.endswith("nothing") for text in wrong)
        if nothing:
            kind = FaultKind.NOT_ARRIVED
        else:
            kind = FaultKind.OTHER_ARRIVED
        statuses = (*requester,)
        fault = Fault(kind, statuses=statuses, seen=tuple(wrong), nothing_arrived=nothing)
        return Deviation(GRANTED, fault)
    if len(receiver) < len(answer["receiver"]):
        return Deviation(GRANTED, Fault(FaultKind.NO_COMPLETION, statuses=(), seen=("receive",)))
    return None


def _of_bytes(point_class: PointClass) -> Deviation | None:
    """Returns which bytes have changed although the call or the request must be refused."""
    answer, seen = point_class["answer"], point_class["observed"]
    wrong = []
    # The packets before the one with the fault may have been received, into memory that the key opens.
    permitted = ("within",) if point_class["divided"] else ()
    if seen["tested"] not in (*_UNCHANGED, *permitted, answer["tested"]):
        wrong.append(f"memory of the region: {seen['tested']}")
    if seen["other"] not in (*_UNCHANGED, "harmless", "own", answer["other"]):
        wrong.append(f"other memory: {seen['other']}")
    if wrong:
        return Deviation(REFUSED, Fault(FaultKind.MOVED, seen=tuple(wrong)))
    return None


def _of_refused(point_class: PointClass, iba: bool) -> Deviation | None:
    answer, seen = point_class["answer"], point_class["observed"]
    if (wrong := _of_bytes(point_class)) or not iba:
        return wrong
    if seen["posted"] != "0":
        if answer["receiver"] and seen["posted"].startswith(RECEIVE):
            return None  # the library may know that the elements of the receive are wrong
        return Deviation(POSTED, Fault(FaultKind.REFUSED, errno=seen["posted"]))
    requester = _statuses(seen["requester"])
    if point_class["reliable"] and not requester:
        return Deviation(REFUSED, Fault(FaultKind.NO_COMPLETION, statuses=()))
    # An unreliable transport loses what the peer refuses, and not what the device itself must refuse.
    required = _statuses(answer["requester"])
    if answer["posted"] != "0":
        required = [answer["posted"]]
    if any(
        status == "SUCCESS" != permitted
        for permitted, status in zip(required, requester, strict=False)
    ):
        return Deviation(REFUSED, Fault(FaultKind.ACCEPTED, statuses=("SUCCESS",)))
    if any(_is_of_message(words) for words in seen["receiver"]):
        fault = Fault(FaultKind.ACCEPTED, statuses=("SUCCESS",), key="receiver")
        return Deviation(REFUSED, fault)
    return None


def _is_of_message(words: Sequence[str]) -> bool:
    """Whether a successful receive is that of the message of the point, and not of the SEND without data behind it."""
    return words[0] == "SUCCESS" and "whole length" in words


def _has_status(point_class: PointClass) -> bool:
    """Whether the status of the request is judged: over an unreliable transport only if the device itself must refuse to
    read the request's memory."""
    answered = _statuses(point_class["answer"]["requester"])
    return point_class["reliable"] or "LOC_PROT_ERR" in answered


def _of_statuses(point_class: PointClass, iba: bool) -> Deviation | None:
    answer, seen = point_class["answer"], point_class["observed"]
    if not _has_status(point_class) or not iba or seen["posted"] != "0":
        return None
    expected, statuses = _statuses(answer["requester"]), _statuses(seen["requester"])
    if statuses == [FLUSHED] != expected and _ANOTHER in seen["requester"][0]:
        return Deviation(COMPLETED, Fault(FaultKind.NO_COMPLETION, statuses=()))
    if statuses != expected:
        return Deviation(
            STATUS,
            Fault(FaultKind.WRONG_STATUS, expected=(*expected,), seen=(*statuses,)),
        )
    received, permitted = _statuses(seen["receiver"]), tuple(_statuses(answer["receiver"]))
    if set(permitted) <= {*_OF_RECEIVES}:
        permitted = _OF_RECEIVES
    if answer["receiver"] and not set(received) <= {*permitted}:
        fault = Fault(FaultKind.WRONG_PEER_STATUS, expected=permitted, seen=(*received,))
        return Deviation(STATUS, fault)
    return None


_FIELD_KINDS = {
    _ANOTHER: FaultKind.WRONG_WR_ID,
    "length": FaultKind.WRONG_LENGTH,
    "imm": FaultKind.WRONG_IMMEDIATE,
    "invalidated": FaultKind.WRONG_INVALIDATED_KEY,
}


def _of_fields(answer: AccessSeen, seen: AccessSeen) -> Deviation | None:
    """Compares the fields of completions with the same status. A completion in error has only its ids."""
    for side, expected, completions in (
        ("requester", answer.get("requester", []), seen.get("requester", [])),
        ("receiver", answer.get("receiver", []), seen.get("receiver", [])),
    ):
        if len(completions) > len(expected) and side == "requester":
            return Deviation(FIELDS, Fault(FaultKind.UNASKED_COMPLETION, seen=(*completions[-1],)))
        for right, words in zip(expected, completions, strict=False):
            if right[0] == words[0] and right != words:
                kind = _field_kind(right, words)
                expected_words = [word for word in right if word not in words]
                other_words = [word for word in words if word not in right]
                fault = Fault(
                    kind,
                    expected=tuple(expected_words),
                    seen=tuple(other_words),
                    statuses=(words[0],),
                    key=side,
                )
                return Deviation(FIELDS, fault)
    return None


def _field_kind(right: Sequence[str], words: Sequence[str]) -> FaultKind:
    different = set(words) ^ set(right)
    for part, kind in _FIELD_KINDS.items():
        if any(part in word for word in different):
            return kind
    return FaultKind.WRONG_OPCODE


@dataclass
class Group:
    """Points with the same kind of deviation, the same rule and the same circumstance."""

    deviation: Deviation
    found: PointClass
    points: list[Point] = field(default_factory=list)


class Judged:
    """The points of a record, judged. `groups` are the deviations, `passed` the points that are right by aspect."""

    def __init__(self, points: CoveringArray, seen: CombinationsSeen) -> None:
        self.array, self.seen = points, seen
        self.conditions = Conditions(points.model)
        self.groups: dict[tuple[object, ...], Group] = {}
        self.passed: dict[tuple[str, str], list[Point]] = {}  # by aspect and rule
        self.rules: dict[str, Verdict] = {}
        self.verdicts: Counter[Verdict] = Counter()
        # The points that were not judged, each with what the device lacks, or with the refusal of the set-up.
        self.skipped: dict[Point, str] = {}
        # By rule, the points that count for the rule and show nothing about it: their set-up was refused, or an earlier
        # aspect is wrong.
        self.hidden: dict[str, list[Point]] = {}
        self._unsupported: list[Point] = []  # those of them for which the device lacks something
        deviations = [deviation(item, seen["iba"]) for item in seen["classes"]]
        index = decode_index(seen["index"], len(points.points))
        for point, number in zip(points.points, index, strict=True):
            if number >= LACKING:
                self.verdicts[Verdict.UNSUPPORTED] += 1
                self._unsupported.append(point)
                self.skipped[point] = f"need {seen['lacking'][number - LACKING]}"
            else:
                self._judge(point, seen["classes"][number], deviations[number])

    def _judge(self, point: Point, point_class: PointClass, wrong: Deviation | None) -> None:
        shown = self._shown(point_class)
        if wrong and wrong.aspect == SET_UP:
            self.verdicts[Verdict.UNREACHABLE] += 1
            self.skipped[point] = ", ".join(wrong.fault.seen)
            self._hide(point, shown, set())
            return
        if wrong:
            right = shown[: shown.index(wrong.aspect)]
        elif point_class["observed"]["posted"] != "0":
            right = shown = shown[: shown.index(POSTED)]
        else:
            right = shown
        told = set[str]()
        for aspect in right:
            for rule in self.conditions.rules(point, aspect):
                self.passed.setdefault((aspect, rule), []).append(point)
                self.rules.setdefault(rule, Verdict.PASS)
                told.add(rule)
        if wrong:
            blamed = self.conditions.rules(point, wrong.aspect)
        else:
            blamed = []
        if not wrong or not blamed:
            self.verdicts[Verdict.PASS] += 1
            return
        fault = wrong.fault
        values = dict(zip(self.array.model.names, point, strict=True))
        why = circumstance(values, fault.effect)
        if wrong.aspect == COMPLETED and circumstance(values, Effect.ACCEPTED) == BUILT_INLINE:
            # Without its data, the request may have succeeded, and then an unsignaled one is not told.
            self.verdicts[Verdict.PASS] += 1
            return
        if wrong.aspect in (POSTED, COMPLETED, CALLED, PAGES):
            why = ""
        blamed = [RULE_OF.get(why, blamed[0])]
        self._hide(point, shown, {*told, *blamed})
        verdict = verdict_of(fault.kind)
        self.verdicts[verdict] += 1
        if self.rules.get(blamed[0]) != Verdict.FAIL:
            self.rules[blamed[0]] = verdict
        seen = (fault.kind, fault.expected, fault.statuses, fault.errno)
        # Without the cut READ, what the device keeps over a reset comes from an earlier point, and may not come again.
        before = values["before"] if why == ATOMIC_AFTER_RESET else ""
        of_call = is_of_call(self.conditions.faults(point))
        key = (wrong.aspect, blamed[0], why, before, of_call, check_of(values), *seen)
        group = self.groups.setdefault(key, Group(wrong, point_class))
        group.points.append(point)

    def _shown(self, point_class: PointClass) -> list[str]:
        """Returns the aspects that a point of a class shows if it is right, in the order in which they are compared."""
        answer = point_class["answer"]
        outcome = GRANTED if is_granted(answer) else REFUSED
        if answer.get("called", "0") != "0":
            return [REFUSED, PAGES]
        called = [CALLED, PAGES] if "called" in answer else []
        if not _has_status(point_class) or not self.seen["iba"]:
            return [*called, outcome, POSTED, FIELDS]
        completed = [] if outcome == GRANTED else [COMPLETED]
        return [*called, outcome, POSTED, *completed, STATUS, FIELDS]

    def _hide(self, point: Point, shown: Sequence[str], told: set[str]) -> None:
        """Notes the rules for which a point counts, without those about which it tells something."""
        rules = set[str]().union(*(self.conditions.rules(point, aspect) for aspect in shown))
        for rule in rules - told:
            self.hidden.setdefault(rule, []).append(point)

    def points_of(self, rule: str) -> list[Point]:
        """Returns the points that show something right about a rule."""
        shown = [points for (_, about), points in self.passed.items() if about == rule]
        return [*itertools.chain.from_iterable(shown)]

    def unsupported_rules(self) -> set[str]:
        """Returns the rules for which a point counts that needs what the device lacks."""
        return {rule for point in self._unsupported for rule in self.conditions.all_rules(point)}

    @property
    def fault(self) -> Fault | None:
        """The fault of most points."""
        groups = sorted(self.groups.values(), key=lambda group: -len(group.points))
        if groups:
            return groups[0].deviation.fault
        return None


def verdicts_of_rules(
    rules: Sequence[str],
    verdict: str,
    kind: str,
    judged: Judged | None,
) -> dict[str, Verdict]:
    """Returns the verdict on each rule of a case: what its points show. A fault of the whole case, such as a message of
    the kernel, violates the first rule, that of the row. `verdict` and `kind` are those of the case and of its fault;
    `judged` is None if no point is known."""
    verdicts = dict.fromkeys(rules, Verdict.UNREACHABLE)
    kinds = set[str]()
    if judged is not None:
        verdicts |= dict.fromkeys(judged.unsupported_rules(), Verdict.UNSUPPORTED)
        verdicts |= judged.rules
        kinds = {group.deviation.fault.kind for group in judged.groups.values()}
    if verdict in VIOLATIONS and kind not in kinds:
        verdicts[rules[0]] = Verdict(verdict)
    return verdicts


def fault_at_points(points: CoveringArray | None, seen: CombinationsSeen) -> Fault | None:
    """Returns a fault of the recorded points, or None. Without the model of the record, each class of points is judged
    by the answer that was recorded with it."""
    if points is not None and points.model.digest == seen["model"]:
        return Judged(points, seen).fault
    deviations = [deviation(item, seen["iba"]) for item in seen["classes"]]
    wrong = [item for item in deviations if item and item.aspect != SET_UP]
    if wrong:
        return wrong[0].fault
    return None
