"""Tests of report.html in a real browser: headless Chromium, controlled by chromedriver."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from conformance.model.record import Axes, Deviation, ResultRecord, Subsets
from conformance.model.verdict import VERDICTS, Verdict
from conformance.older_python import pairwise
from kinds import words
from patience import PATIENCE_S
from reports import html
from reports.digest import Digest, digest, read
from reports.novelty import novelty
from reports.page_data import SHADES
from samples import FLAGS, OUTCOMES, numbered, recorded, registry, result, sweep

SUITE = numbered(16)
RECORDED = Path(__file__).with_name("recorded_violations") / "forky.jsonl"
DATA_PATH: Axes = {
    "object": ["region", "window"],
    "op": ["RDMA_WRITE", "RDMA_READ"],
    "place": ["first", "last", "before"],
}
MARKUP = "<script>window.ran=1</script><img src=x onerror='window.ran=2'>\"'><b>{{ 7*7 }}</b></script></title></style>"
FIGURES = {"confirmed": 0, "not_confirmed": 1}
RULES = {rule.id: rule.as_data() for rule in registry().values()}


class Browser(webdriver.Chrome):  # type: ignore[misc, unused-ignore]
    """A browser that shows a page of the project."""

    def js(self, expression: str, *arguments: object) -> Any:
        return self.execute_script(f"return {expression}", *arguments)

    def one(self, selector: str) -> Any:
        return self.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> Any:
        return self.find_elements(By.CSS_SELECTOR, selector)

    def by_id(self, id_: str) -> Any:
        return self.find_element(By.ID, id_)

    def wait(self, condition: Callable[[], object]) -> Any:
        """Waits until the condition is true, and returns its value."""
        return WebDriverWait(self, PATIENCE_S).until(lambda _: condition())

    def press(self, *keys: str) -> None:
        """Types into the focused element."""
        ActionChains(self).send_keys(*keys).perform()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests of the module."""
    options = webdriver.ChromeOptions()
    for argument in words(
        "headless=new no-sandbox disable-gpu disable-dev-shm-usage window-size=1280,1000",
    ):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium, "the tests need Debian's chromium"
    assert driver, "the tests need Debian's chromium-driver"
    options.binary_location = chromium
    # The browser needs no proxy of the host, because the page loads nothing.
    environment = {
        name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")
    }
    chrome = Browser(service=Service(driver, env=environment), options=options)
    yield chrome
    chrome.quit()


def run(directory: Path, lines: Sequence[ResultRecord], **head: Any) -> Digest:
    return digest(recorded(lines, rules=RULES, **head).shown(), directory)


def varied(directory: Path) -> list[ResultRecord]:
    """Returns a result for each verdict, one with markup in every text, a sweep of flags, and one of the data path."""
    cases = iter(SUITE.cases)
    lines = [result(next(cases), verdict, f"it was {verdict}") for verdict in VERDICTS]
    waived = VERDICTS.index(Verdict.WAIVED)
    lines[waived] |= {
        "verdict": Verdict.FAIL,
        "waiver": {"issue": "javascript:alert(1)", "owner": MARKUP, "expires": "x"},
    }
    marked: dict[str, Any] = dict.fromkeys(("call", "layer", "repro"), MARKUP) | {
        "case": f"reg_mr/{MARKUP}",
        "observed": {MARKUP: MARKUP, "afterwards": [{"call": MARKUP, MARKUP: [MARKUP]}]},
        "notes": [MARKUP],
        "kernel": {"log": [MARKUP, "the kernel's zebra line"]},
        "source": {"file": MARKUP, "line": MARKUP},
    }
    lines.append(result(next(cases), "FAIL", MARKUP, rules=["REG-15"], **marked))
    lines.append(
        sweep(directory, next(cases), FLAGS, lambda at: 2 if "MW_BIND" in at["access"] else 0),
    )
    beyond = {"region": 1, "window": 2}
    lines.append(
        sweep(
            directory,
            next(cases),
            DATA_PATH,
            lambda at: beyond[at["object"]] if at["place"] == "before" else 0,
        ),
    )
    return lines


def show(browser: Browser, path: Path, *runs: Digest) -> None:
    page = path / "report.html"
    page.write_text(html.render(runs))
    browser.get(page.as_uri())
    wait_for_rows(browser)


def wait_for_rows(browser: Browser) -> None:
    """Waits until the page can build the rows of its data."""
    browser.wait(lambda: not browser.all("[aria-busy=true]"))


def build(browser: Browser) -> None:
    """Opens all parts of the page, so that it builds all its rows."""
    browser.execute_script("document.querySelector('.in-full').scrollIntoView()")
    sections = ".in-full > section:not(.hidden) > details > div"
    browser.wait(
        lambda: all(section.get_property("childElementCount") for section in browser.all(sections)),
    )
    for _ in range(2):  # first the rows, then the parts of the rows
        browser.execute_async_script(
            "const done = arguments[0];"
            "for (const each of document.querySelectorAll('details')) each.open = true;"
            "setTimeout(() => requestAnimationFrame(() => setTimeout(done)));",  # waits for the events of the opening
        )


@pytest.fixture(scope="module")
def varied_page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the page of one varied run."""
    folder = tmp_path_factory.mktemp("varied")
    run_made = run(folder, varied(folder), device={"name": MARKUP, "driver": MARKUP, "fw": MARKUP})
    (folder / "report.html").write_text(html.render([run_made]))
    return (folder / "report.html").as_uri()


@pytest.fixture
def page(browser: Browser, varied_page: str) -> Browser:
    """The page of one varied run, in the light colour scheme, with an empty search."""
    media(browser, "light")
    browser.get("about:blank")  # a page at the same address would keep its scroll position
    browser.get(varied_page)
    wait_for_rows(browser)
    return browser


def media(browser: Browser, scheme: str = "light", medium: str = "") -> None:
    """Sets the colour scheme and the medium of the page."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})


# The headings between the defects that are wider than their place.
CUT = """[...document.querySelectorAll(".defects > :is(.bad, h3)")]
    .filter(heading => heading.scrollWidth > heading.clientWidth).map(heading => heading.textContent)"""


def assert_fits(browser: Browser, width: int = 390) -> None:
    """Checks that a page of this width does not scroll sideways, and cuts off no heading of its defects."""
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert browser.js("document.documentElement.scrollWidth") <= width
        assert browser.js(CUT) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def assert_legible(browser: Browser) -> dict[str, float]:
    """Checks the contrast of every text with its background; returns the least contrast of each kind of element."""
    contrasts: dict[str, float] = browser.execute_script(CONTRAST)
    assert {name: round(ratio, 2) for name, ratio in contrasts.items() if ratio < 4.5} == {}
    return contrasts


def cases(browser: Browser) -> list[str]:
    """Opens all rules, which builds their rows; returns the ids of the cases that pass the filter."""
    cases_read: list[str] = browser.execute_async_script(
        "const rules = [...document.querySelectorAll('details.rule')], open = rules.filter(each => each.open);"
        "for (const each of document.querySelectorAll('details.group, details.rule')) each.open = true;"
        "setTimeout(() => requestAnimationFrame(() => setTimeout(() => {"
        "  const found = [...document.querySelectorAll('details.case')].filter(each => !each.closest('.hidden'));"
        "  for (const each of rules) each.open = open.includes(each);"
        "  arguments[0](found.map(each => each.id));"
        "})))",
    )
    return cases_read


def focused(browser: Browser) -> str:
    """Returns the id of the focused element, or the id of the row if its head has the focus."""
    focused_id: str = browser.js(
        "(it => it.id || it.closest('summary')?.parentElement.id || it.tagName)(document.activeElement)",
    )
    return focused_id


def test_no_text_of_the_results_runs_as_a_script_and_all_texts_are_shown(page: Browser) -> None:
    build(page)
    assert page.js("window.ran") is None
    assert page.js("document.querySelectorAll('img[src=x], b b, title script').length") == 0
    assert page.js("document.querySelectorAll('a[href^=\"javascript\"]').length") == 0
    assert page.title == f"{page.one('p.about').text} · rdma-cts"
    assert page.title.startswith(
        f"{MARKUP} ({MARKUP}), kernel 7.2.0, rdma-core 65.0, stack host, 2026-01-02",
    )
    assert (
        f"{MARKUP} does not conform to its documents" in page.find_element(By.TAG_NAME, "h1").text
    )
    assert page.js("document.body.textContent.split(arguments[0]).length", MARKUP) > 10
    log: list[dict[str, Any]] = page.get_log("browser")  # type: ignore[no-untyped-call, unused-ignore]
    assert [entry for entry in log if entry["level"] == "SEVERE"] == []
    # The page loads nothing, and does not run a script that is added to it.
    loaded = page.js("performance.getEntriesByType('resource').map(each => each.name.slice(0, 5))")
    assert set(loaded) <= {"data:"}
    page.execute_script(
        "const it = document.createElement('script'); it.textContent = 'window.ran = 3'; document.body.append(it)",
    )
    assert page.js("window.ran") is None


def test_each_violated_rule_is_next_to_the_quote_of_its_document(page: Browser) -> None:
    build(page)
    (card, *_) = page.find_elements(
        By.XPATH,
        "//details[starts-with(@id,'defect:')][.//p[not(@class)]/a[.='REG-15']]",
    )
    said = card.find_element(By.CLASS_NAME, "document")
    assert said.find_element(By.TAG_NAME, "q").text == RULES["REG-15"]["quote"]
    assert (
        said.find_element(By.TAG_NAME, "cite").text
        == f"{RULES['REG-15']['document']}, {RULES['REG-15']['section']}"
    )


def test_verdicts_are_filters_of_cases(page: Browser) -> None:
    everything = cases(page)
    chip = page.one("button[data-verdict=CRASH]")
    chip.click()
    assert cases(page) == [SUITE.cases[VERDICTS.index("CRASH")].id]
    assert chip.get_attribute("aria-pressed") == "true"
    page.one("button[data-verdict=HANG]").click()
    assert len(cases(page)) == 2
    assert page.by_id("found").text == "2 cases"
    page.press(Keys.ESCAPE)
    assert cases(page) == everything


def test_the_search_finds_kernel_lines_and_opens_their_rules(page: Browser) -> None:
    page.press("/")
    assert focused(page) == "search"
    page.press("zebra")
    page.wait(lambda: page.by_id("found").text == "1 cases")
    assert cases(page) == [f"reg_mr/{MARKUP}"]
    assert page.by_id("REG-15").get_attribute("open") is not None
    page.press(Keys.ESCAPE)
    assert len(cases(page)) > 1
    assert focused(page) == "BODY"


def test_rows_are_focused_and_opened_by_keyboard(page: Browser) -> None:
    page.press("j")
    first = focused(page)
    page.press("j")
    assert focused(page) not in (first, "BODY")
    page.press("k")
    assert focused(page) == first
    rule = page.by_id(first)
    assert rule.get_attribute("open") is None
    page.press(Keys.ENTER)
    assert rule.get_attribute("open") is not None


def test_a_result_has_its_call_outcome_reason_entry_table_and_command(page: Browser) -> None:
    case = SUITE.cases[VERDICTS.index("FAIL")]
    page.execute_script("location.hash = arguments[0]", case.id)
    page.wait(lambda: focused(page) == case.id)
    text = page.by_id(case.id).text
    for needed in (
        str(case.when),
        "outcome success",
        "it was FAIL",
        "libibverbs",
        "cases/reg_mr/sample.yaml:7",
        f"./rdma-cts run --only {case.id}",
    ):
        assert needed in text


def test_a_waived_violation_is_shown_with_its_verdict(page: Browser) -> None:
    build(page)
    (case,) = page.all("details.case[data-verdicts=WAIVED]")
    text = case.get_attribute("textContent") or ""
    assert "FAIL, counted as WAIVED" in text
    assert "javascript:alert(1)" in text


def test_a_sweep_has_its_formula_its_map_and_a_legend(page: Browser) -> None:
    build(page)
    (first, *_) = page.all("details.sweep:has(.FAIL)")
    assert "4 points: those with MW_BIND" in first.text
    drawn = page.execute_script(
        "const it = arguments[0], all = it.getContext('2d').getImageData(0, 0, it.width, it.height).data;"
        "return [it.width, it.height, ...new Set(new Uint32Array(all.buffer))]",
        first.find_element(By.CSS_SELECTOR, ".map"),
    )
    green, red = (
        int.from_bytes(bytes.fromhex(f"{SHADES[verdict][0][1:]}ff"), "little")
        for verdict in ("PASS", "FAIL")
    )
    assert drawn == [4, 2, green, red]
    assert [
        item.text.split()[0] for item in first.find_elements(By.CSS_SELECTOR, ".legend li")
    ] == ["4", "4"]


def test_a_point_of_a_map_is_described_by_keyboard_and_by_pointer(page: Browser) -> None:
    build(page)
    (first, *_) = page.all("details.sweep:has(.FAIL)")
    dot, shown = (
        first.find_element(By.CSS_SELECTOR, ".dot"),
        first.find_element(By.CSS_SELECTOR, ".map"),
    )
    page.execute_script("arguments[0].focus()", shown)
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    page.wait(lambda: dot.text.startswith("access=LOCAL_WRITE · PASS: REG-01 expects success"))
    page.press(Keys.ARROW_DOWN)
    page.wait(lambda: dot.text.startswith("access=LOCAL_WRITE+MW_BIND · FAIL"))
    left_px, up = (2 - shown.size[side] // 2 for side in ("width", "height"))
    ActionChains(page).move_to_element_with_offset(shown, left_px, up).perform()
    page.wait(lambda: dot.text.startswith("access=none"))


def test_the_data_path_is_a_table_of_signs(page: Browser) -> None:
    build(page)
    tables = page.all("table.cells")
    assert [table.find_element(By.TAG_NAME, "caption").text for table in tables] == [
        "object region",
        "object window",
    ]
    rows = [row for table in tables for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")]
    signs = []
    for row in rows:
        signs.append([cell.text for cell in row.find_elements(By.TAG_NAME, "td")])
    assert signs == [["✓", "✓", "⊘"]] * 2 + [["✓", "✓", "✗"]] * 2


def test_several_runs_are_columns_and_differing_cases_can_be_selected(
    browser: Browser,
    tmp_path: Path,
) -> None:
    old = [result(case) for case in SUITE.cases[:4]]
    new = [result(case, "FAIL" if case is SUITE.cases[2] else "PASS") for case in SUITE.cases[1:5]]
    show(browser, tmp_path, run(tmp_path, old, stack="trixie"), run(tmp_path, new, stack="forky"))
    heads = [heading.text for heading in browser.all(".row.head span")]
    assert heads[2:] == ["trixie", "forky"]
    defects = [cell.text for cell in browser.all(".defects .line .num")]
    assert defects == ["trixie", "forky", "in any", "·", "1", "1"]
    differing = "1 of 5 cases have different verdicts; 2 are not in every run."
    assert browser.one("header > .verdict").text == differing
    browser.one("button[data-verdict=differs]").click()
    assert cases(browser) == [SUITE.cases[2].id]
    rule = browser.by_id("REG-01")
    assert [badge.text for badge in rule.find_elements(By.CSS_SELECTOR, "summary.row .v")] == [
        "PASS",
        "FAIL",
    ]
    browser.one("button[data-verdict=differs]").click()
    build(browser)
    verdicts = rule.find_elements(By.CSS_SELECTOR, "details.case")[4].get_attribute("data-verdicts")
    assert verdicts == "- PASS"
    levels = browser.js(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(each => +each.tagName[1])",
    )
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_the_essentials_need_no_script(browser: Browser, tmp_path: Path) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, tmp_path, run(tmp_path, varied(tmp_path)))
        assert not browser.one(".tools").is_displayed()
        (defect, *_) = browser.all(".defect")
        defect.find_element(By.CSS_SELECTOR, "summary").click()
        assert "it was CRASH" in defect.text
        rule = browser.by_id("REG-01")
        browser.one(".group:has(#REG-01) > summary").click()
        rule.find_element(By.CSS_SELECTOR, "summary").click()
        assert RULES["REG-01"]["quote"] in rule.text
        where = browser.find_element(By.CLASS_NAME, "unscripted").text
        assert f"{len(VERDICTS) + 3} cases" in where
        assert f"./rdma-cts explain CASE --run {tmp_path}" in where
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_defects_of_a_real_run_fit_on_the_first_screen_and_the_page_on_twelve_sheets(
    browser: Browser,
    tmp_path: Path,
) -> None:
    show(browser, tmp_path, read(RECORDED))
    lines = browser.all(".defect > summary")
    severities = ["kernel crash"] * 2 + ["memory safety"] * 2 + ["process crash"]
    assert [line.text.split("\n")[0] for line in lines[:5]] == severities
    assert len(lines) == 23
    height = browser.js("innerHeight")
    assert max(line.rect["y"] + line.rect["height"] for line in lines) <= height
    assert browser.one(".rule-map").rect["y"] < lines[0].rect["y"]
    top = " ".join(browser.one(".bad").text.split())
    assert top.startswith(
        "23 defects in 189 cases: 2 kernel crash (6) 2 memory safety (29) 1 process crash (1)",
    )
    paper = {"printBackground": False, "paperWidth": 8.27, "paperHeight": 11.69}
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", paper)["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 12
    assert screens(browser, 1280) <= 12
    assert screens(browser, 390) <= 12
    build(browser)
    assert_fits(browser)


def screens(browser: Browser, width: int) -> float:
    """Returns the height of the page in screens of 844 pixels."""
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        height: int = browser.js("document.documentElement.scrollHeight")
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    return height / 844


def test_the_map_has_a_cell_for_each_rule_that_leads_to_the_rule(page: Browser) -> None:
    cells = page.all(".rule-map a")
    assert len(cells) == len(page.all("details.rule"))
    (cell,) = [cell for cell in cells if cell.get_attribute("aria-label").startswith("REG-15:")]
    assert cell.get_attribute("aria-label") == "REG-15: FAIL"
    cell.click()
    page.wait(lambda: focused(page) == "REG-15")
    assert page.by_id("REG-15").is_displayed()


def test_a_matrix_shows_which_of_three_runs_has_a_defect_and_when(
    browser: Browser,
    tmp_path: Path,
) -> None:
    case = SUITE.cases[0]
    runs = [
        run(tmp_path, [result(case, verdict)], stack=stack, started=f"2026-01-0{day}T00:00:00")
        for day, (stack, verdict) in enumerate(
            [("trixie", "FAIL"), ("forky", "PASS"), ("sid", "FAIL")],
            1,
        )
    ]
    show(browser, tmp_path, *runs)
    assert [cell.text for cell in browser.all(".line.head .num")] == [
        "trixie",
        "forky",
        "sid",
        "in any",
    ]
    assert [cell.text for cell in browser.all(".defect .line .num")] == ["1", "·", "1", "1"]
    assert [cell.text for cell in browser.all(".defect .line .day")] == ["2026-01-01", "2026-01-03"]
    assert browser.one("h1").text == "trixie and forky and sid, side by side"


def test_the_page_of_two_runs_says_which_is_worse_and_lists_what_differs_first(
    browser: Browser,
    tmp_path: Path,
) -> None:
    trixie, forky = (read(RECORDED.with_name(f"{stack}.jsonl")) for stack in ("trixie", "forky"))
    show(browser, tmp_path, trixie, forky)
    assert browser.one("h1").text == "trixie and forky, side by side"
    lines = [line.text for line in browser.all("header > .about")]
    assert [line.partition("; defects: ")[2] for line in lines] == [
        "none only here",
        "9 only here, the worst: kernel crash",
    ]
    assert "kernel 6.12" in lines[0]
    assert [heading.text for heading in browser.all(".defects > h3")] == [
        "not in every run",
        "in every run",
    ]
    first = [
        cell.text for cell in browser.one(".defect > summary").find_elements(By.CLASS_NAME, "num")
    ]
    assert "·" in first
    days = {run_here.header["started"][:10] for run_here in (trixie, forky)}
    assert bool(browser.all(".day")) == (len(days) > 1)


@pytest.mark.parametrize("width", [1280, 390])
def test_no_id_widens_a_page_and_a_narrow_one_begins_with_a_defect(
    browser: Browser,
    tmp_path: Path,
    width: int,
) -> None:
    id_ = f"reg_mr/{'x' * 400}"
    texts: dict[str, Any] = dict.fromkeys(("call", "repro"), id_)
    bad = result(SUITE.cases[0], "HANG", case=id_, notes=[id_], **texts)
    repetition: Any = {"case": id_, "point": id_, "by": "alone", "confirmed": False, "after": [id_]}
    digest = run(tmp_path, [bad])
    footer: Any = {**(digest.footer or {}), "confirmation": FIGURES}
    digest = replace(digest, confirmations=(repetition,), footer=footer)
    for runs in ([digest], [digest, digest]):
        show(browser, tmp_path, *runs)
        assert browser.one(".defect").rect["y"] < 844
        build(browser)
        assert_fits(browser, width)


def test_what_is_new_against_an_earlier_run_is_above_the_other_defects(
    browser: Browser,
    tmp_path: Path,
) -> None:
    old = read(RECORDED)
    defect = old.violations.open_defects[0]
    without = [record for record in old.results if record["case"] not in defect.cases]
    earlier = run(tmp_path, without)
    page = tmp_path / "report.html"
    page.write_text(html.render([old], novelty(old, earlier)))
    browser.get(page.as_uri())
    wait_for_rows(browser)
    (first, *rest) = browser.all(".defect")
    assert first.get_attribute("id") == f"defect:{defect.fingerprint}"
    headings = [heading.text for heading in browser.all(".defects > h3")]
    assert headings == [f"new against {earlier.path}", f"not new against {earlier.path}"]
    assert_fits(browser)
    assert len(rest) == len(old.violations.defects) - 1


CONTRAST = """
const channel = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const numbers = text => text.match(/[\\d.]+/g).map(Number);
const behind = element => {
  for (; element; element = element.parentElement) {
    const colour = numbers(getComputedStyle(element).backgroundColor);
    if (colour.length < 4 || colour[3] === 1) return colour;
  }
  return [255, 255, 255];
};
for (const each of document.querySelectorAll('details')) each.open = true;
const worst = {};
for (const each of document.querySelectorAll('body *')) {
  const own = [...each.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
  if (!own || each.matches('script, style, .zero, .swatch') || !each.checkVisibility()) continue;
  const [one, other] = [numbers(getComputedStyle(each).color), behind(each)].map(light);
  const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
  const name = each.tagName + '.' + each.className;
  worst[name] = Math.min(worst[name] ?? 99, ratio);
}
return worst;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast_with_its_background(page: Browser, scheme: str) -> None:
    media(page, scheme)
    build(page)
    try:
        assert len(assert_legible(page)) > 20
    finally:
        media(page)


def test_a_hundred_thousand_points_have_no_elements(browser: Browser, tmp_path: Path) -> None:
    flags: Subsets = {"subsets": [f"FLAG_{number}" for number in range(11)]}
    axes: Axes = {"access": flags, "start": [str(index) for index in range(50)]}
    cases = numbered(700)
    lines = [
        result(case, "FAIL" if number % 10 == 0 else "PASS")
        for number, case in enumerate(cases.cases)
    ]
    lines[0] = sweep(tmp_path, cases.cases[0], axes, lambda at: len(at["access"]) % 3, OUTCOMES)
    show(browser, tmp_path, run(tmp_path, lines))
    assert browser.js("document.getElementsByTagName('*').length") < 50 * len(lines)
    build(browser)
    assert browser.js("document.getElementsByTagName('*').length") < 70 * len(lines)
    assert "102,400 points" in browser.by_id(f"sweep:{cases.cases[0].id}").text
    assert browser.one(".map").is_displayed()


def test_a_defect_describes_only_its_own_points(browser: Browser, tmp_path: Path) -> None:
    swept = sweep(tmp_path, SUITE.cases[0], FLAGS, lambda at: 2 if "MW_BIND" in at["access"] else 0)
    (deviation,) = swept["deviations"]
    other: Deviation = {
        **deviation,
        "rules": ["REG-01"],
        "observed": "what another rule's points did",
    }
    show(browser, tmp_path, run(tmp_path, [{**swept, "deviations": [other, deviation]}]))
    build(browser)
    (card,) = (
        article.text
        for article in browser.all("details.defect")
        if deviation["rules"][0] in article.text
    )
    assert f"{deviation['observed']} ({deviation['count']:,} points: those with MW_BIND)" in card
    assert deviation["repro"] in card
    assert "another rule" not in card


def test_a_rule_that_is_searched_by_its_id_is_first_until_the_search_is_cleared(
    page: Browser,
) -> None:
    order = (
        "return [...document.querySelectorAll('details.rule')].filter(each => !each.closest('.hidden'))"
        ".map(each => each.id)"
    )
    before = page.execute_script(order)
    search = page.by_id("search")
    search.send_keys("BIND-10")
    page.wait(lambda: page.execute_script(order)[:1] == ["BIND-10"])
    search.send_keys(Keys.ESCAPE)
    page.wait(lambda: page.execute_script(order) == before)


def test_the_filter_is_in_the_address(page: Browser) -> None:
    page.one(".tools [data-verdict=CRASH]").click()
    page.by_id("search").send_keys("crash")
    page.wait(lambda: "?find=crash&verdict=CRASH" in page.current_url)
    expected = cases(page)
    page.refresh()
    wait_for_rows(page)
    assert page.by_id("search").get_attribute("value") == "crash"
    assert cases(page) == expected
    assert len(expected) == 1


def test_the_data_have_the_fields_of_each_result() -> None:
    """The test reads the data like the script of the page (reports/page_data.py has the format)."""
    run_ = read(RECORDED)
    marked = r'<script type="application/octet-stream" id="data">([^<]*)</script>'
    (packed,) = re.findall(marked, html.render([run_]))
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed, validate=True)))
    (columns,) = data["runs"]
    assert data["cases"] == [record["case"] for record in run_.results]
    for at, record in enumerate(run_.results):
        row = {name: data["texts"][column[at]] for name, column in columns.items()}
        for name, value in (
            ("verdict", record["verdict"]),
            ("effective", record["effective"]),
            ("reason", record["reason"]),
            ("call", record["call"]),
            ("given", record["set_up"]["given"]),
            ("before", record["set_up"]["before"]),
            ("kernel", "\n".join(record["kernel"]["log"])),
            ("remarks", "; ".join(record["notes"])),
            ("points", [list(point) for point in record["points"].items()]),
            ("reproduce", record["repro"].replace(record["case"], "\0")),
        ):
            assert (row[name] or type(value)()) == value, (record["case"], name)
        assert len(row["deviations"] or ()) == len(record["deviations"])
    assert data["unrecorded"] == []


def test_rows_are_built_two_hundred_at_a_time(browser: Browser, tmp_path: Path) -> None:
    cases = numbered(450)
    show(browser, tmp_path, run(tmp_path, [result(case) for case in cases.cases]))
    # A link leads to a case that is not among the first 200.
    browser.execute_script("location.hash = arguments[0]", cases.cases[440].id)
    browser.wait(lambda: focused(browser) == cases.cases[440].id)
    assert "outcome success" in browser.by_id(cases.cases[440].id).text
    browser.get("about:blank")
    browser.get((tmp_path / "report.html").as_uri())
    wait_for_rows(browser)
    browser.one(".group:has(#REG-01) > summary").click()
    browser.one("#REG-01 > summary").click()
    more = browser.wait(lambda: browser.one("#REG-01 button.more"))
    for remaining in (250, 50):
        assert more.text == f"{remaining} more"
        assert len(browser.all("details.case")) == 450 - remaining
        more.click()
    assert [row.get_attribute("id") for row in browser.all("details.case")] == [
        case.id for case in cases.cases
    ]
    assert not browser.all("button.more")
