"""Tests the requester of packets on a responder of a few lines, which loses, repeats and refuses packets."""

from __future__ import annotations

import ctypes
import random
import sys
from collections import deque
from typing import Any

import pytest

from conformance.bench.calls import Sge
from conformance.bench.work_requests import SIGNALED, Completion, SendRequest
from conformance.device.wire_requester import WireRequester
from conformance.errors import HostLacks
from conformance.model.case import Case
from conformance.tables.carried import carried
from conformance.tables.suite import load_suite
from conformance.wire.opcodes import SYNDROMES, name_of_syndrome
from conformance.wire.packet import Packet, Parsed

_MTU = 256
_FIRST = (1 << 24) - 3  # the PSNs wrap in every test of several packets
_DEADLINE_S = 30.0
_KEY = 0x1234
_WORD = 8


class _Responder:
    """The end of a connection whose device is this class. `memory` begins at the address 0."""

    first_psn, mtu, number, destination, flush_icrc = _FIRST, _MTU, 7, 9, ""

    def __init__(self, losses: float = 0, seed: int = 0) -> None:
        self.memory = bytearray(4096)
        self.received: list[str] = []
        self.refuses = ""  # the answer to every packet, with the first PSN
        self._losses, self._random = losses, random.Random(seed)
        self._answers: deque[Parsed] = deque()
        self._expected = 0
        self._at = 0
        self._atomics: dict[int, int] = {}

    def send(self, packet: Packet, **wrong: Any) -> None:
        if self._random.random() >= self._losses:
            self._take(packet)

    def _take(self, packet: Packet) -> None:
        distance = (packet.fields["psn"] - _FIRST) % (1 << 24)
        if distance > self._expected:
            self._answer("ACKNOWLEDGE", self._expected, SYNDROMES["NAK_PSN_SEQUENCE"])
            return
        fresh = distance == self._expected
        if fresh:
            self._expected += 1
            self.received.append(packet.operation)
        if self.refuses:
            self._answer("ACKNOWLEDGE", 0, SYNDROMES[self.refuses])
            return
        self._execute(packet, distance, fresh)

    def _execute(self, packet: Packet, distance: int, fresh: bool) -> None:
        fields, operation = packet.fields, packet.operation
        if operation == "RDMA_READ_REQUEST":
            content = bytes(self.memory[fields["va"] : fields["va"] + fields["length"]])
            self._respond(content, distance, fresh)
        elif operation in ("FETCH_ADD", "COMPARE_SWAP"):
            if fresh:
                self._atomics[distance] = self._atomic(packet)
            original = self._atomics[distance]
            self._answer("ATOMIC_ACKNOWLEDGE", distance, SYNDROMES["ACK"], original=original)
        elif operation == "FLUSH":
            self._answer("RDMA_READ_RESPONSE_ONLY", distance, SYNDROMES["ACK"])
        else:
            if fresh:
                self._write(packet)
            if fields.get("ackreq"):
                self._answer("ACKNOWLEDGE", self._expected - 1, SYNDROMES["ACK"])

    def _write(self, packet: Packet) -> None:
        if "va" in packet.fields:
            self._at = packet.fields["va"]
        if not packet.operation.startswith("SEND"):
            self.memory[self._at : self._at + len(packet.data)] = packet.data
            self._at += len(packet.data)

    def _atomic(self, packet: Packet) -> int:
        at = packet.fields["va"]
        old = int.from_bytes(self.memory[at : at + _WORD], sys.byteorder)
        new = old + packet.fields["swap"]
        if packet.operation == "COMPARE_SWAP":
            new = packet.fields["swap"] if packet.fields["compare"] == old else old
        self.memory[at : at + _WORD] = new.to_bytes(_WORD, sys.byteorder)
        return old

    def _respond(self, content: bytes, distance: int, fresh: bool) -> None:
        parts = [content[start : start + _MTU] for start in range(0, max(1, len(content)), _MTU)]
        for number, part in enumerate(parts):
            place = "MIDDLE"
            if number == len(parts) - 1:
                place = "LAST"
            if not number:
                place = "FIRST"
            if len(parts) == 1:
                place = "ONLY"
            operation = f"RDMA_READ_RESPONSE_{place}"
            self._answer(operation, distance + number, SYNDROMES["ACK"], part)
        if fresh:
            self._expected = distance + len(parts)

    def _answer(
        self,
        operation: str,
        distance: int,
        syndrome: int,
        data: bytes = b"",
        **fields: int,
    ) -> None:
        psn = (_FIRST + distance) % (1 << 24)
        packet = Parsed("RC", operation, {"psn": psn, "syndrome": syndrome, **fields}, data)
        # Lost, sent once, or sent twice.
        for _ in range(2):
            if self._random.random() >= self._losses:
                self._answers.append(packet)
            if self._random.random() >= self._losses:
                break

    def receive(self, deadline_s: float) -> Parsed | None:
        if not self._answers:
            return None
        number = 0
        if self._random.random() < self._losses:
            number = len(self._answers) - 1  # reordered
        packet = self._answers[number]
        del self._answers[number]
        return packet

    def settle(self) -> None:
        self.received.append("settled")


def _requester(end: _Responder, kind: str = "RC") -> WireRequester:
    return WireRequester(end, kind, None, _DEADLINE_S, 0)  # type: ignore[arg-type]


def _request(opcode: str, local: Any, length: int, **more: Any) -> SendRequest:
    sges = (Sge(ctypes.addressof(local), length, 0),)
    return SendRequest(opcode, 5, sges, SIGNALED, 64, _KEY, **more)


@pytest.mark.parametrize("losses", [0, 0.05, 0.3])
def test_messages_of_several_packets_arrive_whatever_is_lost(losses):
    end = _Responder(losses, seed=3)
    requester = _requester(end)
    content = bytes(number % 251 for number in range(1500))
    local = (ctypes.c_ubyte * 1500)(*content)
    back = (ctypes.c_ubyte * 1500)()
    for _ in range(5):
        end.memory[:] = bytes(4096)
        requester.post_send(_request("RDMA_WRITE", local, 1500))
        requester.post_send(_request("RDMA_READ", back, 1500))
        statuses = [done.status for done in requester.completions(2)]
        assert statuses == ["SUCCESS", "SUCCESS"]
        assert bytes(end.memory[64:1564]) == content == bytes(back)
        assert end.memory[1564] == 0
        ctypes.memset(back, 0, 1500)


@pytest.mark.parametrize("losses", [0, 0.3])
def test_an_atomic_is_executed_once_and_returns_the_old_value(losses):
    end = _Responder(losses, seed=5)
    requester = _requester(end)
    local = ctypes.c_uint64()
    for old in range(0, 30, 3):
        requester.post_send(_request("ATOMIC_FETCH_AND_ADD", local, _WORD, compare_add=3))
        (done,) = requester.completions(1)
        assert (done.status, done.opcode, local.value) == ("SUCCESS", "FETCH_ADD", old)
    requester.post_send(_request("ATOMIC_CMP_AND_SWP", local, _WORD, compare_add=30, swap=7))
    assert requester.completions(1)[0].opcode == "COMP_SWAP"
    assert end.memory[64] == 7


@pytest.mark.parametrize(
    "answer, status",
    [
        ("NAK_REMOTE_ACCESS", "REM_ACCESS_ERR"),
        ("NAK_INVALID_REQUEST", "REM_INV_REQ_ERR"),
        ("NAK_REMOTE_OPERATIONAL", "REM_OP_ERR"),
        ("NAK_INVALID_RD_REQUEST", "REM_INV_RD_REQ_ERR"),
        ("NAK_PSN_SEQUENCE", "RETRY_EXC_ERR"),
        ("RNR_NAK", "RNR_RETRY_EXC_ERR"),
    ],
)
def test_a_refusal_has_the_status_of_its_nak_and_flushes_what_follows(answer, status):
    end = _Responder()
    end.refuses = answer
    requester = _requester(end)
    local = ctypes.c_uint64()
    requester.post_send(_request("RDMA_WRITE", local, _WORD))
    requester.post_send(SendRequest("SEND", 6, flags=0))
    assert [done.status for done in requester.completions(2)] == [status, "WR_FLUSH_ERR"]
    assert requester.query_state() == "ERR"
    requester.post_send(_request("RDMA_WRITE", local, _WORD))
    assert requester.completions(1) == [Completion(5, "WR_FLUSH_ERR")]


def test_a_device_that_never_answers_is_told_apart_from_a_lost_peer():
    end = _Responder(losses=1.0)
    requester = _requester(end)
    requester.post_send(_request("RDMA_READ", ctypes.c_uint64(), _WORD))
    assert [done.status for done in requester.completions(1)] == ["RETRY_EXC_ERR"]
    assert end.received == ["settled"]


def test_a_response_of_another_size_is_a_bad_response():
    end = _Responder()
    requester = _requester(end)
    local = (ctypes.c_ubyte * 16)()
    request = _request("RDMA_READ", local, 16)
    end.memory = bytearray(72)  # so that the response has eight bytes
    requester.post_send(request)
    assert [done.status for done in requester.completions(1)] == ["BAD_RESP_ERR"]
    assert bytes(local) == bytes(16)


def test_the_packets_of_each_request_are_those_of_the_specification():
    end = _Responder()
    requester = _requester(end)
    local = (ctypes.c_ubyte * 600)()
    for opcode in ("SEND", "SEND_WITH_INV", "RDMA_WRITE_WITH_IMM", "FLUSH_GLOBAL_MR"):
        requester.post_send(_request(opcode, local, 600)._replace(length=600))
    assert len(requester.completions(4)) == 4
    assert end.received == [
        *("SEND_FIRST", "SEND_MIDDLE", "SEND_LAST"),
        *("SEND_FIRST", "SEND_MIDDLE", "SEND_LAST_WITH_INV"),
        *("RDMA_WRITE_FIRST", "RDMA_WRITE_MIDDLE", "RDMA_WRITE_LAST_WITH_IMM"),
        "FLUSH",
    ]


def test_an_unreliable_message_completes_when_it_is_sent():
    end = _Responder(losses=1.0)
    requester = _requester(end, "UC")
    requester.post_send(_request("RDMA_WRITE", (ctypes.c_ubyte * 600)(), 600))
    assert [done.status for done in requester.completions(1)] == ["SUCCESS"]


@pytest.mark.parametrize("opcode", ["RDMA_WRITE", "RDMA_READ"])
def test_a_request_of_too_many_packets_is_not_sent_where_packets_are_lost_on_purpose(opcode):
    end = _Responder()
    requester = WireRequester(end, "RC", None, _DEADLINE_S, most_packets=2)  # type: ignore[arg-type]
    local = (ctypes.c_ubyte * 600)()
    with pytest.raises(HostLacks, match="this request has 3 packets"):
        requester.post_send(_request(opcode, local, 600))
    requester.post_send(_request(opcode, local, 2 * _MTU))
    assert [done.status for done in requester.completions(1)] == ["SUCCESS"]


def test_each_syndrome_has_its_name():
    assert {name_of_syndrome(number) for number in SYNDROMES.values()} == set(SYNDROMES)


def test_the_rows_that_a_wire_peer_carries_are_copies_of_rows_with_their_rules():
    suite = load_suite()
    copies = [case for case in suite.cases if case.id.endswith("@wire")]
    originals = {case.id: case for case in suite.cases}
    assert len(copies) > 600
    for copy in copies:
        original = originals[copy.id.removesuffix("@wire")]
        assert (copy.rules, copy.needs) == (original.rules, original.needs)
        steps = copy.steps
        posters = {step.arguments["poster"] for step in steps if step.call == "traffic"}
        assert posters == {"wire"}


@pytest.mark.parametrize(
    "case_id",
    ["reg_mr/shared_receives/", "reg_mr/element_lists/", "bind_mw/in_flight/", "wr_post/postings/"],
)
def test_a_row_whose_traffic_needs_a_device_has_no_copy(case_id):
    rows = [case for case in load_suite().cases if case.id.startswith(case_id)]
    assert rows
    assert any(carried(case) is None for case in rows)


def test_each_run_has_copies_of_rights_ranges_domains_keys_and_windows():
    copies = [case for case in load_suite().cases if case.id.endswith("@wire")]
    default = [case for case in copies if case.tier == "default"]
    for rule in (
        "REG-05",
        "REG-28",
        "REG-20",
        "BIND-10",
        "REG-22",
        "REG-21",
        "DEREG-01",
        "BIND-15",
    ):
        assert any(rule in case.rules for case in default), rule
    assert 100 < len(default) < 170  # each takes a third of a second in an emulated guest
    assert "reg_mr/several_packets/write-of-more-than-16-mib@wire" not in map(_id_of, default)


def _id_of(case: Case) -> str:
    return case.id
