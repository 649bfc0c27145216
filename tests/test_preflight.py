"""Tests of preflight, the control of all refusals: without it, a device that transfers nothing would seem to refuse
every operation. In most tests, an operation of preflight fails on the reference."""

import errno
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

import fixtures.bench
from conformance.bench.work_requests import SendRequest
from conformance.device.libibverbs import Libibverbs
from conformance.errors import HarnessFailure, LoopbackLost, NotConnected, PeerLost, UserError
from conformance.execution.offered import offered_by, reachable_on
from conformance.execution.preflight import preflight
from conformance.execution.runner import run_case
from conformance.judging import broken
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.preflight import Findings, format_findings
from conformance.model.verdict import Verdict
from conformance.pytest_plugin.recorder import tell_supervisor
from conformance.results.records import encode
from conformance.tables.suite import load_suite
from devices import device, refusing
from kinds import Patch
from samples import user_error
from trial.personas.persona import PERSONAS
from trial.personas.trying import run_clean
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.queues import Queue
from trial.reference.stack import without
from trial.running import on_the_reference

RELIABLE = ("RC", "RC_SRQ")


def lost(opcode: str, status: str) -> Device:
    """Returns a reference on which requests with this opcode have no effect and complete with this status."""
    return device(
        carry_out=lambda was, queue, request: (
            status if request.opcode == opcode else was(queue, request)
        ),
    )


def unmade(errno: int, *kinds: str, **methods: Callable[..., Any]) -> Device:
    """Returns a reference that refuses to create queue pairs of these types."""
    refuse = refusing(errno)
    return device(
        create_qp=lambda was, queue: refuse() if queue.kind in kinds else was(queue),
        **methods,
    )


def unconnected(kind: str) -> Device:
    """Returns a reference on which queue pairs of one type can be created, but not moved to RTS."""

    def move_qp(was: Callable[..., None], queue: Queue, state: str) -> None:
        if queue.kind == kind and state == "RTS":
            raise NotConnected(101, "moving to RTS")
        was(queue, state)

    return device(move_qp=move_qp)


def registering(refused: Callable[[int], int]) -> Device:
    """Returns a reference that refuses registrations with the errno that `refused` returns for their access."""
    return device(access_fault=lambda was, access: was(access) or refused(access))


class DeadAfterReset(Device):
    """A reference on which a used queue pair transfers nothing after RESET, although every transition succeeds."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()
        self.dead: set[int] = set()

    def move_qp(self, queue: Queue, state: str) -> None:
        if state == "RTS" and queue.number in self.used:
            self.dead.add(queue.number)
        self.used |= {queue.number} if state == "RTS" else set()
        super().move_qp(queue, state)

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        if {queue.number, queue.peer.number} & self.dead:
            return "RETRY_EXC_ERR"
        return super().carry_out(queue, request)


def silent(was: Callable[..., None], queue: Queue, request: SendRequest, status: str) -> None:
    """Never completes an RDMA READ."""
    if request.opcode != "RDMA_READ":
        was(queue, request, status)


def found_on(device: Device) -> Findings:
    with closing(ReferenceBench(device)) as bench:
        return preflight(bench)


@pytest.mark.parametrize("lacks", [(), ("iba_statuses", "immediate_data")])
def test_a_device_that_moves_bytes_is_accepted_and_nothing_is_left(lacks: tuple[str, ...]) -> None:
    with closing(ReferenceBench(Device(without(*lacks)))) as bench:
        before = bench.resources()
        preflight(bench)
        assert bench.resources() == before


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lost("SEND", "RETRY_EXC_ERR"),
            "SEND completed with RETRY_EXC_ERR, and its data did not arrive",
        ),
        (lost("SEND", "SUCCESS"), "SEND completed with SUCCESS, and its data did not arrive"),
        (
            lost("RDMA_WRITE", "RETRY_EXC_ERR"),
            "RDMA_WRITE completed with RETRY_EXC_ERR, and its data did not arrive",
        ),
        (
            lost("RDMA_READ", "RNR_RETRY_EXC_ERR"),
            "RDMA_READ completed with RNR_RETRY_EXC_ERR, and its data",
        ),
        (device(post_send=lambda *_: 22), "a SEND or its receive could not be posted: EINVAL"),
        (device(complete=silent), "RDMA_READ produced no completion"),
        (
            unmade(95, *RELIABLE, carry_out=lambda *_: "SUCCESS"),
            "loopback does not work on this device: SEND completed with SUCCESS",
        ),
    ],
)
def test_lost_requests_of_preflight_end_the_run(made: Device, message: str) -> None:
    with user_error(message, status=3) as caught:
        found_on(made)
    assert "--gid-index" in caught.value.hint


@pytest.mark.parametrize(
    ("made", "operation", "reason"),
    [
        (
            lost("RDMA_WRITE", "SUCCESS"),
            "RDMA_WRITE",
            "completed with SUCCESS, and its data did not arrive",
        ),
        (
            lost("RDMA_READ", "REM_ACCESS_ERR"),
            "RDMA_READ",
            "completed with REM_ACCESS_ERR, and its data did not",
        ),
        (
            lost("RDMA_WRITE", "LOC_PROT_ERR"),
            "RDMA_WRITE",
            "completed with LOC_PROT_ERR, and its data did not",
        ),
        (
            device(
                deliver=lambda was, queue, content, *more: was(
                    queue,
                    b"\0" * len(content or b""),
                    *more,
                ),
            ),
            "SEND",
            "completed with SUCCESS and SUCCESS, and its data did not arrive",
        ),
    ],
)
def test_refusals_in_preflight_are_left_to_the_cases(
    made: Device,
    operation: str,
    reason: str,
) -> None:
    findings = found_on(made)
    assert [name for name, what in findings.operations.items() if what != "works"] == [operation]
    assert reason in findings.operations[operation]
    assert findings.pairs["RC"] == "works"
    assert findings.renews_by_reset is True
    (line,) = [
        finding for finding in format_findings(findings.as_data()) if finding.startswith(operation)
    ]
    assert line.endswith("; the cases judge this")


def test_a_device_that_registers_nothing_is_accepted() -> None:
    findings = found_on(registering(lambda access: 14))
    refused = "registering the local side's memory was refused with EFAULT"
    assert set(findings.operations.values()) == {refused}
    assert findings.refused_write == refused
    assert findings.pairs == {"RC": "works", "UC": refused, "UD": refused, "RC_SRQ": refused}


def test_preflight_registers_memory_only_with_local_write() -> None:
    with closing(ReferenceBench(registering(lambda access: 0 if access & 1 else 22))) as bench:
        assert set(preflight(bench).operations.values()) == {"works"}
        assert bench.capabilities() == ReferenceBench().capabilities()


def test_the_findings_of_preflight_are_reported() -> None:
    findings = found_on(Device())
    assert findings.as_data() == {
        "pairs": {"RC": "works", "UC": "works", "UD": "works", "RC_SRQ": "works"},
        "operations": {"RDMA_WRITE": "works", "RDMA_READ": "works", "SEND": "works"},
        "refused_write": "REM_ACCESS_ERR",
        "renews_by_reset": True,
        "tells_state": True,
        "in_flight_bytes": 0,
        "uncounted": (),
        "wire_peer": "",
    }
    assert format_findings(findings.as_data()) == []


@pytest.mark.parametrize("errno", [95, 38, 93, 22])
def test_a_device_without_reliable_connections_is_accepted(errno: int) -> None:
    findings = found_on(unmade(errno, *RELIABLE))
    assert findings.pairs == {
        "RC": "not offered",
        "UC": "works",
        "UD": "works",
        "RC_SRQ": "not offered",
    }
    assert findings.refused_write == ""
    assert format_findings(findings.as_data()) == []


def test_a_device_without_any_queue_pair_is_accepted() -> None:
    findings = found_on(Device(without("rc", "uc", "ud", "rc_srq")))
    assert set(findings.pairs.values()) == {"not offered"}


def test_queue_pairs_that_cannot_be_made_or_connected_end_the_run() -> None:
    with user_error("making a queue pair of type RC was refused with ENOMEM", status=3) as caught:
        found_on(unmade(12, *RELIABLE))
    assert "--gid-index" not in caught.value.hint
    with user_error(
        "connecting two queue pairs of type RC was refused with ENETUNREACH",
        status=3,
    ) as caught:
        found_on(unconnected("RC"))
    assert "--gid-index" in caught.value.hint


@pytest.mark.parametrize("kind", ["RC", "UD", "RC_SRQ"])
def test_a_limit_of_locked_memory_is_reported_with_its_value(kind: str, monkeypatch: Patch) -> None:
    monkeypatch.setattr("conformance.execution.preflight.lockable", lambda: 64 << 10)
    said = f"making a queue pair of type {kind} was refused with ENOMEM; this process may lock 64 KiB of memory"
    with user_error(said, status=3) as caught:
        found_on(unmade(12, kind))
    assert "ulimit -l unlimited" in caught.value.hint


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "ibv_alloc_pd"),
        UserError("the device cannot be tested: …"),
        PeerLost("gone, too"),
    ],
)
def test_a_device_that_vanishes_during_preflight_is_reported(
    monkeypatch: Patch,
    error: Exception,
) -> None:
    bench: Any = SimpleNamespace(device=SimpleNamespace(name="mlx5_0"))
    monkeypatch.setattr(fixtures.bench, "preflight", Mock(side_effect=error))
    monkeypatch.setattr(fixtures.bench, "device_names", lambda: [])
    with pytest.raises(
        UserError,
        match="mlx5_0 is gone: it was removed, or its driver was unloaded",
    ) as caught:
        fixtures.bench.look_at(bench)
    assert (caught.value.status, caught.value.hint) == (3, "see the kernel's log")
    monkeypatch.setattr(fixtures.bench, "device_names", lambda: ["mlx5_0"])
    with pytest.raises(UserError if isinstance(error, PeerLost) else type(error)):
        fixtures.bench.look_at(bench)


def test_further_types_that_cannot_be_connected_are_reported_and_count_as_offered() -> None:
    with closing(ReferenceBench(unconnected("UC"))) as bench:
        findings = preflight(bench)
        assert (
            findings.pairs["UC"]
            == "connecting two queue pairs of type UC was refused with ENETUNREACH"
        )
        assert offered_by(bench, "libibverbs")["uc"] is True
    (line,) = format_findings(findings.as_data())
    assert line.startswith("two queue pairs of type UC were created, but ")


def test_verbs_that_need_a_region_do_not_count_as_absent_without_one() -> None:
    with closing(ReferenceBench(device(reg_mr=refusing(errno.EBUSY)))) as bench:
        preflight(bench)
        offered = offered_by(bench, "libibverbs")
        assert "rereg_mr" not in offered
        library = cast(Libibverbs, SimpleNamespace(has_experimental_rereg=False))
        assert reachable_on(library, offered)["rereg_absent"] is False


class DeadAfterWrappedReset(Device):
    """A reference on which a queue pair transfers nothing after RESET if its queue had wrapped an odd number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.posted: Counter[int] = Counter()
        self.dead: set[int] = set()

    def reset_qp(self, queue: Queue) -> None:
        if self.posted[queue.number] // 16 % 2:
            self.dead.add(queue.number)
        super().reset_qp(queue)

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        self.posted[queue.number] += 1
        if queue.number in self.dead:
            return "RETRY_EXC_ERR"
        return super().carry_out(queue, request)


def test_a_device_whose_pairs_are_dead_after_some_resets_gets_new_pairs() -> None:
    with closing(ReferenceBench(DeadAfterWrappedReset())) as bench:
        assert preflight(bench).renews_by_reset is False


def test_a_pair_that_cannot_leave_reset_is_created_again_without_a_further_try() -> None:
    (irdma,) = (persona for persona in PERSONAS if persona.name == "irdma")
    assert run_clean(irdma, []).findings.renews_by_reset is False


def test_a_device_whose_pairs_are_dead_after_reset_gets_new_pairs_after_refusals() -> None:
    with closing(ReferenceBench(DeadAfterReset())) as bench:
        findings = preflight(bench)
        assert findings.renews_by_reset is False
        assert "RESET" in format_findings(findings.as_data())[0]
        assert_refusals_pass(bench)


@pytest.mark.parametrize(
    "query",
    [refusing(95), lambda was, queue: queue.asked_state],
    ids=["none", "the program's"],
)
def test_without_states_of_the_device_pairs_are_created_again_and_refusals_pass(
    query: Callable[..., str],
) -> None:
    """ibv_query_qp is refused, or returns the state that the program set, and not that of the device."""
    with closing(ReferenceBench(device(query_qp=query))) as bench:
        findings = preflight(bench)
        assert (findings.tells_state, findings.renews_by_reset) == (False, False)
        assert "ibv_query_qp" in format_findings(findings.as_data())[0]
        assert_refusals_pass(bench)


def test_a_responder_without_an_error_state_after_a_refusal_fails_cases_about_the_state() -> None:
    with closing(ReferenceBench(device(fail=lambda *_: None))) as bench:
        assert preflight(bench).tells_state is True
        judged_by_state = [case for case in REFUSED if case.rules[0] == "STAT-01"]
        # Only two cases run, because each case waits for the state.
        assert {verdict_on(bench, case) for case in judged_by_state[:2]} == {Verdict.FAIL}


def test_the_status_of_a_refused_write_is_reported() -> None:
    everything = device(target=lambda was, queue, request, length: request.remote_addr)
    assert found_on(everything).refused_write == "SUCCESS, and its data arrived"
    assert found_on(Device(without("iba_statuses", "immediate_data"))).refused_write == "SUCCESS"


# Failures of the harness


class LostLater(Device):
    """A reference on which, after some requests, every request completes with RETRY_EXC_ERR and nothing arrives."""

    remaining = 400

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        self.remaining -= 1
        if self.remaining > 0:
            return super().carry_out(queue, request)
        return "RETRY_EXC_ERR"


def test_a_refusal_over_a_lost_connection_does_not_count() -> None:
    device = LostLater()
    with closing(ReferenceBench(device)) as bench:
        preflight(bench)
        device.remaining = 0
        for case in REFUSED:
            if case.when.call == "traffic":
                with pytest.raises(LoopbackLost, match="no longer delivers messages to its peer"):
                    run_case(case, on_the_reference(bench))


@pytest.mark.parametrize("call", ["post_send_with_inv", "list_traffic", "local_traffic"])
def test_a_lost_connection_is_not_a_refusal_for_any_call(call: str) -> None:
    rows = [case for case in SUITE.cases if case.kind is Kind.ROW and case.when.call == call]
    refused = [case for case in rows if case.when.then.outcome == "refused" and not case.before][:5]
    assert refused
    device = LostLater()
    with closing(ReferenceBench(device)) as bench:
        for case in refused:
            device.remaining = 10_000
            run = on_the_reference(bench)
            device.remaining = (
                sum(window.bound is not None for window in case.given.windows.values()) + 1
            )
            with pytest.raises(LoopbackLost):
                run_case(case, run)


def test_a_pair_that_dies_in_a_later_reset_is_not_a_refusal() -> None:
    with closing(
        ReferenceBench(DeadAfterReset()),
    ) as bench:  # without preflight, which would have detected this
        refused_twice = next(
            case for case in SUITE.cases if case.kind is Kind.ROW and refusals(case) > 1
        )
        with pytest.raises(LoopbackLost):
            run_case(refused_twice, on_the_reference(bench))


def test_a_refused_receive_of_the_harness_is_a_failure_of_the_harness() -> None:
    case = next(case for case in REFUSED if case.when.call == "traffic")
    output = "a receive of the harness on a queue pair of type RC was refused with ENOMEM"
    no_receives = device(post_receive=lambda was, queue, sges, wr_id: 12)
    with closing(ReferenceBench(no_receives)) as bench, pytest.raises(HarnessFailure, match=output):
        run_case(case, on_the_reference(bench))
    assert broken(HarnessFailure("cause")).reason == "the harness could not run the case: cause"


SUITE = load_suite()


def refusals(case: Case) -> int:
    """Returns the number of refused operations of peers in a case, over connections of the harness."""
    steps = (case.when, *case.afterwards)
    return sum(
        step.call == "traffic" and step.then.outcome == "refused" and not case.given.qps
        for step in steps
    )


REFUSED = [
    case
    for case in SUITE.cases
    if case.kind is Kind.ROW
    and not case.needs_wire_peer
    and case.rules[0] in ("REG-03", "REG-05", "REG-06", "REG-21", "STAT-01")
    and refusals(case)
]


def verdict_on(bench: ReferenceBench, case: Case) -> str:
    return run_case(case, on_the_reference(bench)).judgement.verdict


def assert_refusals_pass(bench: ReferenceBench) -> None:
    assert REFUSED
    for case in REFUSED:
        assert (case.id, verdict_on(bench, case)) == (case.id, Verdict.PASS)


def config(stream: str, mark: str = "") -> Any:
    return SimpleNamespace(
        getoption={"--rdma-stream": stream, "--rdma-mark": mark}.get,
        stash=pytest.Stash(),
    )


ERROR = UserError("no loopback", hint="mend it")


@pytest.mark.parametrize("mark", ["", "abc"])
def test_a_supervisor_gets_marked_lines_before_the_header_and_the_file_of_the_mark_is_removed(
    tmp_path: Path,
    mark: str,
) -> None:
    port, file = tmp_path / "port", tmp_path / "mark"
    port.touch()
    if mark:
        file.write_text(mark)
    session = config(str(port), str(file) if mark else "")
    for _ in range(2):
        tell_supervisor(session, ERROR)
        assert not file.exists()
    line = encode({"type": "guest", "event": "broken", "reason": "no loopback; mend it"})
    assert port.read_bytes() == 2 * (b"abc " * bool(mark) + line)


def test_without_a_supervisor_nothing_is_sent() -> None:
    tell_supervisor(config(""), ERROR)
