"""Quotes of a run in the documentation are the words of the recorded run."""

import importlib
import sys

import pytest

from conformance.tables.suite import ROOT

sys.path.insert(0, str(ROOT / "docs"))

quotes = importlib.import_module("quotes")
RUN = quotes.recorded()


@pytest.mark.parametrize("name", quotes.PAGES)
def test_a_page_quotes_the_recorded_run(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- quoted: " in text
    assert quotes.quoted(text, RUN) == text, "python3 docs/quotes.py writes it"
