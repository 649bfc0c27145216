"""Tests that a worker whose durations cannot be true is noticed, and that neither a slow or stopped supervisor nor the
clock of a guest causes a wrong BROKEN."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from actors import HEADER, Actor, Stage
from conformance.results.records import encode
from kinds import Patch
from samples import numbered, observed_result

COUNT = 600
SUITE = numbered(COUNT)
JUMPS = 8
S = 1_000_000  # microseconds


class Clock:
    """The supervisor's clock, in microseconds."""

    def __init__(self, patch: Patch) -> None:
        self.now = 0
        patch.setattr("conformance.supervision.claimed_time._now_us", lambda: self.now)


def lines(durations: Sequence[int | None]) -> Iterator[tuple[bytes, int]]:
    """Returns the lines of the first cases, which took so many microseconds, and the time that passes before each
    line."""
    yield HEADER, 0
    for case, duration in zip(SUITE.cases, durations, strict=False):
        yield encode({"type": "start", "case": case.id}), 0
        yield encode(observed_result(case, duration_us=duration)), duration or 0


def broken(stage: Stage, worker: Actor, count: int) -> list[str]:
    """Returns the reasons of the BROKEN cases among the first `count` cases; the others must be PASS."""
    recorded = stage.supervise(lambda batch: worker, suite=SUITE, cases=SUITE.cases[:count])
    reasons = [line["reason"] for line in recorded.results if line["verdict"] == "BROKEN"]
    assert len(recorded.results) == count
    assert sum(line["verdict"] == "PASS" for line in recorded.results) == count - len(reasons)
    return reasons


def at_once(durations: Sequence[int | None], on_this_machine: bool = True) -> Actor:
    """Returns a worker whose lines all arrive in the same moment."""
    return Actor(iter([line for line, _ in lines(durations)]), on_this_machine=on_this_machine)


def test_a_worker_that_decides_its_cases_in_no_time_is_broken(stage, monkeypatch):
    """The durations are honest ones, which the worker has learned before."""
    Clock(monkeypatch)
    reasons = broken(stage, at_once([S] * 20), 20)
    assert len(reasons) == 20 - JUMPS
    assert reasons[0] == (
        "the worker reports that its cases took 9,000 ms, but it was started 0 ms ago"
    )


def test_a_takeover_after_the_first_case_is_broken(stage, monkeypatch):
    """The first case is honest and takes ten seconds; all others are decided at once."""
    clock = Clock(monkeypatch)

    def script() -> Iterator[bytes]:
        for number, (line, _) in enumerate(lines([10 * S] + [S] * 59)):
            clock.now = 10 * S if number >= 2 else 0
            yield line

    reasons = broken(stage, Actor(script(), on_this_machine=True), 60)
    assert len(reasons) == 60 - JUMPS - 20  # a guest's clock could be twice as fast
    assert "took 38,000 ms, but it was started 10,000 ms ago" in reasons[0]


@pytest.mark.parametrize("duration", [0, None, 1])
def test_durations_that_no_machine_needs_are_broken(stage, duration):
    reasons = broken(stage, at_once([duration] * COUNT), COUNT)
    assert reasons
    assert "which no machine can do" in reasons[0]


def test_a_clock_that_counts_in_large_steps_is_no_contradiction(stage, monkeypatch):
    """A case of 200 us takes no time or 10 ms, as far as this clock tells."""
    clock = Clock(monkeypatch)
    durations = [10_000 if number % 50 == 49 else 0 for number in range(COUNT)]

    def script() -> Iterator[bytes]:
        clock.now = 200 * COUNT
        yield from (line for line, _ in lines(durations))

    assert not broken(stage, Actor(script(), on_this_machine=True), COUNT)


@pytest.mark.parametrize("slow_s", [0, 3600])
def test_a_supervisor_that_reads_late_is_no_contradiction(stage, monkeypatch, slow_s):
    """The supervisor was stopped, or judged slowly: all lines of the batch arrive at once, after the batch has ended."""
    clock = Clock(monkeypatch)

    def script() -> Iterator[bytes]:
        clock.now = (40 + slow_s) * S
        yield from (line for line, _ in lines([S] * 40))

    assert not broken(stage, Actor(script(), on_this_machine=True), 40)


def test_a_supervisor_that_keeps_up_is_no_contradiction(stage, monkeypatch):
    clock = Clock(monkeypatch)

    def script() -> Iterator[bytes]:
        for line, took in lines([S] * 40):
            clock.now += took
            yield line

    assert not broken(stage, Actor(script(), on_this_machine=True), 40)


def test_the_clock_of_a_guest_may_jump_and_run_fast(stage, monkeypatch):
    """A virtual machine that runs the supervisor and the guest was stopped for an hour, several times."""
    clock = Clock(monkeypatch)
    durations = [3600 * S if number % 5 == 4 else S for number in range(40)]

    def script() -> Iterator[bytes]:
        for line, took in lines(durations):
            clock.now += min(took, S) // 2
            yield line

    assert not broken(stage, Actor(script(), on_this_machine=True), 40)


def test_a_host_that_runs_while_this_machine_is_stopped_is_no_contradiction(stage, monkeypatch):
    Clock(monkeypatch)
    assert not broken(stage, at_once([S] * 40, on_this_machine=False), 40)


def test_a_violation_counts_whatever_the_worker_says_about_its_duration(stage, monkeypatch):
    Clock(monkeypatch)
    case = SUITE.cases[JUMPS]
    worker = at_once([S] * JUMPS)
    failure = encode(observed_result(case, "FAIL", duration_us=S))
    worker.script = iter([*worker.script, encode({"type": "start", "case": case.id}), failure])
    recorded = stage.supervise(lambda batch: worker, suite=SUITE, cases=SUITE.cases[: JUMPS + 1])
    assert recorded.results[-1]["verdict"] == "FAIL"
