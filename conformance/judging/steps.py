"""Judges the steps of a case, beginning with the judged call: what each returned and which bytes it moved. __init__.py
judges what is not about single steps: the kernel's log, the set-up, and capabilities."""

from __future__ import annotations

from dataclasses import replace

from conformance.judging.answering_layer import answering_layer
from conformance.judging.circumstances import located
from conformance.judging.faults import (
    DONE,
    answer_of,
    data_fault,
    fault_of,
    not_refused,
    outcome_of,
    without_status,
)
from conformance.judging.judgement import Judgement
from conformance.judging.sentences import format_answer
from conformance.judging.wire import answers
from conformance.model.case import Case, Step
from conformance.model.fault import Fault, FaultKind
from conformance.model.observation import Observation
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import REGISTRATIONS, WIRE
from conformance.older_python import zip

_TOO_FAST = "not seen: the device was faster, and completed all requests before the call returned"


def was_too_fast(observed: Observation) -> bool:
    """Whether requests that should have been in flight during the judged call were complete before its end."""
    return False in _overlaps(observed)


def was_in_flight(observed: Observation) -> bool:
    """Whether requests were in flight during the judged call."""
    return True in _overlaps(observed)


def _overlaps(observed: Observation) -> list[bool]:
    all_seen = [observed, *observed.get("afterwards", ())]
    return [seen["overlapped"] for seen in all_seen if "overlapped" in seen]


def first_refused(case: Case, observed: Observation) -> bool:
    """Whether the first fault is the refusal of a later step that moved no bytes."""
    for number, (step, seen) in enumerate(made_steps(case, observed)):
        if fault_of(step, seen, later=number > 0):
            return number > 0 and outcome_of(step, seen) == "refused" and not data_fault(step, seen)
    return False


def judge_steps(case: Case, observed: Observation) -> Judgement:
    unjudged = without_status(case.when, observed)
    if unjudged:
        return Judgement(Verdict.UNREACHABLE, f"{case.when} {unjudged}")
    for step, seen in made_steps(case, observed):
        if not_refused(step, seen):
            return Judgement(Verdict.UNREACHABLE, f"{step} was not refused, which other rows judge")
    fault = first_fault(case, observed) or _differing_errnos(case, observed)
    notes = [*observed.get("not_covered", ()), *([case.note] if case.note else [])]
    if any(seen.get("moved") == "other" for seen in (observed, *observed.get("afterwards", ()))):
        notes.append(
            "the requester's own buffer has other bytes than before, but none of the responder's",
        )
    if any(seen.get("tries", 1) > 1 for seen in (observed, *observed.get("afterwards", ()))):
        notes.append("an unreliable transport lost a message, which was sent again")
    if fault:
        return Judgement.of_fault(fault, tuple(notes))
    if control := observed.get("no_control"):
        return Judgement(
            Verdict.UNREACHABLE,
            f"{case.when}: the correct handle is also refused, with {control}",
        )
    if was_too_fast(observed):
        return Judgement(Verdict.UNREACHABLE, f"{case.when}: {_TOO_FAST}", tuple(notes))
    unearned = _refused_by_an_earlier_error(case, observed)
    if unearned:
        return Judgement(
            Verdict.BROKEN,
            f"{unearned}, but its queue pair was already in the error state",
            tuple(notes),
        )
    if unseen := _unseen_step(case, observed):
        return Judgement(
            Verdict.BROKEN,
            f"there is no observation of {unseen}, a later step",
            tuple(notes),
        )
    if case.when.call == WIRE:
        return Judgement(Verdict.PASS, f"as described: {answers(observed)}", tuple(notes))
    return Judgement(Verdict.PASS, f"{case.when} {format_answer(observed)}", tuple(notes))


def first_fault(case: Case, observed: Observation) -> Fault | None:
    """Returns the first fault in the steps of a case, with its location; None if each step had the expected result."""
    if "combinations" in observed:
        from conformance.judging.combinations import (
            fault_at_points,  # imported late: rows need none
        )

        return fault_at_points(case.array, observed["combinations"])
    for number, (step, seen) in enumerate(made_steps(case, observed)):
        fault = fault_of(step, seen, later=number > 0)
        if fault:
            if number:
                layer = fault.layer
            else:
                layer = answering_layer(case, observed)
            return replace(located(fault, case, number), layer=layer)
    return None


def made_steps(case: Case, observed: Observation) -> list[tuple[Step, Observation]]:
    """Returns the executed steps, beginning with the judged call, each with its observation."""
    return [
        (case.when, observed),
        *zip(case.afterwards, observed.get("afterwards", ()), strict=False),
    ]


def _differing_errnos(case: Case, observed: Observation) -> Fault | None:
    """Returns the fault of a registration that failed with different errnos for the same arguments, or None."""
    first: dict[str, str] = {}
    for number, (step, seen) in enumerate(made_steps(case, observed)):
        if step.call not in REGISTRATIONS or seen["returned"] != "NULL":
            continue
        before = first.setdefault(str(step), seen["errno"])
        if before != seen["errno"]:
            fault = replace(
                answer_of(FaultKind.VARYING_CODE, seen),
                errno=before,
                seen=(seen["errno"],),
            )
            return replace(located(fault, case, number), step=0)
    return None


def _unseen_step(case: Case, observed: Observation) -> Step | None:
    """Returns the first later step without an observation. Returns None if there is no such step, or if the step could
    not be executed: a call with an open outcome has released the object of the step, or has not created this object."""
    steps = made_steps(case, observed)
    if len(steps) > len(case.afterwards):
        return None
    unseen = case.afterwards[len(steps) - 1]
    for step, seen in steps:
        shared = [key for key in ("mr", "mw") if key in step.arguments and key in unseen.arguments]
        released = (
            any(step.arguments[key] == unseen.arguments[key] for key in shared)
            and seen["returned"] in DONE
        )
        if step.then.outcome == "open" and (
            released or (step.name and outcome_of(step, seen) == "refused")
        ):
            return None
    return unseen


def _refused_by_an_earlier_error(case: Case, observed: Observation) -> str:
    """Describes the first refused step whose queue pair was already in the error state; empty if there is none."""
    for step, seen in made_steps(case, observed):
        if (
            step.then.outcome == "refused"
            and "state_before" in seen
            and outcome_of(step, seen) == "refused"
        ):
            return f"{step} {format_answer(seen)}"
    return ""
