"""Tests the search for passed rules that a recorded violation contradicts."""

import copy
import importlib
import sys
from dataclasses import replace

import pytest

from conformance.model.case import Table
from conformance.tables.suite import ROOT, load_suite
from reports.contradictions import Candidate, candidates, explained

sys.path.insert(0, str(ROOT / "docs"))
quotes = importlib.import_module("quotes")
DEALLOCATED = "bind_mw/in_flight/reads-in-flight-and-the-window-deallocated-at-any-moment"


@pytest.mark.parametrize("name", ["rxe", "mended", "siw", "trixie"])
def test_no_recorded_violation_contradicts_a_passed_rule(name):
    assert candidates(quotes.recorded(name), load_suite()) == []


def test_a_row_that_does_not_name_a_rule_is_found():
    """The bytes that READs move through a deallocated window contradict DEREG-04 too."""
    suite = load_suite()
    cases = [
        replace(case, rules=("BIND-16",)) if case.id == DEALLOCATED else case
        for case in suite.cases
    ]
    name = DEALLOCATED.rpartition("/")[0]
    suite = replace(suite, tables=(Table(name, "bind_mw", cases),))
    run = quotes.recorded("rxe")
    results = {record["case"]: record for record in run.results}
    record = results[DEALLOCATED] = copy.deepcopy(results[DEALLOCATED])
    assert record["verdict"] == "FAIL"
    record |= {"rules": ["BIND-16"], "rule_verdicts": {"BIND-16": record["verdict"]}}
    for deviation in record["deviations"]:
        deviation["rules"] = ["BIND-16"]
    run = replace(run, results=tuple(results.values()))
    pairs = candidates(run, suite)
    expected = Candidate("DEREG-04", DEALLOCATED)
    assert (expected in pairs) == (run.verdicts.of_rules["DEREG-04"] in ("PASS", "PARTIAL"))


def test_every_explanation_names_a_rule_and_a_case():
    suite = load_suite()
    for rule, reasons in explained().items():
        assert rule in suite.registry
        for prefix in reasons:
            assert any(case.id.startswith(prefix) for case in suite.cases)
