"""Tests of report.html of one run in a real browser."""

from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from browser import (
    MARKUP,
    RULES,
    SUITE,
    assert_fits,
    assert_legible,
    browser,
    build,
    cases,
    focused,
    media,
    page,
    run,
    show,
    varied,
    varied_page,
    wait_for_rows,
    window,
)
from conformance.model.record import Deviation, SetUp
from conformance.model.verdict import VERDICTS
from conformance.older_python import zip
from reports.page_data import SHADES
from samples import FLAGS, result, sweep

__all__ = ["browser", "page", "varied_page"]  # fixtures
CHIPS = ".tools [data-verdict]"


def test_no_text_of_the_results_runs_as_a_script_and_all_texts_are_shown(page):
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


def test_each_violated_rule_is_next_to_the_quote_of_its_document(page):
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


def test_verdicts_are_filters_of_cases(page):
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


def test_the_search_finds_kernel_lines_and_opens_their_rules(page):
    page.press("/")
    assert focused(page) == "search"
    page.press("zebra")
    page.wait(lambda: page.by_id("found").text == "1 case")
    assert cases(page) == [f"reg_mr/{MARKUP}"]
    assert page.by_id("REG-15").get_attribute("open") is not None
    page.press(Keys.ESCAPE)
    assert len(cases(page)) > 1
    assert focused(page) == "BODY"


def test_rows_are_focused_and_opened_by_keyboard(page):
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


def test_a_result_has_its_call_outcome_reason_entry_table_and_command(page):
    case = SUITE.cases[VERDICTS.index("FAIL")]
    page.execute_script("location.hash = arguments[0]", case.id)
    page.wait(lambda: focused(page) == case.id)
    text = page.by_id(case.id).text
    for needed in (
        str(case.when),
        "expected\nsuccess",
        "it was FAIL",
        "libibverbs",
        "cases/reg_mr/sample.yaml:7",
        f"./rdma-cts run --only {case.id}",
    ):
        assert needed in text


def test_a_waived_violation_is_shown_with_its_verdict(page):
    build(page)
    (case,) = page.all("details.case[data-verdicts=WAIVED]")
    text = case.get_attribute("textContent") or ""
    assert "FAIL, counted as WAIVED" in text
    assert "javascript:alert(1)" in text


def test_a_sweep_has_its_formula_its_map_and_a_legend(page):
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


def test_a_point_of_a_map_is_described_by_keyboard_and_by_pointer(page):
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


def test_the_data_path_is_a_table_of_signs(page):
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


def test_the_essentials_need_no_script(browser, tmp_path):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, tmp_path, run(tmp_path, varied(tmp_path)))
        assert not browser.one(".tools").is_displayed()
        (defect, *_) = browser.all(".defect")
        call = defect.find_element(By.CSS_SELECTOR, "dt")
        assert not browser.js("arguments[0].checkVisibility()", call)
        media(browser, medium="print")
        assert browser.js("arguments[0].checkVisibility()", call)
        media(browser)
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


def test_the_map_has_a_cell_for_each_rule_that_leads_to_the_rule(page):
    cells = page.all(".rule-map a")
    assert len(cells) == len(page.all("details.rule"))
    (cell,) = [cell for cell in cells if cell.get_attribute("aria-label").startswith("REG-15:")]
    assert cell.get_attribute("aria-label") == "REG-15: FAIL"
    cell.click()
    page.wait(lambda: focused(page) == "REG-15")
    assert page.by_id("REG-15").is_displayed()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_enough_contrast_with_its_background(page, scheme):
    media(page, scheme)
    build(page)
    try:
        assert len(assert_legible(page)) > 20
    finally:
        media(page)


def test_a_defect_describes_only_its_own_points(browser, tmp_path):
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


BROKEN_WORDS = """(() => {
  const broken = [], walker = document.createTreeWalker(document.querySelector(".defect[open]"), 4);
  for (let text; text = walker.nextNode();) for (const word of text.data.matchAll(/[A-Z_]{8,}/g)) {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    if (range.getClientRects().length > 1) broken.push(word[0]);
  }
  return broken;
})()"""


def test_an_opened_defect_fits_a_phone(browser, tmp_path):
    flags = "|".join(["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND"])
    swept = sweep(tmp_path, SUITE.cases[0], FLAGS, lambda at: 2 if "MW_BIND" in at["access"] else 0)
    (deviation,) = swept["deviations"]
    formula = " | ".join(f"memory={{shared,no_access}} & before=state{n}" for n in range(20))
    given: SetUp = {
        "given": [f"mr: ibv_reg_mr(pd=pd, addr=buf.addr, access={flags})"],
        "before": [],
    }
    long: Deviation = {**deviation, "when": formula, "set_up": given, "call": given["given"][0]}
    with window(browser, 390):
        show(browser, tmp_path, run(tmp_path, [{**swept, "deviations": [long]}]))
        browser.execute_script("document.querySelector('.defect').open = true")
        assert browser.js(BROKEN_WORDS) == []
        terms, text = browser.one(".defect .kv"), browser.one(".defect .kv dd")
        assert text.size["width"] > 0.9 * terms.size["width"]
        folded = browser.one(".defect details.long")
        assert len(folded.find_element(By.TAG_NAME, "summary").text) < 200 < len(formula)
        closed = folded.size["height"]
        folded.find_element(By.TAG_NAME, "summary").click()
        assert formula in folded.text
        assert folded.size["height"] > 2 * closed
        assert_fits(browser)


def test_a_defect_is_found_by_its_fingerprint(page):
    defect = page.all("details.defect")[-1]
    assert defect.get_attribute("open") is None
    page.by_id("search").send_keys((defect.get_attribute("id") or "").removeprefix("defect:"))
    page.wait(lambda: defect.get_attribute("open") is not None)


def test_a_search_for_a_rule_or_a_defect_has_all_its_cases_with_their_verdicts_on_the_rule(
    browser, tmp_path
):
    """The third case is listed under its first rule, and violates only the second one at some points."""
    ids = ["REG-01", "REG-15"]
    verdicts = {"REG-01": "PASS", "REG-15": "FAIL"}
    lines = [
        result(SUITE.cases[0], "PASS", rules=["REG-15"]),
        result(SUITE.cases[1], "FAIL", rules=["REG-15"]),
        result(SUITE.cases[2], "FAIL", rules=ids, rule_verdicts=verdicts),
        result(SUITE.cases[3], "FAIL", rules=["REG-01"]),
    ]
    recorded = run(tmp_path, lines)
    show(browser, tmp_path, recorded)

    def found(text: str) -> list[str]:
        browser.press(Keys.ESCAPE)
        browser.by_id("search").send_keys(text)
        browser.wait(lambda: browser.by_id("found").text)
        return [browser.by_id("found").text, *(chip.text for chip in browser.all(CHIPS))]

    assert found("REG-15") == ["3 cases", "FAIL 2", "PASS 1"]
    assert found("REG-01") == ["2 cases", "FAIL 1", "PASS 1"]
    for defect in recorded.violations.defects:
        number = len(defect.cases)
        words = "1 case" if number == 1 else f"{number} cases"
        assert found(defect.fingerprint) == [words, f"FAIL {number}", "PASS 0"]
        listed = [name for name in browser.all("details.case > summary") if name.is_displayed()]
        assert len(listed) == number


def test_a_rule_that_is_searched_by_its_id_is_first_until_the_search_is_cleared(page):
    order = (
        "return [...document.querySelectorAll('details.rule')].filter(each => !each.closest('.hidden'))"
        ".map(each => each.id)"
    )
    before = page.execute_script(order)
    search = page.by_id("search")
    search.send_keys("BIND-10")
    page.wait(lambda: page.execute_script(order)[:1] == ["BIND-10"])
    assert [rule.get_attribute("id") for rule in page.all("details.rule[open]")] == ["BIND-10"]
    search.send_keys(Keys.ESCAPE)
    page.wait(lambda: page.execute_script(order) == before)


def test_the_filter_is_in_the_address(page):
    page.one(".tools [data-verdict=CRASH]").click()
    page.by_id("search").send_keys("crash")
    page.wait(lambda: "?find=crash&verdict=CRASH" in page.current_url)
    expected = cases(page)
    address = page.current_url
    page.get("about:blank")
    page.get(address)
    wait_for_rows(page)
    assert page.by_id("search").get_attribute("value") == "crash"
    assert page.js("search.getBoundingClientRect().top") < page.js("innerHeight")
    assert cases(page) == expected
    assert len(expected) == 1


def test_the_picture_of_a_model_names_the_pair_of_values_under_the_pointer(browser, tmp_path):
    parameters = {"one": ["a", "b"], "two": ["c", "d"], "three": ["e", "f"]}
    facts = {"parameters": parameters, "states": "wwrs" + "wwrr" + "rr-n"}
    lines = [result(SUITE.cases[0], "FAIL", pairs=facts), result(SUITE.cases[1], "CRASH")]
    show(browser, tmp_path, run(tmp_path, lines))
    picture, dot = browser.one(".pairs svg"), browser.one(".pairs .dot")
    assert browser.js("document.querySelector('.pairs path.wrong title').textContent")
    cell = picture.size["height"] / 6

    def point(column: int, row: int) -> None:
        middle = [(place + 0.5) * cell for place in (column, row)]
        box = [picture.size["width"] / 2, picture.size["height"] / 2]
        x, y = (round(at - half) for at, half in zip(middle, box, strict=True))
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", picture)
        ActionChains(browser).move_to_element_with_offset(picture, x, y).perform()

    point(0, 2)
    browser.wait(lambda: dot.text == "one=a, two=c: always wrong")
    point(1, 3)
    browser.wait(lambda: dot.text == "one=b, two=d: wrong in some points")
    browser.execute_script("arguments[0].focus()", picture)
    browser.press(Keys.ARROW_DOWN)
    browser.wait(lambda: dot.text == "one=a, three=f: always wrong")
    browser.press(Keys.ARROW_RIGHT)
    browser.wait(lambda: dot.text == "one=b, three=f: right")
    browser.press(Keys.ARROW_UP)
    browser.wait(lambda: dot.text == "one=b, three=e: right")
    mark = browser.one(".pairs .here")
    assert [mark.get_attribute(name) for name in ("x", "y", "visibility")] == ["1", "4", "visible"]


def test_a_picture_of_a_model_has_its_points_and_what_was_not_reached(browser, tmp_path):
    facts = {"parameters": {"one": ["a"], "two": ["b", "c"]}, "states": "rn"}
    missing = "1 of 2 combinations were not reached: 1 invalidating was refused; it failed"
    reason = f"2 points: 1 PASS, 1 UNREACHABLE; a point should succeed; {missing}"
    record = result(SUITE.cases[0], "PASS", reason, pairs=facts)
    show(browser, tmp_path, run(tmp_path, [record]))
    said = browser.one(".pairs figcaption").text
    assert "1 without a verdict" in said
    assert said.endswith(f"2 points: 1 PASS, 1 UNREACHABLE; {missing.replace(' were ', ' ')}.")
    assert "grey if none was judged" in browser.one("section:has(.pairs) .lead").text


def test_a_number_of_several_verdicts_says_which(browser, tmp_path):
    verdicts = ["FAIL", "CRASH", "CRASH", "PASS"]
    lines = [result(case, verdict) for case, verdict in zip(SUITE.cases, verdicts, strict=False)]
    show(browser, tmp_path, run(tmp_path, lines))
    title = "document.querySelector('#REG-01 .count:nth-child(4)').title"
    assert browser.js(title) == "2 CRASH, 1 FAIL"
    (head,) = (each for each in browser.all(".matrix .head .count") if each.text == "fail")
    assert "CRASH" in head.get_attribute("title")
