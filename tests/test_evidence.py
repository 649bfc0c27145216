"""Tests of the evidence for a rule: it is verified by granted and refused operations at each entry, and a control for each
refusal."""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.execution.runner import run_case
from conformance.judging.sentences import IN_FLIGHT
from conformance.model.capability import OF_TEST_KERNELS
from conformance.model.case import Case
from conformance.model.record import Missing, ResultRecord
from conformance.model.rules import Needs, Shown, controls, shown_by, shown_of_rules
from conformance.model.verdict import Verdict
from conformance.results.case_record import case_record
from conformance.results.conclusions import Standing
from conformance.results.rule_conclusions import (
    RuleConclusion,
    conclude_rules,
    unproven,
)
from conformance.results.writer import shown_in
from conformance.tables import suite
from conformance.tables.suite import CASES, load_suite
from conformance.tables.tiers import of_tier
from recorded_reference import record
from reports import evidence
from reports.digest import read
from samples import case, changed, numbered, result
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.stack import Stack
from trial.running import on_the_reference

SUITE = load_suite()
NEEDS = SUITE.registry.needs


def then_written(id_: str, access: str, then: str) -> Case:
    later = f"{{call: traffic, op: RDMA_WRITE, rkey: new.rkey, addr: buf, then: {then}}}"
    row = f"rules: [REG-05], when: {{access: [{access}]}}, then: success, afterwards: [{later}]"
    return case(f"- {{id: {id_}, {row}}}")


GRANTED = then_written("sample", "LOCAL_WRITE, REMOTE_WRITE", "success")
REFUSED = then_written("other", "LOCAL_WRITE", "refused")
ON_DEMAND = then_written("on-demand", "ON_DEMAND", "refused")
OPEN = case("{rules: [REG-05], when: {access: []}, then: open}")
BOTH = Needs(
    {"REG-05": ("granted RDMA_WRITE at libibverbs", "refused RDMA_WRITE at libibverbs")},
    cases={"REG-05": 2},
)


def line(of: Case, verdict: str = "PASS", **more: object) -> ResultRecord:
    """Returns a result with the evidence of its case, as in a results file."""
    record = result(of, verdict, **more)  # type: ignore[arg-type]
    return {**record, "evidence": shown_in(of, record)}


def concluded(*lines: ResultRecord, needs: Needs = BOTH) -> RuleConclusion:
    return conclude_rules(lines, needs)["REG-05"]


def test_a_row_is_evidence_of_its_last_operation():
    assert shown_by(GRANTED) == (Shown("granted", "RDMA_WRITE", "libibverbs", ("RC",)),)
    assert shown_by(ON_DEMAND) == (
        Shown("refused", "RDMA_WRITE", "libibverbs", ("RC", "on demand")),
    )
    assert shown_by(case("{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: refused}")) == (
        Shown("refused", "ibv_reg_mr", "libibverbs"),
    )
    assert shown_by(OPEN) == ()


def test_a_sweep_is_evidence_of_what_each_clause_expects_of_its_points():
    space = next(
        case
        for case in SUITE.cases
        if case.id == "bind_mw/data_path/type-1-operation-by-access-by-place"
    )
    shown = {(rule, shown.item) for rule, shown in shown_of_rules(space)}
    assert {
        ("BIND-05", "granted RDMA_WRITE at libibverbs"),
        ("BIND-09", "refused RDMA_WRITE at libibverbs"),
    } <= shown
    assert ("BIND-06", "granted RDMA_WRITE at libibverbs") not in shown
    assert {shown.set_up for _, shown in shown_of_rules(space)} == {("RC", "window of type 1")}


@pytest.mark.parametrize(
    "lines, needs, restriction",
    [
        ([line(GRANTED), line(REFUSED)], BOTH, ""),
        (
            [line(GRANTED)],
            BOTH,
            "1 of 3); not in this run: refused RDMA_WRITE at libibverbs, 1 other case",
        ),
        ([result(GRANTED)], Needs(), ""),  # without evidence, verdicts decide
    ],
)
def test_a_rule_is_verified_by_all_of_its_evidence(lines, needs, restriction):
    conclusion = concluded(*lines, needs=needs)
    assert (conclusion.verdict, bool(conclusion.missing)) == (
        ("PARTIAL", True) if restriction else ("PASS", False)
    )
    assert conclusion.restriction == (restriction and f"passed in part ({restriction}")


def test_a_rule_whose_every_outcome_is_open_did_not_pass_in_part():
    conclusion = concluded(line(OPEN, expected={"outcome": "open"}), needs=Needs({"REG-05": ()}))
    assert (conclusion.verdict, conclusion.label) == ("PARTIAL", "OPEN")
    assert conclusion.restriction.startswith("left open by the documents: ")
    assert conclusion.settled
    for observed, label in (([], "OPEN"), ([{"wc": ["REM_ACCESS_ERR"]}], "PARTIAL")):
        required = {"outcome": "open", "afterwards": [{"outcome": "refused"}]}
        granted = line(OPEN, expected=required, observed={"afterwards": observed})
        assert concluded(granted, needs=Needs({"REG-05": ()})).label == label


def test_evidence_that_was_not_run_is_named_as_missing():
    absent = {"why": "not in this run", "because": ""}
    missing = dict.fromkeys(("refused RDMA_WRITE at libibverbs", "1 other case"), absent)
    assert concluded(line(GRANTED)).as_data() == {"needed": 3, "seen": 1, "missing": missing}


@pytest.mark.parametrize("verdict", ["FAIL", "UNREACHABLE", "BROKEN"])
def test_a_refusal_whose_control_was_not_seen_is_no_evidence_and_is_reported(verdict):
    """The control belongs to another rule, so that all evidence of this rule passed."""
    control = changed(line(GRANTED, verdict), {"rules": ["REG-17"]})
    needs = Needs({"REG-05": BOTH.items["REG-05"][1:]})
    conclusion = conclude_rules([control, line(REFUSED)], needs)["REG-05"]
    assert conclusion.verdict == "PARTIAL"
    assert conclusion.restriction == (
        "passed in part (0 of 1); refused, but its control was not seen (granted RDMA_WRITE at libibverbs (RC)): "
        "refused RDMA_WRITE at libibverbs"
    )
    assert not conclusion.settled
    why = "the refusal proves nothing, because its control was not seen: granted RDMA_WRITE at libibverbs (RC)"
    assert unproven([control, line(REFUSED)], needs) == {REFUSED.id: why}
    held = [changed(line(GRANTED), {"rules": ["REG-17"]}), line(REFUSED)]
    assert conclude_rules(held, needs)["REG-05"].verdict == "PASS"
    assert unproven(held, needs) == {}


@pytest.mark.parametrize("effective", ["FAIL", "WAIVED", "STACK", "BROKEN"])
def test_passed_points_are_evidence_although_the_sweep_fails(effective):
    """The granted RDMA WRITE is evidence of REG-05, and the control of the refused RDMA WRITE; other points violate
    another rule."""
    verdicts = {"REG-05": "PASS", "REG-17": "FAIL"}
    (shown,) = line(GRANTED)["evidence"]
    evidence = [{**shown, "rule": rule, "verdict": verdict} for rule, verdict in verdicts.items()]
    sweep = changed(
        line(GRANTED, "FAIL"),
        {
            "rules": list(verdicts),
            "effective": effective,
            "rule_verdicts": verdicts,
            "evidence": evidence,
        },
    )
    conclusions = conclude_rules([sweep, line(REFUSED)], BOTH)
    assert {rule: conclusion.verdict for rule, conclusion in conclusions.items()} == {
        "REG-05": "PASS",
        "REG-17": effective,
    }


def test_a_rule_is_not_verified_by_points_that_were_not_reached():
    """On Linux, the kernel's core refuses an hca_va with another offset within the page."""
    sweep = next(
        item
        for item in SUITE.cases
        if item.id == "reg_mr_iova/far_addresses/local-operation-by-address"
    )
    kernel_core = Stack("linux", frozenset({"iova_page_offset"}))
    with closing(ReferenceBench(Device(kernel_core))) as bench:
        seen = case_record(run_case(sweep, on_the_reference(bench)), SUITE.registry)
    assert seen["verdict"] == "PASS"
    assert "; not reached: registering the MR 'mr' was refused with EINVAL" in seen["reason"]
    assert seen["unreached"] == {"IOVA-02": 15, "IOVA-03": 15}
    conclusion = conclude_rules([seen], Needs({"IOVA-02": ()}))["IOVA-02"]
    assert conclusion.restriction == (
        f"passed in part (0 of 1); not reachable here (15 points): {sweep.id}"
    )
    seen["space"]["tries"] = True
    assert conclude_rules([seen], Needs({"IOVA-02": ()}))["IOVA-02"].verdict == "PASS"


PAIRS = {"parameters": {"one": ["a"], "two": ["b"]}, "states": "r"}


@pytest.mark.parametrize(
    "verdict, why",
    [("PASS", "not reachable here"), ("FAIL", "blocked by a defect")],
)
def test_a_rule_is_not_verified_by_a_model_with_combinations_that_were_not_seen(verdict, why):
    of_model = {"pairs": PAIRS, "rule_verdicts": {"REG-05": "PASS"}, "unreached": {"REG-05": 3}}
    points = changed(result(GRANTED, verdict), of_model)
    conclusion = concluded(points, needs=Needs({"REG-05": ()}))
    assert conclusion.restriction == (
        f"passed in part (0 of 1); {why} (3 combinations): {GRANTED.id}"
    )
    del points["unreached"]
    assert concluded(points, needs=Needs({"REG-05": ()})).verdict == "PASS"


def test_what_a_model_expects_and_shows_is_that_of_its_points():
    run = read(suite.ROOT / "docs/runs/rxe.jsonl.xz")
    (made,) = (record for record in run.results if record["case"] == "access/binds/slice")
    lines = list(evidence.lines(run, made))
    assert "expected: each point as the model's answer to it says" in lines
    assert f"observed: {made['reason'].partition(';')[0]}" in lines
    assert not [line for line in lines if line.startswith("observed: rc")]


def test_a_rule_needs_the_points_of_its_model():
    cases = [item for item in of_tier(SUITE.cases, "default") if "REREG-04" in item.rules]
    assert "access/changes/slice" in {item.id for item in cases}
    assert NEEDS.cases["REREG-04"] == len(cases)


def test_evidence_that_needs_a_test_kernel_is_not_required():
    needs = replace(BOTH, cases={"REG-05": 3})
    for precondition, verdict in ((OF_TEST_KERNELS, "PASS"), ("swap", "PARTIAL")):
        observed = {"unreachable": "some reason", "precondition": [precondition]}
        not_run = line(ON_DEMAND, "UNREACHABLE", observed=observed)
        conclusion = concluded(line(GRANTED), line(REFUSED), not_run, needs=needs)
        assert conclusion.verdict == verdict


def test_a_rule_is_settled_if_its_control_is_not_offered():
    conclusion = concluded(line(GRANTED, "UNSUPPORTED"), line(REFUSED))
    assert (
        conclusion.missing["refused RDMA_WRITE at libibverbs"]["why"]
        == "refused, but its control is not offered"
    )
    assert conclusion.settled


@pytest.mark.parametrize(
    "why, standing",
    [("not offered", Standing.UNSUPPORTED), ("not reachable here", Standing.IN_PART)],
)
def test_a_rule_of_which_nothing_was_offered_did_not_pass_in_part(why, standing):
    lost: Missing = {"why": why, "because": ""}
    missing = {"granted": lost, "refused": lost}
    conclusion = RuleConclusion(Verdict.PARTIAL, needed=2, missing=missing)
    assert (conclusion.standing, conclusion.verdict) == (standing, "PARTIAL")
    assert replace(conclusion, needed=3).standing == (
        Standing.OFFERED if standing is Standing.UNSUPPORTED else Standing.IN_PART
    )


def test_a_control_has_the_same_set_up_if_possible():
    plain, odp = shown_by(GRANTED)[0], shown_by(ON_DEMAND)[0]
    assert controls([plain, odp]) == {odp.name: plain.name}
    assert controls([plain, odp, replace(odp, direction="granted")]) == {}
    export = Shown("refused", "ibv_export_buf_dmabuf_fd", "libibverbs")
    shown = Shown("granted", "ibv_alloc_buf", "libibverbs")
    assert controls([plain, export, shown]) == {export.name: shown.name}
    missing = concluded(line(GRANTED), line(ON_DEMAND)).missing["refused RDMA_WRITE at libibverbs"]
    assert missing["because"] == "granted RDMA_WRITE at libibverbs (RC, on demand)"
    near = replace(BOTH, controls=controls([plain, odp]))
    assert concluded(line(GRANTED), line(ON_DEMAND), needs=near).verdict == "PASS"


def test_every_refusal_in_the_tables_has_a_control():
    shown = {shown for of in of_tier(SUITE.cases, "default") for _, shown in shown_of_rules(of)}
    granted = {shown_item.name for shown_item in shown if shown_item.direction == "granted"}
    assert [
        shown_item
        for shown_item in shown
        if shown_item.direction == "refused" and NEEDS.control_of(shown_item.name) not in granted
    ] == []


def test_a_row_needs_the_newer_verb_that_registers_its_region():
    unnamed = [
        case.id
        for case in SUITE.cases
        for region in case.given.mrs.values()
        if region.call == "ibv_reg_mr_ex" and "reg_mr_ex" not in case.needs
    ]
    assert unnamed == []


def test_each_rule_needs_evidence_unless_all_of_its_cases_are_open():
    closed = {
        rule
        for of in of_tier(SUITE.cases, "default")
        if of.sweep or shown_by(of)
        for rule in of.rules
    }
    assert {rule for rule, items in NEEDS.items.items() if not items} == set(
        SUITE.registry,
    ) - closed


def test_evidence_that_a_rule_names_and_no_case_shows_is_a_mistake(tmp_path, monkeypatch):
    monkeypatch.setattr(suite, "CASES", tmp_path)
    folder = (
        Path(shutil.copytree(Path(__file__).with_name("own_rules"), tmp_path, dirs_exist_ok=True))
        / "dealloc_mw"
    )
    shutil.copy(CASES / "dealloc_mw" / "test_dealloc_mw.py", folder)
    with pytest.raises(
        UserError,
        match="no case of MINE-01 shows 'refused ibv_dealloc_mw at libibverbs'",
    ):
        load_suite()
    text = (folder / "rules.yaml").read_text()
    (folder / "rules.yaml").write_text(text.replace("[refused", "[granted"))
    assert load_suite().registry.needs.items["MINE-01"] == ("granted ibv_dealloc_mw at libibverbs",)


def test_a_run_reports_the_evidence_that_a_rule_needs_and_that_is_missing(tmp_path):
    chosen = [
        case for case in SUITE.cases if case.id.startswith("reg_mr/rights/remote-write-granted")
    ]
    run = read(record(tmp_path, SUITE, chosen))
    assert run.verdicts.of_rules["REG-05"] == "PARTIAL"
    assert "refused RDMA_WRITE at libibverbs" in run.verdicts.restrictions["REG-05"]
    assert run.footer
    assert run.footer["rule_evidence"]["REG-05"]["seen"] == 1
    assert run.footer["rules"]["REG-05"] == "PARTIAL"


def test_a_single_case_reports_how_many_others_its_rule_has():
    only_case = numbered(3).cases[0]
    needs = Needs({"REG-01": ("granted ibv_reg_mr at libibverbs",)}, cases={"REG-01": 3})
    assert "2 other cases" in conclude_rules([line(only_case)], needs)["REG-01"].missing


def test_ranges_and_finds_of_an_observation_are_words():
    seen = {"returned": "leaked", "layer": "none", "changed": [[0, 64]], "errno": "EINVAL"}
    missing = {"missing": [["inbox", 0, 8], ["inbox", 64, 1]], "stray": ["unknown"]}
    assert evidence.fields(evidence.own(seen)) == [
        ("returned", f"leaked: {IN_FLIGHT['leaked']}"),
        ("changed", "64 bytes at offset 0"),
        ("errno", "EINVAL"),
    ]
    assert evidence.fields(evidence.own(missing)) == [
        ("missing", "8 bytes at inbox + 0; 1 byte at inbox + 64"),
        ("stray", "unknown"),
    ]
