"""Silence is not a refusal: a posted request that does not complete is a fault of its own."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.defects import Severity, defects_of, severity_of, symptoms_of
from conformance.judging import judge
from conformance.model.fault import FaultKind
from conformance.model.observation import Observation
from conformance.model.record_shape import completed
from conformance.model.verdict import Verdict
from conformance.results.records import result_record
from samples import case, registry

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
