"""Tests that rules which an instrumented kernel refutes are named in reports of runs on a plain kernel."""

from conformance.tables.suite import load_suite
from reports.instrumented import headline_of, recorded, refuted


def test_only_passed_rules_of_the_same_release_are_refuted():
    verdicts = {"ADV-05": "PASS", "ADV-13": "FAIL", "REG-01": "PASS"}
    sentences = refuted("rxe", "7.2.12+deb14-amd64", verdicts)
    assert list(sentences) == ["ADV-05"]
    assert "KASAN: slab-out-of-bounds" in sentences["ADV-05"]
    assert headline_of(sentences) == "1 passed rule is refuted by an instrumented kernel: ADV-05"
    assert refuted("rxe", "7.2.120+deb14-amd64", verdicts) == {}
    assert refuted("siw", "7.2.12+deb14-amd64", verdicts) == {}
    assert headline_of({}) == ""


def test_every_recorded_rule_exists():
    rules = {rule for entry in recorded() for rule in entry["rules"]}
    assert rules
    assert rules <= set(load_suite().registry)
