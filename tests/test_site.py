"""Tests of the site of a history: its pages, links, badges, and how it replaces an earlier site."""

import json
import lzma
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urldefrag

import lxml.html
import pytest
from lxml import etree

from bad_places import full_disk
from browser import MARKUP, assert_legible, browser, media
from commands.__main__ import main
from conformance.older_python import zip
from conformance.results.records import Recorded, read_written
from conformance.tables.suite import ROOT
from kinds import Folders
from made_history import RULES, SUITE, run_of
from reports.digest import read
from reports.nights.history import read_history
from reports.nights.outcome import BASELINE, NOT_RUN, REGRESSED, UNDECIDED, Outcome
from reports.nights.page import HistoryPage
from reports.summary import as_data
from reports.upstream import ENTRIES
from test_history import keep, name_of, short

__all__ = ["browser", "short"]  # fixtures

RECORDED = Path(__file__).with_name("recorded_violations")
WIDE = "ff6941f7e668"  # a defect of three rules, whose example violates the second of them
IOVA_05 = "7862f7654354"  # a change of the mended stack corrects this defect


class Page:
    """The addresses, the ids, the tags and the words of a page."""

    def __init__(self, path: Path) -> None:
        page = lxml.html.parse(path, lxml.html.HTMLParser(encoding="utf-8"))
        self.addresses: list[str] = page.xpath("//@href | //@src")
        self.ids: set[str] = set(page.xpath("//@id"))
        self.tags = {element.tag for element in page.iter()}
        walk = etree.iterwalk(page, events=("start", "end"))
        self.words = "".join(
            f" {element.text or ''}" if event == "start" else element.tail or ""
            for event, element in walk
        )
        self.text = " ".join(self.words.split())


def made(history: Path, out: Path, *more: str) -> Path:
    assert main(["report", "--history", str(history), "--site", str(out), *more]) == 0
    return out


@pytest.fixture(scope="module")
def site(short: Path, tmp_path_factory: Folders) -> Path:
    return made(short, tmp_path_factory.mktemp("site"))


def hostile(folder: Path) -> Path:
    """Makes a history in which every text is markup, even the ids of rules and of a case."""
    rules = {f"{id_}{MARKUP}": dict.fromkeys(texts, MARKUP) for id_, texts in RULES.items()}
    run = run_of(
        {1: "FAIL"}, device={"name": "fake0", "driver": MARKUP, "fw": MARKUP}, stack=MARKUP
    )
    results = [{**result, "rules": [f"REG-15{MARKUP}"]} for result in run.results]
    results[1] |= {"reason": MARKUP, "call": MARKUP, "case": MARKUP}
    header = {**run.header, "rules": rules, "planned": [result["case"] for result in results]}
    keep(folder, 0, "forky", Outcome(UNDECIDED), Recorded(header, results, None))  # type: ignore[arg-type]
    keep(folder, 1, "sid", Outcome(NOT_RUN, reason=MARKUP))
    (folder / "<img src=x onerror=alert(1)>").mkdir()
    return folder


def broken_links(site: Path) -> Iterator[str]:
    """Yields the links on the pages of a site whose targets do not exist."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for address in page.addresses:
            if address != "data:,":
                file, part = map(unquote, urldefrag(address))
                if file:
                    target = (path.parent / file).resolve()
                else:
                    target = path
                if not target.is_file() or (part and part not in pages[target].ids):
                    yield f"{path.relative_to(site.resolve())}: {address}"


def test_every_rule_defect_and_night_has_a_page_and_every_link_has_a_target(short, site):
    history = read_history(short)
    assert {path.stem for path in (site / "rules").iterdir()} == set(RULES)
    assert {path.stem for path in (site / "nights").iterdir()} == set(history.nights)
    defects = {track.id for _, track in HistoryPage(history).defects}
    assert {path.stem for path in (site / "defects").glob("*.html")} == defects
    assert list(broken_links(site)) == []


def test_rules_without_a_case_are_told_from_those_that_are_not_violated(site):
    text = Page(site / "index.html").text
    assert re.search(r"ibv_advise_mr \d+ rules, without a case in these nights", text)
    assert re.search(
        r"ibv_reg_mr \d+ rules, \w+ violated, \d+ without a case in these nights", text
    )


def test_the_page_of_a_rule_has_its_quote_and_the_nights_in_which_it_was_kept_or_violated(site):
    page = Page(site / "rules/REG-15.html")
    assert RULES["REG-15"]["quote"] in page.text
    assert RULES["REG-15"]["statement"] in page.text
    assert "kept in 4 nights: first 2026-05-01 03:17, last 2026-05-06 03:17" in page.text
    assert "violated in 3 nights: first 2026-05-03 03:17, last 2026-05-07 03:17" in page.text
    assert f"FAIL trixie {SUITE.cases[3].id} since 2026-05-07 03:17 on trixie" in page.text


def test_the_page_of_a_defect_has_the_nights_in_which_it_was_seen(short, site):
    (track,) = (
        track
        for defect, track in HistoryPage(read_history(short)).defects
        if defect.rules == ("REG-02",)
    )
    page = Page(site / f"defects/{track.id}.html")
    assert "not seen in the latest night with results" in page.text
    assert "seen in 2 nights: first 2026-05-04 03:17, last 2026-05-05 03:17" in page.text
    assert "not seen → seen with a different kernel" in page.text
    assert f"{name_of(3)}.html#cell%3Atrixie" in " ".join(page.addresses)


def test_the_page_of_a_defect_has_its_program_its_letter_and_the_change_that_corrects_it(tmp_path):
    cell = tmp_path / "history" / name_of(0) / "forky"
    cell.mkdir(parents=True)
    shutil.copy(RECORDED / "forky.jsonl", cell / "results.jsonl")
    site = made(tmp_path / "history", tmp_path / "site")
    assert list(broken_links(site)) == []
    page = Page(site / f"defects/{IOVA_05}.html")
    program = (site / f"defects/{IOVA_05}.c").read_text()
    letter = (site / f"defects/{IOVA_05}.txt").read_text()
    assert "int main(" in program
    assert program in page.words
    assert letter.startswith("Subject: rxe: ")
    assert letter in page.words
    assert "Find the pages of on-demand regions by the iova" in page.text
    assert "in the source drivers/infiniband/sw/rxe/rxe_odp.c" in page.text


def test_the_page_of_a_defect_says_before_its_mail_that_it_is_known_upstream(tmp_path):
    cell = tmp_path / "history" / name_of(0) / "forky"
    cell.mkdir(parents=True)
    shutil.copy(ROOT / "docs/runs/rxe.jsonl.xz", cell / "results.jsonl.xz")
    site = made(tmp_path / "history", tmp_path / "site")
    for name in ("de19cd258c26", IOVA_05):
        about, _, mail = Page(site / f"defects/{name}.html").text.partition(" Mail ")
        is_known = name in ENTRIES
        assert ("Known upstream." in about) is is_known
        assert ("send the text only if it says something new" in mail) is is_known


def test_the_page_of_a_defect_quotes_each_rule_and_first_that_of_the_case_shown(tmp_path):
    run = read_written(RECORDED / "forky.jsonl")
    run.header["rules"] = RULES
    keep(tmp_path / "history", 0, "forky", Outcome(UNDECIDED), run)
    site = made(tmp_path / "history", tmp_path / "site")
    text = Page(site / f"defects/{WIDE}.html").text
    about = text.partition("Violated rules")[2].partition("What happens")[0]
    rules = re.findall(r"\bIOVA-\d\d\b", about)
    assert rules == ["IOVA-03", "IOVA-02", "IOVA-05"]
    for rule, of_rule in zip(rules, re.split("|".join(rules), about)[1:], strict=True):
        assert RULES[rule]["document"] in of_rule


def test_a_change_has_the_rules_of_its_own_cell_and_night_on_both_pages(tmp_path, cli):
    """Another stack shows the same defect with fewer rules."""
    seen = {**as_data(read(RECORDED / "forky.jsonl")), "complete": True}
    (wide,) = (defect for defect in seen["defects"] if defect["fingerprint"] == WIDE)
    others = [defect for defect in seen["defects"] if defect is not wide]
    kept = {**seen["rules"], **dict.fromkeys(wide["rules"], "PASS")}
    absent = {**seen, "defects": others, "rules": kept}
    narrow = {**seen, "defects": [*others, {**wide, "rules": wide["rules"][:1]}]}
    history = tmp_path / "history"
    for night, stack, data in ((0, "forky", absent), (1, "forky", seen), (1, "trixie", narrow)):
        cell = keep(history, night, stack, Outcome(REGRESSED if night else BASELINE))
        (cell / "summary.json").write_text(json.dumps(data))
    site = made(history, tmp_path / "site")
    cli(0, "report", "--history", history)
    for page in (history / "history.html", site / f"nights/{name_of(1)}.html"):
        lines = [item.text_content() for item in lxml.html.parse(page).iterfind(".//li")]
        (line,) = (line for line in lines if line.startswith("forky: "))
        assert WIDE in line
        assert line.strip().endswith("IOVA-02, 03, 05")


def test_badges_are_pictures_with_the_verdict_as_text(site):
    said = {
        path.stem: ET.parse(path).getroot().get("aria-label")
        for path in (site / "badges").iterdir()
    }
    assert said == {
        "latest-night": "rdma-cts, latest night: 2 good",
        "sid": "rdma-cts, sid: 1 rule kept, none violated",
        "trixie": "rdma-cts, trixie: 2 of 3 rules violated",
    }


def test_the_badge_of_an_incomplete_run_says_so(tmp_path):
    run = run_of({1: "FAIL"}, complete=False)
    keep(tmp_path / "history", 0, "forky", Outcome(UNDECIDED), run)
    site = made(tmp_path / "history", tmp_path / "site")
    assert " violated (incomplete)" in (site / "badges/forky.svg").read_text()


def test_nothing_in_a_history_becomes_markup_or_leaves_the_site(tmp_path):
    (tmp_path / "out").mkdir()
    site = made(hostile(tmp_path / "history"), tmp_path / "out" / "site")
    assert list(broken_links(site)) == []
    pages = [Page(path) for path in site.rglob("*.html")]
    assert not {"script", "b b"} & set().union(*(page.tags for page in pages))
    assert not any(
        "javascript:" in address or address == "x" for page in pages for address in page.addresses
    )
    assert sum(MARKUP in page.words for page in pages) > len(RULES)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["site"]
    for path in site.rglob("*.svg"):
        ET.parse(path)


@pytest.mark.parametrize("scheme, width", [("light", 390), ("dark", 1280)])
def test_pages_fit_and_can_be_read(browser, site, scheme, width):
    media(browser, scheme)
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    kinds = [
        site / "index.html",
        *(min((site / part).glob("*.html")) for part in ("defects", "nights")),
    ]
    for path in (*kinds, site / "rules/REG-15.html"):
        browser.get(path.as_uri())
        browser.wait(
            lambda: browser.js("getComputedStyle(document.querySelector('nav')).display") == "flex"
        )
        assert_legible(browser)
        assert browser.js("document.documentElement.scrollWidth") <= width
        assert browser.js("[...document.images].every(each => each.naturalWidth)")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    media(browser)


def test_a_later_site_replaces_its_own_files_and_no_others(short, tmp_path):
    history = tmp_path / "history"
    shutil.copytree(short, history)
    out = made(history, tmp_path / "site")
    (out / "CNAME").write_text("mine")
    gone = out / "nights" / f"{name_of(0)}.html"
    assert gone.exists()
    shutil.rmtree(history / name_of(0))
    made(history, out)
    assert not gone.exists()
    assert (out / "CNAME").read_text() == "mine"
    assert list(broken_links(out)) == []
    assert not list(out.glob(".rdma*"))


def test_a_site_cannot_name_files_elsewhere_to_be_removed(short, tmp_path):
    out = made(short, tmp_path / "site")
    data = json.loads((out / "site.json").read_text())
    data["files"] += ["../mine", "/tmp/mine", "rules/../../mine", "mine"]
    (out / "site.json").write_text(json.dumps(data))
    (tmp_path / "mine").write_text("kept")
    (out / "mine").write_text("kept")
    made(short, out)
    assert (tmp_path / "mine").exists()
    assert (out / "mine").exists()


def test_on_a_full_disk_the_old_site_is_unchanged(short, tmp_path, cli):
    out = made(short, tmp_path / "site")
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    with full_disk(4096):
        said = cli(3, "report", "--history", short, "--site", out).err
    assert said == f"rdma-cts: {out} cannot be written: File too large\n"
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before
    first = tmp_path / "first"
    with full_disk(4096):
        assert "File too large" in cli(3, "report", "--history", short, "--site", first).err
    made(short, first)


def test_a_site_is_made_even_if_all_results_were_removed(short, tmp_path):
    history = tmp_path / "history"
    shutil.copytree(short, history)
    for path in history.glob("*/*/results.jsonl"):
        path.unlink()
    site = made(history, tmp_path / "site")
    assert list(broken_links(site)) == []
    page = Page(min((site / "defects").glob("*.html")))
    assert "There is no program: the results with the defect were removed." in page.text


def test_a_site_has_texts_of_remote_defects_only_if_they_are_asked_for(tmp_path):
    cell = tmp_path / "history" / name_of(0) / "forky"
    cell.mkdir(parents=True)
    with lzma.open(ROOT / "docs/runs/rxe.jsonl.xz") as recorded:
        (cell / "results.jsonl").write_bytes(recorded.read())
    remote = "6c8e18b350a5"
    public = made(tmp_path / "history", tmp_path / "public")
    assert len(list((public / "defects").glob("*.c"))) > 5
    assert {path.suffix for path in (public / "defects").glob(f"{remote}*")} == {".html"}
    page = Page(public / f"defects/{remote}.html")
    assert "A remote peer can trigger the defect" in page.text
    assert "seen in 1 night" in page.text
    case = "wire/invalidation/twice"
    for told in ("int main(", "wire(", "rxe_mw.c", "BIND-19", case, "unbound-invalidation"):
        assert told not in page.words
    assert case not in Page(public / "rules/BIND-19.html").words
    assert list(broken_links(public)) == []
    private = made(tmp_path / "history", tmp_path / "private", "--remote")
    written = {path.suffix for path in (private / "defects").glob(f"{remote}*")}
    assert written == {".html", ".c", ".py", ".txt"}
    page = Page(private / f"defects/{remote}.html")
    assert all(told in page.words for told in ("int main(", "wire(", "rxe_mw.c", case))
    assert case in Page(private / "rules/BIND-19.html").words


def test_a_site_has_no_text_of_remote_defects_whose_results_were_removed(tmp_path):
    cell = keep(tmp_path / "history", 0, "forky", Outcome(UNDECIDED))
    summary = as_data(read(ROOT / "docs/runs/rxe.jsonl.xz"))
    (cell / "summary.json").write_text(json.dumps(summary))
    site = made(tmp_path / "history", tmp_path / "site")
    page = Page(site / "defects/6c8e18b350a5.html")
    assert "remote: kernel crash" in page.text
    for told in ("wire(", "wire/invalidation/twice", "rxe_mw.c"):
        assert told not in page.words
