"""Tests of the points of a sweep: the case of a point equals the case of a row with the point's values, columns have
the arguments of each point, and columns of bytes are combined correctly."""

from __future__ import annotations

import pickle
from array import array
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samples
from conformance.execution.context import CaseContext
from conformance.execution.procedure import set_up
from conformance.model.case import Case, format_argument
from conformance.model.row_template import FlagsUnion
from conformance.older_python import zip
from conformance.sweeps.argument_columns import Columns
from conformance.sweeps.byte_columns import byte_planes, combinations, distinct
from conformance.sweeps.grouping import PointTemplate, groups, setup_axes
from trial.reference.bench import ReferenceBench

AXES = {
    "size": "[1 page, 3 pages]",
    "access": "[[], [REMOTE_READ], [MW_BIND], [REMOTE_READ, MW_BIND]]",
    "plus": "[0, 64]",
    "more": "[[], [ON_DEMAND, bit 30]]",
    "register": "[ibv_reg_mr, ibv_reg_mr_iova]",
    "window": "[1, 2]",
    "op": "[RDMA_WRITE, RDMA_READ]",
    "because": "[memory, queue_pair]",
}
POINTS = 2**9
ROW = """
- id: sample
  rules: [REG-17]
  AXES
  given:
    memory: {second: {kind: shared, size: $size}}
    pds: [other]
    mrs:
      one: {addr: buf + $plus, access: [$more, LOCAL_WRITE, $access]}
      two: {call: $register, pd: other, access: $more}
    qps:
      qp: {type: RC, access: [LOCAL_WRITE, $access]}
      other_qp: {type: RC, state: INIT, sq_sig_all: true, pd: other, access: [bit 2$window]}
    windows:
      mw: {type: 1, bound: {mr: one, addr: buf + $plus, access: $access}}
      other_mw: {type: $window}
    memlock: 1 MiB + $size
  before:
    - {call: ibv_reg_mr, addr: second + $plus, access: $access}
    - {call: traffic, op: $op, via: qp, rkey: new.rkey, addr: buf + $plus}
  when: {addr: buf + $plus, length: $size - $plus, access: [$access, RELAXED_ORDERING, $more]}
  THEN
  afterwards:
    - {call: traffic, op: $op, rkey: new.rkey, addr: buf + $plus, then: {outcome: refused, because: $because}}
"""
SMALL = """
- id: sample
  rules: [REG-17]
  sweep:
    axes: {AXES}
    WHERE
    points: POINTS
    expect: [{then: open, rule: REG-17}]
  given: {mrs: {mr: {access: []}}}
  when: {WHEN}
"""


def small(axes: str, when: str, points: int | str, where: str = "") -> Case:
    row = SMALL.replace("AXES", axes).replace("WHEN", when).replace("POINTS", str(points))
    return samples.case(row.replace("    WHERE\n", f"    where: {where!r}\n" if where else ""))


def cases_of_points(case: Case) -> dict[int, Case]:
    assert case.sweep is not None
    template, inside = PointTemplate(case, case.sweep), case.sweep.space.bytes_of(case.sweep.inside)
    return {point: template.case(point) for point, here in enumerate(inside) if here}


def parts(case: Case) -> tuple[object, ...]:
    """Returns the set-up and the calls of a case, without the expectation of its judged call."""
    return case.given, case.before, case.when.call, case.when.arguments, case.afterwards


@pytest.mark.parametrize(
    "access",
    [AXES["access"], "{subsets of: [REMOTE_READ, MW_BIND]}"],
    ids=["listed", "subsets"],
)
def test_a_point_has_the_set_up_and_the_calls_of_a_row_with_its_values(access):
    swept_axes = ", ".join(
        f"{name}: {values}" for name, values in {**AXES, "access": access}.items()
    )
    sweep = f"sweep: {{axes: {{{swept_axes}}}, points: {POINTS}, expect: [{{then: open, rule: REG-17}}]}}"
    axis = ", ".join(f"{name}: {values}" for name, values in AXES.items())
    ids = "-".join(f"${name}" for name in AXES)
    rows = (
        ROW.replace("AXES", f"each: {{{axis}}}")
        .replace("THEN", "then: open")
        .replace("sample", ids)
    )
    swept = samples.case(ROW.replace("AXES", sweep).replace("  THEN\n", ""))
    cases = samples.table("reg_mr/sample", rows, POINTS).cases[:POINTS]  # copies follow
    cases_here = cases_of_points(swept)
    assert list(map(parts, cases_here.values())) == list(map(parts, cases))
    assert swept.sweep is not None
    for point in range(0, POINTS, 37):
        single = swept.sweep.point_case(swept, swept.sweep.space.text(point))
        assert parts(single) == parts(cases[point])


def test_subsets_of_flags_are_stored_by_flag_and_not_by_subset():
    case = small(
        "a: {subsets of: ibv_access_flags}, b: {unknown bits of: ibv_access_flags}",
        "access: [$a, $b]",
        "unknown bits of ibv_access_flags * subsets of ibv_access_flags",
    )
    assert case.sweep is not None
    access = case.sweep.row.when.arguments["access"]
    assert isinstance(access, FlagsUnion)
    assert len(pickle.dumps(access)) < 4096


def test_values_that_no_point_combines_need_not_be_compatible():
    case = small(
        "a: {subsets of: [MW_BIND, REMOTE_READ]}, b: {subsets of: [MW_BIND, LOCAL_WRITE]}",
        "access: [$a, $b]",
        12,
        "!(a.MW_BIND & b.MW_BIND)",
    )
    names = [
        str(point.when.arguments["access"]).split("|") for point in cases_of_points(case).values()
    ]
    assert len(names) == 12
    assert all(len(set(name)) == len(name) for name in names)
    sums_of = small(
        "of: [buf, mr], part: [addr, size]",
        "addr: $of.$part, length: 1, access: []",
        3,
        "of=buf | part=addr",
    )
    sums = [
        format_argument(point.when.arguments["addr"]) for point in cases_of_points(sums_of).values()
    ]
    assert sums == ["buf.addr", "buf.size", "mr.addr"]


COLUMNS = """
- id: space
  rules: [REG-17]
  sweep:
    axes:
      access: {subsets of: [REMOTE_READ, MW_BIND, RELAXED_ORDERING]}
      plus: [0, 1, 2]
      more: {none: [], unknown: [bit 30], two: [bit 30, REMOTE_ATOMIC]}
      minus: [1, 1 page]
    where: "!MW_BIND | plus!=1"
    points: 120
    expect: [{then: open, rule: REG-17}]
  when: {addr: buf + $plus, length: 1 page + $plus - $minus, access: [LOCAL_WRITE, $access, $more]}
"""
WHOLE = COLUMNS.replace('    where: "!MW_BIND | plus!=1"\n', "").replace("120", "144")


@pytest.mark.parametrize("row", [COLUMNS, WHOLE], ids=["with a constraint", "whole"])
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    "outer",
    [[], ["plus"], ["access"], ["access", "plus", "more"]],
    ids="+".join,
)
def test_columns_have_the_arguments_of_the_row_at_each_point(row, seed, outer):
    case = samples.case(row)
    swept = case.sweep
    assert swept is not None
    assert not setup_axes(swept)
    varying, point_template = swept.row.when.arguments, PointTemplate(case, swept)
    assert set(varying) == {"addr", "length", "access"}
    with closing(ReferenceBench()) as bench:
        context = CaseContext(case, bench)
        with context.cleanup:
            set_up(context)
            points = 0
            for group in groups(swept, outer, seed, 10):
                values = swept.space.values(group.points[0])
                columns = Columns(swept.space, {axis: values[axis] for axis in outer}, context)
                columns_made = {
                    key: columns.column(argument, group.inner_points)
                    for key, argument in varying.items()
                }
                for place, point in enumerate(group.points):
                    step = point_template.case(point).when
                    column = {
                        key: arguments if isinstance(arguments, int) else arguments[place]
                        for key, arguments in columns_made.items()
                    }
                    assert column == {key: context.number(step.arguments[key]) for key in varying}
                points += len(group.points)
            assert points == swept.size


BYTES = st.integers(0, 60).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=4),
)


@given(BYTES)
def test_a_combination_has_the_bytes_of_all_columns_at_a_place(columns):
    combined, expected = combinations(columns), list(zip(*columns, strict=True))
    assert [combined.values[number] for number in combined.ids] == expected
    assert list(combined.values) == list(dict.fromkeys(expected))
    assert [combined.first(id_) for id_ in range(len(combined.values))] == [
        expected.index(value) for value in combined.values
    ]
    assert combined.renumbered(range(0, 65536, 200)[: len(combined.values)]).tolist() == [
        200 * number for number in combined.ids
    ]


def test_more_than_256_combinations_are_distinguished():
    columns = [bytes(range(256)) * 2, bytes(256) + bytes([1] * 256)]
    combined = combinations(columns)
    assert len(combined.values) == 512
    assert combined.renumbered(range(512)).tolist() == list(range(512))


def test_words_are_split_into_low_and_high_bytes():
    assert byte_planes(array("H", [1, 0x203, 0xFFFF])) == [b"\1\3\xff", b"\0\2\xff"]
    assert distinct(b"abba c") == b"ab c"
