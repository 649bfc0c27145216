"""Tests that the quotations of a run in the documentation equal the output for the recorded run."""

import importlib
import lzma
import re
import sys
from functools import cache
from pathlib import Path

import pytest

from conformance.results.equal_results import unequal_verdicts
from conformance.results.records import FILE_NAME, read_written
from conformance.tables.suite import ROOT, load_suite
from conformance.tables.tiers import DURATIONS
from made_history import run_of
from reports.digest import Digest, digest

sys.path.insert(0, str(ROOT / "docs"))

quotes = importlib.import_module("quotes")


@cache
def recorded() -> Digest:
    """Returns the recorded run that the pages quote."""
    run: Digest = quotes.recorded()
    return run


@pytest.mark.parametrize("name", quotes.PAGES)
def test_a_page_quotes_the_recorded_run(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- quoted: " in text
    assert quotes.quoted(text, recorded()) == text, "outdated: run python3 docs/quotes.py"


@pytest.mark.parametrize(
    "tables, said",
    [
        ("a" * 64, "of the same tables."),
        ("b" * 64, "of different tables (aaaaaaaaaaaa on `amd64`; bbbbbbbbbbbb on `arm64`)."),
    ],
    ids=["same", "different"],
)
def test_architectures_are_compared_by_the_cases_of_all_their_runs(tables, said, monkeypatch):
    made = {
        "amd64": run_of({}, count=7, suite={"version": "0", "tables_sha256": "a" * 64}),
        "arm64": run_of({7: "FAIL"}, suite={"version": "0", "tables_sha256": tables}),
    }
    runs = {name: digest(run.shown(), Path()) for name, run in made.items()}
    monkeypatch.setattr(quotes, "_by_architecture", lambda: runs)
    (line,) = quotes.QUOTES["tables by architecture"](recorded())
    assert line == f"The runs are {said} Counted are the 7 cases that all of them have."
    _, _, *rules = quotes.QUOTES["rules by architecture"](recorded())
    assert rules == []
    *_, verdicts = quotes.QUOTES["verdicts by architecture"](recorded())
    assert verdicts == "| `arm64` | 7 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 | 0 |"


def test_the_page_of_findings_has_the_confirmed_defects_of_the_recorded_runs():
    text = quotes.FINDINGS.read_text(encoding="utf-8")
    defects = {
        defect.fingerprint: defect
        for stack in reversed(quotes.FOUND)
        for defect in quotes.recorded(stack).violations.defects
        if not defect.unconfirmed
    }
    listed = re.findall(r"^## (.*)\n(?:\n|- .*\n)*?- fingerprint: `(.*)`$", text, re.MULTILINE)
    titles = {name: defect.title for name, defect in defects.items()}
    assert {name: title for title, name in listed} == titles, "outdated: run python3 docs/quotes.py"
    for rule in dict.fromkeys(rule for defect in defects.values() for rule in defect.first.rules):
        words = load_suite().registry[rule].quote
        assert words in text, "outdated: run python3 docs/quotes.py"


# Of the runs on other architectures, the one with the other byte order.
STACKS = [
    path.name.partition(".")[0]
    for path in quotes.RUNS.iterdir()
    if not path.name.startswith(quotes.FOREIGN) or "s390x" in path.name
]


@pytest.mark.parametrize("stack", STACKS)
def test_equal_results_of_a_recorded_run_have_equal_verdicts(stack, tmp_path):
    path = tmp_path / FILE_NAME
    path.write_bytes(lzma.decompress((quotes.RUNS / f"{stack}.jsonl.xz").read_bytes()))
    assert unequal_verdicts(load_suite(), read_written(tmp_path), tmp_path) == []


def test_shards_are_divided_by_the_durations_of_the_recorded_run():
    assert DURATIONS.read_text(encoding="ascii") == quotes.durations(recorded()), (
        "outdated: run python3 docs/quotes.py"
    )
