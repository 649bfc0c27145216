"""The page of a history in a real browser shows when each violation began, in a light and a dark scheme."""

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from commands.__main__ import main
from conformance.results.records import Recorded, footer_record, read_results
from kinds import Cli, Folders
from made_history import RULES, SUITE, run_of, write_run
from reports import history_page, summary
from reports.digest import digest
from reports.history import BASELINE, GOOD, NOT_RUN, REGRESSED, Cell, Outcome, read_history, since
from reports.history_page import HistoryPage
from reports.text import plain
from samples import registry
from test_page import MARKUP, assert_fits, browser, media

__all__ = ["browser"]  # a fixture

RECORDED = Path(__file__).with_name("recorded_violations")
FIRST = datetime(2026, 5, 1, 3, 17, tzinfo=UTC)
STACKS = {"bookworm": "siw", "trixie": "trixie", "forky": "forky", "sid": "forky-again"}
VARIANTS = 10


def name_of(number: int) -> str:
    return f"{FIRST + timedelta(days=number):%Y%m%dT%H%M%SZ}"


def keep(folder: Path, outcome: Outcome) -> None:
    """Writes the outcome of a cell."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cell.json").write_bytes(outcome.encoded())


def short_history(folder: Path) -> Path:
    """Makes seven nights on two stacks. Case 2 breaks in the fourth night, with another kernel, and is mended in the
    sixth; case 3 comes and goes; one cell has no results."""
    failing = [(1,), (1,), (1, 3), (1, 2), (1, 2, 3), (1,), (1, 3)]
    trixie: list[Mapping[int, str]] = [dict.fromkeys(numbers, "FAIL") for numbers in failing]
    rules = {1: "REG-01", 2: "REG-02", 3: "REG-15"}
    for number, verdicts in enumerate(trixie):
        kernel = "6.12.1" if number < 3 else "6.12.2"
        run = run_of(verdicts, env={"kernel": kernel, "rdma_core": "56.1"}, stack="trixie")
        for case, rule in rules.items():
            run.results[case]["rules"] = [rule]
        run = Recorded(
            run.header, run.results, footer_record(run.header["planned"], run.results, registry(), duration_s=1)
        )
        write_run(folder / name_of(number) / "trixie", run)
        keep(folder / name_of(number) / "trixie", Outcome(REGRESSED if 2 in verdicts else GOOD if number else BASELINE))
        if number == 4:
            keep(folder / name_of(number) / "sid", Outcome(NOT_RUN, reason=MARKUP))
        else:
            write_run(folder / name_of(number) / "sid", run_of({}, stack="sid"))
            keep(folder / name_of(number) / "sid", Outcome(GOOD if number else BASELINE))
    return folder


def variants(stack: str, recorded: str) -> Iterator[dict[str, Any]]:
    """Summaries of a recorded run in which some verdicts differ."""
    run = read_results(RECORDED / f"{recorded}.jsonl")
    for number in range(VARIANTS):
        results = [
            {**record, "verdict": "PASS", "effective": "PASS"} if (place + number) % VARIANTS == 0 else record
            for place, record in enumerate(run.results)
        ]
        env = {**run.header["env"], "kernel": f"6.12.{number}"}
        head = {**run.header, "stack": stack, "rules": RULES, "env": env}
        footer = footer_record(head["planned"], results, registry(), duration_s=60)  # type: ignore[arg-type]
        yield plain(summary.as_data(digest(Recorded(head, results, footer), Path())))  # type: ignore[arg-type]


def long_history(folder: Path, nights: int) -> Path:
    """Makes nights on four stacks from runs recorded on Soft-RoCE; verdicts come and go."""
    for stack, recorded in STACKS.items():
        texts = [json.dumps(each) for each in variants(stack, recorded)]
        for night in range(nights):
            cell = folder / name_of(night) / stack
            keep(cell, Outcome(GOOD))
            steady = night // 3 if night % 7 else night  # the kernel usually stays the same for three nights
            (cell / "summary.json").write_text(texts[steady % VARIANTS])
    return folder


@pytest.fixture(scope="module")
def short(tmp_path_factory: Folders) -> Path:
    """A history of seven nights."""
    return short_history(tmp_path_factory.mktemp("short"))


@pytest.fixture
def page(browser: webdriver.Chrome, short: Path, tmp_path: Path) -> webdriver.Chrome:
    media(browser, "light")
    return shown(browser, short, tmp_path)


def shown(browser: webdriver.Chrome, history: Path, folder: Path) -> webdriver.Chrome:
    path = folder / "page.html"
    assert main(["report", "--history", str(history), "--out", str(path)]) == 0
    browser.get(path.as_uri())
    return browser


def lane(page: webdriver.Chrome, track: str, stack: str) -> str:
    for each in page.find_element(By.ID, track).find_elements(By.CLASS_NAME, "lane"):
        if each.text.startswith(stack):
            return " ".join(each.text.split())
    raise AssertionError(f"{track} has no lane of {stack}")


def test_each_rule_says_since_when_on_each_stack(page: webdriver.Chrome) -> None:
    assert lane(page, "REG-01", "trixie") == "trixie FAIL in all 7 nights"
    assert lane(page, "REG-02", "trixie") == "trixie PASS since 2026-05-06 03:17, violated in 2 of 7 nights"
    assert lane(page, "REG-15", "trixie") == (
        "trixie FAIL since 2026-05-07 03:17, violated in 3 of 7 nights, comes and goes"
    )
    assert lane(page, "REG-01", "sid") == "sid PASS never violated"


def test_a_change_says_what_was_different_under_test(page: webdriver.Chrome) -> None:
    track = page.find_element(By.ID, "REG-02")
    track.find_element(By.TAG_NAME, "summary").click()
    mended, broken = (each.text for each in track.find_elements(By.TAG_NAME, "li"))
    assert mended == "2026-05-06 03:17, trixie: FAIL → PASS although nothing under test was different"
    assert broken == "2026-05-04 03:17, trixie: PASS → FAIL with another kernel"
    link = track.find_element(By.TAG_NAME, "a").get_attribute("href") or ""
    told = page.execute_script(
        "return document.getElementById(decodeURIComponent(arguments[0])).textContent", link.partition("#")[2]
    )
    assert "2026-05-04 03:17, trixie: kernel 6.12.1 → 6.12.2" in told


def test_the_strip_has_a_night_for_each_result_and_a_gap_for_none(short: Path) -> None:
    tracks = {track.id: track for track in HistoryPage(read_history(short)).rules}
    paths = {lane.name: dict(lane.paths) for lane in tracks["REG-15"].lanes}
    assert paths["trixie"] == {
        "FAIL": "M2 0h1v1h-1zM4 0h1v1h-1zM6 0h1v1h-1z",
        "PASS": "M0 0h2v1h-2zM3 0h1v1h-1zM5 0h1v1h-1z",
    }
    assert {lane.name: dict(lane.paths) for lane in tracks["REG-01"].lanes}["sid"] == {
        "PASS": "M0 0h4v1h-4zM5 0h2v1h-2z"
    }


def test_the_top_shows_the_latest_night(page: webdriver.Chrome) -> None:
    assert page.find_element(By.TAG_NAME, "h1").text == "Latest night: 2 good"
    news = [each.text for each in page.find_elements(By.CSS_SELECTOR, ".news li")]
    assert news[1:] == ["trixie: REG-15 PASS → FAIL"]
    assert news[0] == "trixie: a registration is refused: REMOTE_WRITE without LOCAL_WRITE not seen → seen"
    now = " ".join(page.find_element(By.CLASS_NAME, "now").text.split())
    assert "trixie good 2 rules violated, 2 defects; kernel 6.12.2, rdma-core 56.1" in now


def test_nothing_in_a_history_becomes_markup(browser: webdriver.Chrome, tmp_path: Path) -> None:
    run = run_of(
        {1: "FAIL"},
        device={"name": MARKUP, "driver": MARKUP, "fw": MARKUP},
        stack=MARKUP,
        env={"kernel": MARKUP},
        under_test={"kernel": {MARKUP: MARKUP}},
    )
    run.results[1]["reason"] = run.results[1]["call"] = MARKUP
    history = tmp_path / "history"
    for number, each in enumerate((run, run_of({}))):
        write_run(history / name_of(number) / "forky", each)
        keep(history / name_of(number) / "forky", Outcome(GOOD))
    keep(history / name_of(2) / "forky", Outcome(NOT_RUN, reason=MARKUP))
    (history / "<img src=x onerror=alert(1)>").mkdir()
    shown(browser, history, tmp_path)
    assert browser.execute_script("return window.ran") is None
    assert browser.execute_script("return document.querySelectorAll('img, script, b b, title *').length") == 0
    text = browser.execute_script("return document.body.textContent")
    assert text.count(MARKUP) >= 3
    assert "<img src=x onerror=alert(1)> is not a night" in text


def test_the_page_of_many_nights_is_small_and_fits_a_narrow_window(browser: webdriver.Chrome, tmp_path: Path) -> None:
    shown(browser, long_history(tmp_path / "long", 30), tmp_path)
    assert (tmp_path / "page.html").stat().st_size < 3e5
    assert len(browser.find_elements(By.CSS_SELECTOR, "#moving ~ article")) > 10
    browser.execute_script("for (const each of document.querySelectorAll('details')) each.open = true")
    assert_fits(browser)


def test_a_defect_under_another_of_its_fingerprints_is_the_same(tmp_path: Path) -> None:
    write_run(tmp_path / name_of(0) / "forky", run_of({1: "FAIL"}))
    write_run(tmp_path / name_of(1) / "forky", run_of({1: "FAIL"}))
    for number, (own, also) in enumerate((("a" * 12, []), ("b" * 12, ["a" * 12]))):
        path = tmp_path / name_of(number) / "forky" / "summary.json"
        data = json.loads(path.read_text())
        data["defects"][0] |= {"fingerprint": own, "also": also}
        path.write_text(json.dumps(data))
    ((_, track),) = HistoryPage(read_history(tmp_path)).defects
    assert track.lanes[0].told == "in all 2 nights"


def test_a_defect_is_as_severe_as_any_night_has_shown(tmp_path: Path) -> None:
    for number, severity in enumerate(("hang", "kernel crash", "valid refused")):
        folder = tmp_path / name_of(number) / "forky"
        write_run(folder, run_of({1: "FAIL"}))
        data = json.loads((folder / "summary.json").read_text())
        data["defects"][0]["severity"] = severity
        (folder / "summary.json").write_text(json.dumps(data))
    ((defect, _),) = HistoryPage(read_history(tmp_path)).defects
    assert defect.severity == "kernel crash"


def test_an_empty_history_is_a_page_too(tmp_path: Path) -> None:
    assert "No night has run yet" in history_page.page_of(read_history(tmp_path))


def test_a_damaged_summary_without_results_is_named(tmp_path: Path, cli: Cli) -> None:
    for name in ("empty", "fifo"):
        keep(tmp_path / name_of(0) / name, Outcome(GOOD))
    (tmp_path / name_of(0) / "empty" / "summary.json").write_text("{}")
    os.mkfifo(tmp_path / name_of(0) / "fifo" / "summary.json")
    out, err = cli(3, "report", "--history", tmp_path, "--out", "-")
    assert "No night has results that can be read." in out
    assert "None was found in any night." not in out
    assert "Nothing changed in it." not in out
    assert err.splitlines() == [
        f"{name_of(0)}, {name} counts as not run: summary.json is damaged, and there is no results.jsonl"
        for name in ("empty", "fifo")
    ]


@pytest.mark.parametrize("files", [[], ["results.jsonl", "report.html"]])
def test_a_directory_without_a_night_is_no_history(tmp_path: Path, cli: Cli, files: list[str]) -> None:
    for name in files:
        (tmp_path / name).write_text("")
    assert (
        cli(2, "report", "--history", tmp_path).err
        == f"rdma-cts: {tmp_path} is not a history: there is no night in it\n"
    )
    assert not (tmp_path / "history.html").exists()


def test_a_history_has_a_cell_for_each_that_was_kept(short: Path) -> None:
    found = read_history(short)
    assert (len(found.nights), len(found.cells), found.problems) == (7, 14, ())
    lost: Cell = found.of("sid")[4]
    assert (lost.outcome.outcome, lost.facts, lost.outcome.reason) == (NOT_RUN, None, plain(MARKUP))
    assert since({name_of(n): n >= 3 for n in range(5)}, name_of(4)) == name_of(3)
    assert SUITE.cases[2].id in found.of("trixie")[4].facts.violating  # type: ignore[union-attr]


def test_each_night_leads_to_its_report_unless_that_was_removed(short: Path) -> None:
    history = read_history(short)
    found = {cell.folder / "report.html" for cell in history.cells if (cell.folder / "report.html").exists()}
    assert found
    text = history_page.page_of(history)
    for report in found:
        assert f'<a href="{report.relative_to(short)}">' in text
    gone = min(found)
    gone.rename(gone.with_suffix(".kept"))
    try:
        assert f'<a href="{gone.relative_to(short)}">' not in history_page.page_of(history)
    finally:
        gone.with_suffix(".kept").rename(gone)
