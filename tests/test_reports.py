"""Reports of recorded runs: JUnit's XML, read by parsers of other projects, and the terminal's summary."""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from commands import run as run_command
from commands.report import write_beside
from conformance.errors import UserError
from conformance.model.verdict import VERDICTS, Verdict
from conformance.results.records import Recorded
from conformance.tables.suite import load_suite
from made_history import run_of, write_run
from reports import junit, tmt
from reports.digest import Digest, digest
from reports.terminal import NORMAL, QUIET, VERBOSE, summary
from samples import header, numbered, recorded, result

SCHEMA = etree.XMLSchema(etree.parse(Path(__file__).with_name("junit.xsd")))
SUITE = numbered(len(VERDICTS))
TABLES = load_suite()
HOSTILE = "a\x00b\x1b[31mc\nd\re\tf <b>&amp; ]]> \"'g\u2028h\x85 \U0001f600 \ufffe \ud800"


def digested(run: Recorded) -> Digest:
    """Returns the digest of the run, the input of reports."""
    return digest(run, Path("out"))


def one_of_each() -> Recorded:
    """A run with one case for each verdict."""
    lines = [result(case, verdict) for case, verdict in zip(SUITE.cases, VERDICTS, strict=True)]
    waived = VERDICTS.index(Verdict.WAIVED)
    lines[waived] |= {"verdict": Verdict.FAIL, "waiver": {"issue": "https://bugs.example/1"}}
    return recorded(lines)


def parsed(document: bytes) -> Any:
    """Returns the only testsuite of a document, which must conform to the schema."""
    tree = etree.fromstring(document)
    SCHEMA.assertValid(tree)
    assert document.isascii()
    (suite,) = tree
    return suite


def test_each_verdict_has_its_element() -> None:
    suite = parsed(junit.render([digested(one_of_each())]))
    found = {case.get("name"): [child.tag for child in case] for case in suite.iter("testcase")}
    assert dict(zip(VERDICTS, found.values(), strict=True)) == {
        "CRASH": ["failure"],
        "HANG": ["failure"],
        "FAIL": ["failure"],
        "BROKEN": ["error"],
        "MISSED": ["error"],
        "WAIVED": ["skipped"],
        "STACK": ["skipped"],
        "UNREACHABLE": ["skipped"],
        "UNSUPPORTED": ["skipped"],
        "PASS": [],
    }
    counts = [int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")]
    assert counts == [len(suite.findall("testcase")), 3, 2, 4] == [10, 3, 2, 4]


def test_a_testcase_is_named_by_verb_and_case() -> None:
    case = parsed(junit.render([digested(recorded([result(SUITE.cases[0], duration_us=1500)]))])).find("testcase")
    assert case.get("classname") == "rdma-cts.reg_mr"
    assert case.get("name") == "sample/c0"
    assert case.get("time") == "0.001500"


def test_a_failure_has_call_table_and_command() -> None:
    line = result(SUITE.cases[0], "FAIL", "it should not", kernel={"log": ["WARNING: here"]})
    failure = parsed(junit.render([digested(recorded([line]))])).find("testcase/failure")
    assert failure.get("message").startswith("FAIL REG-01, wrong report, defect ")
    assert failure.get("message").endswith(": it should not")
    assert "call: ibv_reg_mr(" in failure.text
    assert "table: cases/reg_mr/sample.yaml:5" in failure.text
    assert "reproduce: ./rdma-cts run --only reg_mr/sample/c0" in failure.text
    assert "kernel: WARNING: here" in failure.text


def test_a_planned_case_without_result_is_an_error() -> None:
    run = recorded([result(SUITE.cases[0])], complete=False)
    run.header["planned"].append("reg_mr/sample/lost")
    suite = parsed(junit.render([digested(run)]))
    assert suite.get("errors") == "1"
    assert suite.find("testcase/error").get("message").startswith("MISSED")


def test_hostile_text_is_carried_as_far_as_xml_can() -> None:
    line = result(SUITE.cases[0], "FAIL", HOSTILE, kernel={"log": [HOSTILE]}, repro=HOSTILE)
    run = recorded([line], device={"name": HOSTILE, "driver": HOSTILE, "fw": HOSTILE})
    failure = parsed(junit.render([digested(run)])).find("testcase/failure")
    assert "a?b?[31mc" in failure.get("message")
    assert "<b>&amp; ]]>" in failure.text
    assert "\U0001f600" in failure.text


@given(st.text(st.characters(blacklist_categories=())))
def test_no_text_makes_the_document_invalid(text: str) -> None:
    line = result(SUITE.cases[0], "FAIL", text, kernel={"log": [text]}, observed={"errno": text})
    parsed(junit.render([digested(recorded([line]))]))


DIED = {"kind": "kernel-died", "verb": "ibv_reg_mr", "seen": ["the kernel under test died", *[""] * 4]}
REFUSED = {"kind": "refused", "verb": "ibv_reg_mr", "returned": "NULL", "errno": "EINVAL"}


def test_the_summary_has_a_line_of_at_most_100_columns_for_each_defect_the_worst_first() -> None:
    refused = "ibv_reg_mr(pd=pd, access=0) should succeed, returned NULL with errno EINVAL"
    lines = [
        result(SUITE.cases[0], "FAIL", refused, fault=REFUSED),
        result(SUITE.cases[1], "FAIL", refused, fault=REFUSED),
        result(SUITE.cases[2], "CRASH", "the third", rules=["REG-15"], fault=DIED),
        result(SUITE.cases[3], "UNSUPPORTED", "never shown", rules=["REG-12"]),
        result(SUITE.cases[4], "BROKEN", "the harness " + "could not " * 20, rules=["REG-12"]),
    ]
    run = digested(recorded(lines))
    said = summary(run, Path("out/run"), io.StringIO()).splitlines()
    assert said[1].startswith("defects, most severe first: severity, number, what is wrong (rules)")
    first, second, third = said[2:5]
    assert re.fullmatch(r"kernel crash  [0-9a-f]{12} kernel fault during a registration: REG-15 \(REG-15\) x1", first)
    assert re.fullmatch(
        r"valid refused [0-9a-f]{12} a registration is refused with EINVAL: REG-01 \(REG-01\) x2", second
    )
    assert third.startswith("BROKEN        REG-12 reg_mr/sample/c4: the harness could not")
    assert max(map(len, said[1:5])) == len(third) == 100
    assert "never shown" not in "".join(said)
    assert "2 defects in 3 results: 1 kernel crash, 2 valid calls refused" in said
    assert "5 cases in 2.5 s: 1 UNSUPPORTED, 1 BROKEN, 2 FAIL, 1 CRASH" in said
    assert "report: out/run/report.html (results: out/run)" in said
    assert said[-1].endswith("(exit status 1)")
    in_full = summary(run, Path("out/run"), io.StringIO(), VERBOSE).splitlines()
    assert f"{'':14}{refused}" in in_full
    assert f"{'':14}./rdma-cts run --only reg_mr/sample/c0" in in_full


def test_the_quiet_summary_is_one_line() -> None:
    run = digested(recorded([result(SUITE.cases[0], "CRASH", "the kernel under test died", fault=DIED)]))
    (line,) = summary(run, Path("out"), io.StringIO(), QUIET).splitlines()
    assert line.startswith("1 defect in 1 result: 1 kernel crash; ")
    assert line.endswith("(exit status 1)")


def test_a_waived_defect_comes_last_and_does_not_count() -> None:
    waived = result(SUITE.cases[0], "CRASH", "the kernel under test died", effective="WAIVED", waiver={"issue": "1"})
    run = digested(recorded([waived, result(SUITE.cases[1], "FAIL", fault={**REFUSED, "kind": "accepted"})]))
    first, second = (line.split()[0] for line in summary(run, Path("out"), io.StringIO()).splitlines()[2:4])
    assert (first, second) == ("not", "WAIVED")
    assert run.headline == "1 defect in 1 result: 1 refusal not given"


def test_the_summary_of_a_run_cut_short_says_so() -> None:
    text = summary(digested(recorded([result(SUITE.cases[0])], complete=False)), Path("out"), io.StringIO())
    assert "the run was cut short" in text


@pytest.mark.parametrize("tables", [TABLES.tables_sha256, "other"])
def test_a_rule_of_which_a_case_has_no_result_is_not_verified(tables: str) -> None:
    """Also in a run with other tables, because ids are permanent, except for cases that no longer exist."""
    first, second = [case for case in TABLES.cases if case.rules == ("REG-15",)][:2]
    rules = {rule.id: rule.as_data() for rule in TABLES.registry.values()}
    head = header(planned=[first.id, second.id], suite={"version": "0", "tables_sha256": tables}, rules=rules)
    run = digested(Recorded(head, [result(first)], None))
    assert run.verdicts == {"REG-15": Verdict.MISSED}
    assert "1 undecided" in run.short_sentence
    head["planned"] = [first.id, "retired"]
    assert digested(Recorded(head, [result(first)], None)).verdicts == {"REG-15": Verdict.PASS}


def test_hostile_text_stays_in_its_line_and_commands_no_terminal() -> None:
    line = result(SUITE.cases[0], "FAIL", HOSTILE)
    text = summary(digested(recorded([line])), Path("out"), io.StringIO())
    assert all(character.isprintable() or character == "\n" for character in text)
    (shown,) = [row for row in text.splitlines() if row.startswith("wrong report")]
    assert shown.endswith("(REG-01) x1")


def test_a_report_that_cannot_be_written_takes_no_smaller_one_with_it(tmp_path: Path) -> None:
    """A stand-in makes the disk too full for the page."""
    run = tmp_path / "run"
    write_run(run, run_of({2: "FAIL"}))
    for name in ("summary.json", "junit.xml", "report.html"):
        (run / name).unlink()
    (run / "report.html").mkdir()
    with pytest.raises(UserError, match=r"report\.html"):
        write_beside(run)
    assert json.loads((run / "summary.json").read_text())["exit_status"] == 1
    assert "failure" in (run / "junit.xml").read_text()


def test_tmt_gets_each_case_in_its_own_words() -> None:
    found = yaml.safe_load(tmt.render([digested(one_of_each())]))
    assert len({each["name"] for each in found}) == len(found) == len(one_of_each().results)
    for each, record in zip(found, one_of_each().results, strict=True):
        assert each["name"] == f"/{record['case']}"
        assert each["result"] in ("pass", "fail", "skip", "warn", "error")
        assert (each["result"] == "pass") == (record["effective"] == "PASS")
        assert re.fullmatch(r"\d\d:\d\d:\d\d", each["duration"])


def test_a_report_that_was_not_written_is_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    judged = digest(one_of_each(), tmp_path)
    (tmp_path / "report.html").mkdir()
    with pytest.raises(UserError, match=r"report\.html"):
        run_command._reported(judged, tmp_path, NORMAL, "", "")
    said = capsys.readouterr().out
    assert "report.html" not in said
    assert f"results: {tmp_path}" in said
