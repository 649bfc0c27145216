"""Tests that severities, defects and their groups are derived from the fields of faults, never from sentences."""

from pathlib import Path

import pytest

from conformance import judging
from conformance.defects import Symptom, cause_of, severity_of, symptoms_of
from conformance.judging import judgement
from conformance.judging.sentences import sentence
from conformance.model.fault import Fault, FaultKind
from conformance.model.record_shape import completed
from conformance.model.verdict import VIOLATIONS
from conformance.results.points import store_points
from conformance.results.records import read_written
from conformance.results.rejudge import rejudge
from conformance.tables.suite import load_suite
from kinds import Folders
from recorded_reference import record as recorded_run
from trial.catalogue import named

SUITE = load_suite()
RUNS = Path(__file__).with_name("recorded_violations")
# The case, fingerprint, severity, number of points and formula of each symptom.
Found = list[tuple[str, str, str, int, str]]


def when(symptom: Symptom) -> str:
    """Returns the formula of the deviating points; empty for other symptoms."""
    if symptom.deviation and not symptom.deviation.get("row"):
        return symptom.deviation["when"]
    return ""


def found_in(file: Path, to: Path) -> Found:
    """Judges a recorded run again; returns the symptoms of the results that are still violations."""
    recorded, directory = read_written(file), file if file.is_dir() else file.parent
    recorded.results = [
        result
        for result in recorded.results
        if not result.get("points_file") or (directory / result["points_file"]).exists()
    ]
    faults_found: Found = []
    for result in rejudge(SUITE, recorded, directory):
        if result.kept or (record := result.record)["verdict"] not in VIOLATIONS:
            continue
        if "points_data" in record:
            record = store_points(record, to, SUITE.find(record["case"]))
        for symptom in symptoms_of(completed(record)):
            cause, severity = cause_of(symptom).fingerprint, severity_of(symptom).label
            faults_found.append((record["case"], cause, severity, symptom.points, when(symptom)))
    return faults_found


@pytest.fixture(scope="module")
def of_reference(tmp_path_factory: Folders) -> Path:
    """A run on a reference with a violation that rows and sweeps detect."""
    cases = [
        case
        for case in SUITE.cases
        if case.id.startswith(("reg_mr/rights/", "reg_mr/access_flags/", "reg_mr/access_space/"))
        and (case.sweep is None or case.sweep.size <= 2048)
    ]
    return recorded_run(
        tmp_path_factory.mktemp("faults") / "run",
        SUITE,
        cases,
        named("remote-write-never").kind(),
    )


@pytest.mark.parametrize("name", ["forky", "trixie", "siw", "reference"])
def test_no_sentence_changes_a_defect(name, of_reference, tmp_path, monkeypatch):
    """The renderer of sentences is replaced by a function that returns the same nonsense for every fault."""
    if name == "reference":
        file = of_reference
    else:
        file = RUNS / f"{name}.jsonl"
    before = found_in(file, tmp_path)
    assert len(before) >= 20
    assert (name != "reference") or any(when for *_, when in before)
    said: list[Fault] = []

    def nonsense(fault: Fault) -> str:
        said.append(fault)
        return "xyzzy SUCCESS of 42"

    for module in (judging, judgement):
        monkeypatch.setattr(module, "sentence", nonsense)
    assert found_in(file, tmp_path) == before
    assert said


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_has_a_sentence_and_is_equal_when_read_from_data(kind):
    fault = Fault(
        kind,
        "ibv_reg_mr(access=0)",
        "ibv_reg_mr",
        expected=("1", "2"),
        seen=("3", "4", "5", "6", "7"),
    )
    assert sentence(fault).startswith("ibv_reg_mr(access=0)")
    assert Fault.of_data(fault.as_data()) == fault
