"""Tests of silent workers: which of them are busy, which were stopped, and which hang."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors import HEADER, SILENCE, Actor, Stage, ran, verdicts
from conformance.errors import UserError
from conformance.supervision.worker import WorkerEnd
from fixtures.system.processes import Pulse
from kinds import Patch
from patience import await_true, state_of
from samples import laid


@contextmanager
def process(code: str) -> Iterator[int]:
    """Runs a process that prints a line and then executes this code; yields its id."""
    command = [sys.executable, "-c", f"import time; print('up', flush=True); {code}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            child.kill()


@pytest.mark.parametrize(
    "code, stop, held",
    [
        ("time.sleep(999)", True, True),
        ("time.sleep(999)", False, False),
        ("exec('while 1: pass')", True, True),
    ],
)
def test_a_stopped_process_counts_as_held_up(code, stop, held):
    with process(code) as pid:
        pulse = Pulse(pid)
        if stop:
            os.kill(pid, signal.SIGSTOP)
            await_true(lambda: state_of(pid) == "T")
        pulse.look()
        time.sleep(0.2)
        assert bool(pulse.held_up()) is held
        os.kill(pid, signal.SIGCONT)
        pulse.heard()
        await_true(lambda: state_of(pid) != "T")
        assert pulse.held_up() == ""


def pulse_after(folder: Path, monkeypatch: Patch, before: str, after: str, seconds: int) -> Pulse:
    """Returns the pulse of a process with these states before and after 120 s of silence, and this processor time."""
    clock = iter([0.0, 120.0])
    monkeypatch.setattr("fixtures.system.processes.time.monotonic", lambda: next(clock))
    laid(folder, {"1/stat": f"1 (x) {before}{' 0' * 20}"})
    pulse = Pulse(1, folder, folder)
    pulse.look()
    ticks = seconds * os.sysconf("SC_CLK_TCK")
    laid(folder, {"1/stat": f"1 (x) {after}{' 0' * 10} {ticks}{' 0' * 9}"})
    return pulse


def test_a_short_stop_does_not_excuse_a_long_loop(tmp_path, monkeypatch):
    assert pulse_after(tmp_path, monkeypatch, "T", "R", 100).held_up() == ""


@pytest.mark.parametrize("seconds, busy", [(0, False), (5, False), (7, True)])
def test_a_silent_process_that_uses_the_processor_is_busy(seconds, busy, tmp_path, monkeypatch):
    assert pulse_after(tmp_path, monkeypatch, "S", "S", seconds).busy() is busy


@pytest.mark.parametrize("seconds, starved", [(5, False), (7, True), (60, False)])
def test_a_busy_process_with_little_processor_time_is_starved(
    seconds, starved, tmp_path, monkeypatch
):
    assert pulse_after(tmp_path, monkeypatch, "S", "S", seconds).starved(60.0) is starved


@pytest.mark.parametrize("waited_s, busy", [(50, False), (70, True)])
def test_a_silent_process_that_waits_for_a_processor_is_busy(waited_s, busy, tmp_path, monkeypatch):
    pulse = pulse_after(tmp_path, monkeypatch, "R", "R", 1)
    each_ns = waited_s * 10**9 // 2
    laid(tmp_path, {f"1/task/{thread}/schedstat": f"5 {each_ns} 9" for thread in (1, 2)})
    assert pulse.busy() is busy


def test_a_worker_that_starts_slowly_is_awaited_while_it_is_busy(tmp_path):
    slow = Actor(iter([SILENCE, HEADER, SILENCE, *ran(0, 1, 2, 3)[1:]]), WorkerEnd(), works=True)
    assert verdicts(Stage(tmp_path).play(slow)) == ["PASS"] * 4
    assert not slow.killed


@pytest.mark.parametrize("works, longest", [(False, 900.0), (True, 0.0)])
def test_a_worker_that_idles_or_starts_too_slowly_is_an_error(
    works, longest, tmp_path, monkeypatch
):
    monkeypatch.setattr("conformance.supervision.worker.LONGEST_START_S", longest)
    silent = [Actor(iter([SILENCE, *ran(0)]), WorkerEnd(), works=works) for _ in range(9)]
    with pytest.raises(UserError, match="no answer within its deadline"):
        Stage(tmp_path).play(*silent)


def test_a_frozen_control_group_counts_as_held_up(tmp_path):
    frozen = {"1/cgroup": "0::/a/b\n", "a/b/cgroup.events": "populated 1\nfrozen 1\n"}
    laid(tmp_path, {"1/stat": "1 (x) S" + " 0" * 20, **frozen})
    assert "with its control group" in Pulse(1, tmp_path, tmp_path).held_up()
