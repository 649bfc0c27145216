"""Tests of the titles of defects, which are made of the cause, the rules and what was seen."""

from dataclasses import replace
from typing import Any

import pytest

from conformance.defects import (
    Severity,
    cause_of,
    defects_of,
    families_of,
)
from conformance.model.fault import NO_EVENT_OF_FAILURE, Fault, FaultKind
from conformance.model.operations import BUILT_INLINE
from conformance.model.record import ResultRecord, SetUp
from conformance.model.verdict import Verdict
from conformance.tables.suite import ROOT, load_suite
from reports.digest import read
from test_defects import results, symptoms

TITLES = {
    "4703b67c7434": "a valid registration is refused with EOPNOTSUPP: ZERO_BASED region",
    "586737a68bcd": "a valid registration with ON_DEMAND is refused with EOPNOTSUPP: ODP region with HUGETLB",
    "74523eb0e047": "ibv_advise_mr fails with EINVAL instead of EFAULT or ENOENT or EPERM: lists of several elements; "
    "an lkey of another PD, or without write access; a range out of bounds, or an invalid lkey",
    "85c569cb8aca": "range of a bound window: its rkey moves bytes that it must not move",
    "7862f7654354": "on-demand (ODP) region with hca_va: the kernel crashes, valid requests are refused",
    "251ad0de44ec": "on-demand (ODP) region: bytes are lost or misplaced",
    "eb1cbda3da5a": "refused requests complete with WR_FLUSH_ERR instead of their own status",
    "6c8e18b350a5": "kernel fault in __rxe_put, called by rxe_invalidate_mw (rdma_rxe), during an invalidation",
    "2b7c9c131fc3": "a bind kills the process with SIGSEGV: no region (mr NULL)",
}


def test_a_title_is_made_of_the_cause_of_the_rules_and_of_what_was_seen():
    shorts = {rule.id: rule.short for rule in load_suite().registry.values()}
    titles = {defect.fingerprint: defect.title for defect in defects_of(results("forky"), shorts)}
    assert {fingerprint: titles[fingerprint] for fingerprint in TITLES} == TITLES
    without = {defect.fingerprint: defect.title for defect in defects_of(results("forky"))}
    assert without["4703b67c7434"] == "a valid registration is refused with EOPNOTSUPP: REG-11"


def test_a_title_names_the_command_the_memory_and_the_operation_of_all_its_symptoms():
    crash = next(
        item for item in symptoms("forky") if "6c8e18b350a5" in cause_of(item).fingerprints
    )
    secret: SetUp = {"given": ["buf: memory, secret, 4 pages"], "before": []}
    (dead,) = defects_of([{**crash.record, "set_up": secret}])
    assert dead.title.endswith("during an invalidation (secret memory)")
    for operation, title in (("FLUSH_GLOBAL", "FLUSH_GLOBAL"), ("", "an access")):
        call = f"traffic(op={operation})" if operation else "traffic()"
        fault = Fault(FaultKind.ACCEPTED, call=call, verb="traffic").as_data()
        (defect,) = defects_of([{**crash.record, "verdict": Verdict.FAIL, "fault": fault}])
        assert defect.title.startswith(f"{title} is not refused")
    call = "uverbs REREG_MR(mr=mr)"
    fault = Fault(FaultKind.REFUSED, call=call, verb="ibv_rereg_mr", returned="EACCES").as_data()
    fault |= {"errno": "EACCES"}
    (defect,) = defects_of([{**crash.record, "verdict": Verdict.FAIL, "fault": fault}])
    assert defect.title == "a valid uverbs REREG_MR is refused with EACCES"
    read_only: SetUp = {"given": ["mr: ibv_reg_mr(access=ON_DEMAND)"], "before": []}
    record: ResultRecord = {**crash.record, "verdict": Verdict.FAIL, "fault": fault}
    (defect,) = defects_of([{**record, "set_up": read_only}])
    assert defect.title == (
        "a valid uverbs REREG_MR of a region without LOCAL_WRITE is refused with EACCES"
    )


def at_points(*points: tuple[str, FaultKind, dict[str, str]]) -> list[str]:
    """Returns the titles of the defects of deviating points, each with its rule, its fault and its values."""
    deviations = []
    for rule, kind, values in points:
        fault = Fault(kind, verb="traffic", operation=values["operation"], key=values["key"])
        if kind in (FaultKind.REFUSED, FaultKind.WRONG_STATUS) and values.get("flags") == "inline":
            fault = replace(fault, operation=BUILT_INLINE, seen=("WR_FLUSH_ERR",))
        if kind is FaultKind.MOVED:
            fault = replace(fault, outside=True)
        deviations.append(
            {"when": "always", "rules": [rule], "fault": fault.as_data(), "smallest": values},
        )
    record: Any = {**symptoms("forky")[0].record, "verdict": "FAIL", "deviations": deviations}
    record.pop("alarms", None)
    return [defect.title for defect in defects_of([record])]


def test_one_cause_at_points_with_several_rules_and_keys_is_one_defect():
    cut = {"operation": "ATOMIC_FETCH_AND_ADD", "before": "cut_read", "key": "window"}
    later = {**cut, "before": "refused"}
    lost = [("BIND-07", FaultKind.NOT_ARRIVED, cut), ("REG-12", FaultKind.NOT_ARRIVED, later)]
    unlike = [("IOVA-02", FaultKind.NO_COMPLETION, cut), ("REG-12", FaultKind.ACCEPTED, cut)]
    (title,) = at_points(*lost, *unlike)
    assert title.startswith("atomic operations never complete after a reset of their queue pair")
    (title,) = at_points(*lost, *unlike[1:])
    assert title.startswith("atomic operations lose their result under SUCCESS after a reset of")
    refused = [("REG-12", FaultKind.REFUSED, cut)]
    assert at_points(*refused)[0].startswith("atomic operations are refused after a reset of")
    inline = {"operation": "SEND", "posting": "wr_post", "flags": "inline", "key": "window"}
    refused = [("BIND-05", FaultKind.REFUSED, inline), ("STAT-01", FaultKind.WRONG_STATUS, inline)]
    assert at_points(*refused) == [
        "valid requests are refused: requests of ibv_wr_post with inline data"
    ]
    outside = [(rule, FaultKind.MOVED, inline) for rule in ("BIND-08", "BIND-10")]
    assert len(at_points(*outside)) == 1
    assert len(at_points(*lost, *refused, *outside)) == 3
    of_list = {"operation": "SEND", "posting": "wr_post", "elements": "last_of_3", "key": "region"}
    lists = [(rule, FaultKind.NOT_ARRIVED, of_list) for rule in ("BIND-05", "IOVA-02")]
    assert at_points(*lists) == ["requests of ibv_wr_post: bytes are lost or misplaced"]
    not_copied = ("REG-30", FaultKind.NOT_ARRIVED, inline)
    assert len(at_points(not_copied, *lists)) == 2
    # a request that never completes is no loss of inline data
    assert len(at_points(not_copied, ("BIND-05", FaultKind.NO_COMPLETION, inline))) == 2
    fence = {"operation": "RDMA_READ", "flags": "fence", "key": "region"}
    swap = {**fence, "operation": "ATOMIC_CMP_AND_SWP"}
    hung = [("REG-06", FaultKind.NO_COMPLETION, values) for values in (fence, swap)]
    assert at_points(*hung) == ["a fenced ATOMIC_CMP_AND_SWP or RDMA_READ never completes"]
    resent = {**swap, "before": "not_ready"}
    assert at_points(("REG-06", FaultKind.NO_COMPLETION, resent)) == [
        "a fenced ATOMIC_CMP_AND_SWP that is sent again never completes"
    ]
    again = {"operation": "ATOMIC_WRITE", "before": "not_ready", "key": "window"}
    on_demand = ("REG-12", FaultKind.REFUSED, {**again, "region": "on_demand"})
    flush = ("REG-08", FaultKind.REFUSED, {**again, "operation": "FLUSH_GLOBAL"})
    assert at_points(("IOVA-02", FaultKind.REFUSED, again), on_demand, flush) == [
        "ATOMIC_WRITE or FLUSH_GLOBAL that is sent again is refused, which a wrong address explains"
    ]
    assert at_points(("IOVA-02", FaultKind.NOT_ARRIVED, again)) == [
        "ATOMIC_WRITE that is sent again loses or misplaces its data, which a wrong address explains"
    ]


@pytest.mark.parametrize(
    "expected, seen, title",
    [
        (["FLUSH"], "FLUSH; va 0x0 instead of 0x1008", "FLUSH is sent with a wrong address"),
        (
            ["FLUSH"],
            "FLUSH; psn 0x1 instead of 0x0; other bytes than those that were posted",
            "FLUSH is sent with a wrong PSN, payload",
        ),
        (["FLUSH"], "SEND_ONLY; va 0x0 instead of 0x8", "SEND_ONLY is sent instead of FLUSH"),
        ([], "wrong ICRC", "FLUSH is followed by packets of the device that are wrong"),
    ],
)
def test_the_title_of_a_wrong_packet_says_what_the_device_sends(expected, seen, title):
    fault: Any = {"kind": "wrong-packet", "verb": "wire", "operation": "FLUSH", "seen": [seen]}
    record: Any = {**symptoms("forky")[0].record, "rules": ["WIRE-18"], "deviations": []}
    record |= {"verdict": "FAIL", "alarms": [], "fault": {**fault, "expected": expected}}
    (defect,) = defects_of([record], {"WIRE-18": "request that is sent again"})
    assert defect.title == f"packets: {title}: request that is sent again"


def test_defects_that_one_line_of_a_call_may_explain_stand_together():
    """Each has its own fingerprint, because there may be several mistakes."""
    values = {"operation": "RDMA_READ", "key": "region"}
    points = [
        ("REREG-03", FaultKind.MOVED, values),
        ("REREG-03", FaultKind.NOT_ARRIVED, {**values, "change": "all"}),
        ("REG-06", FaultKind.REFUSED, values),
    ]
    deviations = []
    for rule, kind, smallest in points:
        fault = Fault(
            kind, verb="traffic", operation="RDMA_READ", key="region", entry="uverbs"
        ).as_data()
        deviations.append({"when": "always", "rules": [rule], "fault": fault, "smallest": smallest})
    record: Any = {**symptoms("forky")[0].record, "verdict": "FAIL", "deviations": deviations}
    record["case"] = "access/changes/slice"
    record.pop("alarms", None)
    families = list(families_of(defects_of([record]), lambda defect: defect))
    (heading, family), (none, others) = sorted(families, key=lambda item: -len(item[1]))
    assert heading == "ibv_rereg_mr with CHANGE_ACCESS: 2 symptoms, perhaps of one cause"
    assert [defect.title for defect in family] == [
        "ibv_rereg_mr with CHANGE_ACCESS: access as before remains (rights)",
        "ibv_rereg_mr with CHANGE_TRANSLATION+CHANGE_PD+CHANGE_ACCESS: bytes are lost or misplaced (rights)",
    ]
    assert (none, len(others)) == ("", 1)
    site = ("copy_data", "rxe_mr_copy", "rdma_rxe", "rdma_rxe")
    death = Fault(FaultKind.KERNEL_DIED, verb="traffic", site=site, changed=("CHANGE_ACCESS",))
    crash: Any = {**record, "case": "rereg_mr/x", "verdict": "CRASH", "fault": death.as_data()}
    crash["deviations"] = []
    (dead, [crashed]), *rest = families_of(defects_of([record, crash]), lambda defect: defect)
    assert dead == "ibv_rereg_mr: perhaps of one cause with 2 of another severity"
    assert crashed.title.startswith("kernel fault in copy_data, called by rxe_mr_copy")
    assert f"{heading} with 1 of another severity" in [head for head, _ in rest]


def test_the_title_of_a_wrong_completion_names_its_wrong_fields():
    record = symptoms("forky")[0].record
    seen = ["the flag GRH, which is valid only for datagrams", "wr_id 5 instead of 7"]
    fault = {"kind": "different", "verb": "completion_fields", "seen": seen}
    (defect,) = defects_of([{**record, "deviations": [], "alarms": [], "fault": fault}])
    assert defect.title == (
        "a completion has a wrong wr_id, the flag GRH, which is valid only for datagrams"
    )


def test_a_failure_without_its_event_is_another_defect_than_a_message_without_one():
    record = symptoms("forky")[0].record
    titles = {}
    for seen in ("no completion event", NO_EVENT_OF_FAILURE):
        fault = {"kind": "different", "verb": "message_notified", "seen": [seen]}
        reason = f"message_notified: {seen}"
        changed: Any = {**record, "reason": reason, "deviations": [], "fault": fault}
        (defect,) = defects_of([changed])
        titles[defect.fingerprint] = defect.title
    assert titles == {
        "dc38f0f9bb1d": "the completion of a receive raises no event, although it was requested",
        "b4dccc155a6d": "a receive that fails raises no solicited event",
    }


def test_the_title_of_a_kernel_warning_names_the_driver_and_of_an_invalidation_the_window():
    crash = next(item for item in symptoms("siw") if "f7496e71ec5f" in cause_of(item).fingerprints)
    (defect,) = defects_of([crash.record], {"REG-23": "memory that cannot be registered"})
    assert " below siw_umem_get (siw), during a registration" in defect.title
    assert defect.title.startswith("kernel warning in __alloc_frozen_pages_noprof, ")
    dead = next(item for item in symptoms("forky") if "6c8e18b350a5" in cause_of(item).fingerprints)
    fault = {**dead.fault.as_data(), "dead": True, "key": "window"}
    (defect,) = defects_of([{**dead.record, "fault": fault}])
    assert defect.title.endswith("during an invalidation of a window that is not bound")


def test_the_title_is_the_same_if_only_packets_show_the_defect():
    run_read = read(ROOT / "docs" / "runs" / "rxe.jsonl.xz")
    shorts = {rule.id: rule.short for rule in load_suite().registry.values()}
    (dead,) = [each for each in run_read.violations.defects if each.fingerprint == "6c8e18b350a5"]
    for symptom in dead.symptoms:
        (alone,) = defects_of([symptom.record], shorts)
        assert (alone.fingerprint, alone.title) == (dead.fingerprint, dead.title)
    (packets,) = (
        s.record for s in dead.symptoms if s.case.endswith("/of-a-window-that-is-not-bound")
    )
    bound: SetUp = {"given": ["mw: window of type 2, in pd, bound by post_bind_mw()"], "before": []}
    (other,) = defects_of([{**packets, "set_up": bound}])
    assert other.title.endswith(", during an invalidation")


def test_the_title_of_a_report_of_kasan_names_the_error_and_the_function():
    (dead,) = [
        defect for defect in defects_of(results("forky")) if defect.fingerprint == "6c8e18b350a5"
    ]
    record = next(
        result
        for result in results("forky")
        if result["case"] in dead.cases and result["verdict"] == "CRASH"
    )
    frames = ("__rxe_put", "rxe_invalidate_mw", "rdma_rxe", "rdma_rxe")
    seen = ("KASAN: slab-use-after-free", "__rxe_put [rdma_rxe]", "rxe_invalidate_mw [rdma_rxe]")
    fault = Fault(FaultKind.KERNEL_MEMORY, verb="ibv_bind_mw", seen=seen, site=frames)
    (reported,) = defects_of([{**record, "verdict": Verdict.FAIL, "fault": fault.as_data()}])
    assert (
        reported.title
        == "KASAN: slab-use-after-free in __rxe_put, called by rxe_invalidate_mw (rdma_rxe), during a bind"
    )
    assert reported.severity is Severity.MEMORY
    assert reported.fingerprint == dead.fingerprint, "the same place in the driver"


@pytest.mark.parametrize("stack, headings", [("siw", 2), ("trixie", 0)])
def test_a_family_does_not_break_the_order_by_severity(stack, headings):
    """Its members with other severities stand with these, under a heading of their own if there are several."""
    defects = read(ROOT / "docs" / "runs" / f"{stack}.jsonl.xz").violations.open_defects
    grouped = list(families_of(defects, lambda defect: defect))
    assert sum(heading != "" for heading, _ in grouped) == headings
    ranks = [defect.severity.rank for _, members in grouped for defect in members]
    assert ranks == sorted(ranks)
    assert len(ranks) == len(defects)


def test_a_title_names_each_expected_outcome_of_what_the_kernels_core_refuses():
    """A row that expects success and one that expects another code have one cause, and so one title."""
    run = read(ROOT / "docs/runs/rxe.jsonl.xz")
    refused = next(
        record
        for record in run.results
        if record["case"] == "reg_mr_iova/translation/other-page-offset-registers@libibverbs"
    )
    fault = {**refused["fault"], "kind": FaultKind.WRONG_CODE, "expected": ["ENOMEM"]}
    coded: ResultRecord = {**refused, "case": "reg_mr/own/coded", "fault": fault}
    titles = {}
    for number, records in enumerate(([refused], [coded], [refused, coded])):
        titles[number] = [defect.title.partition(" for ")[0] for defect in defects_of(records)]
    assert titles == {
        0: ["the kernel's core returns EINVAL"],
        1: ["the kernel's core returns EINVAL instead of ENOMEM"],
        2: ["the kernel's core returns EINVAL instead of success or ENOMEM"],
    }
