"""Executes the call `wire`: the script of packets or segments of a peer that is no RDMA device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from conformance.execution.context import CaseContext, told
from conformance.execution.packets import PacketScript
from conformance.execution.segments import SegmentScript
from conformance.model.case import Step
from conformance.model.observation import EventSeen, Observation
from conformance.model.script import NOTHING, Event
from conformance.model.vocabulary import STREAM


def wire(context: CaseContext, step: Step) -> Observation:
    """Executes a script. Raises SetupRefused if a call between the packets is refused, and PeerLost."""
    events = cast(Sequence[Event], step.arguments["packets"])
    pair = context.case.given.qps[str(step.arguments["qp"])]
    if pair.wire == STREAM:
        return SegmentScript(context, step).run(events)
    return PacketScript(context, step).run(events)


def silent() -> Observation:
    """Returns what is observed of a device that does not answer the peer's first packet, whatever the script is."""
    operation = "RDMA_WRITE_ONLY"
    entry: EventSeen = {
        "event": f"op {operation}(data=8)",
        "what": "answer",
        "operation": operation,
        "expected": ["ACK"],
        "seen": NOTHING,
    }
    return told() | {"layer": "device", "exchange": [entry]}
