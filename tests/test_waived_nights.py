"""Tests of nights with waivers: what a night says about the waivers, and about what is waived or no longer waived."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main
from conformance.results.new_records import footer_record
from conformance.results.records import Recorded
from conformance.results.waiver_file import read_waivers
from made_history import SUITE, run_of
from nights import CASE, nights
from reports.history import GOOD
from reports.history_page import page_of
from samples import registry

__all__ = ["nights"]  # a fixture
TODAY = date(2026, 11, 22)
WAIVER: Mapping[str, Any] = {
    "case": CASE,
    "where": {"driver": "fake"},
    "observed": {"verdict": "FAIL", "reason": "should succeed"},
    "issue": "https://bugs.example.org/1",
    "owner": "the rdma team",
    "expires": "2026-12-31",
}


def waived(run: Recorded, folder: Path, **changes: str) -> Recorded:
    """Returns the run with the waiver of CASE, with these changes."""
    path = folder / "waivers.yaml"
    path.write_text(json.dumps({"waivers": [{**WAIVER, **changes}]}, indent=1))
    waivers = read_waivers(path, SUITE, TODAY)
    results = [waivers.applied(record, run.header) for record in run.results]
    footer = footer_record(run.header["planned"], results, registry(), duration_s=2.5)
    footer["waivers"] = waivers.account(results, run.header)
    return Recorded(run.header, results, footer)


@pytest.mark.parametrize(
    "verdicts, changes, problem",
    [
        ({}, {}, f"is no longer needed: {CASE} is PASS"),
        ({2: "FAIL"}, {"expires": "2026-11-21"}, "expired on 2026-11-21"),
    ],
    ids=["no longer needed", "expired"],
)
def test_problems_of_waivers_are_in_output_mail_page_and_site_and_keep_the_outcome(
    verdicts, changes, problem, nights, tmp_path
):
    sent = nights.sendmail('#!/bin/sh\ncat >"{sent}"\n')
    run = waived(run_of(verdicts), tmp_path, **changes)
    nights.night(0, forky=run)
    said = nights.night(0, "--mail-to", "qa@example.org", forky=run)
    assert nights.outcomes("forky")[-1] == GOOD
    line = f"the waiver of {CASE} (the rdma team, https://bugs.example.org/1) {problem}"
    assert f"    waiver: {tmp_path}/waivers.yaml:" in said
    assert main(["report", "--history", str(nights.folder), "--site", str(tmp_path / "site")]) == 0
    pages = list((tmp_path / "site" / "nights").rglob("*.html"))
    texts = [page.read_text() for page in (*pages, tmp_path / "site" / "index.html")]
    for text in (said, sent.read_text(), page_of(nights.history), *texts):
        assert line in text.replace("=\n", "")
