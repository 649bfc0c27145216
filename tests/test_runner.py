"""Tests of the runners of each kind of case. The kernel log, resource counts and the profile apply to all kinds."""

import errno
import itertools
import resource
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from dataclasses import replace
from unittest.mock import Mock

import pytest

import samples
from conformance.errors import HostLacks, LoopbackLost, PeerLost, SetupRefused, UserError
from conformance.execution.connection import LoopbackConnection
from conformance.execution.procedure import remark_on_limit
from conformance.execution.runner import RunContext, run_case
from conformance.execution.steps import STEPS
from conformance.judging import Basis, Judgement, apply_profile
from conformance.kernel import resources
from conformance.model.case import Case, Expectation, Step
from conformance.model.kind import Kind
from conformance.model.observation import KernelEvidence, Observation
from conformance.model.profile import Profile
from conformance.model.verdict import Verdict
from conformance.results.case_record import case_record
from conformance.sweeps.run import SweepRun
from conformance.tables.profile import read_profile
from conformance.tables.suite import ROOT, load_suite
from kinds import rows
from samples import ROW, SPACE
from trial.catalogue import named
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.stack import without
from trial.running import judgement_on, on_the_reference

ON_DEMAND = (
    "{rules: [REG-17], needs: [odp], when: {access: [LOCAL_WRITE, ON_DEMAND]}, then: success}"
)


SUITE = load_suite()


@pytest.fixture
def run() -> Iterator[RunContext]:
    with closing(ReferenceBench()) as bench:
        yield on_the_reference(bench)


class Kernel:
    """A kernel watch whose queries return these items in order, and then evidence without messages."""

    def __init__(self, *evidence: KernelEvidence) -> None:
        self._evidence = iter(evidence)

    def since_last(self) -> KernelEvidence:
        nothing: KernelEvidence = {"taint": 0, "log": []}
        return next(self._evidence, nothing)


WARNING: KernelEvidence = {"taint": 0, "log": ["[ 1.0] WARNING: something"]}


def test_each_kind_has_a_runner_and_a_case_of_each_passes_on_the_reference(run):
    sweep = samples.case(SPACE)
    assert sweep.sweep is not None
    point = sweep.sweep.point_case(sweep, "access=REMOTE_WRITE")
    first: dict[Kind, Case] = {}
    for case in SUITE.cases:
        first.setdefault(case.kind, case)
    cases = {**first, Kind.ROW: samples.case(ROW), Kind.SWEEP: sweep, Kind.POINT: point}
    assert set(cases) == set(Kind)
    for kind, case in cases.items():
        assert case.kind is kind
        assert judgement_on(case, run).verdict == Verdict.PASS


def test_a_point_is_judged_by_the_expectation_that_applies_to_it(run):
    space = samples.case(SPACE)
    assert space.sweep is not None
    done = run_case(space.sweep.point_case(space, "access=REMOTE_WRITE"), run)
    assert (done.case.kind, done.case.rules, done.judgement.verdict) == (
        Kind.ROW,
        ("REG-15",),
        Verdict.PASS,
    )
    assert done.case.id.endswith("#access=REMOTE_WRITE")


def test_a_sweep_has_its_points_in_its_record(run):
    done = run_case(samples.case(SPACE), run)
    assert isinstance(done, SweepRun)
    record = case_record(done, samples.registry())
    assert (record["points"], record["duration_us"]) == ({"PASS": 2}, done.duration_us)
    assert done.judgement.reason == record["reason"]


@pytest.mark.parametrize("row", [ROW, SPACE], ids=["row", "sweep"])
def test_a_kernel_warning_during_a_case_fails_it_and_an_earlier_warning_does_not(run, row):
    quiet: KernelEvidence = {"taint": 0, "log": []}
    before, meanwhile = Kernel(WARNING), Kernel(*[quiet] * (2 if row is SPACE else 1), WARNING)
    case = samples.case(row)
    assert run_case(case, replace(run, watch=before)).judgement.verdict == Verdict.PASS
    failed = run_case(case, replace(run, watch=meanwhile)).judgement
    assert failed.verdict == Verdict.FAIL
    assert "WARNING: something" in failed.reason


def test_messages_and_counts_of_the_kernel_are_in_the_evidence(run):
    kernel = run_case(samples.case(ROW), replace(run, watch=Kernel())).kernel
    assert (kernel["taint"], kernel["log"]) == (0, [])
    assert kernel["resources"]["before"] == kernel["resources"]["after"]


class Counted(ReferenceBench):
    """A bench whose queries return these counts of regions in order."""

    def __init__(self, counts: Iterable[int]) -> None:
        super().__init__()
        self.counts = iter(counts)

    def resources(self) -> dict[str, int]:
        return {"mr": next(self.counts)}


def test_an_increased_count_of_objects_fails_the_case(monkeypatch):
    monkeypatch.setattr(resources, "SETTLING_S", 0.0)
    with closing(Counted(itertools.count())) as bench:
        done = run_case(samples.case(ROW), on_the_reference(bench))
    assert done.judgement.verdict == Verdict.FAIL
    assert "the kernel still counts" in done.observation["left_behind"][0]


@pytest.mark.parametrize(
    "counts, before",
    [([3, 3, 3, 3], [3, 3, 3]), ([3, 2, 1, 1, 1], [3, 1, 1])],
    ids=["unchanged", "an object is released late"],
)
@pytest.mark.parametrize("row", [ROW, SPACE], ids=["row", "sweep"])
def test_the_kernel_is_counted_before_a_case_only_if_a_count_may_have_changed(counts, before, row):
    with closing(Counted(counts)) as bench:
        run = on_the_reference(bench)
        first = run_case(samples.case(ROW), run)
        second = run_case(samples.case(ROW), run)
        run_case(samples.case(row), run)
        assert [*bench.counts] == []
        counted = [
            kernel_count.kernel["resources"]["before"]["mr"] for kernel_count in (first, second)
        ]
    assert counted == before[:2]


def on_demand_point() -> Case:
    text = SPACE.replace("REMOTE_WRITE]", "ON_DEMAND]").replace("refused, rule", "success, rule")
    space = samples.case(text.replace("  sweep:", "  needs: [odp]\n  sweep:"))
    assert space.sweep is not None
    return space.sweep.point_case(space, "access=ON_DEMAND")


@pytest.mark.parametrize(
    "present, verdict",
    [({}, "UNSUPPORTED"), ({"odp": "the data sheet"}, "FAIL")],
)
def test_a_profile_applies_to_rows_and_points_alike(present, verdict):
    with closing(ReferenceBench(Device(without("odp")))) as bench:
        run = on_the_reference(bench)
        run = replace(run, basis=replace(run.basis, profile=Profile("rxe", present)))
        for case in (samples.case(ON_DEMAND), on_demand_point()):
            done = run_case(case, run)
            assert done.judgement.verdict == verdict
            assert done.observation["lacking"] == ["odp"]


def test_capabilities_that_contradict_the_profile_are_remarks_on_rows_and_points(run):
    run = replace(
        run,
        basis=replace(run.basis, profile=Profile("rxe", absent={"odp": "not in this driver"})),
    )
    for case in (samples.case(ON_DEMAND), on_demand_point()):
        done = run_case(case, run)
        assert done.judgement.verdict == Verdict.PASS
        assert done.judgement.notes[-1].startswith(
            "the profile says that odp is absent (not in this driver), but",
        )


@pytest.mark.parametrize("row", [ROW, SPACE], ids=["row", "sweep"])
def test_unreachable_cases_are_not_run(run, row):
    capabilities = replace(run.basis.capabilities, reachable={"swap": False})
    case = replace(samples.case(row), needs=("swap",))
    done = run_case(case, replace(run, basis=Basis(capabilities), runners={}))
    assert done.judgement.verdict == Verdict.UNREACHABLE
    assert done.observation == {
        "unreachable": done.judgement.reason,
        "precondition": ["swap"],
    }
    assert case_record(done, samples.registry())["verdict"] == Verdict.UNREACHABLE


def test_exceptions_of_the_harness_make_a_case_broken(run):
    for error, text in (
        (RuntimeError("odd\nmore"), "RuntimeError: odd"),
        (UserError("install it"), "install it"),
    ):
        judgement = judgement_on(
            samples.case(ROW),
            replace(run, runners={Kind.ROW: Mock(side_effect=error)}),
        )
        assert judgement.verdict == Verdict.BROKEN
        assert judgement.reason == f"the harness could not run the case: {text}"


ON_DEMAND_SPACE = """
- id: space
  rules: [REG-12]
  sweep:
    axes: {access: [[ON_DEMAND], [ON_DEMAND, LOCAL_WRITE]]}
    points: 2
    expect: [{then: success, rule: REG-12}]
  when: {access: $access}
"""


@pytest.mark.parametrize("row", [ON_DEMAND, ON_DEMAND_SPACE], ids=["row", "sweep"])
@pytest.mark.parametrize("declared", [True, False])
def test_an_undeclared_capability_is_reported_before_unreachable(declared, row, run):
    fail = Mock(side_effect=HostLacks("no such memory", "buy some"))
    capabilities = replace(run.basis.capabilities, declared={"odp": declared})
    run = replace(run, basis=Basis(capabilities), runners=dict.fromkeys(Kind, fail))
    judgement = judgement_on(samples.case(row), run)
    assert judgement.verdict == Verdict.UNREACHABLE
    assert judgement.reason.endswith("no such memory; buy some")
    assert judgement.reason.startswith("the device does not declare odp, ") is not declared


@pytest.mark.parametrize(
    "failure, expected, verdict",
    [
        (LoopbackLost("lost"), "refused", "FAIL"),
        (SetupRefused("a receive", "EINVAL"), "refused", "FAIL"),
        (SetupRefused("a receive", "EINVAL"), "success", "BROKEN"),
        (LoopbackLost("lost"), "success", ""),
        (PeerLost("gone"), "success", ""),
        (PeerLost("gone"), "refused", ""),
    ],
)
def test_the_first_failing_step_decides(run, monkeypatch, failure, expected, verdict):
    """If the judged call fails, a later failure of the harness does not count. If the judged call passes, a refused
    set-up makes the case BROKEN, and a lost connection ends the session. A lost peer always ends the session."""

    monkeypatch.setitem(STEPS, "traffic", Mock(side_effect=failure))
    row = samples.case(f"""
        - id: then-traffic
          rules: [REG-01]
          given: {{mrs: {{mr: {{access: [LOCAL_WRITE, REMOTE_WRITE]}}}}}}
          when: {{access: [LOCAL_WRITE, REMOTE_WRITE]}}
          then: {expected}
          afterwards: [{{call: traffic, op: RDMA_WRITE, rkey: mr.rkey, addr: buf, then: success}}]
    """)
    with nullcontext() if verdict else pytest.raises(type(failure)):
        assert run_case(row, run).judgement.verdict == verdict


ABSENT = Profile("rxe", absent={"xrc": "the driver has no XRC transport"})
PRESENT = Profile("rxe", present={"odp": "the driver pages on demand"})
REFUSED = Judgement(
    Verdict.UNSUPPORTED,
    "the call was refused; the device does not declare xrc",
    ("seen",),
)
WORKED = Judgement(Verdict.PASS, "the call returned 0", ("seen",))
FAILED = Judgement(Verdict.FAIL, "the call should succeed, but returned EINVAL", ("seen",))


def test_the_profile_that_is_shipped_can_be_read():
    profile = read_profile(ROOT / "ci/rxe/profile.yaml")
    assert profile.device == "rxe"
    assert set(profile.present) & {"odp", "atomics"}
    assert "xrc" in profile.absent


def test_absent_but_required_capabilities_fail():
    refused = Judgement(
        Verdict.UNSUPPORTED,
        "the call was refused; the device does not declare odp",
    )
    pinned = apply_profile(refused, ("odp",), ("odp",), PRESENT)
    assert pinned.verdict == Verdict.FAIL
    assert pinned.reason.endswith(
        "but according to the profile odp must be present: the driver pages on demand",
    )
    # The profile's odp_ud_recv implies odp and ud. If any other capability is missing too, the case does not fail.
    demanding = Profile("rxe", present={"odp_ud_recv": "the data sheet"})
    for undeclared, verdict in (
        (("odp_ud_recv", "odp", "ud"), "FAIL"),
        (("odp_ud_recv", "alloc_null_mr"), "UNSUPPORTED"),
        (("alloc_null_mr",), "UNSUPPORTED"),
    ):
        assert apply_profile(REFUSED, undeclared, undeclared, demanding).verdict == verdict


WHY = "the driver has no XRC transport"
REMARK = f"the profile says that xrc is absent ({WHY}), but the device has it: update the profile"
BY_THE_PROFILE = f"{REFUSED.reason} (by the profile: {WHY})"


@pytest.mark.parametrize(
    "judgement, needs, undeclared, changes",
    [
        (REFUSED, ("xrc", "odp"), ("xrc",), {"reason": BY_THE_PROFILE}),
        (WORKED, ("xrc",), (), {"notes": ("seen", REMARK)}),
        (FAILED, ("xrc",), (), {"notes": ("seen", REMARK)}),
        (WORKED, ("odp",), (), {}),  # the case does not need the absent capability
        (
            FAILED,
            ("xrc",),
            ("xrc",),
            {},
        ),  # the capability is not declared, and was not observed to work either
        (Judgement(Verdict.UNREACHABLE, "no swap"), ("xrc",), (), {}),  # no call was issued
        (Judgement(Verdict.BROKEN, "no memory"), ("xrc",), (), {}),
    ],
)
def test_an_absent_capability_is_the_reason_or_a_remark(judgement, needs, undeclared, changes):
    assert apply_profile(judgement, needs, undeclared, ABSENT) == replace(judgement, **changes)


@pytest.mark.parametrize("given, reason", rows("calls_of_many_steps"))
def test_calls_of_many_steps_report_the_step_that_failed(given, reason):
    name, mutant = given.split()
    case = SUITE.find(f"reg_mr/{name}")
    assert case is not None
    with closing(ReferenceBench(named(mutant).kind())) as bench:
        judgement = judgement_on(case, on_the_reference(bench))
    assert judgement.verdict == Verdict.FAIL
    assert reason in judgement.reason


@pytest.mark.parametrize(
    "code, limit, said",
    [
        ("ENOMEM", 8 << 20, ["RLIMIT_MEMLOCK of the process: 8192 KiB"]),
        ("EPERM", resource.RLIM_INFINITY, ["RLIMIT_MEMLOCK of the process: none"]),
        ("EINVAL", 8 << 20, None),
    ],
)
def test_a_refused_valid_registration_comes_with_the_limit_on_locked_memory(
    code, limit, said, monkeypatch
):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    step = Step("ibv_reg_mr", {}, Expectation("success"))
    assert remark_on_limit(step, {"errno": code}).get("remarks") == said
    assert remark_on_limit(replace(step, then=Expectation("refused")), {"errno": code}) == {}


def awaited(returned: str, overlapped: bool) -> Observation:
    step = Observation(
        rc=0,
        returned=returned,
        errno="",
        layer="none",
        marker=["SUCCESS"] * 12,
        overlapped=overlapped,
    )
    return Observation(rc=0, returned="0", errno="", layer="kernel", afterwards=[step])


class RefusingOnce(Device):
    """A device that refuses one request, as soon as `accepts` requests have been posted."""

    accepts = -1

    def send_fault(self, queue, request):
        self.accepts -= 1
        if self.accepts == -1:
            return errno.ENOMEM
        return super().send_fault(queue, request)


@pytest.mark.parametrize(
    "call",
    [
        "receives_in_order, lkey: mr.lkey, addr: buf, length: 8, rounds: 1",
        "immediates_in_order, rkey: mr.rkey, addr: buf, length: 8, rounds: 1",
        "atomics_in_order, op: ATOMIC_FETCH_AND_ADD, rkey: mr.rkey, addr: buf, rounds: 1",
        "ibv_wr_post, batch: alternating, rkey: mr.rkey",
    ],
)
def test_a_refused_request_leaves_nothing_for_the_next_call(call, monkeypatch):
    access = "{access: [LOCAL_WRITE, REMOTE_WRITE, REMOTE_ATOMIC]}"
    row = samples.case(f"""
        - id: again
          rules: [REG-01]
          given: {{mrs: {{mr: {access}}}}}
          when: {access}
          then: success
          afterwards: [{{call: {call}, then: success}}, {{call: {call}, then: success}}]
    """)
    renew, stale = LoopbackConnection.renew_if_stale, []

    def renew_if_stale(connection: LoopbackConnection) -> None:
        stale.append(connection.stale)
        renew(connection)

    monkeypatch.setattr(LoopbackConnection, "renew_if_stale", renew_if_stale)
    device = RefusingOnce()
    with closing(ReferenceBench(device)) as bench:
        run = on_the_reference(bench)
        accepted, repeated = run_case(row, run).observation["afterwards"]
        assert (accepted["returned"], any(stale)) == ("0", False)
        device.accepts = 6  # before the first call, requests examine the new region
        refused, again = run_case(row, run).observation["afterwards"]
    assert "ENOMEM" in refused["returned"]
    assert stale[-1]
    assert again == repeated
