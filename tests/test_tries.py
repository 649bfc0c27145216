"""Tests of sweeps and rows over an unreliable transport, which may lose a message: what must arrive is tried several times."""

from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

import samples
from conformance.execution.runner import run_case
from conformance.model.verdict import Verdict
from devices import device
from test_sweeps import run_on
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.objects import Region
from trial.running import on_the_reference

UNRELIABLE = """
- id: unreliable
  rules: [REG-05]
  given: {mrs: {mr: {access: [LOCAL_WRITE, $access]}}}
  call: traffic
  sweep:
    axes: {access: [[], [REMOTE_WRITE]], place: [first, last, whole]}
    points: 6
    expect: [{if: REMOTE_WRITE, then: success, rule: REG-05}, {then: refused, rule: REG-05}]
  when: {op: RDMA_WRITE, qp_type: UC, rkey: mr.rkey, addr: buf, position: $place}
"""
UNRELIABLE_ROW = """
- id: unreliable
  rules: [REG-05]
  given: {mrs: {mr: {access: [LOCAL_WRITE, REMOTE_WRITE]}}}
  call: traffic
  when: {op: RDMA_WRITE, qp_type: UC, rkey: mr.rkey, addr: buf}
  then: OUTCOME
"""


def losing(losses: int) -> Device:
    """Returns a reference on which the first `losses` writes to memory have no effect."""
    losses_left = iter(range(losses))

    def put(was: Callable[..., Any], addr: int, content: bytes) -> Any:
        is_lost = content and next(losses_left, None) is not None  # a probe writes no bytes
        return is_lost or was(addr, content)

    return device(put=put)


def test_messages_lost_by_an_unreliable_transport_are_sent_again():
    case = samples.case(UNRELIABLE)
    for losses, verdicts in ((1, {"PASS": 6}), (4, {"PASS": 6}), (99, {"PASS": 3, "FAIL": 3})):
        points = run_on(losing(losses), case).points
        assert points.by_verdict() == verdicts
        tries = {example["observed"].get("tries", 1) for example in points.examples}
        assert max(tries) == {1: 2, 4: 3, 99: 3}[losses]
    failed = next(example for example in points.examples if example["observed"].get("tries") == 3)
    assert "in attempt 3, and nothing arrived in any attempt" in failed["reason"]


@pytest.mark.parametrize(
    "losses, verdict, tries",
    [(0, "PASS", None), (1, "PASS", 2), (2, "PASS", 3), (3, "FAIL", 3)],
)
def test_a_row_over_an_unreliable_transport_counts_its_tries(losses, verdict, tries):
    with closing(ReferenceBench(losing(losses))) as bench:
        done = run_case(
            samples.case(UNRELIABLE_ROW.replace("OUTCOME", "success")),
            on_the_reference(bench),
        )
    assert (done.judgement.verdict, done.observation.get("tries")) == (verdict, tries)
    assert bool(done.judgement.notes) == (tries is not None)


def test_messages_that_must_not_arrive_are_sent_once():
    with closing(ReferenceBench(losing(0))) as bench:
        done = run_case(
            samples.case(UNRELIABLE_ROW.replace("OUTCOME", "refused")),
            on_the_reference(bench),
        )
    assert done.judgement.verdict == Verdict.FAIL
    assert "tries" not in done.observation
    row = UNRELIABLE_ROW.replace("LOCAL_WRITE, REMOTE_WRITE", "LOCAL_WRITE").replace(
        "OUTCOME",
        "refused",
    )
    messages: list[int] = []

    def grants_the_second(was: Callable[..., bool], region: Region, right: int) -> bool:
        messages.append(right)
        return len(messages) > 1 or was(region, right)

    with closing(ReferenceBench(device(allows=grants_the_second))) as bench:
        run = on_the_reference(bench)
        messages.clear()
        done = run_case(samples.case(row), run)
    assert (done.judgement.verdict, len(messages)) == (Verdict.PASS, 1)
