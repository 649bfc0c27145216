"""Tests of violations with several outcomes: those never seen again, and those that are seen in some repetitions. A
defect is as severe as the worst of its outcomes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.report import renderer
from conformance.defects import Severity
from conformance.judging import Judgement
from conformance.model.fault import ON_DEMAND, OWN_ADDRESSES, Fault, FaultKind
from conformance.results.new_records import result_record
from repeated import Run
from reports import terminal
from reports.absence import NOT_DECIDED
from reports.compared.changes import CHANGED, GONE, IN_BOTH, NEW, REGRESSED, UNCONFIRMED
from reports.compared.comparison import compare
from reports.compared.text import text
from reports.digest import Digest, read
from reports.repetitions import Repetitions
from samples import (
    numbered,
    recorded,
    registry,
    result,
    written,
)

COUNT = 12
SUITE = numbered(COUNT)
IDS = [case.id for case in SUITE.cases]
ODP = Fault(
    FaultKind.MOVED,
    "traffic()",
    "traffic",
    key="region",
    region=(ON_DEMAND, OWN_ADDRESSES),
)


def in_turn(**ends: Sequence[str]) -> Callable[[str, Sequence[str]], str]:
    """Returns a device on which each case, by its number, has these outcomes in turn, and passes afterwards."""
    times: Counter[str] = Counter()
    by_id: Mapping[str, Sequence[str]] = {
        IDS[int(number.removeprefix("c"))]: end for number, end in ends.items()
    }

    def verdict(case: str, before: Sequence[str]) -> str:
        lines = by_id.get(case, ())
        times[case] += 1
        if times[case] <= len(lines):
            return lines[times[case] - 1]
        return "PASS"

    return verdict


def seen(folder: Path, **ends: Sequence[str]) -> tuple[Digest, Run]:
    run = Run(folder, in_turn(**ends))
    run()
    return read(folder), run


def test_violations_never_seen_again_are_counted_separately(tmp_path):
    record_here, run = seen(tmp_path / "new", c4=["FAIL"])
    (record,) = record_here.confirmations
    assert (record["confirmed"], record["repetitions"]) == (False, {"seen": 0, "of": 3})
    # one repetition in isolation, one after all earlier cases, and two more
    assert len(run.again) == 1 + 1 + 2
    (defect,) = record_here.violations.defects
    assert defect.unconfirmed
    assert record_here.violations.open_defects == ()
    assert record_here.summary.headline == "defects: 1 not confirmed"
    assert "unconfirmed" in terminal.summary(record_here, tmp_path)
    # Once at the top, and once at the defect.
    assert str(renderer("html").render([record_here])).count("not confirmed:</span> ") == 1
    assert "it did not occur again in 3 repetitions" in str(
        renderer("markdown").render([record_here])
    )


def test_a_hang_that_is_never_seen_again_is_undecided(tmp_path):
    """A busy host can be the reason for a request that does not complete in time, but not for any other violation."""
    once, twice = (
        seen(tmp_path / str(len(ends)), c4=ends)[0] for ends in (["HANG"], ["HANG", "HANG"])
    )
    (rule,) = once.violations.defects[0].rules
    assert (once.summary.status, once.verdicts.of_rules[rule]) == (3, "BROKEN")
    assert "1 rule undecided" in once.summary.conclusion
    assert (twice.summary.status, twice.verdicts.of_rules[rule]) == (1, "HANG")
    assert seen(tmp_path / "failed", c4=["FAIL"])[0].summary.status == 1


def test_a_hang_that_another_violation_replaces_counts_as_that_violation(tmp_path):
    """The repetition confirms that the rule is violated, but not that a request never completes."""
    digest, _ = seen(tmp_path, c4=["HANG", "FAIL"])
    (record,) = digest.confirmations
    assert (record["confirmed"], record["alone"]["verdict"]) == (True, "FAIL")
    (hang,) = digest.violations.defects
    assert hang.unconfirmed
    assert digest.verdicts.of_rules[hang.rules[0]] == "FAIL"
    assert digest.summary.status == 1


def test_rules_of_points_whose_hang_is_not_confirmed_are_undecided():
    """Other points of the sweep violate one of the two rules of the hang, and a third rule."""
    of = numbered(1).cases[0]
    hang = {
        "verdict": "HANG",
        "smallest": {"op": "SEND"},
        "rules": ["REG-01", "REG-02"],
        "when": "op=SEND",
    }
    fail = {
        "verdict": "FAIL",
        "smallest": {"op": "WRITE"},
        "rules": ["REG-02", "REG-03"],
        "when": "op=WRITE",
    }
    verdicts = {"REG-01": "HANG", "REG-02": "HANG", "REG-03": "FAIL", "REG-04": "PASS"}
    swept = result(
        of,
        "HANG",
        rule_verdicts=verdicts,
        deviations=[hang, fail],
        rules=list(verdicts),
    )
    tried: Any = [
        {"case": of.id, "point": f"op={op}", "confirmed": op == "WRITE", "by": "x"}
        for op in ("SEND", "WRITE")
    ]
    decided = Repetitions(tried).decided(swept)
    assert decided["rule_verdicts"] == verdicts | {"REG-01": "BROKEN", "REG-02": "FAIL"}
    assert Repetitions(tried[1:]).decided(swept) == swept
    failed: Any = {**swept, "verdict": "FAIL", "effective": "FAIL"}
    assert Repetitions(tried).decided(failed) == {
        **failed,
        "rule_verdicts": decided["rule_verdicts"],
    }


@pytest.mark.parametrize(
    "id_, call, kind, effective",
    [
        ("wire/first_packets/write", "wire(qp=qp)", FaultKind.REFUSED, "BROKEN"),
        ("wire/first_packets/write", "wire(qp=qp)", FaultKind.WRONG_ANSWER, "BROKEN"),
        ("reg_mr/rights/remote-write-granted@wire", "traffic()", FaultKind.NOT_ARRIVED, "BROKEN"),
        ("wire/first_packets/write", "wire(qp=qp)", FaultKind.MOVED, "FAIL"),
        ("wire/first_packets/write", "wire(qp=qp)", FaultKind.KERNEL_WARNED, "FAIL"),
        ("reg_mr/rights/remote-write-granted", "traffic()", FaultKind.REFUSED, "FAIL"),
    ],
)
def test_a_lost_packet_of_the_network_violates_nothing(id_, call, kind, effective):
    """No byte moves, and no kernel warns, because a packet of the wire peer was lost. Without a repetition, or if it was
    seen again, everything counts."""
    of = numbered(1).cases[0]
    failed: Any = {
        **result(of, "FAIL", fault={"kind": kind, "call": call}),
        "case": id_,
        "call": call,
    }
    tried: Any = {"case": id_, "confirmed": False, "by": "isolation"}
    assert Repetitions([tried]).decided(failed)["effective"] == effective
    again: Any = {**tried, "confirmed": True}
    assert Repetitions([again]).decided(failed) == failed
    assert Repetitions([]).decided(failed) == failed


def test_an_unconfirmed_violation_is_not_a_regression(tmp_path, cli):
    good, _ = seen(tmp_path / "old")
    comparison = compare(good, seen(tmp_path / "new", c4=["FAIL"])[0])
    assert [change.kind for change in comparison.changes] == [UNCONFIRMED]
    assert comparison.status == 0
    cli(0, "compare", tmp_path / "old", tmp_path / "new")
    steady = compare(good, seen(tmp_path / "steady", c4=["FAIL", "FAIL"])[0])
    assert [change.kind for change in steady.changes] == [REGRESSED]


def test_a_defect_that_the_old_run_saw_without_confirming_it_is_not_new(tmp_path):
    unsure, sure = (
        seen(tmp_path / "old", c4=["FAIL"])[0],
        seen(tmp_path / "new", c4=["FAIL", "FAIL"])[0],
    )
    defects = compare(unsure, sure).defects.by_kind
    assert (len(defects[NEW]), len(defects[IN_BOTH])) == (0, 1)
    defects = compare(sure, unsure).defects.by_kind
    assert [len(defects[kind]) for kind in (NEW, GONE, IN_BOTH, NOT_DECIDED)] == [0, 0, 0, 1]


def test_a_violation_seen_in_some_repetitions_is_confirmed_and_unsteady(tmp_path):
    record_here, _ = seen(tmp_path, c4=["FAIL", "PASS", "PASS", "FAIL"])
    (record,) = record_here.confirmations
    assert (record["confirmed"], record["repetitions"]) == (True, {"seen": 1, "of": 3})
    assert len(record_here.violations.open_defects) == 1
    assert "confirmed, and unsteady: seen in 1 of 3 repetitions in isolation" in str(
        renderer("html").render([record_here]),
    )


def test_a_violation_that_crashes_when_repeated_is_confirmed_as_a_crash(tmp_path):
    record_here, _ = seen(tmp_path, c4=["FAIL", "CRASH"])
    (record,) = record_here.confirmations
    assert (record["confirmed"], record["alone"]["verdict"]) == (True, "CRASH")
    (defect,) = record_here.violations.open_defects
    assert defect.severity is Severity.KERNEL_CRASH


def run_of(folder: Path, fault: Fault) -> Digest:
    """Returns a run with one case, which violates IOVA-05 with this fault."""
    of = numbered(1).cases[0]
    line = result_record(of, registry(), Judgement.of_fault(fault), {"rc": None})
    line["rules"] = ["IOVA-05"]
    return read(written(recorded([line]), folder))


def test_a_defect_that_kills_the_kernel_in_one_run_is_the_same_defect_and_no_regression(tmp_path):
    """Whether an on-demand region whose iova is not its address kills the kernel depends on kernel memory."""
    kills = replace(
        ODP,
        kind=FaultKind.KERNEL_DIED,
        used=True,
        seen=("the kernel died", "", "", "", ""),
    )
    failing, other = run_of(tmp_path / "fails", ODP), run_of(tmp_path / "kills", kills)
    titles = [run.violations.defects[0].title.partition(":")[0] for run in (failing, other)]
    assert titles == ["on-demand (ODP) region with hca_va"] * 2
    assert failing.violations.defects[0].fingerprint == other.violations.defects[0].fingerprint
    for old, new in ((failing, other), (other, failing)):
        comparison = compare(old, new)
        assert [change.kind for change in comparison.changes] == [CHANGED]
        assert comparison.status == 0
        (both,) = comparison.defects.by_kind[IN_BOTH]
        assert both.severity is Severity.KERNEL_CRASH
    assert [news for _, news in compare(failing, other).defects.changed] == ["kernel-died"]
    assert "now also kernel-died" in "\n".join(text(compare(failing, other), None))
    assert compare(failing, failing).defects.changed == []
    elsewhere = run_of(tmp_path / "elsewhere", replace(kills, used=False, site=("f", "", "", "")))
    assert [change.kind for change in compare(failing, elsewhere).changes] == [REGRESSED]
