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
from typing import Any

import pytest

from actors import HEADER, SILENCE, Actor, Stage, ran, start, verdicts
from conformance.defects import Severity, defects_of, severity_of, symptoms_of
from conformance.judging import judge
from conformance.model.fault import FaultKind
from conformance.model.observation import Observation
from conformance.model.record_shape import completed
from conformance.model.verdict import Verdict
from conformance.results.records import result_record
from conformance.supervision import WorkerEnd
from fixtures.system.pulse import Pulse
from patience import await_true
from samples import case, registry


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


MADE: Observation = {
    "rc": None,
    "returned": "MR",
    "errno": "",
    "layer": "kernel",
    "mr": {
        "addr": 1,
        "length": 4096,
        "handle": 1,
        "lkey": 2,
        "rkey": 3,
        "pd_is_the_asked": True,
        "context_is_the_pds": True,
    },
    "asked": {"addr": 1, "length": 4096},
}
SILENT: Observation = {"rc": 0, "returned": "0", "errno": "", "layer": "device", "wc": [], "moved": "nothing"}


def row(expected: str, step: str = "call: traffic, op: RDMA_WRITE, rkey: new.rkey", needs: str = "") -> Any:
    """A region that a step then uses."""
    return case(
        f"""
        - id: then-traffic
          rules: [REG-01]
          {needs}
          when: {{access: [LOCAL_WRITE]}}
          then: success
          afterwards: [{{{step}, addr: buf, then: {expected}}}]
        """
    )


def after(**more: Any) -> Observation:
    """The region, and a request without completion."""
    later: Any = {"changed": [], "qp_type": "RC", "side": "remote", "peer_wc": [], **SILENT, **more}
    return {**MADE, "afterwards": [later]}


RECEIVE = "call: local_traffic, op: RECV, lkey: new.lkey"
ON_IWARP = {"unacknowledged": True}


@pytest.mark.parametrize(
    ("expected", "step", "seen", "verdict"),
    [
        ("refused", "", {}, Verdict.HANG),
        ("refused", "", {"qp_type": "XRC"}, Verdict.HANG),
        ("refused", "", {"qp_type": "UC"}, Verdict.HANG),  # it completes when it is sent
        ("success", "", {}, Verdict.HANG),
        ("success", "", {"moved": "all", "changed": [[0, 8]]}, Verdict.HANG),
        ("success", "", ON_IWARP, Verdict.HANG),
        ("refused", "", ON_IWARP, Verdict.PASS),
        ("refused", RECEIVE, {"side": "receive"}, Verdict.HANG),  # its sender waits
        ("refused", RECEIVE, {"side": "receive", "wc": ["LOC_PROT_ERR"]}, Verdict.HANG),
        ("refused", RECEIVE, {"side": "receive", "peer_wc": ["REM_OP_ERR"]}, Verdict.PASS),
        ("refused", RECEIVE, {"side": "receive", "qp_type": "UD", "peer_wc": ["SUCCESS"]}, Verdict.PASS),
        ("open", "", {}, Verdict.PASS),
    ],
)
def test_a_request_completes_whatever_becomes_of_it(expected: str, step: str, seen: Any, verdict: Verdict) -> None:
    of = row(expected, step) if step else row(expected)
    judgement = judge(of, [], after(**seen))
    assert judgement.verdict == verdict
    assert (judgement.fault is not None) == (verdict == Verdict.HANG)
    if judgement.fault:
        assert judgement.fault.kind is FaultKind.NO_COMPLETION
        symptoms = list(symptoms_of(completed(result_record(of, registry(), judgement, after(**seen)), "")))
        assert [severity_of(each) for each in symptoms] == [Severity.HANG]


def test_requests_of_one_kind_that_never_complete_are_one_defect_whatever_their_rules() -> None:
    of, seen = row("refused"), after()
    record = completed(result_record(of, registry(), judge(of, [], seen), seen), "")
    (defect,) = defects_of([record, {**record, "case": "reg_mr/other/row", "rules": ["REG-15"]}])
    assert (defect.title, len(defect.cases)) == ("requests never complete: RDMA_WRITE", 2)


def test_bytes_that_nobody_granted_are_worse_than_silence() -> None:
    fault = judge(row("refused"), [], after(moved="all", changed=[[0, 8]])).fault
    assert fault is not None
    assert fault.kind is FaultKind.MOVED


def test_what_a_device_lacks_is_not_refused_by_silence() -> None:
    assert judge(row("success"), ["atomics"], after()).verdict == Verdict.HANG


def test_a_message_that_was_sent_and_does_not_arrive_is_a_valid_one_refused() -> None:
    """On iWARP, SUCCESS of a WRITE says only that it was sent."""
    fault = judge(row("success"), [], after(wc=["SUCCESS"], **ON_IWARP)).fault
    assert fault is not None
    assert fault.kind is FaultKind.REFUSED
    on_rc = judge(row("success"), [], after(wc=["SUCCESS"])).fault
    assert on_rc is not None
    assert on_rc.kind is FaultKind.NOT_ARRIVED
