"""A real browser for the tests of pages: headless Chromium, controlled by chromedriver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conformance.model.record import Axes, ResultRecord
from conformance.model.verdict import VERDICTS, Verdict
from kinds import words
from patience import PATIENCE_S
from reports import html
from reports.digest import Digest, digest
from samples import FLAGS, numbered, recorded, registry, result, sweep

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
        "headless=new no-sandbox disable-gpu disable-dev-shm-usage disable-background-networking window-size=1280,1000",
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
    marked = run(folder, varied(folder), device={"name": MARKUP, "driver": MARKUP, "fw": MARKUP})
    (folder / "report.html").write_text(html.render([marked]))
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


# The pairs of texts that overlap, except texts that only readers of screens get, and texts that scroll in their box or
# end in an ellipsis.
OVERLAPPING = """(() => {
  const texts = [], pairs = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; (node = walker.nextNode());) {
    const parent = node.parentElement, range = document.createRange();
    if (!node.textContent.trim() || parent.closest("script, style, svg, pre, .unseen, .skip, .why") ||
        !parent.checkVisibility()) continue;
    range.selectNodeContents(node);
    for (const box of range.getClientRects())
      if (box.width > 1 && box.height > 1) texts.push([box, node.textContent.trim()]);
  }
  texts.sort((one, other) => one[0].top - other[0].top);
  texts.forEach(([box, text], place) => {
    for (const [next, other] of texts.slice(place + 1)) {
      if (next.top >= box.bottom) break;
      const width = Math.min(box.right, next.right) - Math.max(box.left, next.left);
      const height = Math.min(box.bottom, next.bottom) - Math.max(box.top, next.top);
      if (width > 2 && height > 4) pairs.push([text, other]);
    }
  });
  return pairs;
})()"""


@contextmanager
def window(browser: Browser, width: int, height: int = 844) -> Iterator[None]:
    """Gives the page a window of this size, in pixels, during the context."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def assert_fits(browser: Browser, width: int = 390) -> None:
    """Checks that a page of this width does not scroll sideways, cuts off no heading of its defects, and has no texts
    that overlap."""
    with window(browser, width):
        browser.execute_script(
            "scrollTo(0, 0)"
        )  # below, the names of columns stay above what scrolls
        assert browser.js("document.documentElement.scrollWidth") <= width
        assert browser.js(CUT) == []
        assert browser.js(OVERLAPPING) == []


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
