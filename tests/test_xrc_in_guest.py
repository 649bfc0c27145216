"""Tests the suite's code for XRC in the guest, on a library that offers XRC over RC (xrc_over_rc.c): queue pairs, shared
receive queues and domains are pyverbs' objects, and Soft-RoCE transfers the bytes."""

from typing import Any

import pytest

import bad_driver
from conformance.model.case import Case
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from kinds import Folders
from own_guest import told_by

_XRC = "XRC"


def _uses_xrc(case: Case) -> bool:
    steps = case.steps
    kinds = [str(step.arguments.get("qp_type", "")) for step in steps]
    kinds += [queue.kind for queue in case.given.qps.values()]
    return "xrc" in case.needs or any(kind.startswith(_XRC) for kind in kinds)


def _points(case: Case) -> int:
    """Returns the number of points of a sweep that use XRC."""
    assert case.sweep is not None
    space = case.sweep.space
    inside = space.bytes_of(case.sweep.inside)
    return sum(_XRC in space.text(point) for point, flag in enumerate(inside) if flag)


def cases() -> list[Case]:
    plan = of_tier(load_suite().cases, DEFAULT)
    rows = [case for case in plan if not case.sweep and _uses_xrc(case)]
    return [*rows, *(case for case in plan if case.sweep and _points(case))]


def test_all_points_of_xrc_are_in_few_spaces():
    spaces = [case for case in cases() if case.sweep]
    assert sum(map(_points, spaces)) == 360
    assert len(cases()) - len(spaces) >= 11


@pytest.fixture(scope="module")
def seen(tmp_path_factory: Folders) -> Any:
    place = tmp_path_factory.mktemp("xrc")
    files = [(bad_driver.library(place / "preload.so", "xrc_over_rc.c"), "preload.so")]
    ids = [case.id for case in cases()]
    settings = "LD_PRELOAD=/suite/preload.so"
    return told_by("xrc_in_guest.py", place, *ids, files=files, settings=settings)


@pytest.mark.guest
@pytest.mark.nightly
def test_every_row_and_point_of_xrc_passes_over_rc(seen):
    print(seen["said"], seen["reasons"])
    assert set(seen["verdicts"]) == {case.id for case in cases()}
    deviating = [deviation["when"] for some in seen["deviations"].values() for deviation in some]
    assert [when for when in deviating if _XRC in when] == []
    rows = {case.id for case in cases() if not case.sweep}
    assert {case: seen["verdicts"][case] for case in rows} == dict.fromkeys(rows, "PASS")
