"""A rule is verified by its evidence: operations at each entry, granted and refused, and a control for each refusal."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.model.capability import OF_TEST_KERNELS
from conformance.model.case import Case
from conformance.model.record import ResultRecord
from conformance.model.rules import Needs, Shown, controls, shown_by, shown_of_rules
from conformance.model.vocabulary import TIERS
from conformance.results.rule_conclusions import RuleConclusion, conclude_rules, unproven
from conformance.results.writer import shown_in
from conformance.tables import suite
from conformance.tables.suite import CASES, Selection, load_suite
from conformance.tables.tiers import of_tier
from patience import calls_of
from recorded_reference import record
from reference.device import Device
from reports import markdown
from reports.digest import read
from reports.html import render
from samples import case, changed, numbered, result

SUITE = load_suite()
NEEDS = SUITE.registry.needs
SMOKE = of_tier(SUITE.cases, "smoke")


def then_written(id_: str, access: str, then: str) -> Case:
    later = f"{{call: traffic, op: RDMA_WRITE, rkey: new.rkey, addr: buf, then: {then}}}"
    row = f"rules: [REG-05], when: {{access: [{access}]}}, then: success, afterwards: [{later}]"
    return case(f"- {{id: {id_}, {row}}}")


GRANTED = then_written("sample", "LOCAL_WRITE, REMOTE_WRITE", "success")
REFUSED = then_written("other", "LOCAL_WRITE", "refused")
ON_DEMAND = then_written("on-demand", "ON_DEMAND", "refused")
OPEN = case("{rules: [REG-05], when: {access: []}, then: open}")
BOTH = Needs({"REG-05": ("granted RDMA_WRITE at libibverbs", "refused RDMA_WRITE at libibverbs")}, cases={"REG-05": 2})


def line(of: Case, verdict: str = "PASS", **more: object) -> ResultRecord:
    """A result with this evidence, as in a results file."""
    made = result(of, verdict, **more)  # type: ignore[arg-type]
    return {**made, "evidence": shown_in(of, made)}


def concluded(*lines: ResultRecord, needs: Needs = BOTH) -> RuleConclusion:
    return conclude_rules(lines, needs)["REG-05"]


def test_a_row_is_evidence_of_its_last_operation() -> None:
    assert shown_by(GRANTED) == (Shown("granted", "RDMA_WRITE", "libibverbs", ("RC",)),)
    assert shown_by(ON_DEMAND) == (Shown("refused", "RDMA_WRITE", "libibverbs", ("RC", "on demand")),)
    assert shown_by(case("{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: refused}")) == (
        Shown("refused", "ibv_reg_mr", "libibverbs"),
    )
    assert shown_by(OPEN) == ()


def test_a_sweep_shows_what_each_clause_expects_of_its_points() -> None:
    space = next(each for each in SUITE.cases if each.id == "bind_mw/data_path/type-1-operation-by-access-by-place")
    shown = {(rule, each.item) for rule, each in shown_of_rules(space)}
    assert {("BIND-05", "granted RDMA_WRITE at libibverbs"), ("BIND-09", "refused RDMA_WRITE at libibverbs")} <= shown
    assert ("BIND-06", "granted RDMA_WRITE at libibverbs") not in shown
    assert {each.set_up for _, each in shown_of_rules(space)} == {("RC", "window of type 1")}


def test_a_rule_is_verified_by_all_of_its_evidence() -> None:
    found = concluded(line(GRANTED), line(REFUSED))
    assert (found.verdict, found.missing, found.restriction) == ("PASS", {}, "")


def test_evidence_that_was_not_run_is_named_as_missing() -> None:
    found = concluded(line(GRANTED))
    assert found.verdict == "PARTIAL"
    assert found.as_data() == {
        "needed": 3,
        "seen": 1,
        "missing": {
            "refused RDMA_WRITE at libibverbs": {"why": "not in this run", "because": ""},
            "1 other case": {"why": "not in this run", "because": ""},
        },
    }
    assert found.restriction == (
        "passed in part (1 of 3); not in this run: refused RDMA_WRITE at libibverbs, 1 other case"
    )


@pytest.mark.parametrize("verdict", ["FAIL", "UNREACHABLE", "BROKEN"])
def test_a_refusal_whose_control_did_not_hold_proves_nothing_and_says_so(verdict: str) -> None:
    """The control belongs to another rule, so that this rule has only evidence that passed."""
    control = changed(line(GRANTED, verdict), {"rules": ["REG-17"]})
    needs = Needs({"REG-05": BOTH.items["REG-05"][1:]})
    found = conclude_rules([control, line(REFUSED)], needs)["REG-05"]
    assert found.verdict == "PARTIAL"
    assert found.restriction == (
        "passed in part (0 of 1); refused, but its control was not seen (granted RDMA_WRITE at libibverbs (RC)): "
        "refused RDMA_WRITE at libibverbs"
    )
    assert not found.settled
    why = "the refusal proves nothing, because its control was not seen: granted RDMA_WRITE at libibverbs (RC)"
    assert unproven([control, line(REFUSED)], needs) == {REFUSED.id: why}
    held = [changed(line(GRANTED), {"rules": ["REG-17"]}), line(REFUSED)]
    assert conclude_rules(held, needs)["REG-05"].verdict == "PASS"
    assert unproven(held, needs) == {}


@pytest.mark.parametrize("effective", ["FAIL", "WAIVED", "STACK", "BROKEN"])
def test_passed_points_are_evidence_although_the_sweep_fails(effective: str) -> None:
    """The granted RDMA WRITE is evidence of REG-05, and the control of the refused RDMA WRITE; other points violate
    another rule."""
    verdicts = {"REG-05": "PASS", "REG-17": "FAIL"}
    (shown,) = line(GRANTED)["evidence"]
    evidence = [{**shown, "rule": rule, "verdict": verdict} for rule, verdict in verdicts.items()]
    sweep = changed(
        line(GRANTED, "FAIL"),
        {"rules": list(verdicts), "effective": effective, "rule_verdicts": verdicts, "evidence": evidence},
    )
    found = conclude_rules([sweep, line(REFUSED)], BOTH)
    assert {rule: each.verdict for rule, each in found.items()} == {"REG-05": "PASS", "REG-17": effective}


def test_evidence_that_needs_a_test_kernel_is_not_required() -> None:
    needs = replace(BOTH, cases={"REG-05": 3})
    for reason, verdict in ((OF_TEST_KERNELS, "PASS"), ("no swap", "PARTIAL")):
        found = concluded(line(GRANTED), line(REFUSED), line(ON_DEMAND, "UNREACHABLE", reason=reason), needs=needs)
        assert found.verdict == verdict


def test_a_rule_is_settled_if_its_control_is_not_offered() -> None:
    found = concluded(line(GRANTED, "UNSUPPORTED"), line(REFUSED))
    assert found.missing["refused RDMA_WRITE at libibverbs"]["why"] == "refused, but its control is not offered"
    assert found.settled


def test_a_control_has_the_same_set_up_if_possible() -> None:
    plain, odp = shown_by(GRANTED)[0], shown_by(ON_DEMAND)[0]
    assert controls([plain, odp]) == {odp.name: plain.name}
    assert controls([plain, odp, replace(odp, direction="granted")]) == {}
    export, made = (
        Shown("refused", "ibv_export_buf_dmabuf_fd", "libibverbs"),
        Shown("granted", "ibv_alloc_buf", "libibverbs"),
    )
    assert controls([plain, export, made]) == {export.name: made.name}
    refused = concluded(line(GRANTED), line(ON_DEMAND))
    assert refused.missing["refused RDMA_WRITE at libibverbs"]["because"] == (
        "granted RDMA_WRITE at libibverbs (RC, on demand)"
    )
    near = replace(BOTH, controls=controls([plain, odp]))
    assert concluded(line(GRANTED), line(ON_DEMAND), needs=near).verdict == "PASS"


def test_every_refusal_in_the_tables_has_a_control() -> None:
    shown = {each for of in of_tier(SUITE.cases, "default") for _, each in shown_of_rules(of)}
    granted = {each.name for each in shown if each.direction == "granted"}
    assert [each for each in shown if each.direction == "refused" and NEEDS.control_of(each.name) not in granted] == []


def test_an_open_outcome_verifies_nothing() -> None:
    found = concluded(line(OPEN, expected={"outcome": "open"}), needs=Needs({"REG-05": ()}))
    assert found.restriction == "passed in part (0 of 1); left open: a documented outcome"


def test_results_without_evidence_are_concluded_by_verdicts() -> None:
    assert concluded(result(GRANTED), needs=Needs()).verdict == "PASS"


def test_each_rule_needs_evidence_unless_all_of_its_cases_are_open() -> None:
    closed = {rule for of in of_tier(SUITE.cases, "default") if of.sweep or shown_by(of) for rule in of.rules}
    assert {rule for rule, items in NEEDS.items.items() if not items} == set(SUITE.registry) - closed


def test_evidence_that_a_rule_names_and_no_case_shows_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "CASES", tmp_path)
    folder = Path(shutil.copytree(Path(__file__).with_name("own_rules"), tmp_path, dirs_exist_ok=True)) / "dealloc_mw"
    shutil.copy(CASES / "dealloc_mw" / "test_dealloc_mw.py", folder)
    with pytest.raises(UserError, match="no case of MINE-01 shows 'refused ibv_dealloc_mw at libibverbs'"):
        load_suite()
    text = (folder / "rules.yaml").read_text()
    (folder / "rules.yaml").write_text(text.replace("[refused", "[granted"))
    assert load_suite().registry.needs.items["MINE-01"] == ("granted ibv_dealloc_mw at libibverbs",)


def test_a_run_says_of_each_rule_what_it_needs_and_what_was_missing(tmp_path: Path) -> None:
    chosen = [each for each in SUITE.cases if each.id.startswith("reg_mr/rights/remote-write-granted")]
    run = read(record(tmp_path, SUITE, chosen))
    assert run.verdicts["REG-05"] == "PARTIAL"
    assert "refused RDMA_WRITE at libibverbs" in run.restrictions["REG-05"]
    assert run.footer
    assert run.footer["rule_evidence"]["REG-05"]["seen"] == 1
    assert run.footer["rules"]["REG-05"] == "PARTIAL"


# The smallest tier


def test_smoke_has_each_direction_of_every_rule() -> None:
    shown = {(rule, each.direction) for of in SMOKE for rule, each in shown_of_rules(of)}
    everything = {(rule, each.direction) for of in of_tier(SUITE.cases, "default") for rule, each in shown_of_rules(of)}
    assert shown == everything
    assert {rule for of in SMOKE for rule in of.rules} == set(SUITE.registry)


def test_the_smoke_tier_is_computed_once() -> None:
    """The forks of a process (one for each host of a lab) then need not compute the tier again."""
    suite = replace(SUITE)
    first, again = (calls_of(lambda: Selection(tier="smoke").apply(suite)) for _ in range(2))
    assert again < first / 5


def test_a_tier_restricts_every_other_selection() -> None:
    assert {of.id for of in Selection(rules=["REG-15"], tier="smoke").apply(SUITE)} == {
        of.id for of in SMOKE if "REG-15" in of.rules
    }
    for tier in TIERS:
        ids = {of.id for of in of_tier(SUITE.cases, tier)}
        assert {of.id for of in Selection(verbs=["bind_mw"], tier=tier).apply(SUITE)} <= ids


def test_smoke_touches_a_rule_and_does_not_verify_it(tmp_path: Path) -> None:
    run = read(record(tmp_path, SUITE, SMOKE, Device(), tier="smoke"))
    assert run.status == 0
    assert "verified" not in run.sentence
    count = f"of {len(run.documented_rules)} documented rules"
    assert f"{count} touched without a violation" in run.short_sentence
    assert run.apart
    assert f"{count} touched without a violation" in render([run])
    assert "PASS" not in run.verdicts.values()
    assert f"| PARTIAL | {run.parts[0].count} | 0 |" in markdown.render([run])
    assert not run.concluded.conforms


def test_a_single_case_reports_how_many_others_its_rule_has() -> None:
    one = numbered(3).cases[0]
    needs = Needs({"REG-01": ("granted ibv_reg_mr at libibverbs",)}, cases={"REG-01": 3})
    assert "2 other cases" in conclude_rules([line(one)], needs)["REG-01"].missing
