"""Tests of nights with waivers: what a night says about the waivers, and about what is waived or no longer waived."""

import json
import re
import shutil
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
from nights import CASE, Nights, nights
from reports.nights.history import format_night
from reports.nights.outcome import GOOD
from reports.nights.page import HistoryPage, page_of
from samples import changed, registry

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


def waived(run: Recorded, folder: Path, **changes: Any) -> Recorded:
    """Returns the run with the waiver of CASE, with these changes."""
    path = folder / "waivers.yaml"
    path.write_text(json.dumps({"waivers": [{**WAIVER, **changes}]}, indent=1))
    waivers = read_waivers(path, SUITE, TODAY)
    head = changed(run.header, {"waivers": {"file": waivers.file, "sha256": waivers.sha256}})
    results = [waivers.applied(record, head) for record in run.results]
    footer = footer_record(head["planned"], results, registry(), duration_s=2.5)
    footer["waivers"] = waivers.account(results, head)
    return Recorded(head, results, footer)


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


def headings(nights: Nights) -> dict[str, list[str]]:
    """Returns the ids of what changed in the latest night, by heading."""
    page = HistoryPage(nights.history)
    news = page.changed_in(page.nights[-1])
    ids = {}
    for kind, items in news.items():
        ids[kind] = [item.track.id for item in items if item.defect]
    return ids


def test_a_defect_that_is_waived_is_neither_fixed_nor_intermittent(nights, tmp_path):
    run = run_of({2: "FAIL"})
    nights.night(0, forky=run)
    said = nights.night(0, forky=waived(run, tmp_path))
    ((defect, track),) = HistoryPage(nights.history).defects
    site = tmp_path / "site"
    assert main(["report", "--history", str(nights.folder), "--site", str(site)]) == 0
    baseline, _ = sorted((site / "nights").iterdir(), key=lambda page: page.stem)
    assert "This night has nothing to compare with yet." in baseline.read_text()
    assert headings(nights) == {"newly waived": [track.id]}
    seen = f"first seen {format_night(nights.history.nights[0])}"
    assert (
        f"    newly waived, {seen}: {defect.severity}  {track.id}  {defect.title} (REG-01)" in said
    )
    assert "newly waived" not in nights.night(0, forky=waived(run, tmp_path))
    shutil.rmtree(nights.folder / nights.history.nights[-1])
    when = {night: format_night(night) for night in nights.history.nights}
    first, second = when.values()
    assert track.lanes[0].in_words == f"seen in 1 of 2 nights: {first}, waived since {second}"
    assert "1 defect waived or no longer seen" in page_of(nights.history)
    assert 'seen → waived <span class="soft">by a waiver</span>' in page_of(nights.history)
    nights.night(1, forky=waived(run, tmp_path, expires="2026-11-21"))
    assert headings(nights) == {"no longer waived": [track.id]}
    assert main(["report", "--history", str(nights.folder), "--site", str(site)]) == 0
    (line,) = re.findall(f"<code>{CASE}</code>(.*)</li>", (site / "rules/REG-01.html").read_text())
    assert f">{format_night(nights.history.nights[0])}</a>" in line
    page = page_of(nights.history)
    assert 'waived → seen <span class="soft">the waiver ended</span>' in page
    assert f"last {format_night(nights.history.nights[2])}, waived in 1 night" in page
    assert "intermittent" not in page
    said = nights.night(3, forky="no network")
    assert "    no longer waived in an earlier night and not fixed, since" in said
    nights.night(0, forky=waived(run_of({}), tmp_path))
    assert headings(nights) == {"no longer seen": [track.id]}


def test_a_fixed_case_was_present_since_its_first_night_also_if_it_was_waived_then(
    nights, tmp_path
):
    run = run_of({2: "FAIL"})
    expired = waived(run, tmp_path, expires="2026-11-21")
    for day, (status, made) in enumerate(((0, run), (0, waived(run, tmp_path)), (1, expired)), 1):
        nights.night(status, forky=made)
        night = nights.folder / nights.history.nights[-1]
        night.rename(nights.folder / f"2026050{day}T031700Z")
    said = nights.night(0, forky=run_of({}))
    assert "no longer seen, first seen 2026-05-01 03:17, last seen 2026-05-03 03:17: " in said
    assert "fixed, was present since 2026-05-01 03:17: FAIL -> PASS" in said


def test_a_defect_whose_cases_were_not_tried_is_not_fixed(nights):
    nights.night(0, forky=run_of({6: "FAIL"}))
    ((_, track),) = HistoryPage(nights.history).defects
    for _ in range(2):
        said = nights.night(0, forky=run_of({}, count=5))
        assert ("    not tried, first seen 20" in said) == (len(nights.history.nights) == 2)
        ((_, track),) = HistoryPage(nights.history).defects
        assert track.now == "not tried"
        assert track.is_bad
    assert "its cases were not tried" in page_of(nights.history)
    said = nights.night(0, forky=run_of({}, count=4))
    assert f"1 case of that night not tried\n    not tried: {SUITE.cases[4].id}\n" in said
    assert headings(nights) == {}
    page = page_of(nights.history)
    assert (
        "No verdict changed in this night, but 1 case of the last good night was not tried." in page
    )
    assert f"<br>not tried: {SUITE.cases[4].id}" in page
    nights.night(0, forky=run_of({6: "UNSUPPORTED"}))
    ((_, track),) = HistoryPage(nights.history).defects
    assert track.now == "not tried"
    nights.night(0, forky=run_of({}))
    assert headings(nights) == {"no longer seen": [track.id]}


def test_a_defect_of_a_case_that_is_new_is_not_called_regressed(nights):
    nights.night(0, forky=run_of({}, count=5))
    nights.night(0, forky=run_of({6: "FAIL"}))
    ((_, track),) = HistoryPage(nights.history).defects
    assert headings(nights) == {"not tried by the old run": [track.id]}
    assert "<b>In this night: not tried by the old run</b>" in page_of(nights.history)


@pytest.mark.parametrize(
    "changes, why",
    [
        (
            {"expires": "2026-11-21"},
            "(the rdma team, https://bugs.example.org/1) expired on 2026-11-21",
        ),
        (
            {"where": {"driver": "fake", "kernel": {"to": "6.12"}}},
            "(to 6.12) does not cover this kernel",
        ),
        ({"case": SUITE.cases[4].id}, "(the rdma team, https://bugs.example.org/1)"),
    ],
    ids=["expired", "other kernel", "removed"],
)
def test_a_violation_that_is_no_longer_waived_has_the_reason(changes, why, nights, tmp_path):
    run = run_of({2: "FAIL"})
    nights.night(0, forky=waived(run, tmp_path))
    said = nights.night(1, forky=waived(run, tmp_path, **changes))
    assert "regressed  1 case no longer waived since the last good night" in said
    assert "    no longer waived, first seen " in said
    assert "        no longer waived: WAIVED -> FAIL  REG-01" in said
    assert f"the waiver of {CASE} {why}\n" in said
    assert "now worse" not in said
    runs = [str(cell.folder) for cell in nights.history.cells]
    for format_ in ("text", "markdown"):
        assert main(["compare", "--all", "--format", format_, *runs]) == 1
        said = nights.says.readouterr().out.replace("\\", "")
        assert said.count(f"the waiver of {CASE} {why}") == 1
        assert f"1 case is no longer waived ({CASE}, " in said.partition("\n")[0]


def test_a_waived_case_that_fails_in_another_way_has_regressed(nights, tmp_path):
    nights.night(0, forky=waived(run_of({2: "FAIL"}), tmp_path))
    said = nights.night(1, forky=waived(run_of({2: "CRASH"}), tmp_path))
    assert "regressed  1 case regressed since the last good night" in said
    assert "no longer waived" not in said
