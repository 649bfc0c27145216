"""Tests of severity and defects on the violations of real runs, and of the findings for mailing lists and KCIDB.

`recorded_violations` has the violations, and some passing results, of four runs in the guest: two on Debian forky, with
crashes in different cases, one on trixie, and one with the driver siw. Headers and results are as recorded, except for
details of the machine and keys that no test reads.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main
from conformance.defects import (
    Defect,
    Severity,
    Symptom,
    answering_of,
    cause_of,
    count_by_severity,
    defects_of,
    is_of_stack,
    severity_of,
    symptoms_of,
)
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.model.record import ResultRecord, SetUp
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.model.vocabulary import BUILT_INLINE
from conformance.tables.suite import load_suite
from kinds import REPORTS, Cli
from recorded_reference import record as recorded_run
from reports.digest import read
from trial.catalogue import named

RUNS = Path(__file__).with_name("recorded_violations")
# The defects of forky. Trackers and waivers of users contain these fingerprints, which therefore must not change.
_FORKY = """
6c8e18b350a5:BIND-15+BIND-19 7862f7654354:IOVA-05 85c569cb8aca:BIND-10 251ad0de44ec:REG-12 2b7c9c131fc3:BIND-21
8b8051c7e5f5:ADV-08 ca5610635990:BIND-17 de19cd258c26:BIND-18 1f7d68914521:BIND-11 5419bb365f47:BIND-19
6cf93e054d0a:BIND-20 3a7b57e6d45b:REG-09 1e01f1eef7dc:ADV-01+ADV-03 74523eb0e047:ADV-08+ADV-10+ADV-11+ADV-13
4703b67c7434:REG-11 586737a68bcd:REG-13 ff6941f7e668:IOVA-02+IOVA-03+IOVA-05 885a6ada681b:REG-25 9cfb0f69cdbe:BIND-19
4d1f0fd5bda9:REREG-12 eb1cbda3da5a:STAT-03+STAT-06 5e8c2d4d65db:BIND-15+BIND-19 1241c05be1a5:ADV-09
"""
FORKY: dict[str, tuple[str, ...]] = {}
for _word in _FORKY.split():
    _name, _, _rules = _word.partition(":")
    FORKY[_name] = tuple(_rules.split("+"))


def results(name: str) -> Sequence[ResultRecord]:
    return read(RUNS / f"{name}.jsonl").results


def rules_by_fingerprint(defects: Sequence[Defect]) -> dict[str, tuple[str, ...]]:
    return {defect.fingerprint: defect.rules for defect in defects}


def test_a_defect_has_the_same_fingerprint_in_two_runs_with_crashes_in_different_cases() -> None:
    first, second = results("forky"), results("forky-again")
    died = []
    for records_seen in (first, second):
        died.append({record["case"] for record in records_seen if record["verdict"] == "CRASH"})
    assert died[0] != died[1]
    assert rules_by_fingerprint(defects_of(second)) == FORKY


def test_a_defect_has_the_same_fingerprint_on_another_stack() -> None:
    rules_there = rules_by_fingerprint(defects_of(results("trixie")))
    assert len(rules_there) == 14
    assert set(rules_there) <= set(FORKY)


def test_one_cause_that_violates_many_rules_is_one_defect() -> None:
    defects = {defect.fingerprint: defect for defect in defects_of(results("siw"))}
    ignored = defects["9d4c5e172cfa"]
    assert ignored.rules == ("IOVA-01", "IOVA-02", "IOVA-03", "IOVA-06", "REG-11")
    assert len(ignored.cases) == 30
    assert defects["34c74b10f9f8"].severity is Severity.MEMORY


@pytest.mark.parametrize("name", ["forky", "trixie"])
def test_fingerprint_and_severity_do_not_depend_on_which_cases_ran_and_in_which_order(
    name: str,
) -> None:
    """The test uses each case separately, the cases of each verb, other orders, and a third or two thirds of the cases.
    The severity of one defect differs, because it kills the kernel only sometimes. The title says what a run shows, and
    depends only on the cases."""
    every, shorts = (
        list(results(name)),
        {rule.id: rule.short for rule in load_suite().registry.values()},
    )
    unsteady = "7862f7654354"
    all_defects = {defect.fingerprint: defect for defect in defects_of(every, shorts)}
    for record in every:
        fingerprints = {
            fingerprint
            for fingerprint, defect in all_defects.items()
            if record["case"] in defect.cases
        }
        assert {defect.fingerprint for defect in defects_of([record])} == fingerprints
    verbs = sorted({record["case"].partition("/")[0] for record in every})
    parts = []
    for verb in verbs:
        parts.append([record for record in every if record["case"].startswith(f"{verb}/")])
    for seed in range(3):
        random.Random(seed).shuffle(every)
        parts += [list(every), every[: len(every) // 3], every[len(every) // 3 :]]
    for part in parts:
        defects = defects_of(part, shorts)
        assert len(part) < len(every) or {defect.fingerprint for defect in defects} == set(
            all_defects
        )
        for defect in defects:
            if len(part) == len(every):
                assert defect.title == all_defects[defect.fingerprint].title
            if defect.fingerprint != unsteady:
                assert defect.severity is all_defects[defect.fingerprint].severity


def test_the_most_severe_defect_comes_first_and_each_result_counts_once() -> None:
    run = results("forky")
    ranks = [defect.severity.rank for defect in defects_of(run)]
    assert ranks == sorted(ranks)
    bad = [record for record in run if record["verdict"] in VIOLATIONS]
    worst = (
        min(map(severity_of, symptoms_of(record)), key=lambda severity: severity.rank)
        for record in bad
    )
    count = count_by_severity(worst)
    assert {severity.label: number for severity, number in count.items()} == {
        "kernel crash": 4,
        "memory safety": 29,
        "process crash": 1,
        "not refused": 49,
        "valid refused": 43,
        "wrong report": 63,
    }
    assert sum(count.values()) == len(bad)


@pytest.mark.parametrize("name", ["forky", "trixie", "siw"])
def test_severity_agrees_with_the_raw_observations(name: str) -> None:
    """Only results of rows are compared, not deviations of sweeps."""
    for record in results(name):
        seen = [record["observed"], *record["observed"].get("afterwards", ())]
        for symptom in symptoms_of(record):
            if record["deviations"] or not record["observed"]:
                continue
            severity = severity_of(symptom)
            done = [
                symptom
                for symptom in seen
                if symptom.get("wc") == ["SUCCESS"] or symptom.get("returned") in ("0", "MR", "MW")
            ]
            failed = [
                symptom
                for symptom in seen
                if symptom.get("errno") or set(symptom.get("wc", ())) - {"SUCCESS"}
            ]
            if severity is Severity.MEMORY:
                assert any(
                    symptom.get("moved") in ("part", "all", "nothing", "other") and symptom in done
                    for symptom in seen
                )
            elif severity is Severity.NOT_REFUSED:
                assert done
            elif severity is Severity.VALID_REFUSED:
                assert failed or any(
                    symptom.get("unacknowledged") and symptom.get("moved") == "nothing"
                    for symptom in seen
                )
            else:
                assert severity is Severity.WRONG_REPORT


def test_the_only_remark_of_recorded_runs_is_about_invalidated_keys() -> None:
    remarks = {
        re.sub(r"0x[0-9a-f]+", "KEY", symptom.line.replace(symptom.call, ""))
        for name in ("forky", "trixie", "siw")
        for record in results(name)
        for symptom in symptoms_of(record)
        if symptom.fault.effect is Effect.REMARK
    }
    assert remarks == {": the receiver was told nothing as the invalidated key, not KEY"}


def test_the_answering_layer_is_reported_only_with_evidence() -> None:
    layers = {defect.rules: defect.answering for defect in defects_of(results("forky"))}
    assert layers["BIND-15", "BIND-19"].layer == "device"
    died = next(
        defect for defect in defects_of(results("forky")) if defect.fingerprint == "6c8e18b350a5"
    )
    assert (
        str(died.answering)
        == "device (the kernel was in __rxe_put, called by rxe_invalidate_mw (rdma_rxe))"
    )
    assert (
        str(layers["REG-25",])
        == "device (rxe_reg_user_mr of its driver reports it in the kernel's log)"
    )
    assert layers["ADV-09",].layer == "kernel core"
    assert "passes such a call on" in str(layers["ADV-08",])
    assert str(layers["BIND-21",]) == "provider (the process was in librxe-rdmav65.so)"
    early = [
        answering_of(symptom).layer
        for symptom in symptoms("forky")
        if symptom.fault.kind is FaultKind.CARRIED_OUT
    ]
    assert set(early) == {"provider"}


def symptoms(run: str) -> list[Symptom]:
    return [symptom for record in results(run) for symptom in symptoms_of(record)]


@pytest.mark.parametrize("name", [name for name in REPORTS if name.startswith("died_")])
def test_the_frames_of_a_dead_process_name_the_answering_layer(name: str) -> None:
    log, who = REPORTS[name]
    died = next(symptom for symptom in symptoms("forky") if symptom.rules == ("BIND-21",))
    record: ResultRecord = {**died.record, "kernel": {"log": log}}
    assert answering_of(replace(died, record=record)).layer == who


def test_wrong_results_of_the_kernel_core_count_as_the_stacks_but_crashes_do_not() -> None:
    of_stack = [record for record in results("forky") if is_of_stack(record)]
    assert {"ADV-09", "IOVA-02"} <= {rule for record in of_stack for rule in record["rules"]}
    assert [
        defect["case"]
        for defect in of_stack
        if "the kernel's RDMA core answered" not in str(defect)
    ] == []
    dead = [record for record in results("forky") if record["verdict"] == "CRASH"]
    assert dead
    assert not any(map(is_of_stack, dead))


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


def test_a_title_is_made_of_the_cause_of_the_rules_and_of_what_was_seen() -> None:
    shorts = {rule.id: rule.short for rule in load_suite().registry.values()}
    titles = {defect.fingerprint: defect.title for defect in defects_of(results("forky"), shorts)}
    assert {fingerprint: titles[fingerprint] for fingerprint in TITLES} == TITLES
    without = {defect.fingerprint: defect.title for defect in defects_of(results("forky"))}
    assert without["4703b67c7434"] == "a valid registration is refused with EOPNOTSUPP: REG-11"


def test_a_title_names_the_command_the_memory_and_the_operation_of_all_its_symptoms() -> None:
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
        if kind in (FaultKind.REFUSED, FaultKind.WRONG_STATUS):
            fault = replace(fault, operation=BUILT_INLINE, seen=("WR_FLUSH_ERR",))
        if kind is FaultKind.MOVED:
            fault = replace(fault, outside=True)
        deviations.append(
            {"when": "always", "rules": [rule], "fault": fault.as_data(), "smallest": values},
        )
    record: Any = {**symptoms("forky")[0].record, "verdict": "FAIL", "deviations": deviations}
    record.pop("alarms", None)
    return [defect.title for defect in defects_of([record])]


def test_one_cause_at_points_with_several_rules_and_keys_is_one_defect() -> None:
    cut = {"operation": "ATOMIC_FETCH_AND_ADD", "before": "cut_read", "key": "window"}
    later = {**cut, "before": "refused"}
    kept = [("BIND-07", FaultKind.NOT_ARRIVED, cut), ("REG-12", FaultKind.NOT_ARRIVED, later)]
    (title,) = at_points(*kept, ("IOVA-02", FaultKind.NO_COMPLETION, {**cut, "key": "region"}))
    assert title.startswith("atomic operations fail after a reset of their queue pair")
    inline = {"operation": "SEND", "posting": "wr_post", "flags": "inline", "key": "window"}
    found = [("BIND-05", FaultKind.REFUSED, inline), ("STAT-01", FaultKind.WRONG_STATUS, inline)]
    assert at_points(*found) == [
        "valid requests are refused: requests of ibv_wr_post with inline data"
    ]
    outside = [(rule, FaultKind.MOVED, inline) for rule in ("BIND-08", "BIND-10")]
    assert len(at_points(*outside)) == 1
    assert len(at_points(*kept, *found, *outside)) == 3
    of_list = {"operation": "SEND", "posting": "wr_post", "elements": "last_of_3", "key": "region"}
    lists = [(rule, FaultKind.NOT_ARRIVED, of_list) for rule in ("BIND-05", "IOVA-02")]
    assert at_points(*lists) == ["requests of ibv_wr_post: bytes are lost or misplaced"]
    not_copied = ("REG-30", FaultKind.NOT_ARRIVED, inline)
    assert len(at_points(not_copied, *lists)) == 2
    fence = {"operation": "RDMA_READ", "flags": "fence", "key": "region"}
    swap = {**fence, "operation": "ATOMIC_CMP_AND_SWP"}
    hung = [("REG-06", FaultKind.NO_COMPLETION, values) for values in (fence, swap)]
    assert at_points(*hung) == ["requests never complete: fenced requests"]


def test_the_title_of_a_wrong_completion_names_its_wrong_fields() -> None:
    record = symptoms("forky")[0].record
    seen = ["the flag GRH, which is valid only for datagrams", "wr_id 5 instead of 7"]
    fault = {"kind": "different", "verb": "completion_fields", "seen": seen}
    (defect,) = defects_of([{**record, "deviations": [], "alarms": [], "fault": fault}])
    assert defect.title == (
        "a completion has a wrong wr_id, the flag GRH, which is valid only for datagrams"
    )


def test_the_title_of_a_kernel_warning_names_the_driver_and_of_an_invalidation_the_window() -> None:
    crash = next(item for item in symptoms("siw") if "f7496e71ec5f" in cause_of(item).fingerprints)
    (defect,) = defects_of([crash.record], {"REG-23": "memory that cannot be registered"})
    assert " below siw_umem_get (siw), during a registration" in defect.title
    assert defect.title.startswith("kernel warning in __alloc_frozen_pages_noprof, ")
    dead = next(item for item in symptoms("forky") if "6c8e18b350a5" in cause_of(item).fingerprints)
    fault = {**dead.fault.as_data(), "dead": True, "key": "window"}
    (defect,) = defects_of([{**dead.record, "fault": fault}])
    assert defect.title.endswith("during an invalidation of a window that is not bound")


def test_the_title_of_a_report_of_kasan_names_the_error_and_the_function() -> None:
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


def test_one_flag_that_is_refused_at_many_rules_is_one_defect_and_keeps_every_fingerprint(
    tmp_path: Path,
) -> None:
    """The reference refuses REMOTE_WRITE. In isolation, each case has the defect of its own rule; in the whole run, all
    calls with this flag show one defect."""
    suite = load_suite()
    cases = [
        case
        for case in suite.cases
        if case.id.startswith(("reg_mr/rights/", "reg_mr/registration/", "reg_mr/access_flags/"))
    ]
    run = read(recorded_run(tmp_path / "run", suite, cases, named("remote-write-never").kind()))
    refused = [
        defect for defect in run.violations.defects if defect.severity is Severity.VALID_REFUSED
    ]
    first = refused[0]
    assert first.title == "a valid registration with REMOTE_WRITE is refused with EINVAL"
    assert len(first.rules) > 3
    assert len(first.fingerprints) == len(first.causes) > 3
    for case in first.cases:
        (alone,) = defects_of([result for result in run.results if result["case"] == case])
        assert alone.fingerprint in first.fingerprints


# Findings


TWO = [str(RUNS / f"{stack}.jsonl") for stack in ("forky", "trixie")]
# The keys that KCIDB's schema 5.3 requires for each kind of object.
REQUIRED = {
    "checkouts": {"id", "origin"},
    "builds": {"id", "origin", "checkout_id"},
    "tests": {"id", "origin", "build_id"},
    "issues": {"id", "origin", "version"},
    "incidents": {"id", "origin", "issue_id", "issue_version"},
}


@pytest.fixture(scope="module")
def kcidb(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("kcidb")
    assert (
        main(["findings", *TWO, "--format", "kcidb", "--origin", "my_ci", "--out", str(out)]) == 0
    )
    data: dict[str, Any] = json.loads((out / "kcidb.json").read_text())
    return data


def test_the_objects_have_what_the_schema_requires_and_refer_to_each_other(
    kcidb: dict[str, Any],
) -> None:
    assert kcidb["version"] == {"major": 5, "minor": 3}
    assert {key for key in kcidb if key != "version"} == set(REQUIRED)
    ids = {}
    for kind in REQUIRED:
        ids[kind] = [entry["id"] for entry in kcidb[kind]]
    for kind, keys in REQUIRED.items():
        assert kcidb[kind], kind
        assert len(set(ids[kind])) == len(ids[kind]), kind
        for item in kcidb[kind]:
            assert keys <= set(item)
            assert re.match(r"my_ci:[^\0]+\Z", item["id"])
    for kind, key, of in (
        ("builds", "checkout_id", "checkouts"),
        ("tests", "build_id", "builds"),
        ("incidents", "test_id", "tests"),
        ("incidents", "issue_id", "issues"),
    ):
        assert {entry[key] for entry in kcidb[kind]} <= set(ids[of])
    assert all(
        re.match(r"rdma_cts(\.[a-zA-Z0-9_-]+)+\Z", entry["path"]) for entry in kcidb["tests"]
    )


def test_an_issue_has_severity_stacks_rules_and_its_program(kcidb: dict[str, Any]) -> None:
    (issue,) = [issue for issue in kcidb["issues"] if issue["id"] == "my_ci:85c569cb8aca"]
    assert issue["misc"]["severity"] == "memory safety"
    assert list(issue["misc"]["rules"]) == ["BIND-10"]
    assert set(issue["misc"]["stacks"].values()) == {"seen"}
    assert len(issue["misc"]["stacks"]) == len(TWO)
    assert "#include <infiniband/verbs.h>" in issue["misc"]["program"]


def test_the_text_about_a_defect_names_the_stacks_that_have_it(tmp_path: Path, cli: Cli) -> None:
    said = cli(0, "findings", *TWO, "--format", "mail", "--out", tmp_path).out
    texts = sorted((tmp_path / "findings").glob("*.txt"))
    assert f"{tmp_path}/findings: {len(texts)} texts of " in said
    assert len(texts) > 5
    for text in map(Path.read_text, texts):
        assert text.startswith("Subject: ")
        assert "\nStacks:\n" in text
        assert "#include <infiniband/verbs.h>" in text
    assert not (tmp_path / "findings.md").exists()


@pytest.mark.parametrize(
    ("rules", "fault", "known"),
    [
        (
            ("REG-27",),
            Fault(FaultKind.ACCEPTED, verb="post_bind_mw", statuses=("SUCCESS",)),
            "de19cd258c26",
        ),
        (
            ("REG-27",),
            Fault(FaultKind.MOVED, verb="traffic", key="window", allowed_by="ibv_bind_mw"),
            "de19cd258c26",
        ),
        (
            ("BIND-19",),
            Fault(FaultKind.ANNOUNCED, verb="wire", operation="SEND_ONLY_WITH_INV"),
            "5419bb365f47",
        ),
        (
            ("WIRE-05",),
            Fault(FaultKind.WRONG_INVALIDATED_KEY, verb="wire", operation="SEND_LAST_WITH_INV"),
            "5e8c2d4d65db",
        ),
    ],
)
def test_one_missing_check_is_one_defect_however_it_is_shown(
    rules: tuple[str, ...],
    fault: Fault,
    known: str,
) -> None:
    """A region of another process is a region of another domain, and an invalidation by packets is an invalidation."""
    symptom = replace(symptoms("forky")[0], rules=rules, fault=fault)
    assert cause_of(symptom).fingerprint == known
    others = replace(symptom, fault=replace(fault, operation="SEND_ONLY", verb="wire"))
    assert cause_of(others).fingerprint != known
