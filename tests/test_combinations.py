"""Tests the model of an access: that its stored arrays cover what the model permits, that the reference passes each
point, that a device with a defect does not, and that deviations are explained by the values that cause them."""

import itertools
import random
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from conformance.combinations.explanation import explained
from conformance.combinations.run import observe
from conformance.errors import UserError
from conformance.execution.runner import no_progress
from conformance.judging.combinations import Judged
from conformance.model.combinations import Conditions, CoveringArray, Point
from conformance.model.verdict import Verdict
from conformance.tables.suite import load_suite
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.objects import REMOTE_READ, Region


def array(name: str) -> CoveringArray:
    case = load_suite().find(f"access/model/{name}")
    assert case is not None
    assert case.array is not None
    return case.array


PAIRS = array("pairs")


def judged(device: type[Device], points: CoveringArray = PAIRS) -> Judged:
    with closing(ReferenceBench(device())) as bench:
        seen = observe(points, bench, lambda name: True, no_progress)
    return Judged(points, seen["combinations"])


@pytest.mark.parametrize(("name", "strength"), [("pairs", 2), ("triples", 3)])
def test_each_combination_of_a_valid_point_occurs_in_the_stored_array(
    name: str,
    strength: int,
) -> None:
    points = array(name)
    covered = {
        (chosen, tuple(point[number] for number in chosen))
        for point in points.points
        for chosen in itertools.combinations(range(len(point)), strength)
    }
    conditions = Conditions(points.model)
    for point in _valid_points(points, conditions):
        for chosen in itertools.combinations(range(len(point)), strength):
            assert (chosen, tuple(point[number] for number in chosen)) in covered


def _valid_points(points: CoveringArray, conditions: Conditions) -> list[Point]:
    """Returns points that are not in the array: stored points with a few values drawn anew."""
    chance, found = random.Random(7), list[Point]()
    while len(found) < 300:
        point = list(chance.choice(points.points))
        for number in chance.sample(range(len(point)), 4):
            point[number] = chance.choice(points.model.parameters[number].labels)
        if conditions.valid(tuple(point)) and tuple(point) not in points.points:
            found.append(tuple(point))
    return found


def test_the_reference_passes_every_point() -> None:
    found = judged(Device)
    assert found.verdicts == {Verdict.PASS: len(PAIRS.points)}
    assert set(found.rules.values()) == {Verdict.PASS}


class _GrantsReading(Device):
    """On-demand regions grant REMOTE_READ to everybody."""

    def allows(self, region: Region, right: int) -> bool:
        return right == REMOTE_READ or super().allows(region, right)


class _LosesImmediate(Device):
    """Over UC, the completion of a receive has no immediate data."""

    def complete_receive(self, peer: Any, done: Any) -> None:
        super().complete_receive(peer, done._replace(imm=None) if peer.kind == "UC" else done)


def test_a_right_that_is_not_enforced_violates_the_rule_of_the_right() -> None:
    found = judged(_GrantsReading)
    violated = {rule for rule, verdict in found.rules.items() if verdict != Verdict.PASS}
    assert violated
    assert violated <= {"REG-06", "REREG-03"}


def test_a_deviation_is_explained_by_the_values_that_cause_it() -> None:
    points = array("triples")
    found = judged(_LosesImmediate, points)
    (group,) = found.groups.values()
    formula = explained(points.model, group.points, found.passed["fields", "WC-01"])
    assert "transport=UC" in formula
    assert "operation=" in formula
    assert "place=" not in formula


class _SendsPacketsBeforeTheFault(Device):
    """The packets before the byte that is out of range are sent, as a device may that checks each packet."""

    packet = 1024

    def write(self, queue: Any, request: Any) -> str:
        status = super().write(queue, request)
        if status == "LOC_PROT_ERR" and len(request.sges) == 1:
            (sge,) = request.sges
            short = sge._replace(length=max(sge.length - self.packet, 0))
            if content := self.gather(queue, [short]):
                self.memory.write(request.remote_addr, content)
        return status


def test_what_the_key_opens_may_be_sent_before_the_fault() -> None:
    assert set(judged(_SendsPacketsBeforeTheFault, array("triples")).verdicts) == {Verdict.PASS}


def test_a_point_is_selected_by_its_values_and_others_have_no_answer() -> None:
    suite, model = load_suite(), PAIRS.model
    case = suite.find(f"access/model/pairs#{model.text(PAIRS.points[5])}")
    assert case is not None
    assert case.array is not None
    assert case.array.points == (PAIRS.points[5],)
    with pytest.raises(UserError, match="there is no answer"):
        suite.find("access/model/pairs#operation=RDMA_READ,size=several,place=page")
    with pytest.raises(UserError, match="no value 'RDMA_REED'"):
        suite.find("access/model/pairs#operation=RDMA_REED")


def test_recorded_points_of_another_model_are_judged_by_their_recorded_answers() -> None:
    from conformance.judging.combinations import fault_at_points

    with closing(ReferenceBench(_LosesImmediate())) as bench:
        seen = observe(PAIRS, bench, lambda name: True, no_progress)["combinations"]
    other = replace(PAIRS, model=replace(PAIRS.model, digest="another"))
    fault = fault_at_points(other, seen)
    assert fault is not None
    assert fault.kind == "wrong-immediate"
