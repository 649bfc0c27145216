"""Judges the exchange of packets with a peer that is no RDMA device. Bytes come first: no malformed packet may excuse a
byte that moved. Then come the events of the script in their order, and last the form of the device's packets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.model.fault import Fault
from conformance.model.fault import FaultKind as Kind
from conformance.model.observation import EventSeen, Observation
from conformance.model.script import ANYTHING, CLOSED, NOTHING, REFUSAL, RESPONSE

_GRANTED = ("ACK", RESPONSE)
_GAP = "NAK_PSN_SEQUENCE"
_OF_FIELDS = {
    "length": Kind.WRONG_LENGTH,
    "imm": Kind.WRONG_IMMEDIATE,
    "inv": Kind.WRONG_INVALIDATED_KEY,
}
_FIELDS_OF_ANSWERS = {"msn": "MSN", "tclass": "traffic class"}
_MOST_SHOWN = 4
# How the names of refusals begin: NAKs, and the errors of Terminate messages.
_REFUSALS = ("NAK_", "RNR_", "RDMAP_", "DDP_", "MPA_", "TERMINATE_")


def wire_fault(seen: Observation) -> Fault | None:
    """Returns the first fault of a script, or None."""
    leaked = _leaked(seen["exchange"])
    if leaked:
        return leaked
    if seen["exchange"]:
        operation = seen["exchange"][-1]["operation"]
    else:
        operation = ""
    if "stray" in seen:
        return _fault(Kind.MOVED, operation, seen=_ranges(seen["stray"]))
    for event in seen["exchange"]:
        fault = _of_event(event)
        if fault:
            return fault
    if "announced" in seen:
        return _fault(Kind.ANNOUNCED, operation, seen=seen["announced"])
    if "missing" in seen:
        granted = any(event["seen"] in _GRANTED for event in seen["exchange"])
        # Without an acknowledgement nobody was told that the bytes arrived.
        if granted:
            kind = Kind.NOT_ARRIVED
        else:
            kind = Kind.REFUSED
        return _fault(kind, operation, ["its bytes in memory"], _ranges(seen["missing"]))
    for key in ("wrong_packets", "unasked"):
        if key in seen:
            texts: Sequence[str] = seen[key]
            return _fault(Kind.WRONG_PACKET, operation, seen=texts[:_MOST_SHOWN])
    return None


def _fault(
    kind: Kind,
    operation: str,
    expected: Sequence[str] = (),
    seen: Sequence[str] = (),
) -> Fault:
    return Fault(
        kind,
        operation=operation,
        layer="device",
        returned="0",
        expected=tuple(expected),
        seen=tuple(seen),
    )


def _ranges(ranges: Sequence[Sequence[str | int]]) -> list[str]:
    texts: list[str] = []
    for memory, offset, size in ranges[:_MOST_SHOWN]:
        texts.append(f"{size} at {memory} + {offset}")
    return texts


def _leaked(events: Sequence[EventSeen]) -> Fault | None:
    """Returns the fault of an answer that has bytes of the memory although the request had to be refused."""
    for event in events:
        allowed = {RESPONSE, ANYTHING} & {*event["expected"]}
        if event.get("data") and not allowed:
            texts = [f"{event['data']} in the answer to {event['operation']}"]
            return _fault(Kind.MOVED, event["operation"], event["expected"], texts)
    return None


def _of_event(event: EventSeen) -> Fault | None:
    what, seen, expected = event["what"], event["seen"], event["expected"]
    if what == "answer":
        return _of_answer(event)
    if seen not in expected:
        return _fault(_kind_of(what, seen, expected), event["operation"], expected, [seen])
    for key, (reported, sent) in event.get("fields", {}).items():
        if reported != sent:
            shown = _numbers([reported], key), _numbers([sent], key)
            return _fault(_OF_FIELDS[key], event["operation"], shown[1], shown[0])
    return None


def _numbers(values: Sequence[int | None], key: str) -> list[str]:
    texts: list[str] = []
    for value in values:
        if value is None:
            texts.append("nothing")
        else:
            texts.append(str(value) if key == "length" else f"{value:#x}")
    return texts


def _kind_of(what: str, seen: str, expected: Sequence[str]) -> Kind:
    if what == "state":
        return Kind.WRONG_STATE
    if what == "request":
        if seen == NOTHING:
            return Kind.NO_PACKET
        return Kind.WRONG_PACKET
    if seen == NOTHING:
        if what == "completion":
            return Kind.NO_COMPLETION
        return Kind.REFUSED
    if seen == "SUCCESS":
        if what == "completion":
            return Kind.ACCEPTED
        return Kind.ANNOUNCED
    if "SUCCESS" in expected:
        return Kind.REFUSED
    return Kind.WRONG_STATUS


def _of_answer(event: EventSeen) -> Fault | None:
    seen, expected = event["seen"], event["expected"]
    operation = event["operation"]
    if ANYTHING in expected:
        return None
    refused = seen in (NOTHING, CLOSED) or seen.startswith(_REFUSALS)
    if seen in expected or (REFUSAL in expected and refused):
        return _of_psn(event)
    wants = [word for word in expected if word in _GRANTED]
    if refused:
        if wants:
            kind = Kind.REFUSED
        else:
            kind = Kind.WRONG_ANSWER
    elif seen in _GRANTED:
        if wants:
            kind = Kind.WRONG_ANSWER
        else:
            kind = Kind.ACCEPTED
    elif wants:
        kind = Kind.OTHER_ARRIVED
    else:
        kind = Kind.WRONG_ANSWER
    return _fault(kind, operation, expected, [seen])


def _of_psn(event: EventSeen) -> Fault | None:
    """Returns the fault of a positive answer whose PSN is not the request's, or of a NAK for a gap whose PSN is not that of
    the packet that is missing. The acknowledgement of a repeated request may have the PSN of the last request (IBA
    9.7.5.1.3), so a later PSN is right for ACK."""
    of, distance = "request", event.get("psn")
    if event["seen"] == _GAP and _GAP in event["expected"]:
        of, distance = "missing packet", event.get("gap", 0)
        right = distance == 0
    elif distance is None or event["seen"] not in _GRANTED:
        return _of_fields(event)
    elif event["seen"] == "ACK":
        right = distance >= event.get("length", 1) - 1
    else:
        right = distance == event.get("length", 1) - 1
    if right:
        return _of_fields(event)
    texts = [f"{event['seen']} with the PSN of the {of} {distance:+d}"]
    return _fault(Kind.WRONG_ANSWER, event["operation"], event["expected"], texts)


def _of_fields(event: EventSeen) -> Fault | None:
    """Returns the fault of an answer whose message sequence number is not the number of completed messages, or that has
    another traffic class than the queue pair."""
    for key, (seen, right) in event.get("fields", {}).items():
        if seen != right:
            name = _FIELDS_OF_ANSWERS[key]
            texts = [f"{event['seen']} with the {name} {seen} instead of {right}"]
            return _fault(Kind.WRONG_ANSWER, event["operation"], event["expected"], texts)
    return None


def answers(seen: Observation) -> str:
    """Returns a clause about the events of a script."""
    texts: list[str] = []
    for event in seen["exchange"]:
        texts.append(f"{event['operation']}: {event['seen']}")
    return "; ".join(texts) or "no event"


# The kinds of fault that say only that a report or the form of a packet was wrong: in a row with rules of other levels
# they concern the rules of level `should`.
REPORTS: Mapping[Kind, str] = {
    Kind.KERNEL_WARNED: "kernel's log",
    Kind.WRONG_ANSWER: "answer",
    Kind.WRONG_PACKET: "packet",
    Kind.WRONG_STATE: "state",
    Kind.WRONG_STATUS: "status",
}
