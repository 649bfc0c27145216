"""Tests of report.html in a real browser: several runs side by side, a run beside an earlier one, and pages of real or
large runs."""

import base64
import itertools
import json
import lzma
import re
import zlib
from collections import Counter
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from selenium.webdriver.common.by import By

from browser import (
    FIGURES,
    MARKUP,
    RECORDED,
    SUITE,
    assert_fits,
    browser,
    build,
    cases,
    focused,
    run,
    show,
    wait_for_rows,
    window,
)
from conformance.defects import Defect, severity_of
from conformance.model.record import Axes, Subsets
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.older_python import pairwise, zip
from conformance.tables.suite import ROOT
from made_history import run_of, write_run
from reports import html, markdown
from reports.compared.comparison import compare
from reports.digest import read
from reports.kernel_log import divided
from reports.novelty import novelty
from reports.page_defects import KNOWN, SIGNS, Shown
from reports.text import spaced, without_packets
from samples import OUTCOMES, numbered, result, sweep, written_records

__all__ = ["browser"]  # a fixture
TOP = "arguments[0].getBoundingClientRect().top"
PARENT = "arguments[0].closest('details.case,details.sweep').id"
FONT_SIZE = "getComputedStyle(arguments[0]).fontSize"
# The pairs of badges that share a line of a rule, of which the first one ends behind the beginning of the second one.
TOUCHING = """[...document.querySelectorAll("summary.row")].filter(row => row.checkVisibility()).flatMap(row => {
  const badges = [...row.querySelectorAll(".v")], boxes = badges.map(badge => badge.getBoundingClientRect());
  return boxes.slice(1).flatMap((box, before) => boxes[before].right > box.left && boxes[before].bottom > box.top
    ? [[badges[before].textContent, badges[before + 1].textContent]] : []);
})"""


def test_several_runs_are_columns_and_differing_cases_can_be_selected(browser, tmp_path):
    old = [result(case) for case in SUITE.cases[:4]]
    new = [result(case, "FAIL" if case is SUITE.cases[2] else "PASS") for case in SUITE.cases[1:5]]
    show(browser, tmp_path, run(tmp_path, old, stack="trixie"), run(tmp_path, new, stack="forky"))
    heads = [heading.text for heading in browser.all(".row.head span")]
    assert heads[2:] == ["trixie", "forky"]
    defects = [cell.text for cell in browser.all(".defects .line .num")]
    assert defects == ["trixie", "forky", "in any", "·", "1", "1"]
    differing = "1 of 5 cases have different verdicts, 0 are violated only in trixie, 1 violated only in forky"
    assert [said.text for said in browser.all("header > .verdict")] == [
        "Defects only in forky: 1 new. Defects only in trixie: none. In both: 0.",
        f"{differing}; 2 are not in every run.",
    ]
    browser.one("button[data-verdict=differs]").click()
    assert cases(browser) == [SUITE.cases[2].id]
    rule = browser.by_id("REG-01")
    assert [badge.text for badge in rule.find_elements(By.CSS_SELECTOR, "summary.row .v")] == [
        "PASS",
        "FAIL",
    ]
    browser.one("button[data-verdict=differs]").click()
    for number, expected in enumerate([[], [SUITE.cases[2].id]]):
        button = browser.one(f"button[data-verdict=only-{number}]")
        button.click()
        assert cases(browser) == expected
        button.click()
    build(browser)
    verdicts = rule.find_elements(By.CSS_SELECTOR, "details.case")[4].get_attribute("data-verdicts")
    assert verdicts == "- PASS"
    levels = browser.js(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map(each => +each.tagName[1])",
    )
    assert [pair for pair in pairwise(levels) if pair[1] > pair[0] + 1] == []


def test_the_defects_of_a_real_run_fit_on_the_first_screen_and_the_page_on_twelve_sheets(
    browser, tmp_path
):
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
    build(browser)
    assert_fits(browser)


def test_each_run_of_several_has_the_numbers_of_its_defects(browser, tmp_path):
    names = ("trixie", "siw", "mended")
    runs = [read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in names]
    show(browser, tmp_path, *runs)
    for of_run, element in zip(runs, browser.all(".of-run"), strict=True):
        wrong = (record for record in of_run.results if record["verdict"] in VIOLATIONS)
        lost = [*filter(of_run.violations.repetitions.is_unconfirmed, wrong)]
        apart = r" \(and [0-9]+ (?:cases? )?not confirmed\)" if lost else ""
        text = " ".join(element.text.split())
        assert re.search(f"[0-9]+ defects in [0-9]+ cases{apart}:", text)


def test_an_opened_defect_says_what_was_not_repeated_and_links_what_is_known_upstream():
    run_read = read(ROOT / "docs/runs/rxe.jsonl.xz")
    shown = html.render([run_read])
    assert "not repeated: it counts as it was observed" in shown
    assert re.search(r'Known upstream.</b> [^<]*reported: <a href="https://[^"]+" rel=', shown)
    assert spaced("length 215pages, addr buf+1page-1") == "length 215 pages, addr buf+1 page-1"


def test_a_page_says_that_two_runs_are_equal(browser, tmp_path):
    lines = [result(SUITE.cases[0], "FAIL"), result(SUITE.cases[2])]
    first, second = (run(tmp_path, lines, stack=stack) for stack in ("trixie", "forky"))
    show(browser, tmp_path, first, second)
    words = "The runs are equal: each defect is in both."
    assert words in browser.one("header").text
    other = run(tmp_path, [result(SUITE.cases[0], "FAIL"), result(SUITE.cases[2], "BROKEN")])
    show(browser, tmp_path, first, other)
    assert words not in browser.one("header").text


def test_the_first_evidence_of_a_defect_is_as_severe_as_the_defect_and_confirmed_if_one_is():
    defects = read(ROOT / "docs/runs/rxe.jsonl.xz").violations.defects
    (fatal,) = Defect.called("7862f7654354", defects)
    assert severity_of(Shown(0, fatal).first) is fatal.severity
    assert Shown(0, fatal).first not in fatal.confirmed  # those with this severity are not
    firsts = [(Shown(0, defect).first, defect.confirmed) for defect in defects if defect.confirmed]
    assert sum(first in confirmed for first, confirmed in firsts) > len(firsts) / 2


def test_the_kernels_log_begins_with_what_died_and_earlier_lines_are_apart():
    boot, alarm, end = (
        "[    0.01] tsc: slow",
        "[   25.48] BUG: unable to handle",
        "[   25.49] RIP: x",
    )
    assert divided([boot, alarm, end]) == [f"{alarm}\n{end}", boot]
    died = "Fatal Python error: Segmentation fault"
    assert divided([boot, died, end]) == [f"{died}\n{end}", boot]
    assert divided([boot, end]) == [f"{boot}\n{end}", ""]


def test_a_crash_begins_with_what_happened_and_hashes_have_names(browser, tmp_path):
    show(browser, tmp_path, read(ROOT / "docs/runs/rxe.jsonl.xz"))
    text = browser.js("document.querySelector('.defect li').textContent")
    assert text.split()[:6] == ["CRASH", "the", "kernel", "under", "test", "died"]
    names = browser.js("[...document.querySelectorAll('.hashes th')].map(name => name.textContent)")
    assert "build id of rdma_rxe" in names
    assert not [name for name in names if "given." in name]


def test_a_defect_that_is_two_in_another_run_is_in_both(tmp_path):
    """The earlier run shows one defect with the fingerprints of both defects of the later run."""
    later = read(RECORDED)
    first, second, *_ = later.violations.open_defects
    merged = replace(first, causes=(*first.causes, *second.causes))
    earlier = read(RECORDED)
    earlier.violations.defects = (merged,)
    page = html.Page([earlier, later])
    (group,) = [by_run for by_run in page.defects.all if by_run[0].defect is merged]
    assert [shown.number for shown in group] == [0, 1, 1]
    assert page.defects.heading_of(group) == "in both"
    assert page.defects.cases_with(group, 1) == len({*first.cases, *second.cases})


def test_each_defect_of_one_or_several_runs_has_its_steps_once():
    runs = [read(RECORDED.with_name(f"{stack}.jsonl")) for stack in ("forky", "trixie")]
    for shown in (runs[:1], runs):
        _, *defects = html.render(shown).split('<details class="defect ')
        assert defects
        for text in defects:
            opened = text.partition("</section>")[0]
            if "<pre>" not in opened:  # a random sequence is a row of a table
                assert [opened.count(f"<dt>{step}</dt>") for step in ("call", "observed")] == [1, 1]


def test_a_case_below_a_rule_has_its_packets_once(browser, tmp_path):
    with lzma.open(ROOT / "docs/runs/rxe.jsonl.xz", "rt") as lines:
        head, *records = map(json.loads, lines)
    name = "wire/repeated/read-of-0-again"
    (record,) = (each for each in records if "call" in each and each["case"] == name)
    show(browser, tmp_path, read(written_records([head, record], tmp_path / "one")))
    browser.js(f"location.hash = '#{record['case']}'")
    browser.wait(lambda: browser.all(".case[open] ol.sent code"))
    steps = [step.text for step in browser.all(".case[open] dl > dd > ol.sent > li > code")]
    assert steps == without_packets(record["call"])[1]
    assert "packets=[" not in browser.one(".case[open]").text


def test_a_rule_of_a_dialect_that_is_not_judged_is_called_so_everywhere():
    shown = html.Page([read(ROOT / "docs/runs/rxe.jsonl.xz")])
    (run_read,) = shown.runs
    assert run_read.verdicts.apart
    counts = Counter[str]()
    for verb in shown.map:
        counts.update(shown.tally(verb))
    assert counts["of a vendor's dialect, not judged"] == len(run_read.verdicts.apart)
    unreachable = [*run_read.verdicts.labels.values()].count(Verdict.UNREACHABLE)
    assert counts[Verdict.UNREACHABLE] < unreachable
    assert html.render(shown.runs).count(">not judged<") == len(run_read.verdicts.apart)


def test_the_command_of_a_run_names_its_target(tmp_path):
    repro = "./rdma-cts run --guest --stack trixie --driver siw --only x"
    for argv, command in (
        (["run"], "run --guest --stack trixie --driver siw"),
        (["run", "--stack=trixie", "--guest"], "run --stack=trixie --guest --driver siw"),
    ):
        shown = run(tmp_path, [result(SUITE.cases[0], repro=repro)], argv=argv)
        assert f"<code>rdma-cts {command}</code>" in html.render([shown])


def test_an_opened_remote_defect_says_what_a_peer_needs():
    run_read = read(ROOT / "docs/runs/rxe.jsonl.xz")
    _, *defects = html.render([run_read]).split('<details class="defect ')
    needed = ["Needed: the peer " in text.partition("</section>")[0] for text in defects]
    remote = [text.startswith("remote-") for text in defects]
    assert any(remote)
    assert needed == remote


def test_the_values_of_a_point_of_a_model_are_explained():
    run_read = read(ROOT / "docs/runs/rxe.jsonl.xz")
    defects = {defect.fingerprint: defect for defect in run_read.violations.defects}
    page = (
        html.render([run_read]).partition('id="defect:d44d4f85b168"')[2].partition("</details>")[0]
    )
    assert "<li><code>before=not_ready</code>: " in page
    explained = re.findall(r"<li><code>(\w+=\w+)</code>: [^<]{5,}</li>", page)
    first = defects["d44d4f85b168"].first
    assert first.deviation is not None
    assert explained == [f"{name}={label}" for name, label in first.smallest.items()]
    assert f"one of {first.deviation['of']:,} points of the model that judge" in page


def test_an_earlier_fingerprint_joins_no_other_defect_of_another_driver():
    page = html.Page([read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("rxe", "siw")])
    joined = [
        by_run for by_run in page.defects.all if "8258bec575a4" in by_run[0].defect.fingerprints
    ]
    assert all(len(by_run) == 1 for by_run in joined)
    numbers = {by_run[0].defect.fingerprint: by_run[0].number for by_run in joined}
    assert numbers == {"88a9e4949060": 0, "8258bec575a4": 1}


def test_a_matrix_shows_which_of_three_runs_has_a_defect_and_when(browser, tmp_path):
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


def test_the_columns_of_many_runs_fit_a_narrow_page(browser, tmp_path):
    """Eight columns of numbers left a badge one letter in a line, and cut off the last column."""
    case = SUITE.cases[0]
    fault = {"kind": "kernel-died", "verb": "wire"}
    runs = [
        run(tmp_path, [result(case, "CRASH", fault=fault)], stack=f"forky-architecture-{number}")
        for number in range(8)
    ]
    show(browser, tmp_path, *runs)
    assert browser.one("h1").text == "8 runs side by side"
    for width in (390, 1280):
        assert_fits(browser, width)
        with window(browser, width):
            badge = browser.one(".defect .s")
            assert badge.rect["height"] < 3 * float(browser.js(FONT_SIZE, badge)[:-2])
            box = browser.one(".defects")
            assert browser.js("arguments[0].scrollWidth <= arguments[0].clientWidth", box)


def test_a_run_that_could_not_show_a_defect_has_another_sign(browser, tmp_path):
    case = SUITE.cases[0]
    other = SUITE.cases[2]
    verdicts = {
        "trixie": ("FAIL", "FAIL"),
        "forky": ("PASS", "PASS"),
        "backports": ("PASS", "UNSUPPORTED"),
        "sid": ("UNSUPPORTED", "UNSUPPORTED"),
    }
    runs = [
        run(tmp_path, [result(case, first), result(other, second, rules=case.rules)], stack=stack)
        for stack, (first, second) in verdicts.items()
    ]
    show(browser, tmp_path, *runs)
    assert [cell.text for cell in browser.all(".defect .line .num")] == ["2", "·", "?", "○", "2"]
    legend = browser.one(".signs").text
    assert "· tried, and not seen" in legend
    assert "○ not tried: not offered by the device" in legend
    titles = [sign.get_attribute("title") for sign in browser.all(".defect .num [title]")]
    tried = [f"; tried in {number} of 2 cases" for number in (2, 1, 0)]
    meanings = [meaning for _, meaning in SIGNS.values()]
    assert titles == list(map("".join, zip(meanings, tried, strict=True)))
    compared = compare(runs[0], runs[2]).defects.by_kind
    assert [len(compared[kind]) for kind in ("gone", "not decided")] == [0, 1]


def test_a_regression_comes_first_and_one_case_that_passed_shows_that_it_is_new(tmp_path):
    """Its other case was not judged before, and a more severe defect is of what the old stack does not have."""
    case, other, third = SUITE.cases[0], SUITE.cases[2], SUITE.cases[4]
    died: dict[str, Any] = {"fault": {"kind": "kernel-died", "verb": "wire"}}
    none: dict[str, Any] = {}
    old, new = (
        run(
            tmp_path,
            [
                result(case, first),
                result(other, second, rules=case.rules),
                result(third, last, **more),
            ],
            stack=stack,
        )
        for stack, first, second, last, more in (
            ("trixie", "PASS", "UNSUPPORTED", "UNSUPPORTED", none),
            ("forky", "FAIL", "FAIL", "CRASH", died),
        )
    )
    defects = html.Page([old, new]).defects
    listed = {}
    for heading, rows in defects.listed.items():
        if rows:
            listed[heading] = [by_run for _, members in rows for by_run in members]
    assert list(listed) == ["only in forky: new", "only in forky: newly supported, and wrong"]
    (regressed,), (unsupported,) = listed.values()
    meaning = "not decided: not all of its cases were judged; tried in 1 of 2 cases"
    assert defects.sign_of(regressed, 0) == ("?", meaning)
    assert defects.sign_of(unsupported, 0)[0] == "○"
    news = "Defects only in forky: 1 new; 1 newly supported, and wrong."
    assert defects.divided == f"{news} Defects only in trixie: none. In both: 0."
    reversed_order = html.Page([new, old]).defects
    (same,) = [by_run for by_run in reversed_order.all if len(by_run[0].defect.cases) > 1]
    assert reversed_order.sign_of(same, 1) == ("?", meaning)
    assert reversed_order.heading_of(same) == "only in forky: not decided"


@pytest.mark.parametrize(
    "order", [*itertools.permutations((0, 1)), *itertools.permutations((0, 1, 2))]
)
def test_the_sign_of_a_run_depends_neither_on_the_order_nor_on_the_number_of_runs(tmp_path, order):
    case, other = SUITE.cases[0], SUITE.cases[2]
    recorded = [
        run(
            tmp_path,
            [result(case, first), result(other, second, rules=case.rules)],
            stack=stack,
        )
        for stack, first, second in (
            ("trixie", "PASS", "UNSUPPORTED"),
            ("forky", "FAIL", "FAIL"),
            ("sid", "FAIL", "UNSUPPORTED"),
        )
    ]
    defects = html.Page([recorded[number] for number in order]).defects
    (defect,) = defects.all
    assert defects.sign_of(defect, order.index(0))[0] == "?"


def test_the_page_of_two_runs_says_which_is_worse_and_lists_what_differs_first(browser, tmp_path):
    trixie, forky = (read(RECORDED.with_name(f"{stack}.jsonl")) for stack in ("trixie", "forky"))
    show(browser, tmp_path, trixie, forky)
    assert browser.one("h1").text == "trixie and forky, side by side"
    assert browser.title == "trixie and forky, side by side · rdma-cts"
    lines = [line.text for line in browser.all("header > .about")]
    assert browser.one("h1 + .verdict").text.startswith(
        "Defects only in forky: 9 not tried by the old run. Defects only in trixie: none. In both: "
    )
    assert "kernel 6.12" in lines[0]
    headings = [heading.text for heading in browser.all(".defects > h3")]
    assert headings == ["only in forky: not tried by the old run", "in both"]
    show(browser, tmp_path, forky, trixie)
    headings = [heading.text for heading in browser.all(".defects > h3")]
    assert headings == ["only in forky: not decided", "in both"], "nothing is worse now"
    first = [
        cell.text for cell in browser.one(".defect > summary").find_elements(By.CLASS_NAME, "num")
    ]
    assert not first[1].isdecimal()
    days = {run_here.header["started"][:10] for run_here in (trixie, forky)}
    assert bool(browser.all(".day")) == (len(days) > 1)


@pytest.mark.parametrize("width", [1280, 390])
def test_no_id_widens_a_page_and_a_narrow_one_begins_with_a_defect(browser, tmp_path, width):
    id_ = f"reg_mr/{'x' * 400}"
    texts: dict[str, Any] = dict.fromkeys(("call", "repro"), id_)
    bad = result(SUITE.cases[0], "HANG", case=id_, notes=[id_], **texts)
    repetition: Any = {"case": id_, "point": id_, "by": "alone", "confirmed": False, "after": [id_]}
    digest = run(tmp_path, [bad])
    footer: Any = {**(digest.footer or {}), "confirmation": FIGURES}
    digest = replace(digest, confirmations=(repetition,), footer=footer)
    other = run(tmp_path, [result(SUITE.cases[0], "UNSUPPORTED", case="reg_mr/of/another-length")])
    for runs in ([digest], [digest, digest], [digest, other, other]):
        show(browser, tmp_path, *runs)
        assert browser.one(".defect").rect["y"] < 844
        build(browser)
        assert_fits(browser, width)


def test_what_is_new_against_an_earlier_run_is_above_the_other_defects(browser, tmp_path):
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
    assert headings == ["not tried by the old run", f"not new against {earlier.path}"]
    assert_fits(browser)
    assert len(rest) == len(old.violations.defects) - 1


def test_words_and_a_severity_select_defects(browser, tmp_path):
    run_read = read(RECORDED)
    show(browser, tmp_path, run_read)

    def shown() -> list[str]:
        defects = browser.all(".defect:not(.hidden)")
        return [defect.get_attribute("id").partition(":")[2] for defect in defects]

    every = [defect.fingerprint for defect in run_read.violations.defects]
    assert sorted(shown()) == sorted(every)
    browser.one("a[data-severity='memory safety']").click()
    of_severity = [
        defect.fingerprint
        for defect in run_read.violations.defects
        if defect.severity.label == "memory safety"
    ]
    assert sorted(shown()) == sorted(of_severity)
    assert "severity=memory" in browser.js("location.search")
    assert (
        browser.one("#some output").text
        == f"{len(of_severity)} of {len(every)} defects: memory safety"
    )
    browser.refresh()
    wait_for_rows(browser)
    assert sorted(shown()) == sorted(of_severity)
    browser.one("#some button").click()
    assert sorted(shown()) == sorted(every)
    # a word of a case that the line of a defect folds
    many = max(run_read.violations.defects, key=lambda defect: len(defect.cases))
    browser.one("#search").send_keys(many.cases[-1])
    browser.wait(lambda: many.fingerprint in shown() and len(shown()) < len(every))
    assert not [
        family
        for family in browser.all(".family")
        if family.is_displayed()
        and not family.find_elements(By.CSS_SELECTOR, ".defect:not(.hidden)")
    ]
    browser.press("\ue00c")  # Escape
    assert sorted(shown()) == sorted(every)


def test_the_layer_that_answered_and_the_verb_select_defects(browser, tmp_path):
    digest = read(ROOT / "docs/runs/rxe.jsonl.xz")
    show(browser, tmp_path, digest)
    by_layer = {**digest.violations.by_layer, KNOWN: 3}
    chips = browser.all("a[data-layer]")
    *of_layers, known = [chip.text for chip in chips]
    assert of_layers == [
        f"{number} {layer}" for layer, number in digest.violations.by_layer.items()
    ]
    assert known == "3 defects"

    def shown() -> int:
        return len(browser.all(".defect:not(.hidden)"))

    every = len(digest.violations.defects)
    for layer, chip in zip(by_layer, chips, strict=True):
        chip.click()
        assert shown() == by_layer[layer] < every
        assert f"defects: {layer}" in browser.one("#some output").text
    browser.refresh()
    wait_for_rows(browser)
    assert shown() == by_layer[layer]
    browser.all("a[data-layer]")[-1].click()
    assert shown() == every
    verb = browser.one("#verb option:nth-child(2)")
    verb.click()
    of_verb = {facts.id for facts in html.Page([digest]).groups[verb.text]}
    wanted = [
        defect for defect in digest.violations.defects if not of_verb.isdisjoint(defect.rules)
    ]
    assert shown() == len(wanted) < every


def test_a_chip_of_one_run_selects_as_many_defects_as_it_says_and_is_a_step_back(browser, tmp_path):
    runs = [read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("rxe", "siw")]
    show(browser, tmp_path, *runs)
    assert [chip.get_attribute("data-run") for chip in browser.all(f"a[data-layer='{KNOWN}']")] == [
        "0"
    ]
    chips = browser.all(f"a[data-severity], a[data-layer]:not([data-layer='{KNOWN}'])")
    assert len(chips) == sum(
        len(run.violations.tally) + len(run.violations.by_layer) for run in runs
    )
    for chip in chips:
        chip.click()
        assert len(browser.all(".defect:not(.hidden)")) == int(chip.text.split()[0])
        assert browser.all("a[aria-current]") == [chip]
        chip.click()
    severity = browser.one("a[data-run='1'][data-severity='memory safety']")
    severity.click()
    layer = browser.one("a[data-run='1'][data-layer='device']")
    layer.click()
    assert browser.all("a[aria-current]") == [severity, layer], "both filters of one run"
    browser.back()
    browser.wait(lambda: browser.all("a[aria-current]") == [severity])
    assert "severity=memory+safety&run=2" in browser.js("location.search")
    browser.one("#search").send_keys("bytes")
    browser.wait(lambda: "find=bytes" in browser.js("location.search"))
    browser.back()
    browser.wait(lambda: browser.js("location.search") == "?severity=memory+safety&run=2")
    assert not browser.one("#search").get_property("value")
    browser.refresh()
    wait_for_rows(browser)
    shown = len(browser.all(".defect:not(.hidden)"))
    assert shown == int(browser.one("a[aria-current]").text.split()[0])


def test_each_reason_why_rules_were_not_tested_is_on_the_page():
    run_read = read(ROOT / "docs/runs/trixie.jsonl.xz")
    page = unescape(html.render([run_read]))
    parts = {str(part.standing): part for part in run_read.summary.parts}
    unsupported, unreachable = parts["unsupported"], parts["unreachable"]
    assert (
        f"{unsupported.because[0]} and {len(unsupported.more)} more)" in run_read.summary.sentence
    )
    assert "; ".join(unsupported.more) in page
    assert len(unreachable.because) == 5
    assert not unreachable.more, "the last one is named, and not counted"
    assert all(reason in page for reason in unreachable.because)


def test_a_rule_names_the_defects_that_hide_its_evidence():
    run_read = read(ROOT / "docs/runs/rxe.jsonl.xz")
    assert "blocked by a defect" in run_read.verdicts.restrictions["BIND-02"]
    page = html.render([run_read])
    inside = page.partition('id="BIND-02"')[2].partition("</details>")[0]
    of_case = run_read.violations.defects_in("access/binds/slice")
    for defect in of_case:
        assert f'href="#defect%3A{defect.fingerprint}"' in inside
        assert f'id="defect:{defect.fingerprint}"' in page


def test_a_page_says_that_it_lacks_the_defect_of_a_link(browser, tmp_path):
    page = tmp_path / "report.html"
    page.write_text(html.render([read(RECORDED)]))
    browser.get(f"{page.as_uri()}#defect:{'f' * 12}")
    wait_for_rows(browser)
    said = f"This page has no defect {'f' * 12}."
    browser.wait(lambda: browser.by_id("absent").text == said)
    also_known = browser.one(".defect[data-also]")
    also = also_known.get_attribute("data-also").split()[-1]
    browser.execute_script(f"location.hash = 'defect:{also}'")  # the name of an older report
    browser.wait(lambda: also_known.get_property("open"))
    browser.execute_script("arguments[0].open = false", also_known)
    name = also_known.get_attribute("id").removeprefix("defect:")
    browser.execute_script(f"location.hash = '{name[:6]}'")  # as other reports name it
    browser.wait(lambda: also_known.get_property("open"))
    assert not browser.by_id("absent").text


def test_a_button_has_the_number_of_cases_that_it_shows(browser, tmp_path):
    show(browser, tmp_path, read(ROOT / "docs/runs/rxe.jsonl.xz"))
    total = browser.one("button[data-verdict=FAIL]").text
    browser.one("#verb option:nth-child(3)").click()
    for verdict in ("PASS", "FAIL", "CRASH"):
        chip = browser.one(f"button[data-verdict={verdict}]")
        numbers = [int(number.replace(",", "")) for number in re.findall(r"[\d,]+", chip.text)]
        chip.click()
        found = browser.by_id("found").text
        assert int(found.split()[0].replace(",", "")) == sum(numbers)
        chip.click()
    assert browser.one("button[data-verdict=FAIL]").text != total
    browser.one("#verb option").click()
    assert browser.one("button[data-verdict=FAIL]").text == total


def test_headings_without_a_selected_defect_are_hidden(browser, tmp_path):
    trixie, forky = (read(RECORDED.with_name(f"{stack}.jsonl")) for stack in ("trixie", "forky"))
    show(browser, tmp_path, trixie, forky)
    browser.one("#search").send_keys("8b8051c7e5f5")  # ibv_advise_mr, which trixie lacks
    browser.wait(lambda: len(browser.all(".defect:not(.hidden)")) == 1)
    headings = [heading.text for heading in browser.all(".defects > h3") if heading.is_displayed()]
    assert headings == ["only in forky: not tried by the old run"]
    assert_fits(browser)


def test_a_hundred_thousand_points_have_no_elements(browser, tmp_path):
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


def embedded(page: str) -> dict[str, Any]:
    """Returns the data of a page, as its script reads them."""
    marked = r'<script type="application/octet-stream" id="data">([^<]*)</script>'
    (packed,) = re.findall(marked, page)
    data: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed, validate=True)))
    return data


def test_the_data_have_the_fields_of_each_result():
    """The test reads the data like the script of the page (reports/page_data.py has the format)."""
    run_ = read(RECORDED)
    data = embedded(html.render([run_]))
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
            ("kernel", divided(record["kernel"]["log"]) if record["kernel"]["log"] else []),
            ("remarks", "; ".join(record["notes"])),
            ("points", [list(point) for point in record["points"].items()]),
            ("reproduce", record["repro"].replace(record["case"], "\0")),
        ):
            assert (row[name] or type(value)()) == value, (record["case"], name)
        assert len(row["deviations"] or ()) == len(record["deviations"])
    assert data["unrecorded"] == []


def test_rows_are_built_two_hundred_at_a_time(browser, tmp_path):
    cases = numbered(450)
    show(browser, tmp_path, run(tmp_path, [result(case) for case in cases.cases]))
    # A link leads to a case that is not among the first 200.
    browser.execute_script("location.hash = arguments[0]", cases.cases[440].id)
    browser.wait(lambda: focused(browser) == cases.cases[440].id)
    assert "expected\nsuccess" in browser.by_id(cases.cases[440].id).text
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


def test_two_badges_of_a_rule_fit_beside_each_other_on_a_narrow_page(browser, tmp_path):
    """Without a filter, the rows are below the screen and were never seen."""
    runs = [read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("trixie", "rxe")]
    show(browser, tmp_path, *runs)
    browser.one("button[data-verdict=only-1]").click()
    badges = {badge.text for badge in browser.all("summary.row .v")}
    assert badges >= {"UNSUPPORTED", "FAIL"}
    with window(browser, 390):
        assert browser.js(TOUCHING) == []


def test_runs_of_one_stack_are_called_by_their_directories(tmp_path):
    record = result(SUITE.cases[0], "FAIL")
    first, again = (run(tmp_path / name, [record]) for name in ("monday", "tuesday"))
    other = run(tmp_path / "other", [record], stack="trixie")
    assert html.Page([first, again]).labels == ["monday", "tuesday"]
    assert html.Page([first, other, again]).labels == ["monday", "trixie", "tuesday"]
    assert [label[:3] for label in html.Page([first, first]).labels] == ["1. ", "2. "]


def test_a_page_whose_defects_are_all_waived_says_so_and_shows_their_fingerprints(
    browser, tmp_path
):
    waived = result(SUITE.cases[0], "FAIL")
    waived["effective"] = Verdict.WAIVED
    digest = run(tmp_path, [waived])
    show(browser, tmp_path, digest)
    assert browser.one("header > .bad").text == "0 defects (1 waived)"
    (defect,) = digest.violations.defects
    shown = browser.one(".defect > summary .fingerprint")
    assert shown.text == defect.fingerprint
    assert shown.is_displayed()
    assert_fits(browser, 390)


def test_backticks_in_a_rule_are_code_and_nothing_else_becomes_markup(tmp_path):
    of_run = run(tmp_path, [result(SUITE.cases[0], "FAIL")])
    rules: Any = of_run.header["rules"]
    statement = {**rules["REG-01"], "statement": f"`length` bytes {MARKUP}"}
    header: Any = {**of_run.header, "rules": {**rules, "REG-01": statement}}
    text = html.render([replace(of_run, header=header)])
    assert "<code>length</code> bytes &lt;script&gt;" in text
    assert MARKUP not in text


def test_a_narrow_page_of_two_runs_has_the_severities_above_the_defects(browser, tmp_path):
    runs = [read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("trixie", "rxe")]
    show(browser, tmp_path, *runs)
    with window(browser, 390):
        chips = browser.all("a[data-severity]")
        assert len(chips) == sum(len(digest.violations.tally) for digest in runs)
        assert max(chip.rect["y"] for chip in chips) < browser.one(".defect").rect["y"]


def test_below_a_rule_a_case_has_its_verdict_on_this_rule(browser, tmp_path):
    case, other = SUITE.cases[:2]
    rules = ["REG-01", "REG-15"]
    verdicts: Any = {"REG-01": "PASS", "REG-15": "FAIL"}
    record = result(case, "FAIL", rules=rules, rule_verdicts=verdicts)
    show(browser, tmp_path, run(tmp_path, [record, result(other, rules=["REG-01"])]))
    build(browser)
    (row,) = [row for row in browser.all("#REG-01 details.case") if "the case is" in row.text]
    assert row.text.split("\n")[:2] == ["PASS", "the case is FAIL"]
    assert browser.one("#REG-15 .also").text.startswith("FAIL ")
    fails = [cell.text for cell in browser.all("#REG-01 > summary .num")]
    assert fails == ["2", "·"]


def test_the_first_cases_of_a_defect_open_below_its_rule_at_the_deviation(browser, tmp_path):
    show(browser, tmp_path, read(ROOT / "docs/runs/rxe.jsonl.xz"))
    for defect, place, rule in (
        ("d44d4f85b168", "#WIRE-16 details.case[open] .formula[data-rules~=WIRE-16]", "WIRE-16"),
        ("8f82a74a88ce", "#WIRE-05 details.case[open]", "WIRE-05"),
        ("0598f649feae", "details.sweep[open] .formula[data-rules~=BIND-23]", "BIND-23"),
    ):
        opened = browser.by_id(f"defect:{defect}")
        browser.execute_script("arguments[0].open = true", opened)
        (link, *_) = opened.find_elements(By.CSS_SELECTOR, ".where a")
        browser.execute_script("arguments[0].click()", link)
        (target, *_) = browser.wait(lambda place=place: browser.all(place))
        assert browser.js(PARENT, target).removeprefix("sweep:") == link.text
        browser.wait(lambda target=target: 0 <= browser.js(TOP, target) < 1000)
        badges = browser.all(f"#{rule} details.case[open] > summary .v")
        assert "PASS" not in [badge.text for badge in badges]
    name = "bind_mw/completions/completion-events"
    browser.execute_script("location.hash = arguments[0]", name)
    row = browser.wait(lambda: focused(browser) == name and browser.by_id(name))
    assert (
        "clause 3: if right=REMOTE_READ then refused otherwise unreachable rule BIND-23\nclause 4"
        in row.text
    )
    assert [link.text for link in row.find_elements(By.CSS_SELECTOR, "dd a.id")] == ["deviations"]
    browser.execute_script("location.hash = 'access/model/slice'")
    browser.wait(lambda: focused(browser) == "access/model/slice")
    assert browser.js("document.activeElement.querySelector('.v').textContent") != "PASS"


def test_a_button_counts_apart_the_cases_that_hung_only_at_some_points(browser, tmp_path):
    case, other = SUITE.cases[:2]
    verdicts: Any = {"REG-01": "HANG"}
    of_points = result(case, "FAIL", rules=["REG-01"], rule_verdicts=verdicts)
    of_run = run(tmp_path, [of_points, result(other, "HANG")])
    show(browser, tmp_path, of_run)
    button = browser.one("button[data-verdict=HANG]")
    assert button.text == "HANG 1 (+1)"
    assert button.get_attribute("title") == "and 1 case with this verdict only at some points"
    button.click()
    assert browser.by_id("found").text == "2 cases"
    assert "| HANG | 1 | 1 + 1 at points |" in markdown.render([of_run])


def test_a_violation_by_packets_has_what_was_sent_is_asked_and_happened(browser, tmp_path):
    show(browser, tmp_path, read(ROOT / "docs/runs/rxe.jsonl.xz"))
    build(browser)
    defect = browser.by_id("defect:092824f67057")
    sent = defect.find_elements(By.CSS_SELECTOR, ".sent li")
    assert [event.text.partition("(")[0] for event in sent] == ["op FLUSH"]
    texts = [element.text for element in defect.find_elements(By.CSS_SELECTOR, "li .kv dd")]
    assert texts[-2].startswith("the kernel goes on, and each packet has the effect and the answer")
    assert texts[-1].startswith("the kernel under test died: ")
    case = browser.by_id("wire/repeated/flush-of-type-0-with-no-resources")
    assert texts[-1] in case.text
    assert texts[-2] in case.text


def test_the_page_of_runs_of_a_history_says_since_when_each_has_a_defect(tmp_path, cli):
    nights = ("20261128T031700Z", "20261129T031700Z", "20261130T031700Z")
    for night, of_forky in zip(nights, ("PASS", "FAIL", "FAIL"), strict=True):
        for name, verdict in (("forky", of_forky), ("siw", "FAIL")):
            write_run(tmp_path / night / name, run_of({0: verdict}, stack=name))
    runs = [tmp_path / nights[-1] / name for name in ("forky", "siw")]
    page = tmp_path / "page.html"
    cli(0, "report", *runs, "--out", page)
    text = page.read_text()
    assert text.count("since 2026-11-29 03:17, seen in 2 of 3 nights") == 1
    assert text.count("since 2026-11-28 03:17, seen in 3 of 3 nights") == 1
    alone = tmp_path / "alone"
    write_run(alone, run_of({0: "FAIL"}))
    cli(0, "report", alone, "--out", page)
    assert "seen in" not in page.read_text()
