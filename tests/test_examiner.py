"""Tests of the supervisor's judgement of a worker's line: an honest worker's line keeps its verdict, and a line whose
verdict contradicts its observations is BROKEN. Also tests how absent capabilities are found and judged."""

import errno
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from conformance.bench.calls import Pd
from conformance.bench.work_requests import SendRequest
from conformance.errors import NotConnected
from conformance.execution.offered import absent_on
from conformance.execution.runner import run_case
from conformance.judging import Basis, conclude
from conformance.judging.kernel_alarms import decisive_lines, kernel_alarm
from conformance.model import bounds
from conformance.model.case import Case, QpSpec
from conformance.model.declared import Capabilities, DeviceAttributes, declared_capabilities
from conformance.model.kind import Kind
from conformance.model.observation import KernelEvidence, Observation
from conformance.model.point_index import encode_index
from conformance.model.profile import Profile
from conformance.model.record import HeaderRecord, OfferedRecord, ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.case_record import case_record
from conformance.results.records import Recorded, decode, encode
from conformance.results.rejudge import known_capabilities
from conformance.supervision import examiner as limits
from conformance.supervision.examiner import Examiner
from conformance.sweeps.outcome import OUTSIDE, Points
from conformance.tables.carried import is_of_packets
from conformance.tables.suite import load_suite
from recorded_reference import QuietKernel, is_dear
from samples import case, changed, header, result
from trial.reference.bench import HeldPair, ReferenceBench
from trial.reference.device import Device
from trial.reference.objects import Refused
from trial.reference.queues import Queue
from trial.reference.stack import without
from trial.running import on_reference, on_the_reference

SUITE = load_suite()


def sent(cases: list[Case], device: Device) -> Iterator[tuple[Case, ResultRecord, Examiner]]:
    """Yields, for each case, the line of an honest worker on a device in Python, and the examiner that judges it."""
    with closing(ReferenceBench(device)) as bench:
        run = replace(on_the_reference(bench), watch=QuietKernel())
        caps = run.basis.capabilities
        facts: HeaderRecord = header(
            device={"name": "r", "driver": "r", "caps": dict(caps.declared)},
        )
        tried = {entry: dict(offered) for entry, offered in caps.offered.items()}
        offered: OfferedRecord = {"type": "offered", "offered": tried, "absent": dict(caps.absent)}
        judge = Examiner.of(SUITE.registry, Profile(), facts, offered)
        for case in cases:
            record = decode(encode(case_record(run_case(case, run), SUITE.registry)))
            assert record["type"] == "result"
            yield case, record, judge


@pytest.mark.parametrize(
    "device",
    [Device(), Device(without("odp", "rereg_mr", "mw_type_2", "atomics"))],
)
def test_the_line_of_an_honest_worker_is_unchanged(device):
    rows = [case for case in SUITE.cases if case.kind is Kind.ROW and not case.hazardous]
    cases = [*rows[::30], *(case for case in SUITE.cases if case.id == "access/model/pairs")]
    cases += [case for case in SUITE.cases if case.sweep and case.sweep.size <= 512][::4]
    keys = set()
    for of, line, judge in sent(cases, device):
        judged = judge.judged(of, line)
        for key in (
            "verdict",
            "rules",
            "level",
            "layer",
            "reason",
            "observed",
            "points",
            "rule_verdicts",
            "expected",
        ):
            assert judged.get(key) == line.get(key), (of.id, key)
        keys.add(judged["verdict"])
    assert keys >= {"PASS"}


@pytest.fixture(scope="module")
def swept() -> tuple[Case, ResultRecord, Examiner]:
    """A sweep whose points expect success or a refusal, an honest worker's line of it, and the examiner."""
    cases = [
        case
        for case in SUITE.cases
        if case.id == "advise_mr/advice_space/advice-and-flags@libibverbs"
    ]
    return next(sent(cases, Device()))


def with_points(line: ResultRecord, **more: Any) -> ResultRecord:
    assert "points_data" in line
    return changed(line, {"points_data": {**line["points_data"], **more}})


def test_numbers_of_points_that_differ_from_the_observations_are_broken(swept):
    case, line, judge = swept
    judged = judge.judged(case, changed(line, {"points": {"PASS": 7}}))
    assert (judged["verdict"], judged["claimed"]) == ("BROKEN", "PASS")
    assert (
        f"reports the points 7 PASS, but its observations give {line['points']['PASS']} PASS"
        in judged["reason"]
    )


def test_points_that_contradict_their_observations_are_broken(swept):
    case, line, judge = swept
    data = line["points_data"]
    bad = [
        {**example, "observed": {**example["observed"], "returned": "EIO", "errno": "EIO"}}
        for example in data["examples"]
    ]
    judged = judge.judged(case, with_points(line, examples=bad))
    assert judged["verdict"] == "BROKEN"
    assert "the worker reports PASS" in judged["reason"]


@pytest.mark.parametrize(
    "what",
    ["missing", "fewer", "other space", "no examples", "too many numbers", "no points"],
)
def test_points_that_differ_from_the_table_are_broken(swept, what):
    case, line, judge = swept
    index = Points.of_data(line["points_data"]).index
    changes: dict[str, dict[str, Any]] = {
        "missing": {"index": encode_index(array("H", [OUTSIDE] * len(index)))},
        "fewer": {"index": encode_index(array("H", [index[0], OUTSIDE, *index[2:]]))},
        "other space": {"axes": {"x": ["a", "b"]}, "index": encode_index(array("H", [0, 0]))},
        "no examples": {"examples": []},
        "too many numbers": {"index": encode_index(array("H", [60_000] * len(index)))},
    }
    bare: Any = {key: value for key, value in line.items() if key != "points_data"}
    judged = judge.judged(case, with_points(line, **changes[what]) if what in changes else bare)
    assert judged["verdict"] == "BROKEN"
    assert judged["rules"]


@pytest.mark.parametrize("returned, verdict", [("leaked", "FAIL"), ("0", "BROKEN")])
def test_tries_are_fewer_than_in_the_table_only_after_a_violation(returned, verdict):
    row = SUITE.find("bind_mw/in_flight/reads-in-flight-and-the-window-bound-again-at-any-moment")
    assert row is not None
    ((case, line, judge),) = sent([row], Device())
    data = line["points_data"]
    (example,) = data["examples"]
    observed = example["observed"]
    later = [{**seen, "returned": returned} for seen in observed["afterwards"]]
    cut = with_points(
        changed(line, {"verdict": verdict, "points": {verdict: 1}}),
        index=encode_index(array("H", [0] + [OUTSIDE] * (line["space"]["size"] - 1))),
        examples=[{**example, "observed": {**observed, "afterwards": later}}],
    )
    assert judge.judged(case, cut)["verdict"] == verdict


def test_recorded_logs_and_notes_are_bounded():
    plain = SUITE.find("reg_mr/registration/last-byte")
    assert plain is not None
    ((case, line, judge),) = sent([plain], Device())
    seen = {"taint": 0, "log": ["x" * 5000] * 1000}
    bounded_log = judge.judged(case, changed(line, {"kernel": seen}))["kernel"]["log"]
    assert len(bounded_log) == limits.MOST_LOG_LINES + 1
    assert "(800 lines are left out)" in bounded_log
    assert all(len(line) < bounds.MOST_CHARACTERS + 100 for line in bounded_log)
    remarks = {**line["observed"], "not_covered": ["a remark"] * 150}
    notes = judge.judged(case, changed(line, {"observed": remarks}))["notes"]
    assert notes[-1] == "50 more remarks are left out"
    assert len(notes) == bounds.MOST_NOTES + 1


NOISE = ["[  1.0] nothing to see"]
COMPLAINT, OTHER, NAMED = (
    "[  2.0] WARNING: at mm/x.c",
    "[  2.0] WARNING: of another",
    "[  2.0] siw_dereg+0x1/0x2 [siw]",
)


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
    ids=[
        "first",
        "between",
        "far apart",
        "driver in the omitted lines",
        "no warning",
        "last",
        "warning of another driver",
    ],
)
@pytest.mark.parametrize("taint", [0, 512])
@pytest.mark.parametrize("suspects", [{}, {"suspects": ["siw", "ib_core"]}], ids=["", "suspects"])
def test_a_bounded_log_gives_the_verdict_of_the_whole_log(log, taint, suspects):
    evidence: KernelEvidence = {"taint": taint, "taint_before": 0, "log": log}
    evidence |= suspects
    bounded: KernelEvidence = {**evidence, "log": limits.bounded_log(log, decisive_lines(evidence))}
    assert kernel_alarm(bounded) == kernel_alarm(evidence)
    assert len(bounded["log"]) <= limits.MOST_LOG_LINES + 5
    lines_left_out = sum(
        int(line.split()[0][1:]) for line in bounded["log"] if line.endswith("lines are left out)")
    )
    assert lines_left_out + sum(
        line in (*NOISE, COMPLAINT, OTHER, NAMED) for line in bounded["log"]
    ) == len(log)


CLAIMED = (
    "mw_type_1",
    "mw_type_2",
    "xrc",
    "atomics",
    "odp",
    "odp_implicit",
    "flush_global",
    "immediate_data",
)


def claiming(*names: str) -> Device:
    """Returns a reference that declares these capabilities but lacks them."""
    return Device(replace(without(*names), claims=frozenset(names)))


def absent(device: Device) -> dict[str, str]:
    with closing(ReferenceBench(device)) as bench:
        before = bench.resources()
        absent = absent_on(bench, device.stack.declared)
        assert bench.resources() == before
        return absent


def test_no_capability_is_absent_on_a_complete_device():
    assert absent(Device()) == {}


@pytest.mark.parametrize("name", CLAIMED)
def test_declared_but_absent_capabilities_are_found(name):
    assert name in absent(claiming(name))
    assert name not in absent(Device(without(name)))  # an undeclared capability is not tried


def test_other_errors_do_not_make_a_capability_absent():
    class OutOfMemory(Device):
        def alloc_mw(self, pd: int, kind: int) -> object:  # type: ignore[override]
            raise self.refusal(errno.ENOMEM)

        def refusal(self, code: int) -> Exception:
            return Refused(code)

        def carry_out(self, queue: Queue, request: SendRequest) -> str:
            return "REM_ACCESS_ERR"

    assert absent(OutOfMemory()) == {}


def test_a_pair_that_cannot_be_connected_does_not_make_xrc_absent():
    class Bench(ReferenceBench):
        def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> HeldPair:
            raise NotConnected(errno.EINVAL, "ibv_modify_qp")

    with closing(Bench()) as bench:
        assert absent_on(bench, {"xrc": True}) == {}


def test_each_false_claim_fails_only_its_own_rule():
    every = [case for case in SUITE.cases if case.kind is Kind.ROW and not is_dear(case)]
    every = [case for case in every if not is_of_packets(case)]
    about = [case for case in every if "CAP-" in " ".join(case.rules)]
    rows = [*about, *every[::5]]
    results = list(on_reference(rows, only=claiming(*CLAIMED).stack))
    wrong = [
        result
        for result in results
        if result[1].verdict not in (Verdict.PASS, Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
    ]
    assert {rule for case, _ in wrong for rule in case.rules} == {
        f"CAP-0{number}" for number in (*range(1, 7), 8, 9)
    }
    assert {judgement.verdict for _, judgement in wrong} == {Verdict.FAIL}
    resting = [
        result.reason
        for _, result in results
        if "declares mw_type_1 but does not have it" in result.reason
    ]
    assert len(resting) > 10


def test_a_case_about_declarations_is_judged_by_what_is_declared():
    window = "{rules: [%s], needs: [mw_type_1], call: ibv_alloc_mw, when: {type: 1}, then: success}"
    seen: Observation = {"rc": None, "returned": "NULL", "errno": "EOPNOTSUPP", "layer": "kernel"}
    basis = Basis(Capabilities({"mw_type_1": True}, {}, {}, {"mw_type_1": "it was refused"}))
    verdicts = [
        conclude(case(window % rule), basis, seen)[0].verdict for rule in ("CAP-01", "BIND-16")
    ]
    assert verdicts == [Verdict.FAIL, Verdict.UNSUPPORTED]


def test_absent_capabilities_are_known_when_a_run_is_rejudged():
    first = header()
    first["device"]["caps"] = {"mw_type_1": True, "odp": False}
    line = result(case("{rules: [REG-01], when: {access: []}, then: success}"))
    line["observed"] = {"lacking": ["mw_type_1", "odp", "rc"]}
    line["entry"] = "libibverbs"
    capabilities = known_capabilities(Recorded(first, [line]))
    assert capabilities.undeclared(["mw_type_1", "odp", "rc", "uc"], "libibverbs") == [
        "mw_type_1",
        "odp",
        "rc",
    ]
    assert set(capabilities.absent) == {"mw_type_1"}


def test_atomics_on_demand_are_declared_for_the_transport_and_not_in_general():
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b01111))["odp_atomic"] is False
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b11111))["odp_atomic"] is True


def test_an_entry_whose_commands_need_data_of_the_driver_is_unreachable():
    capabilities = Capabilities({}, {}, {"raw_registration": False})
    assert capabilities.unmet([], "uverbs") == ["raw_registration"]
    assert capabilities.unmet([], "libibverbs") == []
    assert Capabilities({}, {}, {"raw_registration": True}).unmet([], "uverbs") == []
