"""Tests of sketches of what a request has moved, and where."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from conformance.model.fault import Fault, FaultKind
from reports.sketch import Lane, sketch_of

WINDOW = "mw: window of type 2, in pd, bound by post_bind_mw(qp=qp, mr=mr, addr=buf + 1 page, length=64, access=REMOTE_READ)"


def lanes_of(fault: Fault, given: Sequence[str]) -> Sequence[Lane]:
    drawn = sketch_of(fault, given)
    assert drawn
    return drawn.lanes


@pytest.mark.parametrize(
    "addr, at, inside",
    [("65 - 8", "+57", 7), ("64", "+64", 0), ("60", "+60", 4)],
)
def test_a_request_across_the_end_of_a_range_is_drawn_where_it_is(addr, at, inside):
    call = f"wire(qp=qp, packets=[op RDMA_READ_REQUEST(length=8, rkey=mw.rkey, addr=buf + 1 page + {addr})])"
    fault = Fault(FaultKind.MOVED, call, operation="RDMA_READ_REQUEST", key="window", outside=True)
    granted, moved = lanes_of(fault, ["buf: memory, anonymous, 4 pages", WINDOW])
    assert granted.words == "64 bytes at 0"
    assert moved.words == f"8 bytes at {at}: {inside} inside and {8 - inside} outside of the range"
    (window,), (block,) = granted.blocks, moved.blocks
    assert (block.left < window.left + window.width - 0.2) is bool(inside)
    assert block.left + block.width == pytest.approx(100, abs=0.2)


def test_a_window_that_the_case_binds_has_the_range_of_its_only_bind():
    bind = "ibv_bind_mw(qp=qp, mw=mw, mr=mr, addr=buf + 1 page, length=64, access=REMOTE_WRITE)"
    call = "traffic(op=RDMA_WRITE, rkey=mw.rkey, addr=buf + 1 page - 1, length=1, poster=wire)"
    fault = Fault(FaultKind.MOVED, call, operation="RDMA_WRITE", key="window", outside=True)
    window = "mw: window of type 1, in pd"
    granted, moved = lanes_of(fault, [window, bind])
    assert granted.words == "64 bytes at 0"
    assert moved.words == "1 byte at -1: 0 inside and 1 outside of the range"
    assert not lanes_of(fault, [window, bind, bind])[1].blocks


def test_a_sketch_says_no_more_than_the_calls():
    """Without numbers, or with several requests in a call, it does not say how many bytes are outside."""
    for call, size in (
        ("traffic(rkey=mw.rkey, addr=other, length=8)", "8 bytes"),
        ("traffic(rkey=mw.rkey, addr=other, length=1)", "1 byte"),
        (
            "wire(packets=[op A(length=8, rkey=mw.rkey, addr=buf), op B(length=9, rkey=mw.rkey)])",
            "the bytes",
        ),
    ):
        fault = Fault(FaultKind.MOVED, call, operation="RDMA_WRITE", key="window", outside=True)
        moved = lanes_of(fault, [WINDOW])[1]
        assert moved.words == f"{size}, not all of them in the range"
        assert not moved.blocks  # where they are is not known


def test_bars_have_a_key_and_what_has_no_numbers_has_no_bar():
    call = "wire(qp=qp, packets=[op RDMA_READ_REQUEST(length=8, rkey=mw.rkey, addr=buf + 1 page + 60)])"
    fault = Fault(FaultKind.MOVED, call, operation="RDMA_READ_REQUEST", key="window", outside=True)
    drawn = sketch_of(fault, [WINDOW])
    assert drawn
    assert drawn.key == {"granted": "granted", "wrong": "must not move"}
    for unmeasured in (replace(fault, outside=False), replace(fault, dead=True)):
        drawn = sketch_of(unmeasured, [WINDOW])
        assert drawn
        assert not drawn.key
        assert all(lane.words and not lane.blocks for lane in drawn.lanes)


@pytest.mark.parametrize(
    "operation, position, moved",
    [
        ("RDMA_WRITE", ", position=first", "1 byte, the first of 200"),
        ("RDMA_WRITE", ", position=across-end", "16 bytes, across the end of the 200"),
        ("ATOMIC_FETCH_AND_ADD", "", "8 bytes, of the 200"),
        ("RDMA_WRITE", "", "200 bytes"),
    ],
)
def test_a_position_is_a_part_of_the_range_of_its_call(operation, position, moved):
    call = f"traffic(op={operation}, rkey=mw.rkey, addr=buf + 1 page + 104, length=200{position})"
    fault = Fault(FaultKind.MOVED, call, operation=operation, key="window")
    assert lanes_of(fault, [WINDOW])[1].words == moved


@pytest.mark.parametrize(
    "ended, decides, words",
    [
        ("ibv_dereg_mr", "rights", "nothing: ibv_dereg_mr has ended it"),
        ("ibv_rereg_mr", "", "nothing: ibv_rereg_mr has ended it"),
        (
            "ibv_rereg_mr",
            "rights",
            "no RDMA_WRITE by this request: ibv_rereg_mr has replaced the rights",
        ),
    ],
)
def test_a_key_that_a_change_may_have_kept_is_not_called_ended(ended, decides, words):
    fault = Fault(
        FaultKind.MOVED,
        "traffic(op=RDMA_WRITE, rkey=mr.old_rkey, addr=buf, length=8)",
        operation="RDMA_WRITE",
        key="region",
        dead=True,
        ended=ended,
        decides=decides,
    )
    assert lanes_of(fault, [])[0].words == words


@pytest.mark.parametrize("decides, end", [("", "its key"), ("rights", "its rights")])
def test_a_request_in_flight_was_allowed_until_its_key_ended(decides, end):
    call = "await_traffic(qp=qp, memory=buf)"
    fault = Fault(FaultKind.MOVED, call, operation="RDMA_READ", key="region", decides=decides)
    race = replace(fault, verb="await_traffic")
    words = [lane.words for lane in lanes_of(race, [])]
    assert words == [f"its range, until the end of {end}", f"bytes after the end of {end}"]


def test_a_position_is_drawn_where_it_is():
    call = "traffic(op=RDMA_WRITE, rkey=mw.rkey, addr=buf + 1 page, length=64, position=after)"
    fault = Fault(FaultKind.MOVED, call, operation="RDMA_WRITE", key="window", outside=True)
    assert lanes_of(fault, [WINDOW])[1].words == (
        "1 byte at +64: 0 inside and 1 outside of the range"
    )
    misplaced = replace(fault, kind=FaultKind.ELSEWHERE, seen=("1 at +5",))
    assert lanes_of(misplaced, [])[0].words == "1 byte at 0"


def test_changed_bytes_in_the_range_are_not_called_right_and_gaps_have_a_key():
    call = "traffic(rkey=mr.rkey, addr=buf, length=2048)"
    for seen, kinds in (
        (("1024 at +8",), {"addressed", "within", "unchanged"}),
        (("2048 at +0",), {"addressed", "within"}),
        (("8 at +2048",), {"addressed", "wrong", "unchanged"}),
    ):
        fault = Fault(FaultKind.OTHER_ARRIVED, call, operation="RDMA_READ", seen=seen)
        drawn = sketch_of(fault)
        assert drawn
        assert {*drawn.key} == kinds
        assert "place" not in " ".join(drawn.key.values())
