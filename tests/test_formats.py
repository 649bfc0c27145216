"""Tests of the formats of a report; a parser from another project reads each of them."""

import io
import json
import re
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from markdown_it import MarkdownIt
from tap.loader import Loader
from tap.parser import Parser

from commands.report import write_beside
from conformance.errors import UserError
from conformance.model.record import ResultRecord
from conformance.model.verdict import VERDICTS, Verdict
from conformance.older_python import zip
from conformance.tables.suite import ROOT
from made_history import run_of, write_run
from reports import junit, ktap, markdown, summary, tmt
from reports.digest import Digest, digest, read
from samples import numbered, recorded, result
from test_terminal import HOSTILE

JUNIT = etree.XMLSchema(etree.parse(Path(__file__).with_name("junit.xsd")))
SUITE = numbered(len(VERDICTS))
ANY_TEXT = st.text(st.characters(blacklist_categories=()))


def digested(*lines: ResultRecord, **head: Any) -> Digest:
    """Returns a run with these results, as reports get it."""
    return digest(recorded(lines, **head).shown(), Path("out"))


def one_of_each() -> Digest:
    lines = [result(case, verdict) for case, verdict in zip(SUITE.cases, VERDICTS, strict=True)]
    waived = VERDICTS.index(Verdict.WAIVED)
    lines[waived] |= {"verdict": Verdict.FAIL, "waiver": {"issue": "https://bugs.example/1"}}
    return digested(*lines)


def parsed(document: bytes) -> Any:
    """Returns the only testsuite of a document, which must conform to the schema."""
    tree = etree.fromstring(document)
    JUNIT.assertValid(tree)
    assert document.isascii()
    (suite,) = tree
    return suite


# For each verdict, the element of JUnit, the outcome in KTAP, and the result of tmt.
SAID = """
CRASH       failure not-ok      fail
HANG        failure not-ok      fail
FAIL        failure not-ok      fail
BROKEN      error   not-ok      error
MISSED      error   not-ok      error
WAIVED      skipped ok          warn
STACK       skipped ok          warn
UNREACHABLE skipped ok,skip     skip
UNSUPPORTED skipped ok,skip     skip
PASS        -       ok          pass
"""


def test_each_verdict_has_its_word_in_each_format():
    run = one_of_each()
    suite = parsed(junit.render([run]))
    elements = []
    for case in suite.iter("testcase"):
        elements.append("".join(child.tag for child in case) or "-")
    lines = [
        ("ok" if line.ok else "not-ok") + ",skip" * line.skip
        for line in results_in(ktap.render([run]))
    ]
    results = [entry["result"] for entry in yaml.safe_load(tmt.render([run]))]
    entries = list(zip(VERDICTS, elements, lines, results, strict=True))
    assert entries == [tuple(line.split()) for line in SAID.strip().splitlines()]
    assert "# XFAIL WAIVED" in ktap.render([run])
    counts = [int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == [len(suite.findall("testcase")), 3, 2, 4] == [10, 3, 2, 4]


def test_a_testcase_is_named_by_verb_and_case_and_its_failure_has_call_table_and_command():
    line = result(
        SUITE.cases[0],
        "FAIL",
        "it should not",
        kernel={"log": ["WARNING: here"]},
        duration_us=1500,
    )
    case = parsed(junit.render([digested(line)])).find("testcase")
    assert dict(case.attrib) == {
        "classname": "rdma-cts.reg_mr",
        "name": "sample/c0",
        "time": "0.001500",
    }
    failure = case.find("failure")
    assert failure.get("message").startswith("FAIL REG-01, wrong report, defect ")
    assert failure.get("message").endswith(": it should not")
    assert "call: ibv_reg_mr(" in failure.text
    assert "table: cases/reg_mr/sample.yaml:5" in failure.text
    assert "reproduce: ./rdma-cts run --only reg_mr/sample/c0" in failure.text
    assert "kernel: WARNING: here" in failure.text


def test_a_failure_names_the_violated_rules_and_not_all_that_the_case_tests():
    line = result(SUITE.cases[0], "FAIL", "it should not")
    line |= {
        "rules": ["REG-01", "REG-02"],
        "rule_verdicts": {"REG-01": Verdict.PASS, "REG-02": Verdict.FAIL},
    }
    run = digested(line)
    message = parsed(junit.render([run])).find("testcase/failure").get("message")
    (entry,) = yaml.safe_load(tmt.render([run]))
    assert message.startswith("FAIL REG-02, ")
    assert entry["note"][0] == "FAIL REG-02"
    assert ": FAIL REG-02: it should not" in ktap.render([run])


def test_a_planned_case_without_result_is_an_error():
    planned = [SUITE.cases[0].id, "reg_mr/sample/lost"]
    suite = parsed(
        junit.render([digested(result(SUITE.cases[0]), complete=False, planned=planned)]),
    )
    assert suite.get("errors") == "1"
    assert suite.find("testcase/error").get("message").startswith("MISSED")


def test_hostile_text_is_kept_as_far_as_xml_can_represent_it():
    line = result(SUITE.cases[0], "FAIL", HOSTILE, kernel={"log": [HOSTILE]}, repro=HOSTILE)
    run = digested(line, device={"name": HOSTILE, "driver": HOSTILE, "fw": HOSTILE})
    failure = parsed(junit.render([run])).find("testcase/failure")
    assert "a?b?[31mc" in failure.get("message")
    assert "<b>&amp; ]]>" in failure.text
    assert "\U0001f600" in failure.text


def test_if_the_page_cannot_be_written_the_smaller_reports_are_still_written(tmp_path):
    run = tmp_path / "run"
    write_run(run, run_of({2: "FAIL"}))
    for name in ("summary.json", "junit.xml", "report.html"):
        (run / name).unlink()
    (run / "report.html").mkdir()
    with pytest.raises(UserError, match=r"report\.html"):
        write_beside(run)
    assert json.loads((run / "summary.json").read_text())["exit_status"] == 1
    assert "failure" in (run / "junit.xml").read_text()


def test_tmt_gets_a_name_and_a_duration_for_each_case():
    entries = yaml.safe_load(tmt.render([one_of_each()]))
    assert [entry["name"] for entry in entries] == [f"/{case.id}" for case in SUITE.cases]
    for item in entries:
        assert re.fullmatch(r"\d\d:\d\d:\d\d", item["duration"])


SUMMARY = json.loads((ROOT / "docs" / "summary.schema.json").read_text())


def tap(text: str) -> list[Any]:
    """Returns the lines that a TAP parser reads in a KTAP document; the parser ignores subtests."""
    version, *lines = Parser().parse(io.StringIO(text))
    assert version.category == "version"
    return [line for line in lines if line.category != "unknown"]


# What the kernel's parser (tools/testing/kunit/kunit_parser.py) accepts as a version, a subtest, a plan and a result.
_OPENING = re.compile(r"(KTAP version 1|TAP version 1[34])$")
_SUBTEST, _PLAN = re.compile(r"# Subtest: (.*)$"), re.compile(r"1\.\.([1-9][0-9]*)")
_OUTCOME = re.compile(r"(ok|not ok) ([0-9]+) (?:- )?([^#]*?)( # .*)?$")


def as_the_kernel_reads(lines: Iterator[str]) -> list[bool]:
    """Returns for each test of a document or subtest whether it is `ok`; fails if the parser counts an error."""
    flags: list[bool] = []
    planned, subtest = None, ""
    for line in map(str.lstrip, lines):
        if _OPENING.match(line):
            subtest = _SUBTEST.match(next(lines).lstrip())[1]  # type: ignore[index]
            assert as_the_kernel_reads(lines)
        elif plan := _PLAN.match(line):
            planned = int(plan[1])
        elif outcome := _OUTCOME.match(line):
            flags.append(outcome[1] == "ok")
            assert int(outcome[2]) == len(flags)
            assert subtest in ("", outcome[3])
        if planned == len(flags):
            return flags
    pytest.fail(f"{planned} tests are planned, and {len(flags)} are there")


def results_in(text: str) -> list[Any]:
    """Checks the plan, and returns the result lines after it."""
    lines = tap(text)
    tests = [line for line in lines if line.category == "test"]
    (plan,) = [line for line in lines if line.category == "plan"]
    assert plan.expected_tests == len(tests)
    assert [line.number for line in tests] == list(range(1, len(tests) + 1))
    assert {line.category for line in lines} <= {"plan", "test", "diagnostic"}
    return tests


def tables(text: str) -> list[list[str]]:
    """Returns the texts of the cells of a Markdown page's tables, by row; fails if the page has raw HTML or links."""
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


def test_ktap_describes_a_failure_before_the_line_of_its_case():
    lines = ktap.render([digested(result(SUITE.cases[0], "FAIL", "it should not"))]).splitlines()
    assert lines.index("# reg_mr/sample/c0: FAIL REG-01: it should not") < lines.index(
        "not ok 1 reg_mr/sample/c0",
    )
    assert "# reproduce: ./rdma-cts run --only reg_mr/sample/c0" in lines


def test_parsers_of_ktap_count_the_tests_and_failures_and_no_error(tmp_path):
    odd = result(SUITE.cases[1], case="reg_mr/a#b")
    runs = [one_of_each(), digested(result(SUITE.cases[0]), odd)]
    for text, tests in ((ktap.render(runs[:1]), len(VERDICTS)), (ktap.render(runs), 2)):
        first, *rest = text.splitlines()
        assert _OPENING.match(first)
        assert len(read := as_the_kernel_reads(iter(rest))) == tests
        (tmp_path / "run.ktap").write_text(text)
        suite = Loader().load_suite_from_file(str(tmp_path / "run.ktap"))
        suite.run(counts := unittest.TestResult())
        assert (counts.testsRun, len(counts.failures), len(counts.errors)) == (
            tests,
            read.count(False),
            0,
        )


def test_several_runs_are_subtests_of_one_ktap_document():
    text = ktap.render([one_of_each(), digested(result(SUITE.cases[0]))])
    assert [line.ok for line in results_in(text)] == [False, True]
    assert "  KTAP version 1\n  # Subtest: fake0, host, kernel 7.2.0\n  1..1\n" in text


def test_markdown_has_the_verdict_and_a_row_for_each_defect():
    text = markdown.render([digested(result(SUITE.cases[0], "FAIL", "a | b <b> [x](y)"))])
    rows = tables(text)
    assert ["FAIL", "1", "1"] in rows
    severity, fingerprint, *rest = rows[-1]
    assert (severity, len(fingerprint)) == ("wrong report", 12)
    defect = "a registration: a | b <b> [x](y)"
    assert rest == [defect, "REG-01", "1", "not known", "./rdma-cts run --only reg_mr/sample/c0"]


def test_markdown_says_what_the_verdicts_of_rules_mean_that_no_case_has():
    text = markdown.render([read(ROOT / "docs/runs/rxe.jsonl.xz")])
    assert "\n| OFFERED: verified for what this device offers | " in text
    assert "\n| OFFERED | " not in text


@given(ANY_TEXT)
def test_no_text_makes_a_document_invalid_or_becomes_a_line_or_markup_of_it(text):
    line = result(
        SUITE.cases[0],
        "FAIL",
        text,
        case=f"reg_mr/a{text}",
        repro=text,
        source={"file": text, "line": 1},
    )
    line |= {"kernel": {"log": [text]}, "observed": {"errno": text}}
    run = digested(line, stack=text, planned=[])
    parsed(junit.render([run]))
    (test_line,) = results_in(ktap.render([run]))
    assert (test_line.ok, test_line.skip, test_line.todo) == (False, False, False)
    row = tables(markdown.render([run]))[-1]
    assert (len(row), row[3]) == (7, "REG-01")


# Fields of a rule in a results file, and the line of reports about the rule's document.
DOCUMENTED = [
    (
        {"document": "a page", "section": "NOTES", "quote": "It holds."},
        '"It holds." (a page, NOTES)',
    ),
    (
        {"document": "a page", "section": "NOTES", "unquoted": "A secret."},
        "a page, NOTES (not quoted: A secret)",
    ),
    ({"document": "a page", "section": "NOTES"}, "a page, NOTES"),
]


@pytest.mark.parametrize("texts, said", DOCUMENTED, ids=["quoted", "unquoted", "old"])
def test_the_quote_of_the_document_is_next_to_a_violation(texts, said):
    run = digested(result(SUITE.cases[0], "FAIL"), result(SUITE.cases[1]), rules={"REG-01": texts})
    assert ktap.render([run]).splitlines().count(f"# document of REG-01: {said}") == 1
    assert (
        junit.render([run]).decode().replace("&quot;", '"').count(f"document of REG-01: {said}")
        == 1
    )
    page = "".join(
        token.content
        for token in MarkdownIt().parse(markdown.render([run]))
        if token.type == "inline"
    )
    assert (
        MarkdownIt().renderInline(page).count(MarkdownIt().renderInline(markdown.escaped(said)))
        == 1
    )


def test_only_violated_rules_of_a_result_are_documented():
    verdicts, (texts, said) = {"REG-01": "PASS", "REG-02": "FAIL"}, DOCUMENTED[0]
    line = result(SUITE.cases[0], "FAIL", rules=[*verdicts], rule_verdicts=verdicts)
    assert list(digested(line, rules=dict.fromkeys(verdicts, texts)).verdicts.quotes(line)) == [
        f"document of REG-02: {said}",
    ]


def test_the_summary_conforms_to_its_published_schema():
    jsonschema.Draft202012Validator.check_schema(SUMMARY)
    data = json.loads(summary.render([one_of_each()]))
    jsonschema.validate(data, SUMMARY)
    assert data["cases"] == dict.fromkeys(VERDICTS, 1)
    assert data["violations"][0]["rule"] == "REG-01"
    assert data["exit_status"] == 1
    for key, wrong in [("cases", {"GOOD": 1}), ("exit_status", "1"), ("violations", [{}])]:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**data, key: wrong}, SUMMARY)


def test_the_numbers_of_junit_are_those_of_the_headline():
    run = read(ROOT / "docs/runs/rxe.jsonl.xz")
    suite = parsed(junit.render([run]))
    properties = {item.get("name"): item.get("value") for item in suite.iter("property")}
    for severity in re.findall(r"[0-9]+ ([a-z: ]+) \(([0-9]+)\)", str(properties["headline"])):
        assert properties[severity[0]] == severity[1]
