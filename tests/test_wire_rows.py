"""Tests scripts of packets: how tables are read, and how exchanges are judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.bench.calls import Pd
from conformance.defects.severity import Severity, severity_of_fault
from conformance.errors import DeviceSilent
from conformance.judging.wire import wire_fault
from conformance.model.case import QpSpec
from conformance.model.fault import Fault, FaultKind
from conformance.model.observation import EventSeen, Observation
from conformance.model.rules import is_evidence
from conformance.model.script import CALL, Event
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import WIRE
from conformance.tables.loader import parse_table
from conformance.tables.suite import load_suite
from conformance.wire.sequence import PSNS
from conformance.yamldoc.parsing import read_bytes
from trial.reference.bench import HeldPair, ReferenceBench
from trial.reference.stream_end import ReferenceStreamPair
from trial.reference.wire_end import ReferenceEnd, ReferencePair
from trial.running import judgement_on, on_the_reference

_GAP = "NAK_PSN_SEQUENCE"
_TABLE = """\
verb: wire
cases: 1
given:
  memory: {{buf: {{kind: anonymous, size: 1 page}}}}
  mrs: {{mr: {{access: [LOCAL_WRITE, REMOTE_WRITE]}}}}
  qps: {{qp: {{type: RC, pd: pd, peer: wire}}}}
rows:
  - id: row
    rules: [WIRE-01]
    when:
      packets:
        - {event}
    then: success
"""


def _parsed(text: str) -> tuple[Any, list[str]]:
    root = read_bytes(text.encode(), "row.yaml")
    table, mistakes = parse_table(root, Path("wire/row.yaml"), load_suite().registry)
    texts = [
        f"{mistake.location.line}:{mistake.location.column} {mistake.message}"
        for mistake in mistakes
    ]
    return table, texts


def _queue_pair_with(attribute: str) -> str:
    table = _TABLE.format(event="{state: RTS}")
    return table.replace("peer: wire}", f"peer: wire, {attribute}}}")


def _read(event: str) -> tuple[tuple[Event, ...], list[str]]:
    table, texts = _parsed(_TABLE.format(event=event))
    if table is None or not table.cases:
        return (), texts
    return table.cases[0].when.arguments["packets"], texts


def test_an_event_has_its_words_and_numbers():
    (event,), mistakes = _read(
        "{op: RDMA_WRITE_ONLY, addr: buf, rkey: mr.rkey, data: 8, gets: [ACK, nothing]}",
    )
    assert not mistakes
    assert (event.kind, event.word, event.names["gets"]) == (
        "op",
        "RDMA_WRITE_ONLY",
        ("ACK", "nothing"),
    )
    assert [*event.numbers] == ["rkey", "addr", "data"] or {*event.numbers} == {
        "rkey",
        "addr",
        "data",
    }


@pytest.mark.parametrize("size, code", [(256, 1), (1024, 3)])
def test_a_queue_pair_has_a_path_mtu(size, code):
    table, mistakes = _parsed(_queue_pair_with(f"mtu: {size}"))
    assert not mistakes
    assert table.cases[0].given.qps["qp"].path_mtu == code


@pytest.mark.parametrize("size", [0, 300, 8192])
def test_a_path_mtu_that_no_packet_has_is_located(size):
    _, mistakes = _parsed(_queue_pair_with(f"mtu: {size}"))
    assert mistakes == ["6:49 mtu must be one of 256, 512, 1024, 2048, 4096"]


def test_a_queue_pair_has_a_first_psn():
    table, mistakes = _parsed(_queue_pair_with("psn: 0xFFFFFE"))
    assert not mistakes
    assert table.cases[0].given.qps["qp"].first_psns == (0xFFFFFE, 0xFFFFFE)


def test_a_third_of_the_rows_with_a_wire_peer_begin_near_the_wrap():
    rows = [case for case in load_suite().cases if case.when.call == WIRE]
    begun = [spec.psn for case in rows for spec in case.given.qps.values()]
    near = [psn for psn in begun if psn is not None]
    assert min(near) >= PSNS - 16
    assert len(begun) / 4 < len(near) < len(begun) / 2


def test_a_row_begins_with_the_psn_that_its_table_names():
    text = _queue_pair_with("psn: 5").replace("state: RTS", "state: $state")
    text = text.replace("id: row", "id: row-$state").replace("cases: 1", "cases: 7")
    states = "    each: {state: [RESET, INIT, RTR, RTS, SQD, SQE, ERR]}\n    when:"
    table, mistakes = _parsed(text.replace("    when:", states))
    assert not mistakes
    assert {case.given.qps["qp"].psn for case in table.cases} == {5}


def test_a_call_between_packets_must_succeed():
    (event,), mistakes = _read("{call: ibv_dereg_mr}")
    assert not mistakes
    assert event.kind == CALL
    assert event.step is not None
    assert event.step.then.outcome == "success"


@pytest.mark.parametrize(
    "event, message",
    [
        ("{op: RDMA_WIRTE_ONLY}", "unknown op 'RDMA_WIRTE_ONLY' (did you mean RDMA_WRITE_ONLY?)"),
        ("{op: SEND_ONLY, gets: OK}", "unknown gets 'OK'"),
        ("{op: SEND_ONLY, again: 1}", "packet 1 is not an earlier one: this is packet 1"),
        ("{op: SEND_ONLY, colour: 1}", "unknown key 'colour' in the event 'op'"),
        ("{op: SEND_ONLY, qp: pq}", "unknown qp 'pq'"),
        ("{op: SEND_ONLY, rkey: mw.rkey}", "unknown object 'mw'"),
        ("{gets: ACK}", "an event of packets must have exactly one of: op"),
        ("{op: SEND_ONLY, post: SEND}", "an event of packets must have exactly one of: op"),
        ("just-a-word", "an event of packets must be a mapping, not the text 'just-a-word'"),
        ("{call: ibv_dereg_rm}", "unknown call 'ibv_dereg_rm' (did you mean ibv_dereg_mr?)"),
        ("{completes: DONE}", "unknown completes 'DONE'"),
        ("{op: SEND, gets: DDP_BASE_BOUNDZ}", "did you mean DDP_BASE_BOUNDS?"),
    ],
)
def test_a_mistake_is_located(event, message):
    _, mistakes = _read(event)
    assert any(message in text and text.startswith("12:") for text in mistakes), mistakes


def test_an_operation_that_the_peer_does_not_have_is_located():
    _, mistakes = _read("{op: RDMA_WRITE, addr: buf, rkey: mr.rkey, data: 8}")
    assert mistakes == [
        "12:16 RDMA_WRITE is not an operation of a peer 'wire' (did you mean RDMA_WRITE_ONLY?)",
    ]


def _seen(*events: EventSeen, **more: object) -> Observation:
    return {"rc": 0, "returned": "0", "errno": "", "exchange": [*events], **more}  # type: ignore[typeddict-item]


def _answer(seen: str, *expected: str, **more: Any) -> EventSeen:
    return {
        "event": "op",
        "what": "answer",
        "operation": "RDMA_WRITE_ONLY",
        "expected": [*expected],
        "seen": seen,
        **more,  # type: ignore[typeddict-item]
    }


@pytest.mark.parametrize(
    "observed, kind",
    [
        (_seen(_answer("ACK", "ACK", psn=0, length=1)), None),
        (_seen(_answer("NAK_REMOTE_ACCESS", "refusal")), None),
        (_seen(_answer("nothing", "refusal")), None),
        (_seen(_answer("RNR_NAK", "anything")), None),
        (_seen(_answer("ACK", "ACK", psn=3, length=1)), None),
        (_seen(_answer("ACK", "ACK", psn=-1, length=1)), FaultKind.WRONG_ANSWER),
        (_seen(_answer("RESPONSE", "RESPONSE", psn=0, length=3)), FaultKind.WRONG_ANSWER),
        (_seen(_answer("nothing", "ACK")), FaultKind.REFUSED),
        (_seen(_answer("NAK_REMOTE_ACCESS", "ACK")), FaultKind.REFUSED),
        (_seen(_answer("NAK_INVALID_REQUEST", "NAK_REMOTE_ACCESS")), FaultKind.WRONG_ANSWER),
        (_seen(_answer(_GAP, _GAP, psn=-1, gap=0)), None),
        (_seen(_answer(_GAP, _GAP, psn=-1, gap=1)), FaultKind.WRONG_ANSWER),
        (_seen(_answer(_GAP, "refusal", psn=-1, gap=1)), None),
        (_seen(_answer("ACK", "ACK", psn=0, fields={"msn": [2, 2]})), None),
        (_seen(_answer("ACK", "ACK", psn=0, fields={"msn": [1, 2]})), FaultKind.WRONG_ANSWER),
        (_seen(_answer(_GAP, _GAP, gap=0, fields={"msn": [2, 1]})), FaultKind.WRONG_ANSWER),
        (_seen(_answer("RNR_NAK", "RNR_NAK", fields={"msn": [2, 1]})), FaultKind.WRONG_ANSWER),
        (_seen(_answer("ACK", "ACK", psn=0, fields={"tclass": [84, 84]})), None),
        (_seen(_answer("ACK", "ACK", psn=0, fields={"tclass": [0, 84]})), FaultKind.WRONG_ANSWER),
        (_seen(_answer("ACK", "refusal")), FaultKind.ACCEPTED),
        (_seen(_answer("DDP_BASE_BOUNDS", "refusal")), None),
        (_seen(_answer("closed", "refusal")), None),
        (_seen(_answer("TERMINATE_1_3_0x07", "refusal")), None),
        (_seen(_answer("DDP_INVALID_STAG", "RDMAP_ACCESS_RIGHTS")), FaultKind.WRONG_ANSWER),
        (_seen(_answer("closed", "ACK")), FaultKind.REFUSED),
        (_seen(_answer("RESPONSE", "refusal", data=8)), FaultKind.MOVED),
        (_seen(_answer("a response of 4 bytes", "RESPONSE", data=4)), FaultKind.OTHER_ARRIVED),
        (_seen(_answer("refusal", "refusal"), stray=[["buf", 0, 8]]), FaultKind.MOVED),
        (_seen(_answer("nothing", "refusal"), announced=["RECV"]), FaultKind.ANNOUNCED),
        (_seen(_answer("ACK", "ACK", psn=0), missing=[["buf", 0, 8]]), FaultKind.NOT_ARRIVED),
        (_seen(_answer("nothing", "nothing"), missing=[["buf", 0, 8]]), FaultKind.REFUSED),
        (_seen(_answer("ACK", "ACK", psn=0), wrong_packets=["wrong ICRC"]), FaultKind.WRONG_PACKET),
        (_seen(_answer("ACK", "ACK", psn=0), unasked=["ACK"]), FaultKind.WRONG_PACKET),
    ],
)
def test_an_exchange_is_judged_bytes_first(observed, kind):
    fault = wire_fault(observed)
    assert (fault.kind if fault else None) is kind


@pytest.mark.parametrize(
    "what, seen, expected, kind",
    [
        ("completion", "SUCCESS", "REM_ACCESS_ERR", FaultKind.ACCEPTED),
        ("completion", "nothing", "SUCCESS", FaultKind.NO_COMPLETION),
        ("completion", "REM_OP_ERR", "SUCCESS", FaultKind.REFUSED),
        ("completion", "REM_OP_ERR", "REM_ACCESS_ERR", FaultKind.WRONG_STATUS),
        ("receive", "SUCCESS", "nothing", FaultKind.ANNOUNCED),
        ("receive", "nothing", "SUCCESS", FaultKind.REFUSED),
        ("state", "RTS", "ERR", FaultKind.WRONG_STATE),
        ("request", "nothing", "SEND_ONLY", FaultKind.NO_PACKET),
    ],
)
def test_an_event_of_the_device_is_judged(what, seen, expected, kind):
    event = {**_answer(seen, expected), "what": what}
    fault = wire_fault(_seen(event))  # type: ignore[arg-type]
    assert fault is not None
    assert fault.kind is kind


def test_fields_of_a_receive_are_judged():
    event: EventSeen = {
        **_answer("SUCCESS", "SUCCESS"),
        "what": "receive",
        "fields": {"imm": [None, 7]},
    }
    fault = wire_fault(_seen(event))
    assert fault is not None
    assert (fault.kind, fault.seen, fault.expected) == (
        FaultKind.WRONG_IMMEDIATE,
        ("nothing",),
        ("0x7",),
    )


def test_what_packets_alone_cause_is_above_all_severities():
    assert [*Severity][:2] == [Severity.REMOTE_CRASH, Severity.REMOTE_MEMORY]
    for kind, severity in (
        (FaultKind.KERNEL_DIED, Severity.REMOTE_CRASH),
        (FaultKind.MOVED, Severity.REMOTE_MEMORY),
        (FaultKind.NOT_ARRIVED, Severity.MEMORY),
        (FaultKind.REFUSED, Severity.VALID_REFUSED),
    ):
        assert severity_of_fault(Fault(kind, verb=WIRE)) is severity
    of_device, of_peer = "traffic(op=RDMA_WRITE)", "traffic(op=RDMA_WRITE, poster=wire)"
    for call, severity in ((of_device, Severity.MEMORY), (of_peer, Severity.REMOTE_MEMORY)):
        assert severity_of_fault(Fault(FaultKind.MOVED, call, "traffic")) is severity


def test_a_memory_rule_needs_no_wire_peer():
    assert not is_evidence("REG-05", "wire(qp=qp)")
    assert is_evidence("WIRE-01", "wire(qp=qp)")
    assert is_evidence("REG-05", "traffic(op=RDMA_WRITE)")


class _Silent(ReferenceBench):
    """The bench of a device that does not answer the wire peer, although nothing can lose packets."""

    def pair(
        self,
        spec: QpSpec,
        requester: Pd,
        responder: Pd,
    ) -> HeldPair | ReferencePair | ReferenceStreamPair:
        if spec.wire or spec.extended == WIRE:
            raise DeviceSilent("the wire peer's WRITE did not arrive", "see docs/wire.md")
        return super().pair(spec, requester, responder)


@pytest.mark.parametrize(
    "case_id, verdict",
    [
        ("wire/first_packets/write", Verdict.FAIL),
        ("reg_mr/rights/remote-read-refused-by-none@wire", Verdict.UNREACHABLE),
    ],
)
def test_a_silent_device_fails_rows_of_packets_alone(case_id, verdict):
    case = load_suite().find(case_id)
    assert case is not None
    judgement = judgement_on(case, on_the_reference(_Silent()))
    assert judgement.verdict == verdict


def test_no_request_is_awaited_behind_a_completion_in_error(monkeypatch):
    events = [
        "{post: RDMA_READ, addr: buf, length: 8, lkey: mr.lkey, to: 4096, rkey: 77}",
        "{sends: RDMA_READ_REQUEST}",
        "{answer: ACKNOWLEDGE, says: NAK_REMOTE_ACCESS}",
        "{completes: REM_ACCESS_ERR}",
        "{sends: RDMA_READ_REQUEST}",
    ]
    table, mistakes = _parsed(_TABLE.format(event="\n        - ".join(events)))
    assert not mistakes
    awaited: list[float] = []
    receive = ReferenceEnd.receive

    def noted(end: ReferenceEnd, deadline_s: float) -> Any:
        awaited.append(deadline_s)
        return receive(end, deadline_s)

    monkeypatch.setattr(ReferenceEnd, "receive", noted)
    judgement = judgement_on(table.cases[0], on_the_reference(ReferenceBench()))
    assert judgement.verdict == Verdict.FAIL
    assert len([deadline_s for deadline_s in awaited if deadline_s]) == 1  # of the first request
