"""Tests that the conclusion about a run has the same words everywhere, and is "conforms" only if no rule and no case is
undecided."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from commands.report import renderer
from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.record import FooterRecord
from conformance.model.rules import VENDOR, Needs, shown_of_rules
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import TIERS
from conformance.older_python import zip
from conformance.results.conclusions import RunConclusion, conclude_run
from conformance.results.equal_results import unequal_verdicts
from conformance.results.records import read_written
from conformance.results.rule_conclusions import (
    LEFT_OPEN,
    RuleConclusion,
)
from conformance.tables.suite import Selection, load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from kinds import Folders
from patience import calls_of
from recorded_reference import is_dear, record
from reports import markdown
from reports.digest import read
from reports.html import render
from reports.nights.facts import Facts, facts_of
from reports.terminal import NORMAL, QUIET, VERBOSE, summary
from samples import lines_of, written_records
from trial.reference.device import Device
from trial.reference.stack import without

SUITE = load_suite()
(CASE,) = (
    case for case in SUITE.cases if case.id == "reg_mr/rights/remote-read-granted-by-remote-read"
)
CONFORMS = re.compile(r"\bconform(s|ant)\b|\b[1-9]\d* of \d+ hosts? conform")
OTHERS = (
    f"{sum(rule.since != VENDOR for rule in SUITE.registry.values()) - 1:,} rules without a case"
)
PARTIAL = (
    f"partial: {OTHERS}, {len(of_tier(SUITE.cases, DEFAULT)) - 1:,} cases of the default tier not in the run, "
    "1 rule passed only in part"
)


@pytest.fixture(scope="module")
def passing_run(tmp_path_factory: Folders) -> Path:
    """A run of one case, which passes."""
    folder = tmp_path_factory.mktemp("one")
    return record(folder, SUITE, [CASE], started="2026-01-02T03:04:05+00:00")


@pytest.mark.parametrize("of", ["html", "junit", "ktap", "markdown", "summary"])
def test_no_report_of_one_case_says_that_the_device_conforms(passing_run, tmp_path, of, cli):
    out = tmp_path / "report"
    cli(0, "report", passing_run, "--format", of, "--out", out)
    text = out.read_text()
    assert PARTIAL in re.sub(r"\\(.)", r"\1", text)
    assert not CONFORMS.search(text)


@pytest.mark.parametrize("level", [QUIET, NORMAL, VERBOSE])
def test_the_terminal_does_not_say_that_one_case_conforms(passing_run, level):
    text = summary(read(passing_run), passing_run, level=level)
    assert text.splitlines()[-1] == f"{PARTIAL}; no rule was violated (exit status 0)"
    assert not CONFORMS.search(text)


def test_judge_bundle_and_verify_do_not_say_that_one_case_conforms(passing_run, tmp_path, cli):
    bundle = tmp_path / "bundle"
    for status, *command in (
        (0, "judge", passing_run),
        (0, "bundle", passing_run, "--out", bundle),
        (3, "judge", bundle),
    ):
        text = cli(status, *command).out
        assert PARTIAL in text
        assert not CONFORMS.search(text)


class Refusing(Device):
    def access_fault(self, access: int) -> int:
        return 22


def test_every_command_reports_a_violation_of_a_run_that_was_cut_short(tmp_path, cli):
    run = record(tmp_path, SUITE, [CASE], Refusing(), started="2026-01-02T03:04:05+00:00")
    run_read = read(written_records(lines_of(run)[:-1], run))
    assert run_read.summary.status == 1
    assert run_read.summary.conclusion.endswith(" violated (cut short)")
    assert run_read.summary.conclusion in cli(1, "judge", run).out
    assert run_read.summary.conclusion in cli(0, "bundle", run, "--out", tmp_path / "bundle").out
    assert run_read.summary.conclusion in cli(1, "judge", tmp_path / "bundle").out


def run_concluded(
    verdicts: Sequence[str],
    left_out: int | None = 0,
    unrecorded: int = 0,
    levels: Sequence[str] = (),
    **more: str,
) -> RunConclusion:
    """Returns the conclusion about a run with one rule per verdict, of these levels; the rules in `more` are
    conditional."""
    rules = {
        f"R-{number}": RuleConclusion(Verdict(number_verdict))
        for number, number_verdict in enumerate(verdicts)
    }
    rules |= {
        rule: RuleConclusion(Verdict(verdicts_of_rule)) for rule, verdicts_of_rule in more.items()
    }
    footer: FooterRecord = {
        "type": "footer",
        "complete": not unrecorded,
        "verdicts": dict(Counter(rule.verdict for rule in rules.values())),
        "rules": {},
        "rule_totals": {},
        "points": 0,
        "duration_s": 1.0,
    }
    needs = Needs(conditional=frozenset(more))
    by_rule = dict.fromkeys(rules, "") | dict(zip(rules, levels, strict=False))
    return conclude_run(
        "x0",
        footer,
        by_rule,
        rules,
        needs,
        left_out=left_out,
        unrecorded=unrecorded,
    )


def test_a_whole_run_without_undecided_rules_conforms():
    conclusion = run_concluded(["PASS", "UNSUPPORTED", "WAIVED"], other="UNREACHABLE")
    assert (conclusion.words, conclusion.conforms) == (
        "x0 conforms to its documents except for 1 waived rule",
        True,
    )


@pytest.mark.parametrize(
    "found, left",
    [
        (run_concluded(["PASS"], left_out=2), "2 cases of the default tier not in the run"),
        (
            run_concluded(["PASS"], left_out=None),
            "it is unknown how much of the default tier was run",
        ),
        (run_concluded(["PASS", "BROKEN"]), "1 rule undecided"),
        (run_concluded(["PASS"], unrecorded=1), "1 planned case without a result"),
        (run_concluded(["UNSUPPORTED", "UNSUPPORTED"]), "no rule verified"),
        (run_concluded([]), "no rule verified"),
    ],
)
def test_an_incomplete_run_is_partial_and_names_the_gap(found, left):
    assert found.words == f"partial: {left}; no rule was violated"
    assert not found.conforms


@pytest.mark.parametrize("verdict", ["PASS", "WAIVED"])
def test_a_whole_run_is_not_partial_because_of_what_its_stack_cannot_reach(verdict):
    found = run_concluded([verdict, "UNREACHABLE"])
    waived = " except for 1 waived rule" if verdict == "WAIVED" else ""
    assert found.words == f"no rule was violated{waived}; 1 rule unreachable here"
    assert not found.conforms
    assert not found.incomplete


def test_a_violation_outranks_every_gap():
    conclusion = run_concluded(["PASS", "FAIL", "CRASH"], left_out=7)
    assert (conclusion.words, conclusion.status) == (
        "x0 does not conform to its documents: 2 rules violated",
        1,
    )


def test_violated_musts_and_shoulds_are_counted_apart():
    conclusion = run_concluded(["FAIL", "FAIL", "HANG"], levels=["should", "must", "should"])
    assert conclusion.words == "x0 does not conform to its documents: 1 must and 2 shoulds violated"


def test_a_run_of_other_tables_cannot_claim_to_be_whole(passing_run, tmp_path):
    header, *results, footer = lines_of(passing_run)
    header["suite"]["tables_sha256"] = "1" * 64
    said = read(written_records([header, *results, footer], tmp_path)).summary.conclusion
    assert f" {header['left_out']:,} cases of the default tier not in the run" in said
    header |= {"left_out": 0, "rules": {rule: header["rules"][rule] for rule in footer["rules"]}}
    said = read(written_records([header, *results, footer], tmp_path)).summary.conclusion
    assert "it is unknown how much of the default tier was run" in said


@pytest.mark.parametrize(
    "changed",
    [{"conclusion": "x0 conforms to its documents"}, {"exit_status": 0}],
)
def test_a_summary_that_contradicts_itself_is_damaged(passing_run, tmp_path, changed):
    summary = json.loads(str(renderer("summary").render([read(passing_run)])))
    rule = next(iter(summary["rules"]))
    violated = {**summary, "rules": {**summary["rules"], rule: "FAIL"}, "exit_status": 1}
    assert Facts.of(violated).rules[rule] == "FAIL"
    (tmp_path / "summary.json").write_text(json.dumps({**violated, **changed}))
    with pytest.raises(UserError, match=r"summary\.json is damaged"):
        facts_of(tmp_path)


class NoOffsets(Device):
    """A reference that refuses ZERO_BASED and HUGETLB with EOPNOTSUPP."""

    def access_fault(self, access: int) -> int:
        if access & (1 << 5 | 1 << 7):
            return 95
        return super().access_fault(access)


# Each test makes a new device, because the end of a run closes the memory of its device.
DEVICES: Mapping[str, Callable[[], Device]] = {
    "without-odp": lambda: Device(without("odp", "rereg_mr")),
    "usual": Device,
    "no-offsets": NoOffsets,
    "without-translation": lambda: Device(without("rereg_translation")),
}


@pytest.mark.parametrize(
    "device, most_points",
    [
        ("without-odp", 256),
        *(pytest.param(name, 2048, marks=pytest.mark.nightly) for name in DEVICES),
    ],
)
def test_equal_results_of_calls_have_equal_verdicts(tmp_path, device, most_points):
    cases = [
        case
        for case in of_tier(SUITE.cases, DEFAULT)
        if case.verb in ("ibv_rereg_mr", "ibv_reg_mr")
    ]
    fast = [
        case
        for case in cases
        if (case.sweep is None or case.sweep.size <= most_points) and not is_dear(case)
    ]
    path = record(tmp_path, SUITE, fast, DEVICES[device]())
    assert unequal_verdicts(SUITE, read_written(path), path) == []


# The smallest tier


@pytest.fixture(scope="module")
def smoke() -> Sequence[Case]:
    return of_tier(SUITE.cases, "smoke")


def test_smoke_has_each_direction_of_every_rule(smoke):
    shown = {(rule, shown.direction) for of in smoke for rule, shown in shown_of_rules(of)}
    everything = {
        (rule, shown.direction)
        for of in of_tier(SUITE.cases, "default")
        for rule, shown in shown_of_rules(of)
    }
    assert shown == everything
    assert {rule for of in smoke for rule in of.rules} == set(SUITE.registry)


def test_the_smoke_tier_is_computed_once():
    """So the forks of a process, one for each host of a lab, need not compute the tier."""
    suite = replace(SUITE)
    first, again = (calls_of(lambda: Selection(tier="smoke").apply(suite)) for _ in range(2))
    assert again < first / 5


def test_a_tier_restricts_every_other_selection(smoke):
    chosen = Selection(rules=["REG-15"], tier="smoke").apply(SUITE)
    assert {of.id for of in chosen} == {of.id for of in smoke if "REG-15" in of.rules}
    for tier in TIERS:
        ids = {of.id for of in of_tier(SUITE.cases, tier)}
        assert {of.id for of in Selection(verbs=["bind_mw"], tier=tier).apply(SUITE)} <= ids


def test_a_smoke_run_verifies_no_rule(smoke, tmp_path):
    run = read(record(tmp_path, SUITE, smoke, Device(), tier="smoke"))
    assert run.summary.status == 0
    assert "verified" not in run.summary.sentence
    count = f"of {len(run.verdicts.documented)} documented rules"
    assert f"{count} touched without a violation" in run.summary.short_sentence
    assert run.verdicts.apart
    assert f"{count} touched without a violation" in render([run])
    assert "PASS" not in run.verdicts.of_rules.values()
    left_open = list(run.verdicts.labels.values()).count(LEFT_OPEN)
    table = markdown.render([run])
    assert f"| {LEFT_OPEN}: left open by the documents | {left_open} | |" in table
    assert f"| PARTIAL | {run.summary.parts[0].count - left_open} | 0 |" in table
    assert not run.summary.concluded.conforms
