"""Tests of what depends on the transport: data that are lost or late, capabilities that are not declared, and the rows that
need immediate data."""

from typing import cast

import pytest

from conformance.defects import Severity
from conformance.defects.severity import severity_of_fault
from conformance.execution.traffic import is_lost
from conformance.judging import judge
from conformance.model.case import Case
from conformance.model.declared import DeviceAttributes, declared_capabilities
from conformance.model.needs import need_on_demand
from conformance.model.observation import Observation
from conformance.model.script import Event
from conformance.model.transport import INFINIBAND, IWARP, ROCE
from conformance.model.vocabulary import WIRE
from conformance.tables.suite import load_suite
from samples import case


@pytest.mark.parametrize(
    "reported, severity",
    [(64, Severity.MEMORY), (40, Severity.VALID_REFUSED)],
)
def test_missing_data_of_a_completed_receive_are_misplaced_or_lost(reported, severity):
    """A receive completion of another length belongs to the next message, and the expected message was lost."""
    when = "op: RECV, qp_type: UD, lkey: mr.lkey, addr: buf, length: 64"
    set_up = "mrs: {mr: {access: [LOCAL_WRITE]}}"
    of = case(
        f"{{rules: [REG-05], given: {{{set_up}}}, call: local_traffic, when: {{{when}}}, then: success}}",
    )
    observed = Observation(
        rc=0,
        returned="0",
        errno="",
        layer="device",
        wc=["SUCCESS"],
        qp_type="UD",
        side="receive",
    )
    observed |= {"moved": "nothing", "changed": [[0, 27]], "byte_len": [reported, 64]}
    judged = judge(of, [], observed)
    assert judged.fault
    assert severity_of_fault(judged.fault) is severity
    assert ("not in their place (misplaced or lost); bytes changed: 27 at +0" in judged.reason) is (
        reported == 64
    )
    assert is_lost(observed) is (reported != 64)


@pytest.mark.parametrize(
    "opcode",
    ["SEND", "RDMA_WRITE", "RDMA_READ", "ATOMIC_FETCH_AND_ADD", "FLUSH_GLOBAL"],
)
def test_only_requests_without_a_response_are_unacknowledged_and_only_on_iwarp(opcode):
    assert IWARP.acknowledges(opcode) == (opcode not in ("SEND", "RDMA_WRITE"))
    assert INFINIBAND.acknowledges(opcode)
    assert ROCE.acknowledges(opcode)


def test_capabilities_that_a_transport_lacks_are_not_declared():
    attributes = DeviceAttributes(0, 0, 0, 0)
    lacking = {name for name, has in declared_capabilities(attributes, ROCE).items() if has}
    assert lacking - {
        name for name, has in declared_capabilities(attributes, IWARP).items() if has
    } == {
        "immediate_data",
        "send_immediate_data",
        "iba_statuses",
        "read_sinks",
    }


def test_on_demand_memory_is_declared_for_each_transport():
    """The masks are those of rxe, which declares no operation for UC."""
    attributes = DeviceAttributes(0, 0, 1, 0xFF, odp_uc_caps=0, odp_ud_caps=0x23, odp_xrc_caps=0x29)
    caps = declared_capabilities(attributes)
    assert {name for name, there in caps.items() if name.startswith("odp_") and there} == {
        *("odp_send", "odp_recv", "odp_write", "odp_read", "odp_atomic", "odp_srq_recv"),
        *("odp_flush", "odp_atomic_write", "odp_ud_send", "odp_ud_recv"),
        *("odp_xrc_send", "odp_xrc_read", "odp_xrc_srq_recv"),
    }
    assert need_on_demand("traffic", "RDMA_WRITE", "UC") == "odp_uc_write"
    assert need_on_demand("traffic", "RDMA_READ", "UC") is None
    assert need_on_demand("local_traffic", "RECV", "XRC") == "odp_xrc_srq_recv"
    assert need_on_demand("local_traffic", "RECV", "RC_SRQ") == "odp_srq_recv"


@pytest.mark.parametrize(
    "elements, declared",
    [(0, True), (1, False), (2, False), (3, True), (32, True)],
)
def test_lists_of_reads_need_as_many_elements_as_the_tables_use(elements, declared):
    assert declared_capabilities(DeviceAttributes(0, 0, 0, 0, elements))["read_lists"] is declared
    assert (
        declared_capabilities(DeviceAttributes(0, 0, 0, 0, max_sge=elements))["lists"] is declared
    )


NEEDS = {"immediate_data", "send_immediate_data"}


OF_SEVERAL_MESSAGES = {"immediates_in_order", "receives_in_turn"}  # calls that send immediate data


def sends_immediates(row: Case) -> bool:
    if row.when.call == WIRE:  # other packets are made by the suite itself
        events = cast("tuple[Event, ...]", row.when.arguments["packets"])
        return any("WITH_IMM" in event.word for event in events if event.kind == "post")
    steps = (row.when, *row.afterwards)
    return any("WITH_IMM" in str(step) or step.call in OF_SEVERAL_MESSAGES for step in steps)


def test_every_row_and_point_with_immediate_data_needs_this_capability():
    cases = load_suite().cases
    rows = [case for case in cases if case.sweep is None]
    using = {row.id for row in rows if sends_immediates(row)}
    assert using
    assert using == {row.id for row in rows if not NEEDS.isdisjoint(row.needs)}
    sweeps = [case.sweep for case in cases if case.sweep]
    with_axis = []
    for sweep in sweeps:
        if any("RDMA_WRITE_WITH_IMM" in axis.labels for axis in sweep.space.axes):
            with_axis.append(sweep)
    assert with_axis
    for sweep in with_axis:
        masks, names = sweep.undeclared(lambda name: name not in NEEDS)
        assert set(names) <= NEEDS
        for point, mask in enumerate(masks):
            if sweep.inside >> 8 * point & 1:
                assert bool(mask) == ("WITH_IMM" in sweep.space.text(point))
