"""The pages of real runs in a browser, light and dark, at the width of a desk and of a phone: nothing overlaps, no page
scrolls sideways or is longer than twelve screens before a part is unfolded, and axe-core finds no barrier."""

import json
import lzma
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from browser import Browser, assert_fits, browser, media, wait_for_rows, window
from commands.__main__ import main
from conformance.tables.suite import ROOT
from kinds import Folders
from patience import PATIENCE_S
from reports import summary
from reports.digest import read
from reports.nights.outcome import GOOD, Outcome
from test_history import keep

__all__ = ["browser"]  # a fixture
NAMES = {"forky": "rxe", "trixie": "trixie", "siw": "siw", "mended": "mended"}
RUNS = {stack: ROOT / f"docs/runs/{name}.jsonl.xz" for stack, name in NAMES.items()}
NIGHTS = 12
MOST_SCREENS = 12
PHONE = 390
PAGES = ("run", "runs", "many", "against", "history", "fleet", "site", "rule", "defect", "night")
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, PHONE)]
AXE = """
const done = arguments[0];
axe.run(document, {resultTypes: ["violations"]}).then(
  found => done(found.violations.map(one => [one.id, one.nodes.map(node => node.html)])),
  error => done([["axe", String(error)]]),
);
"""


def made(command: str, *arguments: object) -> None:
    assert main([command, *map(str, arguments)]) in (0, 1)


def nights(history: Path) -> Path:
    """Makes nights of the recorded runs. In every third night two defects of each stack are not seen."""
    for stack, path in RUNS.items():
        data = json.loads(json.dumps(summary.as_data(read(path))))
        texts = [json.dumps({**data, "defects": data["defects"][hidden:]}) for hidden in (0, 2, 0)]
        for night in range(NIGHTS):
            cell = keep(history, night, stack, Outcome(GOOD))
            (cell / "summary.json").write_text(texts[night % len(texts)])
        if stack == "forky":  # the texts of the rules, and the papers of the site
            (cell / "results.jsonl").write_bytes(lzma.decompress(path.read_bytes()))
    return history


@pytest.fixture(scope="module")
def pages(tmp_path_factory: Folders) -> Mapping[str, Path]:
    """The file of a page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    run, runs, many, against = (folder / f"{name}.html" for name in PAGES[:4])
    made("report", RUNS["forky"], "--out", run)
    made("report", *(RUNS[stack] for stack in ("forky", "trixie", "siw")), "--out", runs)
    made("report", *sorted((ROOT / "docs/runs").glob("*.jsonl.xz")), "--out", many)
    made("report", RUNS["forky"], "--against", RUNS["trixie"], "--out", against)
    history, site = nights(folder / "history"), folder / "site"
    made("report", "--history", history)
    made("report", "--history", history, "--site", site)
    latest = max(path for path in history.iterdir() if path.is_dir())
    made("compare", "--nodes", latest, "--out", folder / "fleet")
    longest = [
        max((site / kind).glob("*.html"), key=_size) for kind in ("rules", "defects", "nights")
    ]
    files = [
        run,
        runs,
        many,
        against,
        history / "history.html",
        folder / "fleet/fleet.html",
        site / "index.html",
        *longest,
    ]
    return dict(zip(PAGES, files, strict=True))


def _size(path: Path) -> int:
    return path.stat().st_size


@pytest.fixture(scope="module")
def axe(tmp_path_factory: Folders) -> str:
    """The script of axe-core, which is downloaded and checked by its hash."""
    folder = tmp_path_factory.mktemp("axe")
    listed = ["--no-deps", "--require-hashes", "-r", str(Path(__file__).with_name("axe.txt"))]
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", *listed, "-d", str(folder)], check=True
    )
    (wheel,) = folder.iterdir()
    return zipfile.ZipFile(wheel).read("axe_playwright_python/axe.min.js").decode()


def shown(browser: Browser, path: Path, scheme: str) -> None:
    media(browser, scheme)
    browser.get(path.as_uri())
    wait_for_rows(browser)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_and_is_short(browser, pages, name):
    shown(browser, pages[name], "light")
    for width in (1280, PHONE):
        assert_fits(browser, width)
        with window(browser, width):
            if width == PHONE:
                browser.wait(lambda: not browser.all(".narrow[open]"))
            assert browser.js("document.documentElement.scrollHeight / innerHeight") <= MOST_SCREENS


@pytest.mark.nightly  # axe-core is a download
@pytest.mark.parametrize("scheme, width", LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(browser, pages, axe, name, scheme, width):
    with window(browser, width):
        shown(browser, pages[name], scheme)
        browser.execute_script(axe)
        browser.set_script_timeout(PATIENCE_S)
        assert browser.execute_async_script(AXE) == []
