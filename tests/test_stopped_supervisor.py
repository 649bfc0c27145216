"""Tests that a stop of the supervisor itself (SIGSTOP, a terminal's Ctrl-Z, a frozen control group) and a jump of the
clock cause no violation: only the time for which the supervisor has listened counts against a worker."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from actors import HEADER, IDS, Actor, passed, ran, start, verdicts
from conformance.model.deadline import CASE_DEADLINE_S
from conformance.older_python import UTC
from conformance.results.records import encode
from conformance.tables.suite import VERSION
from kinds import Patch
from samples import footer_of, header


class Clock:
    """A clock that advances only when a worker lets it advance."""

    def __init__(self, patch: Patch) -> None:
        self.now = 1000.0
        for module in ("session", "worker", "supervisor"):
            patch.setattr(f"conformance.supervision.{module}.time.monotonic", lambda: self.now)


class Silent(Actor):
    """A worker whose second case sends nothing until the supervisor's deadline, and whose supervisor then listens again
    only `absent_s` later."""

    def __init__(self, clock: Clock, absent_s: float, stops: int) -> None:
        super().__init__(iter(ran(0, 1, 2, 3)))
        self._clock, self._absent_s, self._stops = clock, absent_s, stops
        self._lines = 0

    def next_line(self, timeout: float) -> bytes | None:
        if self._lines == 4 and self._stops:
            self._stops -= 1
            self._clock.now += timeout + self._absent_s
            return None
        self._lines += 1
        return next(self.script, b"")


@pytest.mark.parametrize("stops", [1, 3])
def test_a_stop_of_the_supervisor_during_a_case_is_no_hang(stage, monkeypatch, stops):
    worker = Silent(Clock(monkeypatch), absent_s=3600.0, stops=stops)
    assert verdicts(stage.play(worker)) == ["PASS"] * 4


def test_a_silent_worker_of_a_supervisor_that_listens_hangs(stage, monkeypatch):
    worker = Silent(Clock(monkeypatch), absent_s=1.0, stops=1)
    recorded = stage.play(worker, ran(2, 3))
    assert verdicts(recorded) == ["PASS", "HANG", "PASS", "PASS"]


def test_a_stop_while_a_line_is_handled_is_no_hang(stage, monkeypatch):
    """The supervisor is stopped after it has read the start of the second case."""
    clock = Clock(monkeypatch)

    def lines() -> Iterator[bytes | None]:
        yield from [HEADER, start(0), passed(0), start(1)]
        yield None
        yield from [passed(1), start(2), passed(2), start(3), passed(3)]

    monkeypatch.setattr(
        "conformance.supervision.session.Session._store_duration",
        lambda session: setattr(clock, "now", clock.now + CASE_DEADLINE_S + 3600),
    )

    class Waiting(Actor):
        def next_line(self, timeout: float) -> bytes | None:
            line = next(self.script, b"")
            if line is None:
                clock.now += 1.0
                assert timeout > 1.0, "the time of the stop counts against the worker"
                return next(self.script, b"")
            return line

    assert verdicts(stage.play(Waiting(lines()))) == ["PASS"] * 4


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_jumps_between_two_sessions_loses_nothing(stage, hours):
    """The file was written an hour before or after its run began, as far as the clock tells."""
    began = datetime.now(UTC) + timedelta(hours=hours)
    suite = {"version": VERSION, "tables_sha256": "0" * 64}
    head = header(planned=IDS, stack="test", suite=suite, started=began.isoformat())
    del head["left_out"]
    stage.path.write_bytes(encode(head) + start(0) + passed(0))
    recorded = stage.play(ran(1, 2, 3), carry_on=True)
    assert verdicts(recorded) == ["PASS"] * 4
    assert 0 <= footer_of(recorded)["duration_s"] < 2 * 3600


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_jumps_during_a_run_changes_nothing(stage, monkeypatch, seconds):
    clock = time.time
    calls = iter(range(1_000_000))
    monkeypatch.setattr(time, "time", lambda: clock() + seconds * (next(calls) % 2))
    recorded = stage.play(ran(0, 1, 2, 3))
    assert verdicts(recorded) == ["PASS"] * 4
    assert 0 <= footer_of(recorded)["duration_s"] < 600


def test_a_file_from_the_future_can_be_resumed(stage):
    stage.play(ran(0, 1, 2, 3))
    recorded = stage.path.read_bytes().splitlines(keepends=True)
    results = [line for line in recorded if b'"type":"result"' in line][:2]
    stage.path.write_bytes(b"".join([recorded[0], *results]))
    late = time.time() + 3600
    os.utime(stage.path, (late, late))
    again = stage.play(ran(2, 3), carry_on=True)
    assert verdicts(again) == ["PASS"] * 4
