"""Tests with workers that send wrong lines, print noise, hang or die: their results, and the footer of each run."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import samples
from actors import HEADER, IDS, SILENCE, Actor, Stage, killed, passed, ran, start, verdicts
from conformance.errors import UserError
from conformance.results.conclusions import exit_status
from conformance.results.records import Recorded, encode, read_written
from conformance.run_options import RunOptions
from conformance.supervision import session, slow_cases, worker
from conformance.supervision.worker import TRIES, Worker, WorkerEnd
from conformance.tables.suite import load_suite
from fixtures.system.host import HostWorker
from kinds import Patch
from patience import await_true
from project import QUIET_VERDICTS, Project
from samples import footer_of, header, user_error

REFUSAL = encode({"type": "guest", "event": "broken", "reason": "loopback does not work"})


def test_lines_of_a_valid_worker_are_recorded(stage):
    recorded = stage.play(ran(0, 1, 2, 3))
    assert verdicts(recorded) == ["PASS"] * 4
    assert recorded.header["planned"] == IDS
    assert recorded.header["stack"] == "test"
    assert footer_of(recorded)["complete"] is True
    assert footer_of(recorded)["boots"] == 1
    assert stage.audience.total == 4
    assert stage.audience.taken == IDS
    assert stage.audience.reasons == []


def test_a_case_that_takes_long_is_named_with_its_time(stage, monkeypatch):
    monkeypatch.setattr(slow_cases, "SLOW_S", 0.0)
    monkeypatch.setattr(slow_cases, "_PERIOD_S", 0.001)
    at = encode({"type": "progress", "case": IDS[1], "point": "addr=buf"})

    def slow() -> Iterator[bytes]:
        yield from ran(0)
        yield start(1)
        await_true(lambda: any(IDS[1] in line for line in stage.audience.said))
        yield at
        await_true(lambda: any("addr=buf" in line for line in stage.audience.said))
        yield passed(1)
        stage.audience.said.clear()
        yield from ran(2, 3)[1:]

    assert verdicts(stage.play(slow())) == ["PASS"] * 4
    assert not any(IDS[1] in line for line in stage.audience.said)


def test_a_slow_case_is_named_after_each_doubling_of_its_time(monkeypatch):
    now = [0.0]
    said: list[str] = []
    monkeypatch.setattr(slow_cases, "time", SimpleNamespace(monotonic=lambda: now[0]))
    slow = slow_cases.SlowCases(said.append)
    slow.begin("reg_mr/a/b")
    for second in range(0, 300, 5):
        now[0] = second
        slow.tell()
    times = [line.removeprefix("  reg_mr/a/b has been running for ") for line in said]
    assert times == ["30 s", "60 s", "120 s", "240 s"]


def test_a_worker_that_dies_in_a_case_affects_only_that_case(stage):
    recorded = stage.play([*ran(0), start(1)], ran(2, 3))
    assert verdicts(recorded) == ["PASS", "CRASH", "PASS", "PASS"]
    assert stage.asked == [IDS, IDS[2:]]
    crash = recorded.results[1]
    assert crash["kernel"]["log"] == Actor(iter(())).console_tail()
    assert crash["reason"].endswith("died ([ 2.0] BUG: kernel NULL pointer dereference)")
    assert footer_of(recorded)["complete"] is True
    assert footer_of(recorded)["boots"] == 2
    assert exit_status(footer_of(recorded)) == 1
    assert IDS[1] in stage.audience.reasons[0]


def test_hazardous_cases_run_last_each_in_a_separate_worker(stage):
    rows = "\n".join(
        f"- {{id: c{number}, rules: [REG-01], hazardous: {str(number < 2).lower()}, when: {{access: []}}, then: open}}"
        for number in range(4)
    )
    suite = samples.suite([samples.table("reg_mr/sample", rows, 4)])
    recorded = stage.play(ran(2, 3), [HEADER, start(0)], ran(1), suite=suite)
    assert stage.asked == [IDS[2:], IDS[:1], IDS[1:2]]
    assert verdicts(recorded) == ["CRASH", "PASS", "PASS", "PASS"]
    assert stage.audience.reasons == []


def test_a_case_whose_worker_was_killed_externally_is_rerun(stage):
    recorded = stage.play(killed(*ran(0), start(1)), killed(HEADER), ran(1, 2, 3))
    assert verdicts(recorded) == ["PASS"] * 4
    assert stage.asked == [IDS, IDS[1:], IDS[1:]]
    assert footer_of(recorded)["boots"] == 3
    assert stage.audience.reasons == ["pytest was ended externally"] * 2


def test_an_unkillable_process_makes_the_device_suspect(stage):
    stuck = "process 17 is stuck in the kernel and cannot be killed"
    recorded = stage.play(Actor(iter([*ran(0), start(1), SILENCE]), left=stuck))
    assert verdicts(recorded) == ["PASS", "HANG", "MISSED", "MISSED"]
    assert recorded.results[-1]["reason"] == f"not run: the device is suspect: {stuck}"
    assert footer_of(recorded)["complete"] is False
    assert exit_status(footer_of(recorded)) == 1


@pytest.mark.parametrize(
    "lines, reason",
    [
        *(([*lines], "") for lines in ([], [b"\x00\xffrubbish\n"], [SILENCE])),
        *(([*before, REFUSAL], ": loopback does not work") for before in ([], [HEADER])),
    ],
)
def test_a_worker_that_begins_no_case_is_an_error(stage, lines, reason):
    with user_error(f"no case was begun{reason}.*{stage.console}", status=3):
        stage.play(lines)


BAD_HEADERS: dict[str, dict[str, object]] = {
    "nothing": {"type": "header"},
    "no device": {"type": "header", "schema": "rdma-cts/1", "env": {}, "planned": []},
    "caps of another type": {**header(), "device": {"name": "x", "caps": [1]}},
    "a name of another type": {**header(), "device": {"name": 7}},
    "too many bytes": {**header(), "device": {"name": "x" * (2 << 20)}},
}


@pytest.mark.parametrize("bad", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_header_of_another_shape_is_refused(stage, bad):
    with pytest.raises(UserError) as caught:
        stage.play([encode(bad), start(0), passed(0)])
    assert caught.value.status == 3
    assert len(str(caught.value)) < 500


def test_a_run_whose_second_worker_cannot_start_has_an_incomplete_footer(stage):
    first = iter([Actor(iter([*ran(0), start(1)]))])

    def next_actor(cases: Sequence[str]) -> Worker:
        for actor in first:
            return actor
        raise UserError("the guest did not come up", status=3)

    recorded = stage.supervise(next_actor)
    assert verdicts(recorded) == ["PASS", "CRASH", "MISSED", "MISSED"]
    assert "the guest did not come up" in recorded.results[-1]["reason"]


NOISE = [
    b"\n",
    b"Segmentation fault\n",
    b"\xff\xfe\x00\n",
    b"[]\n",
    b"17\n",
    b"{}\n",
    b'{"type":null}\n',
    b'{"type":"start"}\n',
    b'{"type":"start","case":["list"]}\n',
    b'{"type":"result","case":"reg_mr/sample/c1"}\n',
    b'{"type":"header"}\n',
    b'{"type":"footer"}\n',
    b"[" * 50_000 + b"\n",
    json.dumps({**json.loads(passed(1)), "verdict": "GREAT"}).encode() + b"\n",
    passed(1)[:40] + b"\n",
]
FOREIGN = [
    b'{"type":"start","case":"reg_mr/no/such"}\n',
    b'{"type":"footer","complete":true,"verdicts":{},"rules":{}}\n',
    b'{"type":"confirmation","case":"reg_mr/sample/c1","confirmed":true,"by":"run"}\n',
    b'{"type":"worker","boot_id":"x"}\n',
    b'{"type":"something new"}\n',
    json.dumps({**json.loads(passed(0)), "case": "reg_mr/no/such"}).encode() + b"\n",
    passed(3),
]


@pytest.mark.parametrize("noise", [*NOISE, *FOREIGN])
def test_noise_between_cases_changes_nothing(stage, noise):
    between = [[*ran(number)[1:], noise] for number in range(4)]
    recorded = stage.play([noise, HEADER, noise, *itertools.chain.from_iterable(between)])
    assert verdicts(recorded) == ["PASS"] * 4
    assert footer_of(recorded)["boots"] == 1


@pytest.mark.parametrize("noise", FOREIGN)
def test_foreign_lines_do_not_change_the_case_in_flight(stage, noise):
    recorded = stage.play([HEADER, start(0), noise, passed(0), *ran(1, 2, 3)[1:]])
    assert verdicts(recorded) == ["PASS"] * 4


@pytest.mark.parametrize("noise", NOISE)
def test_a_malformed_line_of_the_harness_breaks_the_case_in_flight_and_no_other(stage, noise):
    recorded = stage.play([HEADER, start(0), noise, passed(0), *ran(1, 2, 3)[1:]])
    assert verdicts(recorded) == ["BROKEN", "PASS", "PASS", "PASS"]
    assert recorded.results[0]["reason"].startswith("the worker sent a malformed line: ")
    assert footer_of(recorded)["boots"] == 1
    assert exit_status(footer_of(recorded)) == 3


def let_time_pass(monkeypatch: Patch) -> None:
    """Gives the supervisor a clock that advances by a second each time it is read."""
    clock = SimpleNamespace(monotonic=itertools.count(1.0).__next__)
    for module in (session, worker):
        monkeypatch.setattr(module, "time", clock)


@pytest.mark.parametrize(
    "babble",
    [
        [start(1), *[b'{"type":"still busy"}\n'] * 9],
        [start(1), HEADER, passed(0), start(0)],  # earlier lines are repeated
    ],
)
def test_noise_does_not_extend_the_deadline(stage, monkeypatch, babble):
    let_time_pass(monkeypatch)
    recorded = stage.play(itertools.chain(ran(0), itertools.cycle(babble)), ran(2, 3))
    assert verdicts(recorded) == ["PASS", "HANG", "PASS", "PASS"]
    assert stage.actors[0].killed


def test_the_time_of_a_case_lasts_until_the_next_one_begins(stage, monkeypatch):
    let_time_pass(monkeypatch)
    stage.play([*ran(0), *[b'{"type":"still busy"}\n'] * 10, start(1), passed(1), start(2)], ran(3))
    assert list(stage.took) == [IDS[0], IDS[1], IDS[3]]  # the worker died in case 2
    assert stage.took[IDS[0]] >= stage.took[IDS[1]] + 10


SHORT = encode(
    {
        key: value
        for key, value in header().items()
        if key not in ("suite", "argv", "started", "stack")
    },
)
BROKEN = encode({"type": "guest", "event": "broken", "reason": "modprobe: no such module"})
OTHER = encode(header(device={**header()["device"], "fw": "2"}))


# The lines of workers, the first letters of the resulting verdicts, and a part of a reason.
PLAYED: dict[str, tuple[Callable[[], Sequence[Any]], str, str]] = {
    "an end between cases": (lambda: [ran(0, 1), ran(2, 3)], "PPPP", ""),
    "silence in a case": (lambda: [[*ran(0), start(1), SILENCE], ran(2, 3)], "PHPP", ""),
    "a death in every case": (lambda: [[HEADER, start(number)] for number in range(4)], "CCCC", ""),
    "a result torn by a death": (
        lambda: [[*ran(0), start(1), passed(1)[:-30]], ran(2, 3)],
        "PCPP",
        "",
    ),
    "a death in a case that is done": (lambda: [[*ran(0), start(0)], ran(1, 2, 3)], "PPPP", ""),
    "a result before the header": (
        lambda: [[start(0), passed(0), *ran(1, 2, 3)], ran(0)],
        "PPPP",
        "",
    ),
    "a result of another case": (lambda: [[HEADER, start(0), passed(1)], ran(1, 2, 3)], "CPPP", ""),
    "results of cases not begun": (lambda: [[HEADER, *map(passed, range(4))]], "MMMM", ""),
    "a second worker that ends": (lambda: [[*ran(0), start(1)], []], "PCMM", "not run"),
    "a second worker that is silent": (lambda: [[*ran(0), start(1)], [SILENCE]], "PCMM", "not run"),
    "a second worker that ends after its header": (
        lambda: [[*ran(0), start(1)], [HEADER]],
        "PCMM",
        "not run",
    ),
    "a second worker silent after its header": (
        lambda: [[*ran(0), start(1)], [HEADER, SILENCE]],
        "PCMM",
        "not run",
    ),
    "no result": (
        lambda: [[HEADER, start(0), *ran(1, 2, 3)[1:]]],
        "BPPP",
        "the worker began the next case without a result of this case",
    ),
    "the shortest header": (
        lambda: [[SHORT, *ran(0, 1)[1:], start(2)], [SHORT, *ran(3)[1:]]],
        "PPCP",
        "",
    ),
    "killed externally each time": (
        lambda: [*(killed(HEADER, start(0)) for _ in range(TRIES)), ran(1, 2, 3)],
        "BPPP",
        f"pytest was ended externally, {TRIES} times in this case",
    ),
    "stopped each time": (
        lambda: [stopped(), stopped(), stopped(), ran(1, 2, 3)],
        "BPPP",
        "QEMU was stopped externally, 3 times in this case",
    ),
    "killed before a second case": (
        lambda: [killed(*ran(0)), *(killed(HEADER) for _ in range(TRIES - 1))],
        "PMMM",
        "",
    ),
    "a second worker that can run no case": (
        lambda: [[*ran(0), start(1)], [HEADER, REFUSAL]],
        "PCMM",
        "not run: loopback does not work",
    ),
    "a guest that reports the reason": (
        lambda: [ran(0), [BROKEN]],
        "PMMM",
        "modprobe: no such module",
    ),
    "another stack": (
        lambda: [[*ran(0), start(1)], [OTHER, *ran(2, 3)[1:]]],
        "PCMM",
        "not run: a worker has a different stack than the first worker: the device has changed",
    ),
}


@pytest.mark.parametrize("scripts, expected, reason", PLAYED.values(), ids=PLAYED)
def test_each_behaviour_of_workers_has_these_verdicts(stage, scripts, expected, reason):
    recorded = stage.play(*scripts())
    assert "".join(verdict[0] for verdict in verdicts(recorded)) == expected
    assert any(reason in line["reason"] for line in recorded.results)
    assert footer_of(recorded)["complete"] is ("M" not in expected)
    assert json.loads(stage.path.read_bytes().splitlines()[0])["type"] == "header"


def test_an_exception_in_the_harness_leaves_a_footer(stage):
    def lines() -> Iterator[bytes]:
        yield from ran(0)
        raise RuntimeError("nobody foresaw this")

    with pytest.raises(RuntimeError):
        stage.play(lines())
    recorded = read_written(stage.path)
    assert verdicts(recorded) == ["PASS", "MISSED", "MISSED", "MISSED"]
    assert recorded.results[-1]["reason"] == "not run: the harness failed (RuntimeError)"
    assert exit_status(footer_of(recorded)) == 3


class TestPytestAsWorker:
    """Tests with real processes: pytest on the device in Python."""

    def run(
        self,
        project: Project,
        tmp_path: Path,
        *rows: str,
        deadline: float | None = None,
    ) -> tuple[dict[str, str], Recorded]:
        suite, stage = load_suite([project.tables]), Stage(tmp_path)
        ids = [f"reg_mr/fake/{row}" for row in rows]
        cases = [case for case in suite.cases if case.id in ids]
        options = ["--rdma-cases", str(project.tables)]

        def start(ids: Sequence[str]) -> Worker:
            return HostWorker(project.root, sys.executable, options, ids, stage.console)

        of_run = RunOptions(deadline=deadline)
        recorded = stage.supervise(start, suite=suite, cases=cases, options=of_run)
        return {
            line["case"].rpartition("/")[2]: line["verdict"] for line in recorded.results
        }, recorded

    def test_a_process_that_dies_affects_one_case(self, project, tmp_path):
        line, recorded = self.run(project, tmp_path, "dies", *QUIET_VERDICTS)
        assert line == {**QUIET_VERDICTS, "dies": "CRASH"}
        assert recorded.header["device"]["name"] == "fake0"
        assert footer_of(recorded)["complete"] is True

    def test_a_process_that_hangs_affects_one_case(self, project, tmp_path):
        found, _recorded = self.run(project, tmp_path, "works", "hangs", deadline=6.0)
        assert found == {"works": "PASS", "hangs": "HANG"}

    def test_the_error_of_a_process_that_cannot_start_is_in_the_console(self, project, tmp_path):
        (project.root / "conftest.py").write_text("raise RuntimeError('a broken installation')\n")
        with pytest.raises(UserError, match="no case was begun"):
            self.run(project, tmp_path, "works")
        assert "a broken installation" in (tmp_path / "console.log").read_text()


def stopped() -> Actor:
    return Actor(iter([HEADER, start(0), SILENCE]), WorkerEnd(), held="QEMU was stopped externally")


def test_a_case_whose_worker_was_stopped_is_started_again(tmp_path):
    stage = Stage(tmp_path)
    recorded = stage.play(stopped(), ran(0, 1, 2, 3))
    assert verdicts(recorded) == ["PASS"] * 4
    assert stage.actors[0].killed
