"""Tests that a lost connection is no refusal by the device, and that refusals pass after pairs that died in a reset."""

from collections import Counter
from contextlib import closing

import pytest

from conformance.bench.work_requests import SendRequest
from conformance.errors import HarnessFailure, LoopbackLost
from conformance.execution.preflight import preflight
from conformance.execution.runner import run_case
from conformance.judging import broken
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.preflight import format_findings
from conformance.model.verdict import Verdict
from conformance.tables.suite import load_suite
from devices import device, refusing
from trial.personas.persona import PERSONAS
from trial.personas.trying import run_clean
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.queues import Queue
from trial.running import on_the_reference


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


def test_a_device_whose_pairs_are_dead_after_some_resets_gets_new_pairs():
    with closing(ReferenceBench(DeadAfterWrappedReset())) as bench:
        assert preflight(bench).renews_by_reset is False


def test_a_pair_that_cannot_leave_reset_is_created_again_without_a_further_try():
    (irdma,) = (persona for persona in PERSONAS if persona.name == "irdma")
    assert run_clean(irdma, []).findings.renews_by_reset is False


def test_a_device_whose_pairs_are_dead_after_reset_gets_new_pairs_after_refusals():
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
def test_without_states_of_the_device_pairs_are_created_again_and_refusals_pass(query):
    """ibv_query_qp is refused, or returns the state that the program set, and not that of the device."""
    with closing(ReferenceBench(device(query_qp=query))) as bench:
        findings = preflight(bench)
        assert (findings.tells_state, findings.renews_by_reset) == (False, False)
        assert "ibv_query_qp" in format_findings(findings.as_data())[0]
        assert_refusals_pass(bench)


def test_a_responder_without_an_error_state_after_a_refusal_fails_cases_about_the_state():
    with closing(ReferenceBench(device(fail=lambda *_: None))) as bench:
        assert preflight(bench).tells_state is True
        judged_by_state = [case for case in REFUSED if case.rules[0] == "STAT-01"]
        # Only two cases run, because each case waits for the state.
        assert {verdict_on(bench, case) for case in judged_by_state[:2]} == {Verdict.FAIL}


class LostLater(Device):
    """A reference on which, after some requests, every request completes with RETRY_EXC_ERR and nothing arrives."""

    remaining = 400

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        self.remaining -= 1
        if self.remaining > 0:
            return super().carry_out(queue, request)
        return "RETRY_EXC_ERR"


def test_a_refusal_over_a_lost_connection_does_not_count():
    device = LostLater()
    with closing(ReferenceBench(device)) as bench:
        preflight(bench)
        device.remaining = 0
        for case in REFUSED:
            if case.when.call == "traffic":
                with pytest.raises(LoopbackLost, match="no longer delivers messages to its peer"):
                    run_case(case, on_the_reference(bench))


@pytest.mark.parametrize("call", ["post_send_with_inv", "list_traffic", "local_traffic"])
def test_a_lost_connection_is_not_a_refusal_for_any_call(call):
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


def test_a_pair_that_dies_in_a_later_reset_is_not_a_refusal():
    # without preflight, which would have detected this
    with closing(ReferenceBench(DeadAfterReset())) as bench:
        refused_twice = next(
            case for case in SUITE.cases if case.kind is Kind.ROW and refusals(case) > 1
        )
        with pytest.raises(LoopbackLost):
            run_case(refused_twice, on_the_reference(bench))


def test_a_refused_receive_of_the_harness_is_a_failure_of_the_harness():
    case = next(case for case in REFUSED if case.when.call == "traffic")
    output = "a receive of the harness on a queue pair of type RC was refused with ENOMEM"
    no_receives = device(post_receive=lambda was, queue, sges, wr_id: 12)
    with closing(ReferenceBench(no_receives)) as bench, pytest.raises(HarnessFailure, match=output):
        run_case(case, on_the_reference(bench))
    assert broken(HarnessFailure("cause")).reason == "the harness could not run the case: cause"


SUITE = load_suite()


def refusals(case: Case) -> int:
    """Returns the number of refused operations of peers in a case, over connections of the harness."""
    steps = case.judged_steps
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
