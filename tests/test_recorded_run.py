"""Tests that the quotations of a run in the documentation equal the output for the recorded run."""

import importlib
import sys
from functools import cache

import pytest

from conformance.tables.suite import ROOT
from conformance.tables.tiers import DURATIONS
from reports.digest import Digest

sys.path.insert(0, str(ROOT / "docs"))

quotes = importlib.import_module("quotes")


@cache
def recorded() -> Digest:
    """Returns the recorded run that the pages quote."""
    run: Digest = quotes.recorded()
    return run


@pytest.mark.parametrize("name", quotes.PAGES)
def test_a_page_quotes_the_recorded_run(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- quoted: " in text
    assert quotes.quoted(text, recorded()) == text, "outdated: run python3 docs/quotes.py"


def test_the_page_of_findings_has_the_current_words_of_the_rules() -> None:
    text = quotes.FINDINGS.read_text(encoding="utf-8")
    assert text.count("\n- the document: ") > 30
    assert quotes.with_present_words(text) == text, "outdated: run python3 docs/quotes.py"


def test_shards_are_divided_by_the_durations_of_the_recorded_run() -> None:
    assert DURATIONS.read_text(encoding="ascii") == quotes.durations(recorded()), (
        "outdated: run python3 docs/quotes.py"
    )
