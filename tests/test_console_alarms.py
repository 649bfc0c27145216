"""Tests that an error of the kernel on the guest's console is never ignored, even if the worker reports that a case
passes and its log has no such error. The console is a file of the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from actors import IDS, SUITE, Actor, Stage, StagedRun, ran, verdicts
from conformance.judging.kernel_alarms import alarms_on_console
from conformance.model.fault import FaultKind
from conformance.results.records import encode
from conformance.results.rejudge import DISPUTED, rejudge
from conformance.results.writer import ResultsFile
from conformance.run_options import RunOptions
from conformance.supervision.recording import Recording
from conformance.supervision.supervisor import Supervisor
from conformance.supervision.worker import WorkerEnd
from fixtures.system import console
from samples import observed_result

KASAN = "BUG: KASAN: slab-out-of-bounds in rxe_mr_copy+0x12/0x34 [rdma_rxe]"
WARNING = "WARNING: CPU: 0 PID: 7 at mm/gup.c:1 try_grab_folio+0x1/0x2"


def showing(when: int, *texts: str, lines: list[bytes] | None = None) -> Actor:
    """Returns a worker that passes every case or sends these lines. Its console has these errors before the line with
    this number is read."""
    if lines is None:
        script = ran(0, 1, 2, 3)
    else:
        script = lines

    def read() -> Iterator[bytes | None]:
        for number, line in enumerate(script):
            if number == when:
                actor.shown += texts
            yield line
        if when == len(script):
            actor.shown += texts

    actor = Actor(read())
    return actor


def with_log(kernel: dict[str, object], verdict: str) -> list[bytes]:
    """Returns the lines of a worker whose first case has this evidence of the kernel."""
    lines = ran(0, 1, 2, 3)
    lines[2] = encode({**observed_result(SUITE.cases[0]), "kernel": kernel, "verdict": verdict})
    return lines


@pytest.mark.parametrize("text", [KASAN, WARNING])
def test_a_case_that_passes_beside_an_error_on_the_console_is_broken(stage, text):
    recorded = stage.play(showing(4, text))  # after the start of the second case
    assert verdicts(recorded) == ["PASS", "BROKEN", "PASS", "PASS"]
    reason = f"the guest's console has an error of the kernel that its log does not have: {text}"
    assert recorded.results[1]["reason"] == reason
    (again,) = [new for new in rejudge(SUITE, recorded, stage.path.parent) if new.kept]
    assert (again.kept, again.record["verdict"]) == (DISPUTED, "BROKEN")


def test_an_error_between_two_cases_counts_against_the_second(stage):
    assert verdicts(stage.play(showing(3, KASAN))) == ["PASS", "BROKEN", "PASS", "PASS"]


@pytest.mark.parametrize("when", [2, 4])
def test_an_error_of_the_next_case_does_not_count_against_a_case(stage, when):
    """The console is read as a file, and can be ahead of the results."""
    lines = ran(0, 1, 2, 3)
    kernel = {"taint": 0, "log": [KASAN]}
    second = {**observed_result(SUITE.cases[1]), "kernel": kernel, "verdict": "FAIL"}
    lines[4] = encode(second)
    recorded = stage.play(showing(when, KASAN, lines=lines))
    assert verdicts(recorded) == ["PASS", "FAIL", "PASS", "PASS"]


def test_errors_before_the_first_case_count_against_no_case(stage):
    assert verdicts(stage.play(showing(0, KASAN, WARNING))) == ["PASS"] * 4


@pytest.mark.parametrize("when", [2, 4, 8])
def test_an_error_in_the_log_of_a_case_is_its_violation_even_if_the_console_is_late(stage, when):
    lines = with_log({"taint": 0, "log": ["before", KASAN, "after"]}, "FAIL")
    recorded = stage.play(showing(when, KASAN, lines=lines))
    assert verdicts(recorded) == ["FAIL", "PASS", "PASS", "PASS"]


def test_a_worker_cannot_say_that_the_error_is_of_another_driver(stage):
    kernel: dict[str, object] = {"taint": 0, "log": [KASAN], "suspects": ["other_driver"]}
    recorded = stage.play(showing(2, KASAN, lines=with_log(kernel, "PASS")))
    assert verdicts(recorded) == ["BROKEN", "PASS", "PASS", "PASS"]


def test_a_worker_cannot_move_the_error_into_the_log_of_the_next_case(stage):
    kernel: dict[str, object] = {"taint": 0, "log": [KASAN], "suspects": ["other_driver"]}
    lines = ran(0, 1, 2, 3)
    lines[4] = encode({**observed_result(SUITE.cases[1]), "kernel": kernel, "verdict": "PASS"})
    recorded = stage.play(showing(2, KASAN, lines=lines))
    assert verdicts(recorded) == ["BROKEN", "PASS", "PASS", "PASS"]


def test_an_error_after_the_last_case_is_reported(tmp_path):
    stage = Stage(tmp_path)
    lines = ran(0, 1, 2, 3)
    with closing(ResultsFile(stage.path)) as file:
        run = StagedRun(RunOptions(), SUITE, SUITE.cases)
        recording = Recording(run, file, stage.audience)
        worker = showing(len(lines), WARNING, lines=lines)
        Supervisor(recording, stage.console).run(lambda cases: worker)
    assert recording.doubts == [
        f"after {IDS[3]}, the guest's console has an error of the kernel that its log does not have: {WARNING}",
    ]


@pytest.mark.parametrize(
    "end, doubts",
    [
        (
            WorkerEnd("the kernel under test died"),
            [f"after {IDS[3]}, the kernel under test died without a message"],
        ),
        (WorkerEnd("QEMU was ended", external=True), []),
        (WorkerEnd("pytest ended with 0", kind=FaultKind.PROCESS_DIED), []),
    ],
)
def test_a_kernel_that_dies_in_silence_between_cases_is_reported(end, doubts, tmp_path):
    stage = Stage(tmp_path)
    with closing(ResultsFile(stage.path)) as file:
        recording = Recording(StagedRun(RunOptions(), SUITE, SUITE.cases), file, stage.audience)
        worker = Actor(iter(ran(0, 1, 2, 3)), end)
        Supervisor(recording, stage.console).run(lambda cases: worker)
    assert recording.doubts == doubts


# The file of the console


def test_only_lines_of_the_kernel_are_errors():
    lines = [
        f"[    1.000000] {KASAN}",
        f"output of a program [   12.345678] {WARNING}",
        f"[  123.456789][    C1] {WARNING}",
        f"[    3.000000][  T123] {KASAN}\r",
        "WARNING: the library is chatty",
        "[note] BUG: in a program",
        "[    2.000000] all is well",
    ]
    assert list(alarms_on_console(lines)) == [KASAN, WARNING, WARNING, KASAN]


def test_each_error_on_a_console_is_found_once(tmp_path):
    path = tmp_path / "console.log"
    path.write_text(f"[    0.100000] {WARNING}\n")  # of the guest before it was frozen
    alarms = console.Alarms(path)
    with console.appending(path) as file:
        file.write(f"[    1.000000] {KASAN[:20]}".encode())
        assert alarms.taken() == []
        file.write(f"{KASAN[20:]}\n[    2.000000] hello\n".encode())
        assert alarms.taken() == [KASAN]
        assert alarms.taken() == []


def test_an_error_in_the_middle_of_a_long_console_is_found(tmp_path, monkeypatch):
    """The middle of a long console is removed; the errors are read before."""
    monkeypatch.setattr(console, "MOST_BYTES", 1000)
    monkeypatch.setattr(console, "_KEPT_BYTES", 100)
    path = tmp_path / "console.log"
    path.touch()
    alarms = console.Alarms(path)
    with console.appending(path) as file:
        chatter = b"the library prints\n" * 100
        file.write(chatter + f"[    1.000000] {KASAN}\n".encode() + chatter)
        alarms.bound()
        assert path.stat().st_size < 1000
        file.write(f"[    2.000000] {WARNING}\n".encode())
        assert alarms.taken() == [KASAN, WARNING]
