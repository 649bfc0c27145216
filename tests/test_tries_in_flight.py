"""Tests of cases with requests in flight during their call: when they count as in flight, and how often they are tried."""

from contextlib import closing
from unittest.mock import Mock

import pytest

from conformance.bench.memory_areas import Part
from conformance.bench.work_requests import Completion
from conformance.execution import runner
from conformance.execution.in_flight import await_traffic
from conformance.execution.runner import run_case
from conformance.model.case import Expectation, Step
from reports.races import Race, Tries
from test_runner import SUITE, awaited, run
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device

__all__ = ["run"]  # a fixture


@pytest.mark.parametrize(
    "statuses, overlapped",
    [
        (["SUCCESS"] * 12, False),
        (["SUCCESS"] * 4 + ["WR_FLUSH_ERR"] * 8, False),
        (["SUCCESS"] * 4 + ["REM_ACCESS_ERR"] + ["WR_FLUSH_ERR"] * 7, True),
        (["SUCCESS"] * 11, True),
    ],
    ids=["fast", "flushed", "refused", "unfinished"],
)
def test_a_request_was_in_flight_if_it_was_refused_or_is_not_complete(statuses, overlapped):
    completions = [[Completion(number, status) for number, status in enumerate(statuses)], []]
    with closing(ReferenceBench(Device())) as bench:
        memory = bench.allocate("anonymous", 4096)
        queue = Mock(completions=Mock(side_effect=completions))
        context = Mock(
            in_flight={"qp": (queue, Part(memory.addr, memory.size))},
            memory_of=lambda _: memory,
        )
        seen = await_traffic(
            context,
            Step("await_traffic", {"qp": "qp"}, Expectation("success")),
        )
        memory.close()
    assert seen["overlapped"] is overlapped


READ = "dereg_mr/in_flight/rdma-read-in-flight"
KILLED = "reg_mr/killed_process/rdma-read-in-flight"


@pytest.mark.parametrize(
    "name, attempts, number, verdict, tries",
    [
        pytest.param(
            READ,
            ["early"] * 2 + ["seen"] * 3 + ["moved"] + ["seen"] * 28,
            34,
            "FAIL",
            (1, 32),
            id="late",
        ),
        pytest.param(READ, ["moved"] * 32, 5, "FAIL", (5, 5), id="each-time"),
        pytest.param(READ, ["moved", "seen"] * 16, 32, "FAIL", (16, 32), id="every-other-time"),
        pytest.param(
            READ, ["moved", "moved", "seen", *["moved"] * 29], 9, "FAIL", (8, 9), id="often"
        ),
        pytest.param(READ, ["moved", "early", "refused"], 3, "FAIL", (1, 1), id="then-refused"),
        pytest.param(READ, ["moved", OSError()], 2, "FAIL", (1, 1), id="then-broken"),
        pytest.param(READ, ["seen", "early"] * 4, 7, "PASS", (0, 4), id="never"),
        pytest.param(KILLED, ["seen", "early"] * 4, 3, "PASS", (0, 2), id="a-process-for-each-try"),
        pytest.param(
            READ, ["early"] * 31 + ["moved"] * 32, 36, "FAIL", (5, 5), id="late-and-quick"
        ),
        pytest.param(READ, ["early"] * 32, 32, "UNREACHABLE", None, id="not-in-flight"),
    ],
)
def test_a_case_with_requests_in_flight_is_tried_until_it_shows_a_violation_and_then_on(
    run, monkeypatch, name, attempts, number, verdict, tries
):
    monkeypatch.setattr(runner, "_RACES_S", 3600.0)
    monkeypatch.setattr(runner, "_TRIES_OF_HIT_S", 3600.0)
    case = next(case for case in SUITE.cases if case.id == name)
    outcomes = {
        "early": awaited("0", False),
        "seen": awaited("0", True),
        "moved": awaited("changed", True),
        "refused": {"setup_failed": "a pair was refused", "errno": "ENOMEM"},
    }
    call = Mock(side_effect=[outcomes.get(attempt, attempt) for attempt in attempts])
    monkeypatch.setattr(runner, "set_up_and_call", call)
    done = run_case(case, run)
    assert (done.judgement.verdict, call.call_count) == (verdict, number)
    seen = done.observation.get("in_flight")
    assert (seen and (seen["hits"], seen["of"])) == tries


def test_slow_tries_end_early(run, monkeypatch):
    """On siw each try may wait for a request in the error state."""
    call = Mock(return_value=awaited("0", False))
    monkeypatch.setattr(runner, "set_up_and_call", call)
    monkeypatch.setattr(runner, "_RACES_S", 0.0)
    case = next(case for case in SUITE.cases if case.id == READ)
    assert run_case(case, run).judgement.verdict == "UNREACHABLE"
    assert call.call_count == 8


def test_a_slow_violation_is_not_tried_on(run, monkeypatch):
    call = Mock(return_value=awaited("changed", True))
    monkeypatch.setattr(runner, "set_up_and_call", call)
    monkeypatch.setattr(runner, "_TRIES_OF_HIT_S", 0.0)
    case = next(case for case in SUITE.cases if case.id == READ)
    done = run_case(case, run)
    assert (done.judgement.verdict, done.observation["in_flight"]) == ("FAIL", {"hits": 1, "of": 1})


def test_the_tries_after_a_violation_that_occurs_in_four_of_five_suffice_to_tell_stacks_apart():
    without, of = runner._OVERLAPS, runner._TRIES_OF_HIT
    assert Race(Tries(0, without), Tries(4 * of // 5, of), "").is_decided
    assert not Race(Tries(0, without), Tries(of // 2, of), "").is_decided
