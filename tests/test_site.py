"""The site of a history: files and links, the text of the pages, and their display in a browser. Mistakes are in
tests/refusals."""

import json
import resource
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
from selenium import webdriver

from commands.__main__ import main
from conformance.results.records import Recorded
from kinds import Folders, Says
from made_history import RULES, SUITE, run_of, write_run
from reports.history import GOOD, NOT_RUN, Outcome
from reports.history import read_history as read
from reports.history_page import HistoryPage
from test_history import keep, name_of, short_history
from test_page import MARKUP, assert_legible, browser, media

__all__ = ["browser"]  # a fixture

RECORDED = Path(__file__).with_name("recorded_violations") / "forky.jsonl"
IOVA_05 = "7862f7654354"  # a change of this project mends this defect


class Page(HTMLParser):
    """Collects the addresses, the ids and the words of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.tags: set[str] = set()
        self.words = ""
        self.feed(path.read_text(encoding="utf-8"))
        self.text = " ".join(self.words.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes the address and the id of the tag."""
        found = dict(attrs)
        self.tags.add(tag)
        self.words += " "
        self.addresses += [address for name in ("href", "src") if (address := found.get(name))]
        self.ids |= {id_} if (id_ := found.get("id")) else set()

    def handle_data(self, data: str) -> None:
        """Notes the words."""
        self.words += data


def made(history: Path, out: Path, *more: str) -> Path:
    """Makes the site of a history."""
    assert main(["site", "--history", str(history), "--out", str(out), *more]) == 0
    return out


@pytest.fixture(scope="module")
def short(tmp_path_factory: Folders) -> Path:
    """A history of seven nights on two stacks."""
    return short_history(tmp_path_factory.mktemp("short"))


@pytest.fixture(scope="module")
def site(short: Path, tmp_path_factory: Folders) -> Path:
    return made(short, tmp_path_factory.mktemp("site"))


def hostile(folder: Path) -> Path:
    """Makes a history in which every text is markup, even names of rules and fingerprints."""
    rules = {f"{id_}{MARKUP}": dict.fromkeys(texts, MARKUP) for id_, texts in RULES.items()}
    run = run_of({1: "FAIL"}, device={"name": MARKUP, "driver": MARKUP, "fw": MARKUP}, stack=MARKUP)
    results = [{**each, "rules": [f"REG-15{MARKUP}"]} for each in run.results]
    results[1] |= {"reason": MARKUP, "call": MARKUP, "case": MARKUP}
    header = {**run.header, "rules": rules, "planned": [each["case"] for each in results]}
    write_run(folder / name_of(0) / "forky", Recorded(header, results, None))  # type: ignore[arg-type]
    keep(folder / name_of(0) / "forky", Outcome(GOOD))
    keep(folder / name_of(1) / "sid", Outcome(NOT_RUN, reason=MARKUP))
    (folder / "<img src=x onerror=alert(1)>").mkdir()
    return folder


def broken_links(site: Path) -> Iterator[str]:
    """Yields the links on the pages of a site whose targets do not exist."""
    pages = {path.resolve(): Page(path) for path in site.rglob("*.html")}
    for path, page in pages.items():
        for address in page.addresses:
            if address != "data:,":
                file, part = map(unquote, urldefrag(address))
                target = (path.parent / file).resolve() if file else path
                if not target.is_file() or (part and part not in pages[target].ids):
                    yield f"{path.relative_to(site.resolve())}: {address}"


def test_every_rule_defect_and_night_has_a_page_and_every_link_an_end(short: Path, site: Path) -> None:
    history = read(short)
    assert {path.stem for path in (site / "rules").iterdir()} == set(RULES)
    assert {path.stem for path in (site / "nights").iterdir()} == set(history.nights)
    assert {path.stem for path in (site / "defects").glob("*.html")} == {
        track.id for _, track in HistoryPage(history).defects
    }
    assert list(broken_links(site)) == []


def test_a_rule_says_what_the_document_says_and_where_it_was_kept(site: Path) -> None:
    page = Page(site / "rules/REG-15.html")
    assert RULES["REG-15"]["quote"] in page.text
    assert RULES["REG-15"]["statement"] in page.text
    assert "kept in 4 nights: first 2026-05-01 03:17, last 2026-05-06 03:17" in page.text
    assert "violated in 3 nights: first 2026-05-03 03:17, last 2026-05-07 03:17" in page.text
    assert f"FAIL trixie {SUITE.cases[3].id} since 2026-05-07 03:17 on trixie" in page.text


def test_a_defect_says_since_when_and_brings_its_program(short: Path, site: Path) -> None:
    (track,) = (track for defect, track in HistoryPage(read(short)).defects if defect.rules == ("REG-02",))
    page = Page(site / f"defects/{track.id}.html")
    assert "not seen in the latest night with results" in page.text
    assert "seen in 2 nights: first 2026-05-04 03:17, last 2026-05-05 03:17" in page.text
    assert "not seen → seen with another kernel" in page.text
    assert f"{name_of(3)}.html#cell%3Atrixie" in " ".join(page.addresses)


def test_a_defect_that_a_program_shows_has_it_with_a_letter_and_what_mends_it(tmp_path: Path) -> None:
    cell = tmp_path / "history" / name_of(0) / "forky"
    cell.mkdir(parents=True)
    shutil.copy(RECORDED, cell / "results.jsonl")
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


def test_badges_are_pictures_that_say_it_in_words(site: Path) -> None:
    said = {path.stem: ET.parse(path).getroot().get("aria-label") for path in (site / "badges").iterdir()}
    assert said == {
        "latest-night": "rdma-cts, latest night: 2 good",
        "sid": "rdma-cts, sid: 1 rule kept, none violated",
        "trixie": "rdma-cts, trixie: 2 of 3 rules violated",
    }


def test_nothing_in_a_history_becomes_markup_or_leaves_the_site(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    site = made(hostile(tmp_path / "history"), tmp_path / "out" / "site")
    assert list(broken_links(site)) == []
    pages = [Page(path) for path in site.rglob("*.html")]
    assert not {"script", "b b"} & set().union(*(page.tags for page in pages))
    assert not any("javascript:" in address or address == "x" for page in pages for address in page.addresses)
    assert sum(MARKUP in page.words for page in pages) > len(RULES)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["site"]
    for path in site.rglob("*.svg"):
        ET.parse(path)


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1280)])
def test_pages_fit_and_can_be_read(browser: webdriver.Chrome, site: Path, scheme: str, width: int) -> None:
    media(browser, scheme)
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    kinds = [site / "index.html", *(min((site / part).glob("*.html")) for part in ("defects", "nights"))]
    for path in (*kinds, site / "rules/REG-15.html"):
        browser.get(path.as_uri())
        assert browser.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "flex"
        assert_legible(browser)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.execute_script("return [...document.images].every(each => each.naturalWidth)")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    media(browser)


def test_a_later_site_replaces_its_own_files_and_no_others(short: Path, tmp_path: Path) -> None:
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


def test_a_site_cannot_name_files_elsewhere_to_be_removed(short: Path, tmp_path: Path) -> None:
    out = made(short, tmp_path / "site")
    data = json.loads((out / "site.json").read_text())
    data["files"] += ["../mine", "/tmp/mine", "rules/../../mine", "mine"]
    (out / "site.json").write_text(json.dumps(data))
    (tmp_path / "mine").write_text("kept")
    (out / "mine").write_text("kept")
    made(short, out)
    assert (tmp_path / "mine").exists()
    assert (out / "mine").exists()


def test_a_disk_without_room_leaves_the_old_site(short: Path, tmp_path: Path, capsys: Says) -> None:
    out = made(short, tmp_path / "site")
    before = {path: path.read_bytes() for path in out.rglob("*.*")}
    capsys.readouterr()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert main(["site", "--history", str(short), "--out", str(out)]) == 3
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert capsys.readouterr().err == f"rdma-cts: {out} cannot be written: File too large\n"
    assert {path: path.read_bytes() for path in out.rglob("*.*")} == before


def test_nights_without_results_are_a_site_of_what_is_left(short: Path, tmp_path: Path) -> None:
    history = tmp_path / "history"
    shutil.copytree(short, history)
    for path in history.glob("*/*/results.jsonl"):
        path.unlink()
    site = made(history, tmp_path / "site")
    assert list(broken_links(site)) == []
    page = Page(min((site / "defects").glob("*.html")))
    assert "None: the results with the defect were removed." in page.text
