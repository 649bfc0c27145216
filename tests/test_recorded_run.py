"""What the documentation quotes of a run is what the recorded run says."""

import importlib
import re
import sys
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT

sys.path.insert(0, str(ROOT / "docs"))

quotes = importlib.import_module("quotes")
RUN = quotes.recorded()
# A count of a run, wherever it stands.
FIGURE = re.compile(r"\d[\d,]* (?:of \d+ documented rules|defects? in \d+ results?|calls in [\d,]+ cases)")


@pytest.mark.parametrize("name", quotes.PAGES)
def test_a_page_quotes_the_recorded_run(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "<!-- quoted: " in text
    assert quotes.quoted(text, RUN) == text, "python3 docs/quotes.py writes it"


@pytest.mark.parametrize("name", quotes.PAGES[:3])
def test_no_other_figure_of_a_run_is_in_it(name: str) -> None:
    text = re.sub(r"<!-- quoted.*?end of quote -->", "", (ROOT / name).read_text(encoding="utf-8"), flags=re.DOTALL)
    assert FIGURE.findall(text) == []


def test_a_changed_quote_is_found() -> None:
    text = (Path(ROOT) / "README.md").read_text(encoding="utf-8")
    changed = re.sub(r"(\d+) of (\d+) documented rules", r"999 of \2 documented rules", text)
    assert changed != text
    assert quotes.quoted(changed, RUN) == text
