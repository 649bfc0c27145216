"""Transports that do not acknowledge: SUCCESS says that a request was sent, and the bytes say what became of it."""

from typing import Any

import pytest

from conformance.judging import judge
from conformance.model.capability import DeviceAttributes, declared_capabilities, need_on_demand
from conformance.model.observation import Observation
from conformance.model.transport import INFINIBAND, IWARP, ROCE
from conformance.model.verdict import Verdict
from conformance.tables.suite import load_suite
from samples import case

RANGE = "memory: {buf: {kind: anonymous, size: 4 pages}}, mrs: {mr: {access: [LOCAL_WRITE]}}"


def traffic(expected: str, op: str = "RDMA_WRITE", position: str = "whole") -> Any:
    """A peer's operation on a region."""
    return case(
        f"""
        - id: traffic
          rules: [REG-05]
          given: {{{RANGE}}}
          call: traffic
          when: {{op: {op}, rkey: mr.rkey, addr: buf, length: 200, position: {position}}}
          then: {expected}
        """
    )


def seen(moved: str, wc: str = "SUCCESS", changed: tuple[tuple[int, int], ...] = (), **more: Any) -> Observation:
    """What was observed of it, on iWARP unless `more` says otherwise."""
    found: Any = {
        "rc": 0,
        "returned": "0",
        "errno": "",
        "layer": "device",
        "wc": [wc],
        "qp_type": "RC",
        "side": "remote",
        "unacknowledged": True,
        "moved": moved,
        "changed": [list(each) for each in changed],
        **more,
    }
    observation: Observation = found
    return observation


def verdict(of: Any, observed: Observation) -> str:
    return judge(of, [], observed).verdict


def test_a_write_that_was_sent_and_not_done_is_refused_whatever_its_status() -> None:
    refused = traffic("refused")
    assert verdict(refused, seen("nothing")) == Verdict.PASS
    assert verdict(refused, seen("nothing", peer_wc=["WR_FLUSH_ERR"])) == Verdict.PASS
    assert verdict(refused, seen("nothing", "WR_FLUSH_ERR", peer_wc=[])) == Verdict.PASS
    assert "and nothing arrived" in judge(refused, [], seen("nothing")).reason


def test_what_was_to_arrive_and_did_not_fails_although_it_was_sent() -> None:
    assert verdict(traffic("success"), seen("nothing")) == Verdict.FAIL
    assert verdict(traffic("success"), seen("part", changed=((0, 100),))) == Verdict.FAIL
    assert verdict(traffic("success"), seen("all", changed=((0, 200),))) == Verdict.PASS


def test_where_success_acknowledges_a_write_it_must_have_been_done() -> None:
    assert verdict(traffic("refused"), seen("nothing", unacknowledged=False)) == Verdict.FAIL
    read = traffic("refused", op="RDMA_READ")
    assert verdict(read, seen("nothing", unacknowledged=not IWARP.acknowledges("RDMA_READ"))) == Verdict.FAIL


@pytest.mark.parametrize(
    ("moved", "changed", "position", "expected"),
    [
        ("part", ((0, 128),), "whole", Verdict.PASS),  # the segments before the refused one
        ("all", ((0, 200),), "whole", Verdict.FAIL),
        ("part", ((64, 136),), "whole", Verdict.FAIL),
        ("part", ((0, 64), (128, 8)), "whole", Verdict.FAIL),
        ("part", ((0, 8),), "across-start", Verdict.FAIL),
        ("nothing", ((-8, 8),), "whole", Verdict.FAIL),
    ],
)
def test_of_a_refused_message_only_its_beginning_may_be_there(
    moved: str, changed: tuple[tuple[int, int], ...], position: str, expected: Verdict
) -> None:
    for status in ("SUCCESS", "LOC_QP_OP_ERR"):  # the refusal may come before all has been sent
        assert verdict(traffic("refused", position=position), seen(moved, status, changed)) == expected
    acknowledged = seen(moved, "REM_ACCESS_ERR", changed, unacknowledged=False)
    assert verdict(traffic("refused", position=position), acknowledged) == Verdict.FAIL


@pytest.mark.parametrize("opcode", ["SEND", "RDMA_WRITE", "RDMA_READ", "ATOMIC_FETCH_AND_ADD", "FLUSH_GLOBAL"])
def test_only_what_has_no_answer_of_its_own_goes_unacknowledged_and_only_on_iwarp(opcode: str) -> None:
    assert IWARP.acknowledges(opcode) == (opcode not in ("SEND", "RDMA_WRITE"))
    assert INFINIBAND.acknowledges(opcode)
    assert ROCE.acknowledges(opcode)


def test_what_a_transport_lacks_is_not_declared() -> None:
    attributes = DeviceAttributes(0, 0, 0, 0)
    lacking = {name for name, has in declared_capabilities(attributes, ROCE).items() if has}
    assert lacking - {name for name, has in declared_capabilities(attributes, IWARP).items() if has} == {
        "immediate_data",
        "iba_statuses",
        "read_sinks",
    }


def test_on_demand_memory_is_declared_for_each_transport() -> None:
    """The masks of rxe, which declares nothing for UC."""
    caps = declared_capabilities(DeviceAttributes(0, 0, 1, 0xFF, odp_uc_caps=0, odp_ud_caps=0x23))
    assert {name for name, there in caps.items() if name.startswith("odp_") and there} == {
        *("odp_send", "odp_recv", "odp_write", "odp_read", "odp_atomic", "odp_srq_recv"),
        *("odp_flush", "odp_atomic_write", "odp_ud_send", "odp_ud_recv"),
    }
    assert need_on_demand("traffic", "RDMA_WRITE", "UC") == "odp_uc_write"
    assert need_on_demand("local_traffic", "RECV", "XRC") == "odp_xrc_srq_recv"


def test_what_is_declared_over_xrc_is_told_apart() -> None:
    caps = declared_capabilities(DeviceAttributes(0, 0, 1, 0xFF, odp_xrc_caps=0x29))
    declared = {name for name, value in caps.items() if name.startswith("odp_xrc_") and value}
    assert declared == {"odp_xrc_send", "odp_xrc_read", "odp_xrc_srq_recv"}
    assert need_on_demand("traffic", "RDMA_READ", "UC") is None
    assert need_on_demand("local_traffic", "RECV", "RC_SRQ") == "odp_srq_recv"


@pytest.mark.parametrize(("elements", "declared"), [(0, True), (1, False), (2, False), (3, True), (32, True)])
def test_lists_of_reads_need_as_many_elements_as_the_tables_use(elements: int, declared: bool) -> None:
    assert declared_capabilities(DeviceAttributes(0, 0, 0, 0, elements))["read_lists"] is declared
    assert declared_capabilities(DeviceAttributes(0, 0, 0, 0, max_sge=elements))["lists"] is declared


def test_every_row_with_immediate_data_needs_it_without_saying_so() -> None:
    cases = load_suite().cases
    rows = [each for each in cases if each.sweep is None]
    using = {
        each.id
        for each in rows
        if any("WITH_IMM" in str(step) or step.call == "immediates_in_order" for step in (each.when, *each.afterwards))
    }
    assert using
    assert using == {each.id for each in rows if "immediate_data" in each.needs}
    sweeps = [each.sweep for each in cases if each.sweep]
    with_axis = [sweep for sweep in sweeps if any("RDMA_WRITE_WITH_IMM" in axis.labels for axis in sweep.space.axes)]
    assert with_axis
    for sweep in with_axis:
        masks, names = sweep.undeclared(lambda name: name != "immediate_data")
        assert names == ("immediate_data",)
        for point, mask in enumerate(masks):
            if sweep.inside >> 8 * point & 1:
                assert bool(mask) == ("WITH_IMM" in sweep.space.text(point))
