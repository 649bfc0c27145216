"""Tests of what reports say about defects that are known upstream."""

import re

from conformance.tables.suite import ROOT
from reports.digest import read
from reports.upstream import ENTRIES

RXE = ROOT / "docs/runs/rxe.jsonl.xz"
FIXED, REPORTED = "de19cd258c26", "ca5610635990"


def test_each_entry_has_an_address_and_belongs_to_a_fingerprint():
    for name, entry in ENTRIES.items():
        assert re.fullmatch("[0-9a-f]{12}", name)
        assert entry["reported"].startswith("https://")
        assert entry.keys() <= {"reported", "fixed"}


def test_reports_say_where_a_defect_was_reported_and_fixed(cli):
    for name in (FIXED, REPORTED):
        told = "; ".join(f"{what}: {ENTRIES[name][what]}" for what in ENTRIES[name])
        for more in ((), ("--dispute",)):
            said = cli(0, "explain", name, "--run", RXE, *more).out
            (line,) = [line for line in said.splitlines() if line.startswith("upstream:")]
            assert set(line.removeprefix("upstream:").strip().split("; ")) == set(told.split("; "))


def test_a_defect_without_an_entry_has_no_such_line(cli):
    (name, *_) = [
        defect.fingerprint
        for defect in read(RXE).violations.defects
        if ENTRIES.keys().isdisjoint(defect.fingerprints)
    ]
    assert "upstream:" not in cli(0, "explain", name, "--run", RXE).out
