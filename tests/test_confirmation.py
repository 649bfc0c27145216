"""Violations are tried again alone. Each is confirmed, or the earlier cases that it needs are found. The tests also
check the records and the reports."""

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

import samples
from actors import HEADER, SILENCE, Actor, Audience, killed
from commands.__main__ import main
from commands.report import renderer
from conformance.errors import UserError
from conformance.results.records import Recorded, encode, read_results
from conformance.results.writer import ResultsFile
from conformance.supervision import Recording, RunPlan, Supervisor, Worker, WorkerEnd, confirmation
from conformance.tables.suite import Suite
from reports import terminal
from reports.digest import read
from samples import footer_of, numbered, observed_result, observed_sweep, result

COUNT = 12
SUITE = numbered(COUNT)
IDS = [case.id for case in SUITE.cases]
# A function that returns the verdict of a case after these cases in the same worker.
Device = Callable[[str, Sequence[str]], str]


def lines(cases: Sequence[str], device: Device) -> Iterator[bytes | None]:
    """The records of a worker for these cases. CRASH and HANG end the worker, and EXTERNAL is a kill from outside."""
    yield HEADER
    for number, id_ in enumerate(cases):
        yield encode({"type": "start", "case": id_})
        verdict = device(id_, cases[:number])
        if verdict in ("CRASH", "HANG"):
            if verdict == "HANG":
                yield SILENCE
            return
        yield encode(observed_result(SUITE.cases[IDS.index(id_)], verdict))


class Run:
    """Runs the suite on a device that misbehaves, and tries the violations again."""

    def __init__(self, folder: Path, device: Device) -> None:
        self.folder = folder
        self.device = device
        self.audience = Audience()
        self.again: list[list[str]] = []
        self.actors: list[Actor] = []

    def start(self, cases: Sequence[str]) -> Worker:
        return Actor(lines(cases, self.device))

    def start_again(self, cases: Sequence[str]) -> Worker:
        self.again.append(list(cases))
        self.actors.append(Actor(lines(cases, self.device)))
        return self.actors[-1]

    def __call__(
        self,
        again: Callable[[Sequence[str]], Worker] | None = None,
        suite: Suite = SUITE,
        carry_on: bool = False,
        boot_id: str = "",
    ) -> Recorded:
        with closing(ResultsFile(self.folder / "results.jsonl", carry_on=carry_on)) as file:
            prior = file.cut_back(file.recorded()) if carry_on else None
            plan = RunPlan(suite, suite.cases, {"stack": "test"}, boot_id=lambda: boot_id)
            supervisor = Supervisor(Recording(plan, file, self.audience, prior), self.folder / "console.log")
            supervisor.run(self.start, again=[again or self.start_again])
        assert all(actor.closed for actor in self.actors)
        return read_results(self.folder)


def always(*cases: int) -> Device:
    """These cases always fail."""
    return lambda case, before: "FAIL" if case in [IDS[number] for number in cases] else "PASS"


def after(case: int, *needed: int) -> Device:
    """A case fails if all of these other cases ran before it."""
    names = {IDS[number] for number in needed}
    return lambda id_, before: "FAIL" if id_ == IDS[case] and names <= set(before) else "PASS"


def counts(recorded: Recorded) -> tuple[int, int, int]:
    """Returns the numbers of violations that were confirmed, not confirmed and not tried."""
    figures = footer_of(recorded)["confirmation"]
    return figures["confirmed"], figures["not_confirmed"], figures["not_tried"]


def tried(recorded: Recorded) -> dict[int, str]:
    """The kind of confirmation of each confirmed violation, by the number of its case."""
    return {IDS.index(each["case"]): each["by"] for each in recorded.confirmations if each["confirmed"]}


def test_one_case_of_each_cause_is_confirmed_alone_and_the_others_together(tmp_path: Path) -> None:
    verdicts = {3: "FAIL", 5: "FAIL", 6: "EOPNOTSUPP", 7: "FAIL", 9: "CRASH"}
    run = Run(tmp_path, lambda case, before: verdicts.get(IDS.index(case), "PASS"))
    recorded = run()
    assert run.again == [[IDS[7], IDS[5]], *([IDS[number]] for number in (3, 6, 9))]
    assert tried(recorded) == {3: "repetition", 5: "company", 6: "repetition", 7: "company", 9: "repetition"}
    assert counts(recorded) == (5, 0, 0)
    assert sum(line["verdict"] == "FAIL" for line in recorded.results) == 4


def test_a_violation_not_seen_again_with_others_is_tried_alone(tmp_path: Path) -> None:
    def device(case: str, before: Sequence[str]) -> str:
        spoiled = before[:1] == [IDS[7]] and case != IDS[6]
        return "FAIL" if case in IDS[3:8] and not spoiled else "PASS"

    run = Run(tmp_path, device)
    recorded = run()
    assert run.again == [[IDS[number] for number in (7, 6, 5, 4)], *([IDS[number]] for number in (3, 5, 4))]
    assert tried(recorded) == {**dict.fromkeys((3, 4, 5), "repetition"), **dict.fromkeys((6, 7), "company")}


def test_a_death_with_others_leaves_the_rest_to_be_tried_together_once_more(tmp_path: Path) -> None:
    def device(case: str, before: Sequence[str]) -> str:
        return "CRASH" if (case, *before) == (IDS[6], IDS[7]) else "FAIL" if case in IDS[3:8] else "PASS"

    recorded = Run(tmp_path, device)()
    assert tried(recorded) == {**dict.fromkeys((3, 6), "repetition"), **dict.fromkeys((4, 5, 7), "company")}


def test_the_first_case_of_a_worker_has_run_alone_already(tmp_path: Path) -> None:
    run = Run(tmp_path, always(0))
    recorded = run()
    assert run.again == []
    assert recorded.confirmations[0]["by"] == "run"
    assert counts(recorded) == (1, 0, 0)
    assert run.audience.said == []


def once() -> Device:
    """A case fails, and never again."""
    verdicts = iter(["FAIL"])
    return lambda case, before: next(verdicts, "PASS") if case == IDS[4] else "PASS"


@pytest.mark.parametrize(
    ("device", "verdict", "needed"),
    [
        *((after(11, *needed), "FAIL", needed) for needed in ((0,), (5,), (10,), (3, 4))),
        (after(11, 0, 10), "FAIL", range(11)),  # cases of both halves
        (once(), "FAIL", ()),
        (lambda case, before: "CRASH" if case == IDS[3] and IDS[1] in before else "PASS", "CRASH", (1,)),
    ],
)
def test_a_violation_that_is_not_seen_alone_names_the_cases_that_it_needs(
    tmp_path: Path, device: Device, verdict: str, needed: Sequence[int]
) -> None:
    recorded = Run(tmp_path, device)()
    (record,) = recorded.confirmations
    assert record["confirmed"] is False
    assert (record["in_run"]["verdict"], record["alone"]["verdict"]) == (verdict, "PASS")
    assert record["alone"]["reason"] == "ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=0) returned an MR"
    assert record["after"] == [IDS[number] for number in needed]
    assert counts(recorded) == (0, 1, 0)
    assert recorded.results[IDS.index(record["case"])]["verdict"] == verdict


def test_a_search_uses_a_bounded_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "MOST_WORKERS", 3)
    run = Run(tmp_path, after(11, 0))
    (record,) = run().confirmations
    assert len(run.again) <= 1 + 3 + 1  # one try alone, and the last halving may need both halves
    assert IDS[0] in record["after"]


def test_only_a_few_violations_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confirmation, "MOST_SEARCHED", 1)
    run = Run(tmp_path, lambda case, before: "FAIL" if IDS[0] in before and case in IDS[8:] else "PASS")
    recorded = run()
    assert ["after" in record for record in recorded.confirmations] == [True, False, False, False]


def test_a_crash_is_not_tried_again_on_a_kernel_that_may_be_damaged(tmp_path: Path) -> None:
    run = Run(tmp_path, lambda case, before: "CRASH" if case == IDS[3] else "PASS")
    recorded = run(boot_id="this boot")
    assert run.again == []
    assert counts(recorded) == (0, 0, 1)


def test_a_worker_that_somebody_else_ends_is_started_again(tmp_path: Path) -> None:
    run = Run(tmp_path, always(3))
    ended = iter([killed(HEADER, encode({"type": "start", "case": IDS[3]})), killed(HEADER)])

    def again(cases: Sequence[str]) -> Worker:
        return next(ended, None) or run.start_again(cases)

    assert counts(run(again)) == (1, 0, 0)


def test_a_worker_that_never_comes_to_it_leaves_the_violation_untried(tmp_path: Path) -> None:
    assert counts(Run(tmp_path, always(3))(lambda cases: Actor(iter([HEADER])))) == (0, 0, 1)


def test_if_no_worker_can_be_had_that_is_said_and_the_run_is_complete(tmp_path: Path) -> None:
    run = Run(tmp_path, always(3, 4))

    def none(cases: Sequence[str]) -> Worker:
        raise UserError("guests are booted here", status=3)

    recorded = run(none)
    assert counts(recorded) == (0, 0, 2)
    assert run.audience.said[-1] == "not all violations are tried again: guests are booted here"
    assert footer_of(recorded)["complete"] is True


def test_a_stuck_process_ends_the_attempts(tmp_path: Path) -> None:
    run = Run(tmp_path, always(3, 4))
    stuck = "process 17 is stuck in the kernel and cannot be ended"
    recorded = run(lambda cases: Actor(lines(cases, always(3, 4)), WorkerEnd(), stuck))
    assert counts(recorded) == (0, 0, 2)
    assert stuck in run.audience.said[-1]


def test_without_it_the_footer_says_nothing_of_it(tmp_path: Path) -> None:
    with closing(ResultsFile(tmp_path / "results.jsonl")) as file:
        recording = Recording(RunPlan(SUITE, SUITE.cases, {"stack": "test"}), file, Audience())
        supervisor = Supervisor(recording, tmp_path)
        footer = supervisor.run(Run(tmp_path, always(3)).start)
    assert "confirmation" not in footer


def test_a_run_with_missing_cases_confirms_when_it_is_complete(tmp_path: Path) -> None:
    run = Run(tmp_path, always(3))
    short: Iterator[bytes | None] = itertools.islice(lines(IDS, always(3)), 1 + 2 * 6)
    run.start = lambda cases: Actor(short)  # type: ignore[method-assign]
    assert run().footer is not None
    assert run.again == []
    rest = Run(tmp_path, always(3))
    assert counts(rest(carry_on=True)) == (1, 0, 0)


def test_a_run_that_is_cut_short_at_any_byte_confirms_the_rest(tmp_path: Path) -> None:
    whole = Run(tmp_path / "whole", always(3, 5, 7))
    whole.folder.mkdir()
    whole()
    data = (whole.folder / "results.jsonl").read_bytes()
    begin = data.index(b'{"type":"confirmation"')
    for number, cut in enumerate(range(begin - 1, len(data), 37)):
        run = Run(tmp_path / str(number), always(3, 5, 7))
        run.folder.mkdir()
        (run.folder / "results.jsonl").write_bytes(data[:cut])
        recorded = run(carry_on=True)
        assert sorted(each["case"] for each in recorded.confirmations) == [IDS[3], IDS[5], IDS[7]]
        assert counts(recorded) == (3, 0, 0)
        assert sum(map(len, run.again)) == 3 - data[:cut].count(b'"}\n', begin)


def test_a_run_carried_on_on_another_stack_confirms_nothing_there(tmp_path: Path) -> None:
    head = samples.header(planned=IDS, stack="test")
    data = b"".join(encode(record) for record in [head, {"type": "worker", "boot_id": ""}])
    done = [result(case, "FAIL" if case.id == IDS[3] else "PASS", worker=1) for case in SUITE.cases]
    (tmp_path / "results.jsonl").write_bytes(data + b"".join(map(encode, done)))
    run = Run(tmp_path, always(3))
    other = encode(samples.header(env={**samples.header()["env"], "kernel": "7.3.0"}))
    recorded = run(
        lambda cases: Actor(itertools.chain([other], itertools.islice(lines(cases, always(3)), 1, None))), carry_on=True
    )
    assert counts(recorded) == (0, 0, 1)
    assert "kernel has changed" in run.audience.said[-1]


# The points of a sweep

ROWS = """\
- {id: ordinary, rules: [REG-01], when: {access: []}, then: success}
- id: swept
  rules: [REG-15]
  sweep:
    axes: {access: {subsets of: [LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ]}}
    points: 8
    expect: [{then: success, rule: REG-15}]
  when: {access: $access}
"""
SWEPT, TRIES = (
    samples.suite([samples.table("reg_mr/sample", ROWS.replace("    points: 8\n", points), 2)])
    for points in ("    points: 8\n", "    points: 8\n    tries: true\n")
)
ORDINARY, SWEEP = (case.id for case in SWEPT.cases)
POINT = "access=LOCAL_WRITE"


def swept(cases: Sequence[str], fails: Callable[[Sequence[str]], bool], suite: Suite) -> Iterator[bytes | None]:
    """Yields a worker's lines for the cases above. One point of the sweep fails if `fails` is true for the earlier
    cases."""
    yield HEADER
    for number, id_ in enumerate(cases):
        yield encode({"type": "start", "case": id_})
        name, _, point = id_.partition("#")
        failed = name == SWEEP and fails((*cases[:number], *((SWEEP,) if not point else ())))
        case = suite.find(id_)
        assert case is not None
        if name == SWEEP and not point:
            yield encode(observed_sweep(case, [POINT] if failed else []))
        else:
            yield encode(observed_result(case, "FAIL" if failed else "PASS"))


class Swept(Run):
    def __init__(self, folder: Path, fails: Callable[[Sequence[str]], bool], suite: Suite = SWEPT) -> None:
        super().__init__(folder, always())
        self.fails, self.swept = fails, suite

    def start(self, cases: Sequence[str]) -> Worker:
        return Actor(swept(cases, self.fails, self.swept))

    def start_again(self, cases: Sequence[str]) -> Worker:
        self.again.append(list(cases))
        return Actor(swept(cases, self.fails, self.swept))


@pytest.mark.parametrize(
    ("suite", "needed", "again", "after"),
    [
        (SWEPT, None, [f"{SWEEP}#{POINT}"], None),
        (TRIES, SWEEP, [SWEEP], None),  # points that are tries of one thing are tried again together
        (SWEPT, SWEEP, [f"{SWEEP}#{POINT}", SWEEP], [SWEEP]),
        (SWEPT, ORDINARY, [f"{SWEEP}#{POINT}", SWEEP, ORDINARY], [ORDINARY]),
    ],
)
def test_the_smallest_point_of_a_deviation_is_tried_alone_or_after_what_it_needs(
    suite: Suite, needed: str | None, again: list[str], after: list[str] | None, tmp_path: Path
) -> None:
    run = Swept(tmp_path, lambda before: needed is None or needed in before, suite)
    recorded = run(suite=suite)
    (record,) = recorded.confirmations
    assert [cases[0] for cases in run.again] == again
    assert (record["case"], record["confirmed"], record.get("after")) == (SWEEP, after is None, after)
    assert record.get("point") == (None if suite is TRIES else POINT)
    assert after is None or "returned NULL with errno EINVAL" in record["in_run"]["reason"]
    assert after is None or record["alone"]["verdict"] == "PASS"
    (failed,) = (each for each in recorded.results if each["case"] == SWEEP)
    assert ("(1 of 8 tries)" in failed["reason"]) == (suite is TRIES)


# What reports show


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A run with one violation that is confirmed and another that depends on an earlier case."""
    (tmp_path / "mixed").mkdir()
    depends = after(11, 2)
    Run(tmp_path / "mixed", lambda case, before: "FAIL" if case == IDS[5] else depends(case, before))()
    return tmp_path / "mixed"


NOT_CONFIRMED = (
    "not confirmed: FAIL in the run, but PASS alone "
    "(ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=0) returned an MR); "
    f"it occurs again after {IDS[2]}"
)


@pytest.mark.parametrize("form", ["junit", "ktap", "html"])
def test_a_report_says_it_next_to_each_violation(mixed: Path, form: str) -> None:
    text = renderer(form).render([read(mixed)])
    text = text if isinstance(text, str) else text.decode()
    assert "confirmed: the same when tried again alone" in text
    assert NOT_CONFIRMED in text


def test_the_summaries_have_the_figures_and_what_was_not_confirmed(mixed: Path) -> None:
    run = read(mixed)
    assert list(run.repetitions.summary()) == [
        "confirmation: 1 of 2 reproduced in isolation",
        f"{IDS[11]}: {NOT_CONFIRMED}",
    ]
    assert all(line in terminal.summary(run, mixed) for line in run.repetitions.summary())
    assert "1 of 2 reproduced in isolation" in str(renderer("markdown").render([run]))
    data = json.loads(renderer("summary").render([run]))
    assert data["confirmation"] == {"confirmed": 1, "not_confirmed": 1, "not_tried": 0, "unconfirmed": [IDS[11]]}


def test_a_comparison_says_it_of_a_regression(tmp_path: Path, mixed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "old").mkdir()
    Run(tmp_path / "old", always())()
    assert main(["compare", str(tmp_path / "old"), str(mixed)]) == 1
    assert NOT_CONFIRMED in capsys.readouterr().out
