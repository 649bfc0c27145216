"""Tests that each promise of docs/threat-model.md names attacks, and tests that exist and have test functions."""

import re
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT

_PAGE = (ROOT / "docs" / "threat-model.md").read_text()
ROWS = [
    re.split(r" *\| *", line)[1:-1]
    for line in _PAGE.splitlines()
    if line.startswith("|") and not line.startswith("|---")
][1:]
PROMISES = [row for row in ROWS if not row[1].startswith("none")]


def test_there_is_one_table():
    assert _PAGE.count("\n|---|") == 1
    assert all(len(row) == 4 for row in ROWS)
    assert len(PROMISES) > 20


@pytest.mark.parametrize("row", PROMISES, ids=lambda row: row[1][:60])
def test_each_promise_has_an_attack_and_tests(row):
    _, promise, attack, tests = row
    assert promise
    assert attack
    names = re.findall(r"`(test_\w+\.py)`", tests)
    assert names
    for name in names:
        assert re.search(r"^def test_", Path(__file__).with_name(name).read_text(), re.MULTILINE)
