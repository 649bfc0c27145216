"""Tests of the confirmation, which repeats violations in fresh workers. A violation is confirmed, or the earlier cases that
it depends on are found, or it is reported as not confirmed."""

import itertools
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pytest

import samples
from actors import HEADER, Actor, Stage, killed
from conformance.errors import UserError
from conformance.results.records import encode
from conformance.run_options import RunOptions
from conformance.supervision import confirmation
from conformance.supervision.worker import Worker, WorkerEnd
from conformance.tables.suite import VERSION
from repeated import IDS, POINT, SUITE, Device, Run, after, always, counts, lines, tried
from reports.digest import read
from reports.repetitions import Repetitions
from samples import (
    footer_of,
    laid,
    observed_result,
    result,
)


def spoiled(case: str, before: Sequence[str]) -> str:
    """Makes the cases c3 to c7 fail; in a worker in which c7 runs first, only c7 and c6 fail."""
    if case in IDS[3:8] and (before[:1] != [IDS[7]] or case == IDS[6]):
        return "FAIL"
    return "PASS"


def deadly(case: str, before: Sequence[str]) -> str:
    if (case, *before) == (IDS[6], IDS[7]):
        return "CRASH"
    if case in IDS[3:8]:
        return "FAIL"
    return "PASS"


VARIOUS = {IDS[3]: "FAIL", IDS[5]: "FAIL", IDS[6]: "EOPNOTSUPP", IDS[7]: "FAIL", IDS[9]: "CRASH"}


def test_three_violations_of_a_cause_are_drawn_and_repeated(tmp_path):
    run = Run(tmp_path / "run", always(*range(2, 10)), confirm="drawn")
    assert counts(run()) == (3, 0, 5)
    repeated = {IDS.index(case) for worker in run.again for case in worker}
    assert 2 in repeated
    assert len(repeated) == 3
    assert "repeating 3 of 8 violations in fresh workers" in run.audience.said


def test_a_cause_of_which_a_drawn_violation_does_not_occur_again_is_repeated_whole(tmp_path):
    run = Run(tmp_path / "run", passing_again(range(2, 10), but=2), confirm="drawn")
    confirmed, not_confirmed, not_tried = counts(run())
    assert (confirmed, not_confirmed, not_tried) == (7, 1, 0)


def test_a_hang_is_repeated_first_beside_the_others(tmp_path):
    ends = {2: "FAIL", 3: "FAIL", 4: "FAIL", 7: "FAIL", 9: "HANG"}
    run = Run(tmp_path, lambda case, before: ends.get(IDS.index(case), "PASS"))
    again = [run.start_again] * 2
    run.supervise(run.start, suite=SUITE, again=again, options=run.options)
    repeated = [sorted(map(IDS.index, cases)) for cases in run.again]
    assert [9] in repeated[:2]
    assert sorted(map(len, repeated)) == [1, 1, 1, 2]


def test_every_hang_is_repeated(tmp_path):
    run = Run(
        tmp_path / "run",
        lambda case, before: "HANG" if IDS.index(case) in range(3, 8) else "PASS",
        confirm="drawn",
    )
    assert counts(run()) == (5, 0, 0)


def passing_again(cases: Sequence[int], but: int) -> Device:
    """Makes these cases fail, but one of them only if another case ran before it."""
    failing = {IDS[number] for number in cases}

    def device(case: str, before: Sequence[str]) -> str:
        if case == IDS[but]:
            return "FAIL" if IDS[0] in before and IDS[1] in before else "PASS"
        return "FAIL" if case in failing else "PASS"

    return device


@pytest.mark.parametrize(
    "device, again, alone, company",
    [
        (
            lambda case, before: VARIOUS.get(case, "PASS"),
            [[7, 6, 5, 3], [9]],
            (9,),
            (3, 5, 6, 7),
        ),
        (spoiled, [[7, 6, 5, 4, 3], [5], [4], [3]], (3, 4, 5), (6, 7)),
        (deadly, [[7, 6, 5, 4, 3], [5, 4, 3], [6]], (6,), (3, 4, 5, 7)),
    ],
    ids=["each cause", "no violation with others", "a crash with others"],
)
def test_what_killed_its_worker_is_repeated_in_isolation_and_the_others_together(
    tmp_path, device, again, alone, company
):
    run = Run(tmp_path, device)
    recorded = run()
    assert [list(map(IDS.index, cases)) for cases in run.again] == again
    assert tried(recorded) == {
        **dict.fromkeys(alone, "repetition"),
        **dict.fromkeys(company, "company"),
    }
    assert counts(recorded) == (5, 0, 0)


def test_a_violation_of_the_first_case_of_a_worker_is_not_repeated(tmp_path):
    run = Run(tmp_path, always(0))
    recorded = run()
    assert run.again == []
    assert recorded.confirmations[0]["by"] == "run"
    assert counts(recorded) == (1, 0, 0)
    assert run.audience.said == []


def once() -> Device:
    """Makes the case c4 fail in the run, and pass in each repetition."""
    verdicts = iter(["FAIL"])
    return lambda case, before: next(verdicts, "PASS") if case == IDS[4] else "PASS"


@pytest.mark.parametrize(
    "device, verdict, needed",
    [
        *((after(11, *needed), "FAIL", needed) for needed in ((0,), (5,), (10,), (3, 4))),
        (after(11, 0, 10), "FAIL", range(11)),  # each half has a case that is needed
        (once(), "FAIL", ()),
        (
            lambda case, before: "CRASH" if case == IDS[3] and IDS[1] in before else "PASS",
            "CRASH",
            (1,),
        ),
    ],
)
def test_a_violation_that_does_not_occur_in_isolation_names_the_cases_it_depends_on(
    tmp_path, device, verdict, needed
):
    recorded = Run(tmp_path, device)()
    (record,) = recorded.confirmations
    assert record["confirmed"] is False
    assert (record["in_run"]["verdict"], record["alone"]["verdict"]) == (verdict, "PASS")
    assert (
        record["alone"]["reason"]
        == "ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=0) returned an MR"
    )
    assert record["after"] == [IDS[number] for number in needed]
    assert counts(recorded) == (0, 1, 0)
    assert recorded.results[IDS.index(record["case"])]["verdict"] == verdict


def test_a_search_uses_a_bounded_number_of_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(confirmation, "MOST_WORKERS", 3)
    run = Run(tmp_path, after(11, 0))
    (record,) = run().confirmations
    # one repetition in isolation, and the last halving may try both halves
    assert len(run.again) <= 1 + 3 + 1
    assert IDS[0] in record["after"]


@pytest.mark.parametrize("most_s", [-1.0, 40.0])
def test_a_search_that_has_no_more_time_says_what_it_left_out(tmp_path, monkeypatch, most_s):
    """Each look at the clock takes a second, and each line of a worker is followed by a look."""
    monkeypatch.setattr(confirmation, "MOST_S", most_s)
    clock = SimpleNamespace(monotonic=itertools.count(0.0).__next__)
    monkeypatch.setattr(confirmation, "time", clock)
    run = Run(tmp_path, after(11, 0))
    (record,) = run().confirmations
    if most_s < 0:
        assert (record["after"], record["untried"]) == ([], 11)
        assert record["repetitions"] == {"seen": 0, "of": 3}
        text = Repetitions([record]).text_of(IDS[11])
        assert "had no time for 11 of the cases before it" in text
    else:
        assert len(record["after"]) > 1
        assert record["after"][0] == IDS[0]
        assert "untried" not in record


@pytest.mark.parametrize("again", [5, 9])
def test_a_race_is_repeated_and_not_searched(tmp_path, again):
    """Chance decides whether requests that are in flight show the violation, and not the cases before."""
    ends = iter(["FAIL", *["PASS"] * (again - 1), "FAIL"])

    def lines_of(cases: Sequence[str]) -> Iterator[bytes]:
        yield HEADER
        for id_ in cases:
            verdict = next(ends) if id_ == IDS[4] else "PASS"
            line = observed_result(SUITE.cases[IDS.index(id_)], verdict)
            yield encode({"type": "start", "case": id_})
            yield encode({**line, "observed": {**line["observed"], "overlapped": True}})

    stage = Stage(laid(tmp_path, {}))
    starter = lambda cases: Actor(lines_of(cases))  # noqa: E731
    recorded = stage.supervise(
        starter, suite=SUITE, again=[starter], options=RunOptions(confirm="all")
    )
    (record,) = recorded.confirmations
    assert "after" not in record
    seen = again == 5
    assert (record["confirmed"], record["repetitions"]) == (
        seen,
        {"seen": int(seen), "of": 5 if seen else 8},
    )


def test_a_hang_is_not_searched_if_one_takes_longer_than_a_search_may(tmp_path):
    ends = iter(["HANG"])
    run = Run(tmp_path, lambda case, before: next(ends, "PASS") if case == IDS[4] else "PASS")
    (record,) = run().confirmations
    assert "after" not in record


def test_earlier_cases_are_searched_for_only_a_few_violations(tmp_path, monkeypatch):
    monkeypatch.setattr(confirmation, "MOST_SEARCHED", 1)
    run = Run(
        tmp_path,
        lambda case, before: "FAIL" if IDS[0] in before and case in IDS[8:] else "PASS",
    )
    recorded = run()
    assert ["after" in record for record in recorded.confirmations] == [True, False, False, False]


def test_a_crash_is_not_repeated_on_a_kernel_that_may_be_damaged(tmp_path):
    run = Run(tmp_path, lambda case, before: "CRASH" if case == IDS[3] else "PASS")
    recorded = run(boot_id="this boot")
    assert run.again == []
    assert counts(recorded) == (0, 0, 1)


def test_a_worker_that_is_killed_externally_is_started_again(tmp_path):
    run = Run(tmp_path, always(3))
    ended = iter([killed(HEADER, encode({"type": "start", "case": IDS[3]})), killed(HEADER)])

    def again(cases: Sequence[str]) -> Worker:
        return next(ended, None) or run.start_again(cases)

    assert counts(run(again)) == (1, 0, 0)


def none(cases: Sequence[str]) -> Worker:
    raise UserError("guests are booted here", status=3)


STUCK = "process 17 is stuck in the kernel and cannot be killed"


@pytest.mark.parametrize(
    "again, said",
    [
        (none, "not all violations are repeated: guests are booted here"),
        (lambda cases: Actor(lines(cases, always(3, 4)), WorkerEnd(), STUCK), STUCK),
        (lambda cases: Actor(iter([HEADER])), ""),  # the worker exits before the violation
    ],
)
def test_if_no_worker_can_repeat_a_violation_the_run_is_still_complete(tmp_path, again, said):
    run = Run(tmp_path, always(3, 4))
    recorded = run(again)
    assert counts(recorded) == (0, 0, 2)
    assert said in run.audience.said[-1]
    assert footer_of(recorded)["complete"] is True
    why = footer_of(recorded)["not_repeated"]
    assert why
    (line,) = read(run.path).violations.repetitions.summary()
    none_of_2 = "confirmation: none of 2 violations was repeated"
    assert line == f"{none_of_2} ({why}); each counts as it was observed"


def test_the_footer_of_a_run_without_confirmation_has_no_figures_of_it(tmp_path):
    run = Run(tmp_path, always(3))
    assert "confirmation" not in footer_of(run.supervise(run.start, suite=SUITE))


def test_violations_are_repeated_only_when_the_run_is_complete(tmp_path):
    run = Run(tmp_path, always(3))
    short: Iterator[bytes | None] = itertools.islice(lines(IDS, always(3)), 1 + 2 * 6)
    run.start = lambda cases: Actor(short)  # type: ignore[method-assign]
    assert run().footer is not None
    assert run.again == []
    rest = Run(tmp_path, always(3))
    assert counts(rest(carry_on=True)) == (1, 0, 0)


def test_a_run_that_was_cut_at_any_byte_repeats_the_other_violations_when_it_is_continued(tmp_path):
    complete = Run(tmp_path / "whole", always(3, 5, 7))
    complete()
    data = complete.path.read_bytes()
    begin = data.index(b'{"type":"confirmation"')
    for number, cut in enumerate(range(begin - 1, len(data), 37)):
        run = Run(tmp_path / str(number), always(3, 5, 7))
        run.path.write_bytes(data[:cut])
        recorded = run(carry_on=True)
        assert sorted(confirmation["case"] for confirmation in recorded.confirmations) == [
            IDS[3],
            IDS[5],
            IDS[7],
        ]
        assert counts(recorded) == (3, 0, 0)
        assert sum(map(len, run.again)) == 3 - data[:cut].count(b'"}\n', begin)


def test_a_run_that_is_continued_on_another_stack_repeats_no_violation(tmp_path):
    head = samples.header(
        planned=IDS,
        stack="test",
        suite={"version": VERSION, "tables_sha256": "0" * 64},
    )
    del head["left_out"]
    data = b"".join(encode(record) for record in [head, {"type": "worker", "boot_id": ""}])
    done = [result(case, "FAIL" if case.id == IDS[3] else "PASS", worker=1) for case in SUITE.cases]
    (tmp_path / "results.jsonl").write_bytes(data + b"".join(map(encode, done)))
    run = Run(tmp_path, always(3))
    other = encode(samples.header(env={**samples.header()["env"], "kernel": "7.3.0"}))
    recorded = run(
        lambda cases: Actor(
            itertools.chain([other], itertools.islice(lines(cases, always(3)), 1, None)),
        ),
        carry_on=True,
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


def swept(needed: str) -> Device:
    """Makes the sweep and its points fail if `needed` is empty, is the case itself, or ran before."""
    return lambda case, before: (
        "FAIL" if case.startswith(SWEEP) and needed in ("", case, *before) else "PASS"
    )


@pytest.mark.parametrize(
    "suite, needed, again, after",
    [
        (SWEPT, "", [f"{SWEEP}#{POINT}"], None),
        (TRIES, SWEEP, [SWEEP], None),  # points that try the same combination are repeated together
        (SWEPT, SWEEP, [f"{SWEEP}#{POINT}", SWEEP], [SWEEP]),
        (SWEPT, ORDINARY, [f"{SWEEP}#{POINT}", SWEEP, ORDINARY], [ORDINARY]),
    ],
)
def test_the_smallest_point_of_a_deviation_is_repeated_in_isolation_or_after_the_cases_it_depends_on(
    suite, needed, again, after, tmp_path
):
    run = Run(tmp_path, swept(needed), suite)
    recorded = run()
    (record,) = recorded.confirmations
    assert [cases[0] for cases in run.again] == again
    assert (record["case"], record["confirmed"], record.get("after")) == (
        SWEEP,
        after is None,
        after,
    )
    assert record.get("point") == (None if suite is TRIES else POINT)
    assert after is None or "returned NULL with errno EINVAL" in record["in_run"]["reason"]
    assert after is None or record["alone"]["verdict"] == "PASS"
    (failed,) = (result for result in recorded.results if result["case"] == SWEEP)
    assert ("(1 of 8 tries)" in failed["reason"]) == (suite is TRIES)
