"""A process that somebody else has stopped is not taken for one that hangs: by its state, and the time it has used."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors import HEADER, SILENCE, Actor, Stage, ran, start, verdicts
from conformance.supervision import WorkerEnd
from fixtures.system.pulse import Pulse
from patience import await_true


@contextmanager
def process(code: str) -> Iterator[int]:
    """A process that says a word when it runs."""
    command = [sys.executable, "-c", f"import time; print('up', flush=True); {code}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as made:
        assert made.stdout
        made.stdout.readline()
        try:
            yield made.pid
        finally:
            made.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    ("code", "stop", "held"),
    [("time.sleep(999)", True, True), ("time.sleep(999)", False, False), ("exec('while 1: pass')", True, True)],
)
def test_who_was_stopped_was_held_up(code: str, stop: bool, held: bool) -> None:
    with process(code) as pid:
        pulse = Pulse(pid)
        if stop:
            os.kill(pid, signal.SIGSTOP)
            await_true(lambda: state(pid) == "T")
        pulse.look()
        time.sleep(0.2)
        assert bool(pulse.held_up()) is held
        os.kill(pid, signal.SIGCONT)
        pulse.heard()
        await_true(lambda: state(pid) != "T")
        assert pulse.held_up() == ""


def test_a_short_stop_in_a_long_loop_is_no_excuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 120.0])
    monkeypatch.setattr("fixtures.system.pulse.time.monotonic", lambda: next(clock))
    (tmp_path / "1").mkdir()
    stat = tmp_path / "1" / "stat"
    fields = ["0"] * 20
    stat.write_text(f"1 (x) {' '.join(['T', *fields])}")
    pulse = Pulse(1, tmp_path, tmp_path)
    pulse.look()
    ticks = str(100 * os.sysconf("SC_CLK_TCK"))
    stat.write_text(f"1 (x) {' '.join(['R', *fields[:10], ticks, *fields[11:]])}")
    assert pulse.held_up() == ""


def test_a_frozen_control_group_holds_up(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stat").write_text("1 (x) S" + " 0" * 20)
    (tmp_path / "1" / "cgroup").write_text("0::/a/b\n")
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/cgroup.events").write_text("populated 1\nfrozen 1\n")
    pulse = Pulse(1, tmp_path, tmp_path)
    assert "with its control group" in pulse.held_up()


def stopped() -> Actor:
    """A worker that somebody stops in its first case."""
    return Actor(iter([HEADER, start(0), SILENCE]), WorkerEnd(), held="QEMU was stopped from outside")


def test_a_case_whose_worker_was_stopped_is_started_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    recorded = stage.play(stopped(), ran(0, 1, 2, 3))
    assert verdicts(recorded) == ["PASS"] * 4
    assert stage.actors[0].killed


def test_a_case_whose_worker_is_stopped_each_time_is_broken(tmp_path: Path) -> None:
    recorded = Stage(tmp_path).play(stopped(), stopped(), stopped(), ran(1, 2, 3))
    assert verdicts(recorded) == ["BROKEN", "PASS", "PASS", "PASS"]
    assert recorded.results[0]["reason"] == "QEMU was stopped from outside, 3 times in this case"
