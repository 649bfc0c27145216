"""The other formats of a report. A parser from another project reads each of them."""

import io
import json
import re
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tap.loader import Loader
from tap.parser import Parser

from conformance.model.verdict import VERDICTS
from conformance.results.records import Recorded
from conformance.tables.suite import ROOT
from reports import junit, ktap, markdown, summary
from samples import header, recorded, result
from test_reports import SUITE, digested, one_of_each

SUMMARY = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
ANY_TEXT = st.text(st.characters(blacklist_categories=()))


def tap(text: str) -> list[Any]:
    """Returns the lines that a TAP parser reads in a KTAP document; the parser ignores subtests."""
    version, *lines = Parser().parse(io.StringIO(text))
    assert version.category == "version"
    return [line for line in lines if line.category != "unknown"]


# The lines that the kernel's parser (tools/testing/kunit/kunit_parser.py) accepts as a version, a subtest, a plan and a
# result.
_OPENING = re.compile(r"(KTAP version 1|TAP version 1[34])$")
_SUBTEST, _PLAN = re.compile(r"# Subtest: (.*)$"), re.compile(r"1\.\.([1-9][0-9]*)")
_OUTCOME = re.compile(r"(ok|not ok) ([0-9]+) (?:- )?([^#]*?)( # .*)?$")


def as_the_kernel_reads(lines: Iterator[str]) -> list[bool]:
    """Returns whether each test of a document, or of a subtest, is `ok`. Fails if the kernel's parser would count an
    error."""
    found: list[bool] = []
    planned, subtest = None, ""
    for line in map(str.lstrip, lines):
        if _OPENING.match(line):
            subtest = _SUBTEST.match(next(lines).lstrip())[1]  # type: ignore[index]
            assert as_the_kernel_reads(lines)
        elif plan := _PLAN.match(line):
            planned = int(plan[1])
        elif outcome := _OUTCOME.match(line):
            found.append(outcome[1] == "ok")
            assert int(outcome[2]) == len(found)
            assert subtest in ("", outcome[3])
        if planned == len(found):
            return found
    pytest.fail(f"{planned} tests are planned, and {len(found)} are there")


def results_in(text: str) -> list[Any]:
    """Checks the plan, and returns the result lines after it."""
    lines = tap(text)
    found = [line for line in lines if line.category == "test"]
    (plan,) = [line for line in lines if line.category == "plan"]
    assert plan.expected_tests == len(found)
    assert [line.number for line in found] == list(range(1, len(found) + 1))
    assert {line.category for line in lines} <= {"plan", "test", "diagnostic"}
    return found


def tables(text: str) -> list[list[str]]:
    """Returns the text of the cells of each row of a Markdown page's tables; fails if the page has raw HTML or
    links."""
    rows: list[list[str]] = []
    inside = False
    for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(text):
        assert token.type != "html_block"
        inside = token.type != "table_close" and (inside or token.type == "table_open")
        if token.type == "tr_open":
            rows.append([])
        for child in token.children or ():
            assert child.type in ("text", "code_inline", "text_special"), child
        if token.type == "inline" and inside:
            rows[-1].append("".join(child.content for child in token.children or ()))
    return rows


def test_ktap_has_a_line_for_each_verdict() -> None:
    found = results_in(ktap.render([digested(one_of_each())]))
    assert {verdict: (line.ok, line.skip) for verdict, line in zip(VERDICTS, found, strict=True)} == {
        "CRASH": (False, False),
        "HANG": (False, False),
        "FAIL": (False, False),
        "BROKEN": (False, False),
        "MISSED": (False, False),
        "WAIVED": (True, False),
        "STACK": (True, False),
        "UNREACHABLE": (True, True),
        "UNSUPPORTED": (True, True),
        "PASS": (True, False),
    }
    assert "# XFAIL WAIVED" in ktap.render([digested(one_of_each())])


def test_ktap_says_what_failed_before_its_line() -> None:
    text = ktap.render([digested(recorded([result(SUITE.cases[0], "FAIL", "it should not")]))])
    lines = text.splitlines()
    assert lines.index("# reg_mr/sample/c0: FAIL REG-01: it should not") < lines.index("not ok 1 reg_mr/sample/c0")
    assert "# reproduce: ./rdma-cts run --only reg_mr/sample/c0" in lines


def test_readers_of_ktap_count_no_failure_of_their_own(tmp_path: Path) -> None:
    odd = result(SUITE.cases[1], case="reg_mr/a#b")
    runs = [digested(one_of_each()), digested(recorded([result(SUITE.cases[0]), odd]))]
    for text, tests in ((ktap.render(runs[:1]), len(VERDICTS)), (ktap.render(runs), 2)):
        first, *rest = text.splitlines()
        assert _OPENING.match(first)
        assert len(read := as_the_kernel_reads(iter(rest))) == tests
        (tmp_path / "run.ktap").write_text(text)
        suite = Loader().load_suite_from_file(str(tmp_path / "run.ktap"))
        suite.run(told := unittest.TestResult())
        assert (told.testsRun, len(told.failures), len(told.errors)) == (tests, read.count(False), 0)


def test_several_runs_are_subtests_of_one_ktap_document() -> None:
    text = ktap.render([digested(one_of_each()), digested(recorded([result(SUITE.cases[0])]))])
    assert [line.ok for line in results_in(text)] == [False, True]
    assert "  KTAP version 1\n  # Subtest: fake0, host, kernel 7.2.0\n  1..1\n" in text


@given(ANY_TEXT)
def test_no_text_adds_a_line_or_directive_to_ktap(text: str) -> None:
    line = result(SUITE.cases[0], "FAIL", text, kernel={"log": [text]}, case=f"reg_mr/{text}", repro=text)
    (found,) = results_in(ktap.render([digested(Recorded(header(), [line]))]))
    assert (found.ok, found.skip, found.todo) == (False, False, False)


def test_markdown_has_the_verdict_and_a_row_for_each_defect() -> None:
    text = markdown.render([digested(recorded([result(SUITE.cases[0], "FAIL", "a | b <b> [x](y)")]))])
    rows = tables(text)
    assert ["FAIL", "1", "1"] in rows
    severity, fingerprint, *rest = rows[-1]
    assert (severity, len(fingerprint)) == ("wrong report", 12)
    defect = "a registration: a | b <b> [x](y)"
    assert rest == [defect, "REG-01", "1", "not known", "./rdma-cts run --only reg_mr/sample/c0"]


@given(ANY_TEXT)
def test_no_text_becomes_markup_of_markdown(text: str) -> None:
    line = result(SUITE.cases[0], "FAIL", text, repro=text, source={"file": text, "line": 1})
    run = digested(recorded([line], stack=text))
    row = tables(markdown.render([run]))[-1]
    assert len(row) == 7
    assert row[3] == "REG-01"


# Fields of a rule in a results file, and the line of reports about the rule's document.
DOCUMENTED = [
    ({"document": "a page", "section": "NOTES", "quote": "It holds."}, '"It holds." (a page, NOTES)'),
    ({"document": "a page", "section": "NOTES", "unquoted": "A secret."}, "a page, NOTES (not quoted: A secret.)"),
    ({"document": "a page", "section": "NOTES"}, "a page, NOTES"),
]


@pytest.mark.parametrize(("texts", "said"), DOCUMENTED, ids=["quoted", "unquoted", "old"])
def test_the_quote_of_the_document_stands_next_to_a_violation(texts: dict[str, str], said: str) -> None:
    lines = [result(SUITE.cases[0], "FAIL"), result(SUITE.cases[1], "PASS")]
    run = digested(recorded(lines, rules={"REG-01": texts}))
    assert ktap.render([run]).splitlines().count(f"# document of REG-01: {said}") == 1
    assert junit.render([run]).decode().replace("&quot;", '"').count(f"document of REG-01: {said}") == 1
    page = "".join(token.content for token in MarkdownIt().parse(markdown.render([run])) if token.type == "inline")
    assert MarkdownIt().renderInline(page).count(MarkdownIt().renderInline(markdown.escaped(said))) == 1


def test_only_violated_rules_of_a_result_are_documented() -> None:
    line = result(
        SUITE.cases[0], "FAIL", rules=["REG-01", "REG-02"], rule_verdicts={"REG-01": "PASS", "REG-02": "FAIL"}
    )
    texts = {"document": "a page", "section": "NOTES", "quote": "It holds."}
    run = digested(recorded([line], rules={"REG-01": texts, "REG-02": texts}))
    assert list(run.documented(line)) == ['document of REG-02: "It holds." (a page, NOTES)']


def test_the_summary_keeps_to_its_published_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SUMMARY)
    data = json.loads(summary.render([digested(one_of_each())]))
    jsonschema.validate(data, SUMMARY)
    assert data["cases"] == dict.fromkeys(VERDICTS, 1)
    assert data["violations"][0]["rule"] == "REG-01"
    assert data["exit_status"] == 1
    for key, wrong in [("cases", {"GOOD": 1}), ("exit_status", "1"), ("violations", [{}])]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**data, key: wrong}, SUMMARY)
