"""Tests the search for passed rules that a recorded violation contradicts."""

import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT, load_suite
from reports.contradictions import Candidate, candidates, explained
from reports.digest import Digest, read

RECORDED = ROOT / "docs" / "runs"
DEALLOCATED = "bind_mw/in_flight/reads-in-flight-and-the-window-deallocated-at-any-moment"


def recorded(name: str, folder: Path) -> Digest:
    content = lzma.decompress((RECORDED / f"{name}.jsonl.xz").read_bytes())
    (folder / "results.jsonl").write_bytes(content)
    return read(folder)


@pytest.mark.parametrize("name", ["rxe", "mended", "siw", "trixie"])
def test_no_recorded_violation_contradicts_a_passed_rule(name: str, tmp_path: Path) -> None:
    assert candidates(recorded(name, tmp_path), load_suite().cases) == []


def test_a_row_that_does_not_name_a_rule_is_found(tmp_path: Path) -> None:
    """The bytes that READs move through a deallocated window contradict DEREG-04 too."""
    cases = [
        replace(case, rules=("BIND-16",)) if case.id == DEALLOCATED else case
        for case in load_suite().cases
    ]
    run = recorded("rxe", tmp_path)
    results = [
        {**record, "rules": ["BIND-16"]} if record["case"] == DEALLOCATED else record
        for record in run.results
    ]
    run = replace(run, results=tuple(results))  # type: ignore[arg-type]
    found = candidates(run, cases)
    expected = Candidate("DEREG-04", DEALLOCATED)
    assert (expected in found) == (run.verdicts["DEREG-04"] in ("PASS", "PARTIAL"))


def test_every_explanation_names_a_rule_and_a_case() -> None:
    suite = load_suite()
    for rule, reasons in explained().items():
        assert rule in suite.registry
        for prefix in reasons:
            assert any(case.id.startswith(prefix) for case in suite.cases)
