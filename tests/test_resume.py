"""Runs that are cut short at any moment and resumed lose no recorded result, and have the footer of a whole run."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from actors import (
    HEADER,
    IDS,
    SILENCE,
    SUITE,
    Actor,
    Stage,
    failed,
    figures,
    killed,
    passed,
    ran,
    start,
    verdicts,
)
from bad_places import full_disk
from commands import run
from commands.cli import choice
from conformance.errors import UserError
from conformance.regular_file import is_partial
from conformance.results.folder import check_free, tidied
from conformance.results.plan import MOST_PLAN_BYTES, Plan, read_plan, write_plan
from conformance.results.records import Recorded, encode, read_written
from conformance.results.writer import ResultsFile
from conformance.supervision.run import Target
from conformance.tables.suite import ROOT, VERSION
from fixtures.targets import target
from samples import footer_of, header, recorded, result, user_error, written

OWN = {"version": VERSION, "tables_sha256": "0" * 64}

UNBROKEN = [HEADER, start(0), passed(0), start(1), failed(1), *ran(2, 3)[1:]]


@pytest.fixture
def whole(tmp_path: Path) -> tuple[bytes, Recorded]:
    """An uninterrupted run: its file and its records."""
    (tmp_path / "whole").mkdir()
    stage = Stage(tmp_path / "whole")
    recorded = stage.play(UNBROKEN)
    return stage.path.read_bytes(), recorded


def rest(stage: Stage) -> list[bytes]:
    """Returns the lines of a worker for the cases that have no result in the file."""
    lines = stage.path.read_bytes().split(b"\n")[:-1]
    done = {
        json.loads(line)["case"]
        for line in lines
        if b'"type":"result"' in line and b'"MISSED"' not in line
    }
    good = {0: passed(0), 1: UNBROKEN[4], 2: passed(2), 3: passed(3)}
    return [
        HEADER,
        *(
            line
            for number in range(4)
            if IDS[number] not in done
            for line in (start(number), good[number])
        ),
    ]


def test_a_run_that_was_cut_anywhere_and_resumed_has_the_footer_of_an_unbroken_run(stage, whole):
    data, unbroken = whole
    ends = [number + 1 for number, byte in enumerate(data) if byte == 10]
    cuts = sorted(
        {0, 1, 100, *ends[:-1], *(end - 1 for end in ends), *(end + 7 for end in ends[:-1])},
    )
    for cut in cuts:
        stage.path.write_bytes(data[:cut])
        before = stage.path.read_bytes()
        if len(rest(stage)) > 1:
            recorded = stage.play(rest(stage), carry_on=True)
        else:
            recorded = stage.play(carry_on=True)
        assert figures(recorded) == figures(unbroken), cut
        assert verdicts(recorded) == verdicts(unbroken), cut
        lines_complete = before[: before.rfind(b"\n") + 1]
        assert stage.path.read_bytes().startswith(lines_complete), cut


@pytest.mark.parametrize("cut", [100, -1, None])
def test_a_session_without_a_record_leaves_the_file_as_it_was(stage, cut):
    """The file is cut in the header, or cut in the footer, or complete."""
    stage.play(ran(0), [HEADER])
    data = stage.path.read_bytes()[:cut]
    stage.path.write_bytes(data)
    results = ResultsFile(stage.path, carry_on=True)
    results.cut_back(results.recorded())
    results.close()
    assert stage.path.read_bytes() == data
    assert verdicts(stage.play(rest(stage), carry_on=True)) == ["PASS", "FAIL", "PASS", "PASS"]


def test_the_footer_counts_the_sessions_and_their_workers(stage):
    first = stage.play(ran(0), [HEADER])
    assert (footer_of(first)["boots"], footer_of(first)["resumed"]) == (2, 0)
    second = stage.play(ran(1), [HEADER], carry_on=True)
    third = stage.play(ran(2, 3), carry_on=True)
    assert verdicts(second) == ["PASS", "PASS", "MISSED", "MISSED"]
    assert verdicts(third) == ["PASS"] * 4
    assert (footer_of(third)["boots"], footer_of(third)["resumed"]) == (5, 2)
    assert (
        footer_of(third)["duration_s"]
        >= footer_of(second)["duration_s"]
        >= footer_of(first)["duration_s"]
    )
    assert stage.asked == [IDS, IDS[1:], IDS[1:], IDS[2:], IDS[2:]]


@pytest.mark.parametrize(
    "change, output",
    [
        (
            {"env": {**header()["env"], "kernel": "7.3.0"}},
            "kernel has changed: it was 7.2.0, it is 7.3.0",
        ),
        ({"env": {**header()["env"], "rdma_core": "66.0"}}, "rdma-core has changed"),
        ({"device": {**header()["device"], "name": "fake1"}}, "the device has changed"),
        ({"suite": {"version": "0", "tables_sha256": "1" * 64}}, "a worker has other tables"),
        (
            {"under_test": {"libraries": {"libibverbs.so.1": "0"}}},
            "the software under test has changed",
        ),
    ],
)
def test_another_stack_is_refused_and_nothing_is_lost(stage, change, output):
    stage.play(ran(0), [HEADER])
    with pytest.raises(UserError, match=output) as caught:
        stage.play([encode(header(**change)), start(1), passed(1)], carry_on=True)
    assert len(str(caught.value).splitlines()) == 1
    recorded = read_written(stage.path)
    assert [line["verdict"] for line in recorded.results] == ["PASS"]
    assert verdicts(stage.play(ran(1, 2, 3), carry_on=True)) == ["PASS"] * 4


def test_a_file_with_a_result_after_its_footer_is_refused_and_not_changed(stage):
    stage.play(ran(0), [HEADER])
    with stage.path.open("ab") as file:
        file.write(passed(1))
    data = stage.path.read_bytes()
    with pytest.raises(UserError, match="a result after the footer"):
        stage.play(ran(1), carry_on=True)
    assert stage.path.read_bytes() == data


def test_the_case_in_flight_is_a_crash_if_this_host_booted_again(stage):
    begun = header(planned=IDS, stack="test", suite=OWN)
    del begun["left_out"]
    head = encode(begun) + encode({"type": "worker", "boot_id": "before"})
    stage.path.write_bytes(head + start(0) + passed(0) + start(1))
    recorded = stage.play(ran(2, 3), carry_on=True, boot_id="after")
    assert verdicts(recorded) == ["PASS", "CRASH", "PASS", "PASS"]
    assert "went down" in recorded.results[1]["reason"]
    stage.path.write_bytes(head + start(0) + passed(0) + start(1))
    assert verdicts(stage.play(ran(1, 2, 3), carry_on=True, boot_id="before")) == ["PASS"] * 4


def test_starts_of_cases_are_recorded_if_a_crash_of_the_kernel_would_end_the_supervisor(stage):
    stage.play(ran(0, 1, 2, 3), boot_id="x")
    started = [
        json.loads(line)["case"]
        for line in stage.path.read_bytes().splitlines()
        if b'"start"' in line
    ]
    assert started == IDS
    assert read_written(stage.path).footer is not None


@pytest.mark.parametrize("count", [0, 1, 3, 4])
def test_a_disk_that_fills_during_a_run_loses_only_the_line_that_it_does_not_take(stage, count):
    whole = figures(stage.play(ran(0, 1, 2, 3)))
    lines = stage.path.read_bytes().splitlines(keepends=True)
    stage.path.unlink()
    size = sum(len(line) for line in lines[: count + 2]) + 10  # two lines are before the results
    with full_disk(size), user_error("cannot be written: File too large", status=3):
        stage.play(ran(0, 1, 2, 3))
    finished = [line["case"] for line in read_written(stage.path).results]
    assert finished == IDS[:count]
    rest = [ran(*range(count, 4))] if count < 4 else []
    assert figures(stage.play(*rest, carry_on=True)) == whole


# One run at a time


def test_two_runs_into_one_directory_are_refused(tmp_path):
    path = tmp_path / "results.jsonl"
    first = ResultsFile(path)
    for carry_on in (False, True):
        with user_error("a run is in progress in", status=2):
            ResultsFile(path, carry_on=carry_on)
    first.append(header())
    first.close()
    with user_error("a run is recorded there", status=2):
        ResultsFile(path)
    ResultsFile(path, carry_on=True).close()


def test_a_killed_run_no_longer_locks_its_directory(tmp_path):
    path = tmp_path / "results.jsonl"
    code = "from pathlib import Path; from conformance.results.writer import ResultsFile; "
    code += f"ResultsFile(Path({str(path)!r})); print(flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with user_error("a run is in progress", status=2):
            ResultsFile(path)
        process.kill()
    ResultsFile(path).close()


# The process is killed while it replaces a file.
KILLED = """
import os, signal, sys
from dataclasses import replace
from pathlib import Path
from conformance.results.files import write_atomically
os.{call} = lambda *_, **more: os.kill(os.getpid(), signal.SIGKILL)
write_atomically(Path(sys.argv[1]), b"new")
"""


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("name", ["plan.json", "report.html", "points/reg_mr.x.json"])
def test_a_kill_while_a_file_is_written_leaves_nothing_that_the_next_session_keeps(
    name, call, tmp_path
):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-c", KILLED.format(call=call), str(path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False)
    assert done.returncode == -signal.SIGKILL
    (partial,) = path.parent.iterdir()
    assert is_partial(partial.name)
    if path.parent == tmp_path:
        check_free(tmp_path)  # the run had no result: it can begin again in this directory
    with tidied(tmp_path):
        assert not list(path.parent.iterdir())


@pytest.mark.parametrize("name", ["notes.partial", ".1-x.partial", "x.1-a.partial"])
def test_a_file_of_a_similar_name_is_kept(name, tmp_path):
    (tmp_path / name).touch()
    with tidied(tmp_path):
        pass
    assert (tmp_path / name).exists()
    with user_error("is not empty", status=2):
        check_free(tmp_path)


# The plan

PLAN = Plan(
    ("--verb", "reg_mr"),
    "/somewhere",
    ("reg_mr/a", "reg_mr/b"),
    "0" * 64,
    "forky",
    {"image": "1"},
)


def test_a_plan_is_read_as_it_was_written(tmp_path):
    write_plan(PLAN, tmp_path)
    assert read_plan(tmp_path) == PLAN
    PLAN.check(read_plan(tmp_path))


def test_a_plan_that_could_not_be_read_again_is_refused_before_the_run(tmp_path):
    names = ("x" * 1000,) * (MOST_PLAN_BYTES // 1000)
    with user_error("the names of the cases and the options have more than", status=2):
        write_plan(replace(PLAN, planned=names), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_plan_of_another_user_is_not_run(tmp_path, monkeypatch):
    write_plan(PLAN, tmp_path)
    if os.geteuid() == 0:
        os.chown(tmp_path / "plan.json", 12345, 12345)
    else:  # only root can change the owner of a file
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(UserError, match="belongs to another user"):
        read_plan(tmp_path)


@pytest.mark.parametrize(
    "change, output",
    [
        ({"stack": "sid"}, "the stack differs"),
        ({"planned": ("reg_mr/a",)}, "other cases are selected, such as reg_mr/b;"),
        ({"planned": ("reg_mr/b", "reg_mr/a")}, "such as these in another order"),
        ({"given": {"image": "2"}}, "the builds under test have changed"),
    ],
)
def test_a_run_with_another_plan_is_not_resumed(change, output):
    with pytest.raises(UserError, match=output):
        PLAN.check(Plan(**{**vars(PLAN), **change}))


def begun(folder: Path, **suite: str) -> Path:
    """Writes the directory of a run with one result, whose header has this suite."""
    head = {"planned": IDS, "suite": {**OWN, **suite}}
    written(recorded([result(SUITE.cases[0])], complete=False, **head), folder)
    write_plan(Plan((), str(folder), tuple(IDS), OWN["tables_sha256"], "host", {}), folder)
    return folder


@pytest.fixture
def on_fake0(monkeypatch):
    """Runs have the cases of SUITE. Their device has another kernel than the recorded runs."""
    line = encode(header(env={**header()["env"], "kernel": "7.3.0"}, suite=OWN))
    its = Target("host", [lambda _: Actor(iter([line]))])
    monkeypatch.setattr(run, "load_suite", lambda *_: SUITE)
    monkeypatch.setattr(choice, "load_suite", None)  # the tables are read once
    monkeypatch.setattr(target, "with_target", lambda options, *_: options.on("fake0"))
    monkeypatch.setattr(target, "prepare", lambda run, *_: replace(run, target=its))


@pytest.mark.parametrize(
    "suite, made",
    [
        ({"version": "0.9.0"}, "000000000000 of rdma-cts 0.9.0"),
        ({"tables_sha256": "1" * 64}, f"111111111111 of rdma-cts {VERSION}"),
    ],
)
def test_a_run_of_another_suite_is_refused_before_its_target_is_used(
    suite, made, on_fake0, tmp_path, monkeypatch, cli
):
    monkeypatch.setattr(target, "with_target", None)
    folder = begun(tmp_path, **suite)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    said = f"made with the tables {made}, and the present tables are 000000000000 of"
    assert said in cli(2, "run", "--resume", folder).err
    assert before == {path: path.read_bytes() for path in folder.iterdir()}


def test_a_run_that_cannot_be_resumed_is_not_said_to_have_missing_cases(on_fake0, tmp_path, cli):
    said = cli(2, "run", "--resume", begun(tmp_path))
    assert "kernel has changed: it was 7.2.0, it is 7.3.0; start a new run" in said.err
    assert "--resume" not in said.out + said.err


def test_a_worker_that_is_killed_in_its_last_case_gives_no_verdict(stage):
    recorded = stage.play(killed(*ran(0, 1, 2), start(3)), [SILENCE])
    assert verdicts(recorded) == ["PASS", "PASS", "PASS", "MISSED"]
    assert verdicts(stage.play(ran(3), carry_on=True)) == ["PASS"] * 4
