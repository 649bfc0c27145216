"""What a device declares and does not have: one violation of a CAP rule each, and what depends on it is unsupported."""

from __future__ import annotations

import errno
from contextlib import closing
from dataclasses import replace

import pytest

from conformance.bench.calls import Pd
from conformance.bench.work_requests import SendRequest
from conformance.execution.claims import absent_on
from conformance.judging import Basis, conclude
from conformance.model.capability import Capabilities, DeviceAttributes, declared_capabilities
from conformance.model.case import QpSpec
from conformance.model.kind import Kind
from conformance.model.observation import Observation
from conformance.model.verdict import Verdict
from conformance.results.rejudge import known_capabilities
from conformance.tables.suite import load_suite
from reference.bench import HeldPair, ReferenceBench
from reference.device import Device
from reference.queues import Queue
from reference.stack import without
from samples import case, header, result
from trial.running import on_reference

CLAIMED = ("mw_type_1", "mw_type_2", "xrc", "atomics", "odp", "odp_implicit", "flush_global", "immediate_data")


def claiming(*names: str) -> Device:
    """A reference that declares these capabilities and lacks them."""
    return Device(replace(without(*names), claims=frozenset(names)))


def absent(device: Device) -> dict[str, str]:
    with closing(ReferenceBench(device)) as bench:
        before = bench.resources()
        found = absent_on(bench, device.stack.declared)
        assert bench.resources() == before
        return found


def test_nothing_is_absent_on_a_device_that_has_what_it_declares() -> None:
    assert absent(Device()) == {}


@pytest.mark.parametrize("name", CLAIMED)
def test_what_is_declared_and_absent_is_found(name: str) -> None:
    assert name in absent(claiming(name))
    assert name not in absent(Device(without(name)))  # what is not declared is not claimed


def test_what_goes_wrong_otherwise_is_for_the_cases() -> None:
    class OutOfMemory(Device):
        def alloc_mw(self, pd: int, kind: int) -> object:  # type: ignore[override]
            raise self.refusal(errno.ENOMEM)

        def refusal(self, code: int) -> Exception:
            from reference.objects import Refused

            return Refused(code)

        def carry_out(self, queue: Queue, request: SendRequest) -> str:
            return "REM_ACCESS_ERR"

    assert absent(OutOfMemory()) == {}


def test_a_pair_that_cannot_be_connected_is_not_absent() -> None:
    class Bench(ReferenceBench):
        def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> HeldPair:
            from conformance.errors import NotConnected

            raise NotConnected(errno.EINVAL, "ibv_modify_qp")

    with closing(Bench()) as bench:
        assert absent_on(bench, {"xrc": True}) == {}


def test_each_claim_fails_its_own_rule_and_nothing_else() -> None:
    rows = [case for case in load_suite().cases if case.kind is Kind.ROW]
    found = list(on_reference(rows, only=claiming(*CLAIMED).stack))
    wrong = [each for each in found if each[1].verdict not in (Verdict.PASS, Verdict.UNSUPPORTED, Verdict.UNREACHABLE)]
    assert {rule for case, _ in wrong for rule in case.rules} == {f"CAP-0{number}" for number in (*range(1, 7), 8, 9)}
    assert {judgement.verdict for _, judgement in wrong} == {Verdict.FAIL}
    resting = [each.reason for _, each in found if "declares mw_type_1 and does not have it" in each.reason]
    assert len(resting) > 50


def test_a_case_about_declarations_is_judged_by_what_is_declared() -> None:
    window = "{rules: [%s], needs: [mw_type_1], call: ibv_alloc_mw, when: {type: 1}, then: success}"
    seen: Observation = {"rc": None, "returned": "NULL", "errno": "EOPNOTSUPP", "layer": "kernel"}
    basis = Basis(Capabilities({"mw_type_1": True}, {}, {}, {"mw_type_1": "it was refused"}))
    verdicts = [conclude(case(window % rule), basis, seen).judgement.verdict for rule in ("CAP-01", "BIND-16")]
    assert verdicts == [Verdict.FAIL, Verdict.UNSUPPORTED]


def test_what_was_absent_is_known_when_a_run_is_judged_again() -> None:
    from conformance.results.records import Recorded

    first = header()
    first["device"]["caps"] = {"mw_type_1": True, "odp": False}
    line = result(case("{rules: [REG-01], when: {access: []}, then: success}"))
    line["observed"] = {"lacking": ["mw_type_1", "odp", "rc"]}
    line["entry"] = "libibverbs"
    known = known_capabilities(Recorded(first, [line]))
    assert known.undeclared(["mw_type_1", "odp", "rc", "uc"], "libibverbs") == ["mw_type_1", "odp", "rc"]
    assert set(known.absent) == {"mw_type_1"}


def test_atomics_on_demand_are_declared_for_the_transport_and_not_in_general() -> None:
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b01111))["odp_atomic"] is False
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b11111))["odp_atomic"] is True


def test_an_entry_whose_commands_need_the_drivers_part_cannot_be_judged() -> None:
    capabilities = Capabilities({}, {}, {"raw_registration": False})
    assert "driver" in capabilities.unreachable([], "uverbs")
    assert capabilities.unreachable([], "libibverbs") == ""
    assert Capabilities({}, {}, {"raw_registration": True}).unreachable([], "uverbs") == ""
