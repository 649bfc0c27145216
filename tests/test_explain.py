"""`rdma-cts explain`: a rule and a case in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import run_arguments
from commands.__main__ import main
from conformance.tables.suite import load_suite
from kinds import Patch, Says
from recorded_reference import record
from reference.device import Device
from reference.stack import without
from reports.digest import read

SUITE = load_suite()
CASE = next(case for case in SUITE.cases if "REG-15" in case.rules and not case.sweep)


def explained(capsys: Says, *arguments: str) -> str:
    """What the command says, on one line."""
    assert main(["explain", *arguments]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_every_rule_has_its_source_its_cases_and_what_a_failure_means(
    capsys: Says, monkeypatch: Patch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run_arguments, "suite_from", lambda arguments: SUITE)
    for rule in SUITE.registry.values():
        said = explained(capsys, rule.id)
        for text in (rule.statement, rule.document, rule.section, rule.quote or rule.unquoted, rule.failure_means):
            assert " ".join(text.split()) in said
        count = sum(rule.id in case.rules for case in SUITE.cases)
        assert (f"{count:,} cases prove it:" if count > 1 else "1 case proves it:") in said


def test_the_last_verdict_is_that_of_the_newest_run(tmp_path: Path, capsys: Says, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    record(tmp_path / "out" / "first", SUITE, [CASE], Device(without("odp")))
    assert "Last verdict: PARTIAL" in explained(capsys, "reg-15")
    newest = record(tmp_path / "out" / "second", SUITE, [SUITE.cases[0]])
    assert f"Last verdict: not run (reference, host, kernel 7.2.0; out/{newest.name})" in explained(capsys, "REG-15")


def test_a_case_has_its_call_its_rules_and_what_came(tmp_path: Path, capsys: Says) -> None:
    run = record(tmp_path / "run", SUITE, [CASE])
    said = explained(capsys, CASE.id, "--run", str(run))
    for text in (str(CASE.when), "expect: outcome refused", "REG-15", "If it fails:", "observed:", "errno EINVAL"):
        assert text in said


@pytest.mark.parametrize("length", [4, 8, 12])
def test_a_defect_is_found_by_the_beginning_of_its_fingerprint(length: int, capsys: Says) -> None:
    run = Path(__file__).with_name("recorded_violations") / "forky.jsonl"
    fingerprint = read(run).defects[0].fingerprint
    assert fingerprint in explained(capsys, fingerprint[:length], "--run", str(run))


def test_a_defect_that_the_run_does_not_have_is_one_line(capsys: Says) -> None:
    run = Path(__file__).with_name("recorded_violations")
    assert main(["explain", "ffff", "--run", str(run / "forky.jsonl")]) == 2
    assert f"rdma-cts: {run} has no defect ffff; " in capsys.readouterr().err


def test_an_id_that_nothing_has_is_one_line_with_a_suggestion(capsys: Says) -> None:
    assert main(["explain", "REG-155"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no rule or case 'REG-155' (did you mean REG-15" in line
