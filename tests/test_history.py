"""Tests of the page of a history: since when each violation exists, the links to reports, and the display in a real browser
with a light and a dark scheme. Mistakes of users are tested in tests/refusals."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import lxml.html
import pytest
from selenium.webdriver.common.by import By

from browser import MARKUP, Browser, assert_fits, browser, media
from commands.__main__ import main
from conformance.model.printable import plain
from conformance.older_python import UTC
from conformance.results.new_records import footer_record
from conformance.results.records import Recorded, read_written
from conformance.tables.suite import ROOT
from kinds import Folders
from made_history import RULES, SUITE, run_of, write_run
from reports import summary
from reports.absence import table_of
from reports.digest import digest, read
from reports.nights import page as history_page
from reports.nights.history import Cell, read_history, since
from reports.nights.outcome import BASELINE, GOOD, NOT_RUN, REGRESSED, UNDECIDED, Outcome
from reports.nights.page import HistoryPage
from samples import registry

__all__ = ["browser"]  # a fixture
RECORDED = Path(__file__).with_name("recorded_violations")
FIRST = datetime(2026, 5, 1, 3, 17, tzinfo=UTC)
STACKS = {"bookworm": "siw", "trixie": "trixie", "forky": "forky", "sid": "forky-again"}
VARIANTS = 10


def name_of(number: int) -> str:
    return f"{FIRST + timedelta(days=number):%Y%m%dT%H%M%SZ}"


def keep(
    history: Path,
    night: int,
    stack: str,
    outcome: Outcome,
    run: Recorded | None = None,
) -> Path:
    """Writes a cell of a history: its outcome, and the results and reports of its run; returns its folder."""
    cell = history / name_of(night) / stack
    cell.mkdir(parents=True, exist_ok=True)
    (cell / "cell.json").write_bytes(outcome.encoded())
    if run:
        write_run(cell, run)
    return cell


@pytest.fixture(scope="module")
def short(tmp_path_factory: Folders) -> Path:
    """Seven nights on two stacks. Case 2 fails first in the fourth night, with another kernel, and passes again in the
    sixth; case 3 passes and fails in turn; one cell has no results."""
    folder = tmp_path_factory.mktemp("short")
    for number, failing in enumerate([(1,), (1,), (1, 3), (1, 2), (1, 2, 3), (1,), (1, 3)]):
        if number:
            good = GOOD
        else:
            good = BASELINE
        if number < 3:
            kernel = "6.12.1"
        else:
            kernel = "6.12.2"
        run = run_of(
            dict.fromkeys(failing, "FAIL"),
            env={"kernel": kernel, "rdma_core": "56.1"},
            stack="trixie",
        )
        for case, rule in {1: "REG-01", 2: "REG-02", 3: "REG-15"}.items():
            run.results[case]["rules"] = [rule]
        footer = footer_record(run.header["planned"], run.results, registry(), duration_s=1)
        keep(
            folder,
            number,
            "trixie",
            Outcome(REGRESSED if 2 in failing else good),
            replace(run, footer=footer),
        )
        if number == 4:
            keep(folder, number, "sid", Outcome(NOT_RUN, reason=MARKUP))
        else:
            keep(folder, number, "sid", Outcome(good), run_of({}, stack="sid"))
    return folder


def variants(stack: str, recorded: str) -> Iterator[dict[str, Any]]:
    """Summaries of a recorded run in which some verdicts differ."""
    run = read_written(RECORDED / f"{recorded}.jsonl")
    for number in range(VARIANTS):
        results = [
            {**record, "verdict": "PASS", "effective": "PASS"}
            if (place + number) % VARIANTS == 0
            else record
            for place, record in enumerate(run.results)
        ]
        env = {**run.header["env"], "kernel": f"6.12.{number}"}
        head = {**run.header, "stack": stack, "rules": RULES, "env": env}
        footer = footer_record(head["planned"], results, registry(), duration_s=60)  # type: ignore[arg-type]
        yield plain(summary.as_data(digest(Recorded(head, results, footer).shown(), Path())))  # type: ignore[arg-type]


def long_history(folder: Path, nights: int) -> Path:
    """Makes nights on four stacks from runs recorded on Soft-RoCE; some verdicts differ from night to night."""
    for stack, recorded in STACKS.items():
        texts = [json.dumps(variant) for variant in variants(stack, recorded)]
        for night in range(nights):
            cell = keep(folder, night, stack, Outcome(GOOD))
            if night % 7:
                steady = night // 3
            else:
                steady = night
            (cell / "summary.json").write_text(texts[steady % VARIANTS])
    return folder


@pytest.fixture
def page(browser: Browser, short: Path, tmp_path: Path) -> Browser:
    media(browser, "light")
    shown(browser, short, tmp_path)
    browser.execute_script("document.querySelectorAll('.fold').forEach(fold => fold.open = true)")
    return browser


def shown(browser: Browser, history: Path, folder: Path) -> Browser:
    path = folder / "page.html"
    assert main(["report", "--history", str(history), "--out", str(path)]) == 0
    browser.get(path.as_uri())
    return browser


def lane(page: Browser, track: str, stack: str) -> str:
    lanes = [" ".join(lane.text.split()) for lane in page.all(f"#{track} .lane")]
    return next(text for text in lanes if text.startswith(stack))


def test_each_rule_has_the_date_of_its_last_change_on_each_stack(page):
    assert lane(page, "REG-01", "trixie") == "trixie FAIL in all 7 nights"
    assert (
        lane(page, "REG-02", "trixie")
        == "trixie PASS violated in 2 of 7 nights: first 2026-05-04 03:17, last 2026-05-05 03:17"
    )
    assert lane(page, "REG-15", "trixie") == (
        "trixie FAIL violated in 3 of 7 nights: first 2026-05-03 03:17, last 2026-05-07 03:17, "
        "intermittent, now since 2026-05-07 03:17"
    )
    assert lane(page, "REG-01", "sid") == "sid PASS never violated"


def test_a_change_of_a_verdict_names_what_was_different_under_test(page):
    track = page.by_id("REG-02")
    track.find_element(By.TAG_NAME, "summary").click()
    mended, broken = (element.text for element in track.find_elements(By.TAG_NAME, "li"))
    assert (
        mended == "2026-05-06 03:17, trixie: FAIL → PASS although nothing under test was different"
    )
    assert broken == "2026-05-04 03:17, trixie: PASS → FAIL with a different kernel"
    link = track.find_element(By.TAG_NAME, "a").get_attribute("href") or ""
    text = page.js(
        "document.getElementById(decodeURIComponent(arguments[0])).textContent",
        link.partition("#")[2],
    )
    assert "2026-05-04 03:17, trixie: kernel 6.12.1 → 6.12.2" in text


def test_the_strip_has_a_square_for_each_result_and_a_gap_without_a_result(short):
    rules = HistoryPage(read_history(short)).rules
    paths = {(track.id, lane.name): dict(lane.paths) for track in rules for lane in track.lanes}
    assert paths["REG-15", "trixie"] == {
        "FAIL": "M2 0h1v1h-1zM4 0h1v1h-1zM6 0h1v1h-1z",
        "PASS": "M0 0h2v1h-2zM3 0h1v1h-1zM5 0h1v1h-1z",
    }
    assert paths["REG-01", "sid"] == {"PASS": "M0 0h4v1h-4zM5 0h2v1h-2z"}


def test_the_top_shows_the_latest_night(page):
    assert page.one("h1").text == "Latest night: 2 good"
    news = [item.text for item in page.all(".news li")]
    title = "valid refused a valid registration is refused: REMOTE_WRITE without LOCAL_WRITE"
    change = "not seen → seen, seen in 3 of 7 nights: first 2026-05-03 03:17, last 2026-05-07 03:17"
    assert re.fullmatch(
        f"trixie: [0-9a-f]{{12}} {title} {change}, intermittent, now since 2026-05-07 03:17; REG-15",
        news[0],
    )
    assert news[1:] == []
    kinds = [kind.text for kind in page.all("header p > b") if kind.text.startswith("In this")]
    assert kinds == ["In this night: regressed"]
    now = " ".join(page.one(".now").text.split())
    assert "trixie good 2 rules violated, 2 defects; kernel 6.12.2, rdma-core 56.1" in now


def test_nothing_in_a_history_becomes_markup(browser, tmp_path):
    run = run_of(
        {1: "FAIL"},
        device={"name": "fake0", "driver": MARKUP, "fw": MARKUP},
        stack=MARKUP,
        env={"kernel": f"{MARKUP} {'x' * 400}"},
        under_test={"kernel": {MARKUP: MARKUP}},
    )
    run.results[1]["reason"] = run.results[1]["call"] = MARKUP
    history = tmp_path / "history"
    for number, run_number in enumerate((run, run_of({}))):
        keep(history, number, "forky", Outcome(GOOD), run_number)
    keep(history, 2, "forky", Outcome(NOT_RUN, reason=f"{MARKUP} {'x' * 400}"))
    (history / "<img src=x onerror=alert(1)>").mkdir()
    shown(browser, history, tmp_path)
    assert browser.js("window.ran") is None
    assert browser.js("document.querySelectorAll('img, script, b b, title *').length") == 0
    text = browser.js("document.body.textContent")
    assert text.count(MARKUP) >= 3
    assert "<img src=x onerror=alert(1)> is not a night" in text
    assert_fits(browser)


def test_the_page_of_many_nights_is_small_and_fits_a_narrow_window(browser, tmp_path):
    history = long_history(tmp_path / "long", 30)
    assert not read_history(history).problems
    shown(browser, history, tmp_path)
    assert (tmp_path / "page.html").stat().st_size < 3e5
    assert len(browser.all("#violated ~ details article")) > 10
    browser.execute_script(
        "for (const each of document.querySelectorAll('details')) each.open = true",
    )
    assert_fits(browser)


def test_a_defect_is_the_same_under_any_of_its_fingerprints_and_has_its_worst_severity_of_all_nights(
    tmp_path,
):
    first_id, other = "a" * 12, "b" * 12
    for number, (name, also, severity) in enumerate(
        (
            (first_id, [], "hang"),
            (other, [first_id], "kernel crash"),
            (other, [first_id], "valid refused"),
        ),
    ):
        path = keep(tmp_path, number, "forky", Outcome(GOOD), run_of({1: "FAIL"})) / "summary.json"
        data = json.loads(path.read_text())
        data["defects"][0] |= {"fingerprint": name, "also": also, "severity": severity}
        path.write_text(json.dumps(data))
    ((defect, track),) = HistoryPage(read_history(tmp_path)).defects
    assert track.lanes[0].in_words == "in all 3 nights"
    assert defect.severity == "kernel crash"


@pytest.mark.parametrize("described, state", [(True, ""), (False, "not seen")])
def test_a_defect_of_a_table_that_a_run_has_not_tried_is_not_run(tmp_path, described, state):
    for stack, case in (("forky", "reg_mr/mine/c1"), ("trixie", "")):
        folder = keep(tmp_path, 0, stack, Outcome(BASELINE), run_of({1: "FAIL"} if case else {}))
        path = folder / "summary.json"
        text = path.read_text().replace(SUITE.cases[1].id, case or SUITE.cases[1].id)
        data = json.loads(
            text.replace('"reg_mr/sample":', f'"{table_of(case or "reg_mr/sample")}":')
        )
        if not described:  # of an older version
            del data["tried"]
        path.write_text(json.dumps(data))
    ((_, track),) = HistoryPage(read_history(tmp_path)).defects
    assert {lane.name: lane.states for lane in track.lanes} == {
        "forky": ("seen",),
        **({"trixie": (state,)} if state else {}),
    }


@pytest.mark.parametrize(
    "without, state",
    [
        ({1: "UNSUPPORTED", 2: "UNREACHABLE"}, "not tried"),
        ({1: "UNSUPPORTED"}, "not decided"),
        ({}, "not seen"),
    ],
)
def test_a_defect_of_another_stack_is_not_seen_only_where_its_cases_were_judged(
    tmp_path, without, state
):
    path = keep(tmp_path, 0, "forky", Outcome(BASELINE), run_of({1: "FAIL"})) / "summary.json"
    data = json.loads(path.read_text())
    data["defects"][0]["cases"] = [SUITE.cases[1].id, SUITE.cases[2].id]
    path.write_text(json.dumps(data))
    keep(tmp_path, 0, "trixie", Outcome(BASELINE), run_of(without))
    page = HistoryPage(read_history(tmp_path))
    ((_, track),) = page.defects
    assert {lane.name: lane.now for lane in track.lanes} == {"forky": "seen", "trixie": state}
    words = "never seen" if state == "not seen" else "in the only night"
    assert track.lanes[1].in_words == words
    assert track.now == "seen"
    assert page.changed_in(name_of(0)) == {}


def test_how_to_read_lanes_is_said_only_where_lanes_are_drawn(tmp_path):
    words = "A lane shows all nights"
    for night in range(2):
        keep(tmp_path, night, "forky", Outcome(GOOD), run_of({1: "FAIL"}))
    page = history_page.page_of(read_history(tmp_path))
    assert words not in page
    keep(tmp_path, 2, "forky", Outcome(GOOD), run_of({}))
    assert history_page.page_of(read_history(tmp_path)).count(words) == 1


def test_an_empty_history_has_a_page(tmp_path):
    assert "No night has run yet" in history_page.page_of(read_history(tmp_path))


def test_what_no_night_tells_is_unknown(tmp_path, cli):
    keep(tmp_path, 0, "forky", Outcome(NOT_RUN, reason="there is no QEMU"))
    page, _ = cli(3, "report", "--history", tmp_path, "--out", "-")
    assert page.count(">Unknown.<") == 2
    assert ">None.<" not in page
    assert ">Nothing.<" not in page
    assert "Rules that were never violated" not in page


def test_a_damaged_summary_without_results_is_named(tmp_path, cli):
    empty, fifo = (keep(tmp_path, 0, name, Outcome(GOOD)) for name in ("empty", "fifo"))
    (empty / "summary.json").write_text("{}")
    os.mkfifo(fifo / "summary.json")
    out, err = cli(3, "report", "--history", tmp_path, "--out", "-")
    assert "No night has results that can be read." in out
    assert "No defect was found in any night." not in out
    assert "Nothing changed in this night." not in out
    assert err.splitlines() == [
        f"{name_of(0)}, {name} counts as not run: summary.json is damaged, and there is no results.jsonl"
        for name in ("empty", "fifo")
    ]


def test_a_history_has_every_cell_that_was_written(short):
    history = read_history(short)
    assert (len(history.nights), len(history.cells), history.problems) == (7, 14, ())
    lost: Cell = history.of("sid")[4]
    assert (lost.outcome.outcome, lost.facts, lost.outcome.reason) == (NOT_RUN, None, plain(MARKUP))
    assert since({name_of(n): n >= 3 for n in range(5)}, name_of(4)) == name_of(3)
    assert SUITE.cases[2].id in history.of("trixie")[4].facts.violating  # type: ignore[union-attr]


def test_each_night_links_to_its_report_unless_the_report_was_removed(short):
    history = read_history(short)
    reports = {
        cell.folder / "report.html"
        for cell in history.cells
        if (cell.folder / "report.html").exists()
    }
    assert reports
    text = history_page.page_of(history)
    for report in reports:
        assert f'<a href="{report.relative_to(short)}">' in text
    gone = min(reports)
    gone.rename(gone.with_suffix(".kept"))
    try:
        assert f'<a href="{gone.relative_to(short)}">' not in history_page.page_of(history)
    finally:
        gone.with_suffix(".kept").rename(gone)


def test_a_page_elsewhere_links_to_the_reports_in_the_history(short, tmp_path, cli):
    page = tmp_path / "www" / "nights.html"
    page.parent.mkdir()
    cli(0, "report", "--history", short, "--out", page)
    links = re.findall(r'href="([^"#]*report\.html)"', page.read_text())
    assert links
    assert all((page.parent / unquote(link)).is_file() for link in links)


def test_an_earlier_fingerprint_does_not_join_what_another_stack_has_under_it(tmp_path):
    """88a9e4949060 was 8258bec575a4 on rxe, and siw has another defect with this fingerprint today."""
    runs = {name: read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("rxe", "siw")}
    for number, name in enumerate(("siw", "rxe")):
        cell = keep(tmp_path, number, name, Outcome(GOOD))
        (cell / "summary.json").write_text(str(summary.render([runs[name]])))
    lanes = {}
    for defect, track in HistoryPage(read_history(tmp_path)).defects:
        if track.id in ("88a9e4949060", "8258bec575a4"):
            names = [lane.name for lane in track.lanes if lane.seen]
            lanes[track.id] = defect.title, names
    assert lanes == {
        "88a9e4949060": (
            "UVERBS_METHOD_REG_MR sets neither iova nor length of a region",
            ["rxe"],
        ),
        "8258bec575a4": ("valid requests are refused: RDMA_WRITE", ["siw"]),
    }


def test_the_changes_of_a_night_are_ordered_by_severity(tmp_path):
    """A defect that one stack still has is no worse than one that no stack has any more."""
    data = json.loads(str(summary.render([read(ROOT / "docs/runs/rxe.jsonl.xz")])))
    for number, name, defects in (
        (0, "forky", data["defects"]),
        (0, "sid", data["defects"][-20:]),
        (1, "forky", []),
        (1, "sid", data["defects"][-20:]),
    ):
        cell = keep(tmp_path, number, name, Outcome(GOOD))
        (cell / "summary.json").write_text(json.dumps({**data, "defects": defects}))
    (fixed,) = HistoryPage(read_history(tmp_path)).changed_in(name_of(1)).values()
    ranks = [item.defect.rank for item in fixed if item.defect]
    assert len(ranks) > 20
    assert ranks == sorted(ranks)


def test_a_stack_that_is_still_regressed_says_by_what(tmp_path):
    history = tmp_path / "history"
    keep(history, 0, "forky", Outcome(BASELINE), run_of({}))
    for night in (1, 2):
        keep(history, night, "forky", Outcome(REGRESSED, against=name_of(0)), run_of({1: "FAIL"}))
    text = " ".join(history_page.page_of(read_history(history)).split())
    assert "forky, regressed in an earlier night and not fixed:" in text
    assert text.index("not fixed:") < text.index("Nothing changed in this night.")
    assert "since 2026-05-02 03:17, seen in 2 of 3 nights; REG-01" in text
    assert "never seen before" not in text
    keep(history, 3, "forky", Outcome(GOOD, against=name_of(0)), run_of({}))
    assert "not fixed:" not in history_page.page_of(read_history(history))


def empty(history: Path) -> None:
    (history / name_of(3)).mkdir()


def not_run(history: Path) -> None:
    keep(history, 3, "forky", Outcome(NOT_RUN, reason="no network"))


def not_run_and_good_outcome_damaged(history: Path) -> None:
    not_run(history)
    (history / name_of(0) / "forky" / "cell.json").write_text("{")


def cut_short(history: Path) -> None:
    run = run_of({}, complete=False, count=1)
    keep(history, 3, "forky", Outcome(UNDECIDED, against=name_of(0)), run)


LAST_NIGHTS = (empty, not_run, not_run_and_good_outcome_damaged, cut_short)


def regressed_twice(history: Path) -> Path:
    keep(history, 0, "forky", Outcome(BASELINE), run_of({}))
    for night in (1, 2):
        keep(history, night, "forky", Outcome(REGRESSED, against=name_of(0)), run_of({1: "FAIL"}))
    return history


@pytest.mark.parametrize("last_night", LAST_NIGHTS)
def test_a_regression_stays_in_sight_until_a_night_shows_that_it_is_fixed(tmp_path, last_night):
    history = regressed_twice(tmp_path / "history")
    last_night(history)
    assert main(["report", "--history", str(history), "--site", str(tmp_path / "site")]) == 0
    index = (tmp_path / "site" / "index.html").read_text()
    for page in (history_page.page_of(read_history(history)), index):
        text = " ".join(page.split())
        assert "forky, regressed in an earlier night and not fixed:" in text
        assert "since 2026-05-02 03:17, seen in 2 of " in text
        assert "Nothing changed in this night.</p>" not in text or last_night is cut_short
    keep(history, 4, "forky", Outcome(GOOD, against=name_of(0)), run_of({}))
    assert "not fixed:" not in history_page.page_of(read_history(history))


def test_a_standing_regression_against_a_lost_night_does_not_vanish(tmp_path):
    history = regressed_twice(tmp_path / "history")
    not_run(history)
    shutil.rmtree(history / name_of(0))
    text = " ".join(history_page.page_of(read_history(history)).split())
    assert "by what is unknown: the last good night (2026-05-01 03:17) cannot be read" in text


def head_of(history: Path) -> str:
    """Returns the text of the head of the page."""
    page = lxml.html.fromstring(history_page.page_of(read_history(history)))
    return " ".join(page.find(".//header").text_content().split())


def test_a_night_with_a_stack_cut_short_and_another_not_run_has_no_known_change(tmp_path):
    keep(tmp_path, 0, "forky", Outcome(BASELINE), run_of({}))
    keep(tmp_path, 1, "forky", Outcome(UNDECIDED), run_of({}, complete=False))
    keep(tmp_path, 1, "trixie", Outcome(NOT_RUN))
    known = "the run of forky was cut short, and trixie has no results."
    assert f"No change is known in this night: {known}" in head_of(tmp_path)


def test_a_standing_regression_dates_from_the_first_of_its_listed_defects(tmp_path):
    keep(tmp_path, 0, "forky", Outcome(BASELINE), run_of({}))
    for night, failing in ((1, {1: "FAIL"}), (2, {4: "HANG"}), (3, {4: "HANG"})):
        keep(tmp_path, night, "forky", Outcome(REGRESSED, name_of(0)), run_of(failing))
    assert "not fixed: since 2026-05-03 03:17 " in head_of(tmp_path)


def test_a_line_of_a_stack_has_its_severity_and_the_list_names_the_stack_of_the_worst(tmp_path):
    for night, stack, severity in ((0, "trixie", "memory safety"), (1, "forky", "valid refused")):
        keep(tmp_path, 0, stack, Outcome(BASELINE), run_of({}))
        path = keep(tmp_path, night, stack, Outcome(REGRESSED), run_of({1: "FAIL"}))
        data = json.loads((path / "summary.json").read_text())
        data["defects"][0]["severity"] = severity
        (path / "summary.json").write_text(json.dumps(data))
    page = HistoryPage(read_history(tmp_path))
    ((item,),) = page.changed_in(name_of(1)).values()
    assert item.defect
    assert (item.lane.name, item.defect.severity) == ("forky", "valid refused")
    ((defect, _),) = page.defects
    assert (defect.severity, defect.worst_on) == ("memory safety", "trixie")
    text = " ".join(lxml.html.fromstring(history_page.page_of(page.history)).text_content().split())
    assert "memory safety (on trixie) " in text


def test_what_is_not_seen_with_nothing_different_under_test_is_not_called_fixed(tmp_path):
    for night, failing in enumerate(({1: "FAIL"}, {}, {1: "FAIL"}, {})):
        keep(tmp_path, night, "forky", Outcome(GOOD), run_of(failing))
    said = head_of(tmp_path)
    assert "In this night: no longer seen forky: " in said
    assert "not seen this night, seen in 2 of 4 nights: " in said
    keep(tmp_path, 3, "forky", Outcome(GOOD), run_of({}, env={"kernel": "7", "rdma_core": "65"}))
    assert "In this night: fixed forky: " in head_of(tmp_path)


def test_a_day_without_a_night_is_named_if_most_days_have_one(tmp_path):
    for night in (0, 1, 2, 4, 5):
        keep(tmp_path, night, "forky", Outcome(GOOD), run_of({}))
    assert " no night on 2026-05-04 " in head_of(tmp_path)
    for night in (10, 15, 20, 25):
        keep(tmp_path, night, "forky", Outcome(GOOD), run_of({}))
    assert "no night on" not in head_of(tmp_path)


def test_a_stack_of_earlier_nights_that_is_not_in_the_latest_one_is_named(tmp_path):
    for night, stack in ((0, "forky"), (0, "trixie"), (1, "forky")):
        keep(tmp_path, night, stack, Outcome(GOOD), run_of({}))
    assert "not in this night: trixie (last 2026-05-01 03:17, good)" in head_of(tmp_path)
