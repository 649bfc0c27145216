"""Columns for many points: columns of arguments have the arguments of each point, and columns of bytes are combined
correctly."""

from array import array
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

import samples
from conformance.execution.context import CaseContext
from conformance.execution.procedure import set_up
from conformance.sweeps.argument_columns import Columns
from conformance.sweeps.byte_columns import byte_planes, combinations, distinct
from conformance.sweeps.grouping import PointTemplate, groups, setup_axes
from reference.bench import ReferenceBench

ROW = """
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
WHOLE = ROW.replace('    where: "!MW_BIND | plus!=1"\n', "").replace("120", "144")


@pytest.mark.parametrize("row", [ROW, WHOLE], ids=["with a constraint", "whole"])
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("outer", [[], ["plus"], ["access"], ["access", "plus", "more"]], ids="+".join)
def test_columns_hold_what_the_row_has_at_each_point(row: str, seed: int | None, outer: list[str]) -> None:
    case = samples.suite([samples.table("reg_mr/sample", row)]).cases[0]
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
                made = {key: columns.column(argument, group.inner_points) for key, argument in varying.items()}
                for place, point in enumerate(group.points):
                    step = point_template.case(point).when
                    found = {key: each if isinstance(each, int) else each[place] for key, each in made.items()}
                    assert found == {key: context.number(step.arguments[key]) for key in varying}
                points += len(group.points)
            assert points == swept.size


_COLUMNS = st.integers(0, 60).flatmap(
    lambda size: st.lists(st.binary(min_size=size, max_size=size), min_size=1, max_size=4)
)


@given(_COLUMNS)
def test_a_kind_is_what_all_columns_have_at_a_place(columns: list[bytes]) -> None:
    found, wanted = combinations(columns), list(zip(*columns, strict=True))
    assert [found.values[number] for number in found.ids] == wanted
    assert list(found.values) == list(dict.fromkeys(wanted))
    assert [found.first(kind) for kind in range(len(found.values))] == [wanted.index(each) for each in found.values]
    assert found.renumbered(range(0, 65536, 200)[: len(found.values)]).tolist() == [200 * each for each in found.ids]


def test_more_kinds_than_a_byte_holds_are_distinguished_too() -> None:
    columns = [bytes(range(256)) * 2, bytes(256) + bytes([1] * 256)]
    found = combinations(columns)
    assert len(found.values) == 512
    assert found.renumbered(range(512)).tolist() == list(range(512))


def test_words_are_taken_apart_into_low_and_high_bytes() -> None:
    assert byte_planes(array("H", [1, 0x203, 0xFFFF])) == [b"\1\3\xff", b"\0\2\xff"]
    assert distinct(b"abba c") == b"ab c"
