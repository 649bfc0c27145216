"""Tests of severity and defects on the violations of real runs.

`recorded_violations` has the violations, and some passing results, of four runs in the guest: two on Debian forky, with
crashes in different cases, one on trixie, and one with the driver siw. Headers and results are as recorded, except for
details of the machine and keys that no test reads.
"""

import copy
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.defects import (
    Answering,
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
from conformance.defects import cause as causes
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.model.record import ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.records import read_results
from conformance.tables.suite import ROOT, load_suite
from kinds import REPORTS
from recorded_reference import record as recorded_run
from reports import markdown
from reports.digest import read
from reports.explanations import defect_of, of_defect
from reports.html import Page, render
from reports.summary import as_data
from trial.catalogue import named

RUNS = Path(__file__).with_name("recorded_violations")
RECORDED = sorted((*RUNS.glob("*.jsonl"), *Path(__file__).parents[1].glob("docs/runs/*.jsonl.xz")))


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


def test_a_defect_has_the_same_fingerprint_in_two_runs_with_crashes_in_different_cases():
    first, second = results("forky"), results("forky-again")
    died = []
    for records_seen in (first, second):
        died.append({record["case"] for record in records_seen if record["verdict"] == "CRASH"})
    assert died[0] != died[1]
    assert rules_by_fingerprint(defects_of(second)) == FORKY


def test_a_defect_has_the_same_fingerprint_on_another_stack():
    rules_there = rules_by_fingerprint(defects_of(results("trixie")))
    assert len(rules_there) == 14
    assert set(rules_there) <= set(FORKY)


def test_one_cause_that_violates_many_rules_is_one_defect():
    defects = {defect.fingerprint: defect for defect in defects_of(results("siw"))}
    ignored = defects["9d4c5e172cfa"]
    assert ignored.rules == ("IOVA-01", "IOVA-02", "IOVA-03", "IOVA-06", "REG-11")
    assert len(ignored.cases) == 30
    assert defects["34c74b10f9f8"].severity is Severity.MEMORY


@pytest.mark.parametrize("name", ["forky", "trixie"])
def test_fingerprint_and_severity_do_not_depend_on_which_cases_ran_and_in_which_order(name):
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


def test_the_most_severe_defect_comes_first_and_each_result_counts_once():
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
def test_severity_agrees_with_the_raw_observations(name):
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


def test_the_only_remark_of_recorded_runs_is_about_invalidated_keys():
    remarks = {
        re.sub(r"0x[0-9a-f]+", "KEY", symptom.line.replace(symptom.call, ""))
        for name in ("forky", "trixie", "siw")
        for record in results(name)
        for symptom in symptoms_of(record)
        if symptom.fault.effect is Effect.REMARK
    }
    assert remarks == {": the receiver was told nothing as the invalidated key, not KEY"}


def test_the_answering_layer_is_reported_only_with_evidence():
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
    log = [
        "Call Trace:",
        " rxe_odp_map+0x1a/0x90 [rdma_rxe]",
        " ib_uverbs_advise+0x1/0x90 [ib_uverbs]",
    ]
    symptom = died.symptoms[0]
    record = copy.deepcopy(symptom.record)
    record["kernel"]["log"] = log
    site = ("get_pid_task", "ib_umem_odp_map_dma_and_lock", "", "ib_uverbs")
    in_core = replace(symptom, record=record, fault=replace(symptom.fault, site=site))
    assert answering_of(in_core).layer == "not known"
    assert answering_of(in_core).because.endswith("; rxe_odp_map of rdma_rxe is on the stack")
    log.pop(1)
    assert answering_of(in_core).layer == "kernel core"
    early = [
        answering_of(symptom).layer
        for symptom in symptoms("forky")
        if symptom.fault.kind is FaultKind.CARRIED_OUT
    ]
    assert set(early) == {"provider"}


def test_a_defect_whose_worst_cases_are_waived_says_so():
    digest = read(ROOT / "docs/runs/rxe.jsonl.xz")
    (defect,) = Defect.called("85c569cb8aca", digest.violations.defects)
    assert not defect.share
    remote = {
        symptom.case for symptom in defect.symptoms if severity_of(symptom) is defect.severity
    }
    results: list[ResultRecord] = []
    for record in digest.results:
        effective = Verdict.WAIVED if record["case"] in remote else record["effective"]
        results.append({**record, "effective": effective})
    (waived,) = Defect.called("85c569cb8aca", defects_of(results))
    assert waived.severity.label == "memory safety"
    counted = len({*waived.cases} - remote)
    numbers = f"{counted} count, {len(remote)} waived, the worst remote: memory"
    assert waived.share == numbers
    digest.violations.defects = (waived,)
    assert f'<span class="mark">{numbers}</span></span>' in render([digest])


def symptoms(run: str) -> list[Symptom]:
    return [symptom for record in results(run) for symptom in symptoms_of(record)]


@pytest.mark.parametrize("name", [name for name in REPORTS if name.startswith("died_")])
def test_the_frames_of_a_dead_process_name_the_answering_layer(name):
    log, who = REPORTS[name]
    died = next(symptom for symptom in symptoms("forky") if symptom.rules == ("BIND-21",))
    record: ResultRecord = {**died.record, "kernel": {"log": log}}
    assert answering_of(replace(died, record=record)).layer == who


def test_wrong_results_of_the_kernel_core_count_as_the_stacks_but_crashes_do_not():
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


def test_one_flag_that_is_refused_at_many_rules_is_one_defect_and_keeps_every_fingerprint(tmp_path):
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


@pytest.mark.parametrize(
    "rules, fault, known",
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
        (
            ("WIRE-06",),
            Fault(FaultKind.ACCEPTED, verb="wire", operation="ATOMIC_FETCH_AND_ADD"),
            "cbd19609728d",
        ),
        (
            ("WIRE-06",),
            Fault(FaultKind.ACCEPTED, verb="wire", operation="ATOMIC_CMP_AND_SWP"),
            "cbd19609728d",
        ),
    ],
)
def test_one_missing_check_is_one_defect_however_it_is_shown(rules, fault, known):
    """A region of another process is a region of another domain, and an invalidation by packets is an invalidation."""
    symptom = replace(symptoms("forky")[0], rules=rules, fault=fault)
    assert cause_of(symptom).fingerprint == known
    others = replace(symptom, fault=replace(fault, operation="SEND_ONLY", verb="wire"))
    assert cause_of(others).fingerprint != known


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_each_counted_defect_has_one_identity_and_one_row(path):
    """A fingerprint is that of one defect only, the summary and the page count the same defects, and `explain` accepts
    the fingerprint of each."""
    run = read(path)
    defects = run.violations.defects
    names = [name for defect in defects for name in defect.fingerprints]
    assert len(names) == len(set(names)) >= len(defects) > 0
    families = [rows for listed in Page([run]).defects.listed.values() for rows in listed]
    assert sum(len(members) for _, members in families) == len(defects)
    assert len(as_data(run)["defects"]) == len(defects)
    for defect in defects:
        assert defect_of(defect.fingerprint, run, "--run") == (defect, run)


def test_an_earlier_fingerprint_joins_defects_with_a_common_rule_or_layer(monkeypatch):
    first, second, *_ = read(RUNS / "forky.jsonl").violations.defects
    monkeypatch.setitem(causes._EARLIER, first.causes[0].key, (second.fingerprint,))
    strange = replace(
        second, symptoms=tuple(replace(each, rules=("WR-01",)) for each in second.symptoms)
    )
    strange.__dict__["answering"] = Answering("program")
    assert not first.is_same(strange)
    assert not strange.is_same(first)
    strange.__dict__["answering"] = first.answering
    assert first.is_same(strange)
    related = replace(first, causes=second.causes)
    assert related.is_same(first)
    assert first.is_among([strange, related])


def test_the_shown_cases_of_a_defect_have_a_confirmed_one_and_the_worst():
    """The worst violation was perhaps not repeated; the share of the repeated cases is told."""
    run = read(RUNS.parents[1] / "docs/runs/rxe.jsonl.xz")
    again = run.violations.repetitions
    for defect in run.violations.defects:
        examples = defect.examples(3)
        assert examples[0] is defect.first
        assert len({symptom.case for symptom in examples}) >= min(3, len(defect.cases))
        assert any(map(again.is_confirmed, examples)) is bool(defect.confirmed)
    (defect,) = Defect.called("85c569cb8aca", run.violations.defects)
    number = len(defect.cases)
    assert again.share(defect) == f"3 confirmed, {number - 3} not repeated"
    (case,) = Defect.called("b3aacea54369", run.violations.defects)
    assert again.share(case) == "1 confirmed"
    shown = " ".join("\n".join(of_defect(defect, run, in_full=False)).split())
    assert f"{number} cases, {defect.points} calls: 3 confirmed, {number - 3} not" in shown
    beside = next(
        defect
        for defect in run.violations.defects
        if defect.confirmed and not again.is_confirmed(defect.first)
    )
    text = " ".join("\n".join(of_defect(beside, run, in_full=False)).split())
    assert f"A case that was repeated: {beside.confirmed[0].name} confirmed: " in text
    text = markdown.render([run])
    assert f"{again.share(beside)}; `{beside.confirmed[0].case}` confirmed" in text
    (page,) = [by for by in Page([run]).defects.all if by[0].defect is defect]
    assert {symptom.case for symptom in page[0].symptoms} | {*page[0].more} == {*defect.cases}


def test_a_whole_fingerprint_names_the_defect_that_has_it_first():
    first, second, *_ = read(RUNS / "forky.jsonl").violations.defects
    merged = replace(first, causes=(*first.causes, *second.causes))
    assert Defect.called(second.fingerprint, (merged, second)) == [second]
    assert Defect.called(second.fingerprint[:6], (merged, second)) == [merged, second]
    assert Defect.called(second.fingerprint[:3], (merged, second)) == []


def test_a_kernel_that_dies_in_a_use_that_must_be_refused_has_not_refused_it():
    """On ppc64el a FLUSH of ordinary memory kills the kernel; on amd64 it succeeds."""
    run = read_results(ROOT / "docs/runs/rxe-ppc64el.jsonl.xz")
    killed = [
        symptom
        for record in run.results
        if record["case"].startswith("reg_mr/flush_on_demand/ordinary-memory")
        for symptom in symptoms_of(record)
    ]
    assert killed
    assert {symptom.fault.effect for symptom in killed} == {Effect.KERNEL_DIED}
    assert {cause_of(symptom).key for symptom in killed} == {("accepted", "access", "", "REG-09a")}


def test_the_example_of_a_defect_is_the_plainest_of_its_equal_cases():
    record = next(s.record for s in symptoms("forky") if s.verdict == "FAIL" and not s.deviation)
    plain, special = "buf: memory, anonymous, 4 pages", "buf: memory, sparse, 4 GiB + 4 pages"
    given = {"a/a/sparse": special, "a/a/plain": plain, "a/a/later": plain}
    cases: Any = [
        {**record, "case": case, "set_up": {"given": [line], "before": []}}
        for case, line in given.items()
    ]
    (defect,) = defects_of(cases)
    assert defect.cases == ("a/a/plain", "a/a/later", "a/a/sparse")
