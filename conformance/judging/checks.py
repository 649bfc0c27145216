"""Names the check that a device must make in a call, if one rule demands several checks."""

from __future__ import annotations

from conformance.model.case import SMALLEST_MTU, Case, Step, mtu_bytes
from conformance.model.fault import (
    ANSWER_FORM,
    ICRC,
    PACKET_LENGTHS,
    PSN_ALONE,
    QUEUE_DOMAIN,
    REPEATED,
    UNSENT,
    Fault,
    FaultKind,
)
from conformance.model.quantity import Quantity
from conformance.model.script import Event
from conformance.model.vocabulary import BINDS, WIRE


def check_of(case: Case, step: Step, fault: Fault) -> str:
    """Returns which of CHECKS must refuse a bind or packets; empty if no word is needed."""
    if step.call in BINDS:
        queue = case.given.qps.get(str(step.arguments.get("qp", "")))
        window = case.given.windows.get(str(step.arguments.get("mw", "")))
        named = step.arguments.get("mw_rkey")
        of_others = isinstance(named, Quantity) and "other_process" in dict(named.names)
        if of_others or (queue and window and queue.pd != window.pd):
            return QUEUE_DOMAIN
    if step.call != WIRE:
        return ""
    events = packets_of(step)
    answers = [event for event in events if event.kind == "answer"]
    if answers and fault.kind is FaultKind.ACCEPTED:
        first = answers[0]
        if "psn" in first.numbers and first.word == "ACKNOWLEDGE":
            return UNSENT
        if "syndrome" in first.numbers or first.word.endswith(("_MIDDLE", "_LAST")):
            return ANSWER_FORM
        if any(_is_of_another_length(case, step, answer) for answer in answers):
            return PACKET_LENGTHS
    packets = [event for event in events if event.kind == "op" and event.word == fault.operation]
    if packets and packets[-1].names.get("icrc") == ("right",):
        return ICRC
    if packets and "again" in packets[-1].numbers:
        return REPEATED
    return PSN_ALONE if packets and "psn" in packets[-1].numbers else ""


def _is_of_another_length(case: Case, step: Step, answer: Event) -> bool:
    """Whether a packet of a response that others follow does not fill the path MTU."""
    data = answer.numbers.get("data")
    if data is None or not answer.word.endswith(("_FIRST", "_MIDDLE")):
        return False
    mtu = mtu_bytes(case.given.qps[str(step.arguments["qp"])].mtu(SMALLEST_MTU))
    return data.evaluate(0, 0, lambda name, property_: 0) != mtu


def packets_of(step: Step) -> list[Event]:
    """Returns the events of a `wire` call; empty for another call."""
    packets = step.arguments.get("packets")
    if isinstance(packets, tuple):
        return [event for event in packets if isinstance(event, Event)]
    return []
