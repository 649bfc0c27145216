"""Tests that `open` in a table means that no document decides the outcome: `either` and `elsewhere` are words for the
other reasons why a row does not judge the outcome of its call."""

import importlib
import sys
from collections.abc import Iterator

import pytest

from conformance.judging import LEFT_OPEN, UNDECLARED, Basis, conclude
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.observation import without_undeclared
from conformance.model.rules import Needs
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import EITHER, ELSEWHERE
from conformance.results.conclusions import Standing, verdict_on
from conformance.results.rejudge import known_capabilities
from conformance.results.rule_conclusions import conclude_rules
from conformance.tables.suite import ROOT, load_suite

sys.path.insert(0, str(ROOT / "docs"))
quotes = importlib.import_module("quotes")
STACKS = ("rxe", "mended", "siw", "trixie")
# By the beginning of a case's id: the rule whose rows judge the outcome of the case's call.
JUDGED_BY = {
    "advise_mr/asynchronous/": "ADV-15",
    "bind_mw/bound_anew/": "BIND-02",
    "bind_mw/completions/": "BIND-17",
    "bind_mw/keys_of_others/": "REG-27",
    "bind_mw/ownership/": "BIND-18",
    "reg_mr_iova/huge_pages/": "REG-13",
    "reg_mr_iova/on_demand/": "IOVA-02a",
    "reg_mr_iova/translation/": "IOVA-02a",
    "rereg_mr/changes/keys": "REREG-03",
    "rereg_mr/changes/right": "REREG-12",
}
# The errnos with which a stack says that it does not offer a call.
NOT_OFFERED = ("EOPNOTSUPP", "ENOTSUP", "ENOSYS", "EPROTONOSUPPORT")


def undecided(judged: str) -> list[Case]:
    rows = (case for case in load_suite().cases if case.kind is Kind.ROW)
    return [
        case
        for case in rows
        if case.when.then.outcome == "open" and case.when.then.judged == judged
    ]


def call_of(case: Case) -> str:
    return repr((str(case.when), case.entry, case.given, case.before))


def rules_of_point(case: Case) -> Iterator[str]:
    if case.sweep is not None:
        yield from (
            clause.rule
            for clause in case.sweep.deciding
            if clause.then and clause.then.outcome != "open"
        )


@pytest.fixture(scope="module")
def decided() -> dict[str, str]:
    """The calls whose outcome a row judges, each with the id of this row."""
    rows = (case for case in load_suite().cases if case.kind is Kind.ROW)
    return {call_of(case): case.id for case in rows if case.when.then.outcome != "open"}


@pytest.mark.parametrize("word", ["", EITHER])
def test_no_row_leaves_open_what_another_row_judges(word, decided):
    judged = {case.id: decided.get(call_of(case)) for case in undecided(word)}
    assert {case: row for case, row in judged.items() if row} == {}


def test_a_row_that_permits_both_outcomes_judges_what_follows():
    rows = undecided(EITHER)
    assert len(rows) > 50
    for case in rows:
        assert any(step.then.outcome != "open" for step in case.afterwards), case.id


def test_an_open_row_says_why_no_document_decides():
    rows = undecided("")
    assert rows
    assert [case.id for case in rows if not (case.about or case.note)] == []


def test_what_is_judged_elsewhere_is_judged_there():
    """The rule that judges the call has a row or a clause with a decided outcome."""
    deciding = {
        rule
        for case in load_suite().cases
        for rule in (
            case.rules
            if case.sweep is None and case.when.then.outcome != "open"
            else rules_of_point(case)
        )
    }
    for case in undecided(ELSEWHERE):
        (rule,) = {rule for begin, rule in JUDGED_BY.items() if case.id.startswith(begin)}
        assert rule in deciding, case.id


@pytest.mark.parametrize("stack", STACKS)
def test_no_recorded_open_outcome_is_a_missing_verb_or_an_undeclared_capability(stack, tmp_path):
    """The recorded observations of all open rows are judged again, by the present rules."""
    recorded = quotes.recorded(stack)
    rows = {case.id: case for case in undecided("")}
    basis = Basis(known_capabilities(recorded, tmp_path))
    judged = 0
    for record in recorded.results:
        case = rows.get(record["case"])
        if case is None or not record["observed"]:
            continue
        judgement, _ = conclude(case, basis, without_undeclared(record["observed"]))
        if LEFT_OPEN in judgement.notes:
            judged += 1
            assert record["observed"].get("errno") not in NOT_OFFERED, case.id
            assert not any(note.startswith(UNDECLARED) for note in judgement.notes), case.id
    assert judged


@pytest.mark.parametrize("stack", STACKS)
def test_no_rule_is_verified_by_open_outcomes_alone(stack):
    """A rule is verified, completely or for what the device offers, only if a result shows a documented outcome."""
    recorded = quotes.recorded(stack)
    conclusions = conclude_rules(recorded.results, Needs.of_header(recorded.header))
    shown = {
        item.get("rule", rule)
        for record in recorded.results
        for rule in record["rules"]
        for item in record.get("evidence", ())
        if verdict_on(rule, record) == item.get("verdict", Verdict.PASS) == Verdict.PASS
    }
    # the points of a model are judged by the answers of the reference
    for record in recorded.results:
        if "pairs" in record:
            verdicts = record["rule_verdicts"].items()
            shown |= {rule for rule, verdict in verdicts if verdict == Verdict.PASS}
    verified = {
        rule
        for rule, conclusion in conclusions.items()
        if conclusion.standing in (Standing.VERIFIED, Standing.OFFERED)
    }
    assert verified
    assert verified - shown == set()
