"""Counting the resources of a process: where the counts are read, which are omitted, and what counts as leaked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.judging import judge
from conformance.kernel import resources
from conformance.kernel.resources import (
    LOCKED,
    OTHERS,
    PAGES,
    PINNED,
    ResourceCounter,
    count_when_settled,
    kept,
    leaked,
    resource_evidence,
)
from conformance.model.observation import Observation
from samples import case

STATUS = "Name:\tpython3\nVmLck:\t       4 kB\nVmPin:\t      16 kB\n"


class Netlink:
    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def count(self) -> dict[str, int]:
        return dict(self.counts)


@pytest.fixture
def system(tmp_path: Path) -> Path:
    for name, text in (
        ("proc/self/status", STATUS),
        ("proc/self/cgroup", "12:rdma:/\n0::/cases\n"),
        ("proc/vmstat", "nr_foll_pin_acquired 12\nnr_foll_pin_released 5\n"),
        ("proc/sys/vm/stat_refresh", ""),
        ("cgroup/cases/rdma.current", "rxe1 hca_handle=1 hca_object=9\nrxe0 hca_handle=1 hca_object=7\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def count(system: Path, netlink: Any, alone: bool = True) -> dict[str, int]:
    return ResourceCounter("rxe0", netlink, alone, system / "proc", system / "cgroup").count()


def test_windows_are_what_the_control_group_counts_beyond_the_netlink(system: Path) -> None:
    assert count(system, Netlink(QP=2, MR=1, PD=1)) == {
        "QP": 2,
        "MR": 1,
        "PD": 1,
        OTHERS: 3,
        PINNED: 16,
        LOCKED: 4,
        PAGES: 7,
    }


def test_pages_are_counted_only_where_nobody_else_pins_any(system: Path) -> None:
    assert PAGES not in count(system, Netlink(), alone=False)


@pytest.mark.parametrize("lack", ["proc/self/cgroup", "cgroup/cases/rdma.current", "proc/vmstat"])
def test_counts_that_a_system_does_not_provide_are_omitted(system: Path, lack: str) -> None:
    (system / lack).unlink()
    assert {OTHERS, PAGES} - set(count(system, Netlink(MR=1))) == {PAGES if lack == "proc/vmstat" else OTHERS}


def test_what_the_control_group_alone_counts_is_a_remark_and_no_leak() -> None:
    assert leaked({"MR": 1, OTHERS: 2}, {"MR": 1, OTHERS: 5}) == ""
    assert kept({OTHERS: 2}, {OTHERS: 5}) == "the RDMA control group counts 3 more objects than before (MW or other)"
    assert kept({OTHERS: 2}, {OTHERS: 2}) == kept({}, {}) == ""
    observed: Observation = {"returned": "NULL", "errno": "EINVAL", "rc": None, "remarks": ["noticed"]}
    judgement = judge(case("{rules: [REG-01], when: {access: []}, then: refused}"), [], observed)
    assert (judgement.verdict, judgement.notes) == ("PASS", ("noticed",))


def test_more_than_before_is_left_over_and_less_is_not() -> None:
    assert leaked({"MR": 1, PINNED: 4}, {"MR": 3, PINNED: 16}) == "the kernel still counts 2 MR, 12 kB pinned"
    assert leaked({"MR": 1, PINNED: 4}, {"MR": 0}) == ""


def test_what_is_freed_a_little_later_is_not_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([{"MR": 1}, {"MR": 1}, {"MR": 0}])
    assert count_when_settled({"MR": 0}, lambda: next(counts)) == {"MR": 0}
    monkeypatch.setattr(resources, "SETTLING_S", 0.02)
    assert count_when_settled({"MR": 0}, lambda: {"MR": 1}) == {"MR": 1}


def test_the_evidence_keeps_objects_and_memory_apart() -> None:
    assert resource_evidence({"MR": 0, PINNED: 0}, {"MR": 1, PINNED: 4}) == {
        "resources": {"before": {"MR": 0}, "after": {"MR": 1}},
        "memory": {"before": {PINNED: 0}, "after": {PINNED: 4}},
    }


def test_what_is_left_over_fails_a_case_that_was_good_otherwise() -> None:
    left = leaked({PINNED: 0}, {PINNED: 4})
    observed: Observation = {"returned": "MR", "errno": "", "left_behind": [left]}
    judgement = judge(case("{rules: [REG-01], when: {access: []}, then: success}"), [], observed)
    assert judgement.verdict == "FAIL"
    assert "4 kB pinned" in judgement.reason
