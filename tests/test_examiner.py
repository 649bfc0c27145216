"""What this side makes of a worker's line: the worker's own verdict where it is honest, and never a forged one."""

from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from conformance.execution.runner import run_case
from conformance.judging.kernel_alarms import decisive_lines, kernel_alarm
from conformance.model import bounds
from conformance.model.case import Case
from conformance.model.observation import KernelEvidence
from conformance.model.profile import Profile
from conformance.model.record import HeaderRecord, OfferedRecord, ResultRecord
from conformance.results.case_record import case_record
from conformance.results.records import decode, encode
from conformance.supervision import examiner as limits
from conformance.supervision.examiner import Examiner
from conformance.sweeps.outcome import OUTSIDE, Points, encode_index
from conformance.tables.suite import Suite, load_suite
from recorded_reference import QuietKernel
from reference.bench import ReferenceBench
from reference.device import Device
from reference.stack import without
from samples import changed, header
from trial.running import on_the_reference


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load_suite()


def sent(suite: Suite, cases: list[Case], device: Device) -> Iterator[tuple[Case, ResultRecord, Examiner]]:
    """What an honest worker sends of these cases on a device in Python, and what judges it."""
    with closing(ReferenceBench(device)) as bench:
        run = replace(on_the_reference(bench), watch=QuietKernel())
        caps = run.basis.capabilities
        facts: HeaderRecord = header(device={"name": "r", "driver": "r", "caps": dict(caps.declared)})
        tried = {entry: dict(found) for entry, found in caps.offered.items()}
        offered: OfferedRecord = {"type": "offered", "offered": tried, "absent": dict(caps.absent)}
        judge = Examiner.of(suite.registry, Profile(), facts, offered)
        for case in cases:
            record = decode(encode(case_record(run_case(case, run), suite.registry)))
            assert record["type"] == "result"
            yield case, record, judge


@pytest.mark.parametrize(
    "device", [Device(), Device(without("odp", "rereg_mr")), Device(without("mw_type_2", "atomics"))]
)
def test_an_honest_line_keeps_its_verdict_its_reason_and_its_points(suite: Suite, device: Device) -> None:
    cases = [case for case in suite.cases if not case.hazardous and not case.sweep][::15]
    cases += [case for case in suite.cases if case.sweep and case.sweep.size <= 512][::4]
    found = set()
    for case, line, judge in sent(suite, cases, device):
        judged = judge.judged(case, line)
        for key in ("verdict", "rules", "level", "layer", "reason", "observed", "points", "rule_verdicts", "expected"):
            assert judged.get(key) == line.get(key), (case.id, key)
        found.add(judged["verdict"])
    assert found >= {"PASS"}


@pytest.fixture(scope="module")
def swept(suite: Suite) -> tuple[Case, ResultRecord, Examiner]:
    """A sweep with points that pass and points that are refused, and its honest line."""
    cases = [case for case in suite.cases if case.id == "advise_mr/advice_space/advice-and-flags@libibverbs"]
    return next(sent(suite, cases, Device()))


def with_points(line: ResultRecord, **more: Any) -> ResultRecord:
    assert "points_data" in line
    return changed(line, {"points_data": {**line["points_data"], **more}})


def test_points_whose_observation_says_something_else_are_reported(swept: tuple[Case, ResultRecord, Examiner]) -> None:
    case, line, judge = swept
    data = line["points_data"]
    bad = [{**each, "observed": {**each["observed"], "returned": "EIO", "errno": "EIO"}} for each in data["examples"]]
    judged = judge.judged(case, with_points(line, examples=bad))
    assert judged["verdict"] == "BROKEN"
    assert "the worker says PASS" in judged["reason"]


@pytest.mark.parametrize("what", ["missing", "fewer", "other space", "no examples", "too many numbers"])
def test_points_that_are_not_those_of_the_table_are_broken(
    swept: tuple[Case, ResultRecord, Examiner], what: str
) -> None:
    case, line, judge = swept
    index = Points.of_data(line["points_data"]).index
    changes: dict[str, dict[str, Any]] = {
        "missing": {"index": encode_index(array("H", [OUTSIDE] * len(index)))},
        "fewer": {"index": encode_index(array("H", [index[0], OUTSIDE, *index[2:]]))},
        "other space": {"axes": {"x": ["a", "b"]}, "index": encode_index(array("H", [0, 0]))},
        "no examples": {"examples": []},
        "too many numbers": {"index": encode_index(array("H", [60_000] * len(index)))},
    }
    judged = judge.judged(case, with_points(line, **changes[what]))
    assert judged["verdict"] == "BROKEN"
    assert judged["rules"]


def test_a_sweep_without_points_is_broken(swept: tuple[Case, ResultRecord, Examiner]) -> None:
    case, line, judge = swept
    bare = line.copy()
    del bare["points_data"]
    assert judge.judged(case, bare)["verdict"] == "BROKEN"


def test_what_is_recorded_has_bounds_and_says_what_was_cut(suite: Suite) -> None:
    plain = suite.find("reg_mr/registration/last-byte")
    assert plain is not None
    ((case, line, judge),) = sent(suite, [plain], Device())
    seen = {"taint": 0, "log": ["x" * 5000] * 1000}
    kept = judge.judged(case, changed(line, {"kernel": seen}))["kernel"]["log"]
    assert len(kept) == limits.MOST_LOG_LINES + 1
    assert "(800 lines are left out)" in kept
    assert all(len(each) < bounds.MOST_CHARACTERS + 100 for each in kept)
    remarks = {**line["observed"], "not_covered": ["a remark"] * 150}
    notes = judge.judged(case, changed(line, {"observed": remarks}))["notes"]
    assert notes[-1] == "50 more remarks are left out"
    assert len(notes) == bounds.MOST_NOTES + 1


NOISE = ["[  1.0] nothing to see"]
COMPLAINT, OTHER, NAMED = "[  2.0] WARNING: at mm/x.c", "[  2.0] WARNING: of another", "[  2.0] siw_dereg+0x1/0x2 [siw]"


@pytest.mark.parametrize(
    "log",
    [
        [COMPLAINT, NAMED, *NOISE * 800],
        [*NOISE * 400, COMPLAINT, NAMED, *NOISE * 400],
        [*NOISE * 400, OTHER, *NOISE * 10, COMPLAINT, *NOISE * 300, NAMED, *NOISE * 200],
        [OTHER, *NOISE * 400, NAMED, *NOISE * 400],
        [*NOISE * 400, NAMED, *NOISE * 400],
        [*NOISE * 800, COMPLAINT, NAMED],
        [*NOISE * 400, OTHER, *NOISE * 400],
    ],
    ids=["first", "between", "far apart", "named in what is cut", "without", "last", "of another"],
)
@pytest.mark.parametrize("taint", [0, 512])
@pytest.mark.parametrize("suspects", [{}, {"suspects": ["siw", "ib_core"]}], ids=["", "suspects"])
def test_what_is_kept_of_a_log_gives_the_verdict_of_all_of_it(
    log: list[str], taint: int, suspects: KernelEvidence
) -> None:
    evidence: KernelEvidence = {"taint": taint, "taint_before": 0, "log": log}
    evidence |= suspects
    kept: KernelEvidence = {**evidence, "log": limits.bounded_log(log, decisive_lines(evidence))}
    assert kernel_alarm(kept) == kernel_alarm(evidence)
    assert len(kept["log"]) <= limits.MOST_LOG_LINES + 5
    left = sum(int(line.split()[0][1:]) for line in kept["log"] if line.endswith("lines are left out)"))
    assert left + sum(line in (*NOISE, COMPLAINT, OTHER, NAMED) for line in kept["log"]) == len(log)
