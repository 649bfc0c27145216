"""The registry of rules: permanent ids, mistakes in files of rules, and the cases of each rule. Malformed files of
rules are in tests/malformed; test_tables.py reads them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import samples
from commands.coverage import Coverage, cover, cover_with_results, render
from conformance.model.case import Table
from conformance.model.record import ResultRecord
from conformance.model.rules import Registry
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import Suite
from samples import laid, registry

RULE = """\
  - id: {id}
    statement: Something holds.
    document: a page
    section: NOTES
    level: must
    layer: kernel
    needs: [odp]
    since: "12"
    failure_means: Something breaks.
    quote: Something holds
"""


def read(tmp_path: Path, **files: str) -> tuple[Registry, list[str]]:
    """Reads these rules files, by verb; returns the rules, and the mistakes as `file:line:column: message`."""
    laid(tmp_path, {f"{verb}/rules.yaml": text for verb, text in files.items()})
    registry, mistakes = read_registry([tmp_path], tmp_path)
    return registry, [str(mistake) for mistake in mistakes]


def test_a_rule_is_read_with_all_its_keys(tmp_path):
    registry, mistakes = read(
        tmp_path, reg_mr="verb: ibv_reg_mr\nrules:\n" + RULE.format(id="VND-01")
    )
    rule = registry["VND-01"]
    assert mistakes == []
    assert (rule.verb, rule.level, rule.layer) == ("ibv_reg_mr", "must", "kernel")
    assert (rule.needs, rule.since) == (("odp",), "12")
    assert (rule.quote, rule.unquoted) == ("Something holds", "")
    assert str(rule.location) == "reg_mr/rules.yaml:3:9"


def test_the_point_of_an_abbreviation_ends_no_sentence_of_a_quote(tmp_path):
    text = RULE.format(id="VND-01").replace("Something holds\n", "it holds, i.e. RDMA works\n")
    registry, mistakes = read(tmp_path, reg_mr="verb: ibv_reg_mr\nrules:\n" + text)
    assert mistakes == []
    assert registry["VND-01"].quote == "it holds, i.e. RDMA works"


def test_a_rule_without_a_quote_has_the_reason(tmp_path):
    text = RULE.format(id="VND-01").replace("quote: Something holds", "unquoted: It is secret.")
    text = text.replace("must", "should")
    registry, mistakes = read(tmp_path, reg_mr="verb: ibv_reg_mr\nrules:\n" + text)
    assert mistakes == []
    texts = registry["VND-01"].as_data()
    assert "quote" not in texts
    assert texts["unquoted"] == "It is secret."


def test_rules_are_in_the_order_of_the_files(tmp_path):
    files = {
        verb: f"verb: api\nrules:\n{RULE.format(id=id_)}"
        for verb, id_ in (("b", "AB-01"), ("a", "ZZ-01"))
    }
    registry, mistakes = read(tmp_path, **files)
    assert (list(registry), mistakes) == (["ZZ-01", "AB-01"], [])


USED = "verb: api\nrules:\n" + RULE.format(id="AB-01")
RETIRED = "verb: api\nrules: []\nretired:\n  - {id: AB-01, why: it said the same as AB-02}\n"


@pytest.mark.parametrize(
    "a, b, mistake",
    [
        (USED, USED, "b/rules.yaml:3:9: duplicate rule id AB-01 (first at a/rules.yaml:3:9)"),
        (
            USED,
            RETIRED,
            "a/rules.yaml:3:9: rule id AB-01 is retired (b/rules.yaml:4:10); choose a new one",
        ),
        (
            RETIRED,
            RETIRED,
            "b/rules.yaml:4:10: duplicate retired rule id AB-01 (first at a/rules.yaml:4:10)",
        ),
    ],
)
def test_an_id_is_used_or_retired_once_in_all_files(tmp_path, a, b, mistake):
    assert read(tmp_path, a=a, b=b)[1] == [mistake]


def test_mistakes_are_reported_file_by_file_from_top_to_bottom(tmp_path):
    bad = "verb: api\nrules:\n" + RULE.format(id="AB-01").replace("must", "shall").replace(
        "section",
        "sektion",
    )
    locations = [
        mistake.split(": ")[0] for mistake in read(tmp_path, a=bad, b="rules: [] \nverb: *x")[1]
    ]
    assert locations == [
        "a/rules.yaml:6:5",
        "a/rules.yaml:7:12",
        "b/rules.yaml:2:7",
    ]


def test_every_rule_has_a_unique_short_name():
    shorts = [rule.short for rule in registry().values()]
    without = [rule.id for rule in registry().values() if not 0 < len(rule.short) <= 60]
    assert without == [], "titles of defects need the key `short`, of at most 60 characters"
    assert len(set(shorts)) == len(shorts)


def test_an_argument_against_a_rule_is_one_sentence_and_explained(cli):
    debatable = [rule for rule in registry().values() if rule.argument_against]
    assert {"IOVA-02a", "ADV-08", "REG-09a", "FORK-04", "REREG-18", "REREG-19", "ADV-09"} <= {
        rule.id for rule in debatable
    }
    for rule in debatable:
        assert rule.argument_against.count(". ") == 0
        assert rule.argument_against.endswith(".")
    said = cli(0, "explain", "IOVA-02a").out
    assert "Argument against: Hardware maps whole pages" in said


# Coverage


ROWS = """
- {id: works, rules: [REG-01], when: {access: []}, then: success}
- {id: fails, rules: [REG-01, REG-02], when: {access: [REMOTE_WRITE]}, then: refused}
- {id: both, rules: [REG-23], when: {length: 0, access: []}, then: refused,
   afterwards: [{call: ibv_reg_mr, access: [], then: success}]}
- {id: open, rules: [REG-03], when: {access: []}, then: open,
   afterwards: [{call: ibv_dereg_mr, mr: new, then: success}]}
"""
FOUR = ["REG-01", "REG-02", "REG-03", "REG-23"]
ADVICE = """
- {id: bounds, rules: [ADV-08], given: {mrs: {mr: {access: [ON_DEMAND]}}},
   when: {advice: PREFETCH, sg_list: [{addr: buf, length: 8, lkey: mr.lkey}]},
   then: {outcome: refused, errno: [EFAULT, EINVAL]}}
"""
REREG = """
- {id: nothing, rules: [REREG-06], given: {mrs: {mr: {access: []}}}, when: {flags: []},
   then: {outcome: refused, code: ERR_INPUT}}
"""


def suite(rules: Sequence[str] = (), *tables: Table) -> Suite:
    """Returns a suite of these rules (by default all) and tables (by default ROWS)."""
    sampled = samples.suite(tables or [samples.table("reg_mr/sample", ROWS, 4)])
    return replace(
        sampled,
        registry=Registry(sampled.registry[id_] for id_ in rules or sampled.registry),
    )


def covered(
    suite: Suite,
    folder: Path,
    *lines: ResultRecord,
    complete: bool = True,
    **head: Any,
) -> Coverage:
    run = samples.recorded(lines, complete=complete, planned=[], **head)
    return cover_with_results(suite, samples.written(run, folder))


def numbers(coverage: Coverage) -> dict[str, tuple[int, int, int, int]]:
    """Returns, by rule, how many cases it has, and how many of them expect success, a refusal, and an open outcome."""
    return {
        rule.id: (rule.cases, rule.success, rule.refused, rule.open)
        for rule in coverage.rules
        if rule.cases
    }


def test_cases_count_for_each_of_their_rules_in_each_direction():
    counts = numbers(cover(suite()))
    assert counts == {
        "REG-01": (2, 1, 1, 0),
        "REG-02": (1, 0, 1, 0),
        "REG-23": (1, 1, 1, 0),
        "REG-03": (1, 0, 0, 1),
    }


def test_rules_without_a_case_and_rules_with_only_open_cases_are_listed():
    coverage = cover(suite(["REG-01", "REG-02", "REG-03", "REG-04", "REG-23"]))
    assert coverage.without_case == ["REG-04"]
    assert coverage.only_open == ["REG-03"]
    text = "\n".join(render(coverage))
    assert "without a case (1): REG-04" in text
    assert "only open cases, which prove nothing (1): REG-03" in text
    assert "5 rules, 4 with a case: 2 in both directions, 1 in one direction; 4 cases" in text


def test_documented_codes_are_counted_where_a_case_expects_them():
    coverage = cover(
        suite(
            [],
            samples.table("advise_mr/sample", ADVICE),
            samples.table("rereg_mr/sample", REREG),
        ),
    )
    expected = {code.code: code.expected for code in coverage.codes if code.expected}
    assert expected == {"EFAULT": 1, "EINVAL": 1, "IBV_REREG_MR_ERR_INPUT": 1}
    assert f"documented codes expected by a case: 3 of {len(coverage.codes)}" in list(
        render(coverage),
    )


def test_a_rule_has_the_worst_verdict_of_its_cases(tmp_path):
    sampled = suite(FOUR)
    verdicts = {"works": "PASS", "fails": "FAIL", "both": "UNSUPPORTED"}
    lines = [samples.result(case, verdicts[case.id.split("/")[-1]]) for case in sampled.cases[:3]]
    coverage = covered(sampled, tmp_path, *lines)
    assert {rule.id: rule.verdict for rule in coverage.rules} == {
        "REG-01": "FAIL",
        "REG-02": "FAIL",
        "REG-03": "-",
        "REG-23": "UNSUPPORTED",
    }
    assert coverage.complete is True
    total = "results of 3 of the 4 cases; rules: 1 UNSUPPORTED, 2 FAIL, 1 without a result"
    assert total in list(render(coverage))


ENUMERATED = "IBV_REREG_MR_ERR_INPUT"


@pytest.mark.parametrize(
    "table, observed, provoked",
    [
        (ADVICE, {"returned": "EFAULT", "errno": ""}, "EFAULT"),
        (ADVICE, {"returned": "EOPNOTSUPP", "errno": ""}, ""),
        (ADVICE, {"returned": "0", "errno": "EFAULT"}, ""),
        (ADVICE, {"returned": "EXDEV", "errno": ""}, ""),
        (ADVICE, {"setup_failed": "no memory"}, ""),
        (ADVICE, {"returned": "0", "afterwards": [{"returned": "EPERM", "errno": ""}]}, ""),
        # Of two documented codes with the same number, the code that the case expects is counted.
        *(
            (
                ADVICE.replace("[EFAULT, EINVAL]", promised),
                {"returned": "EOPNOTSUPP", "errno": ""},
                promised,
            )
            for promised in ("ENOTSUP", "EOPNOTSUPP")
        ),
        # A code of an enumeration is recognized by its name and by its number.
        *(
            (REREG, {"returned": code, "errno": "EINVAL"}, ENUMERATED)
            for code in ("ERR_INPUT", ENUMERATED, "-1")
        ),
    ],
)
def test_returned_codes_are_counted(tmp_path, table, observed, provoked):
    if table == REREG:
        verb = "rereg_mr"
    else:
        verb = "advise_mr"
    sampled = suite([], samples.table(f"{verb}/sample", table))
    coverage = covered(sampled, tmp_path, samples.result(sampled.cases[0], observed=observed))
    assert [code.code for code in coverage.codes if code.observed] == provoked.split()
    assert f"documented codes observed: {len(provoked.split())} of {len(coverage.codes)}" in list(
        render(coverage),
    )


def test_a_verdict_that_rests_on_open_cases_is_in_brackets(tmp_path):
    sampled = suite(FOUR)
    coverage = covered(sampled, tmp_path, samples.result(sampled.cases[3]))
    assert any(line.startswith("REG-03 ") and " (PASS) " in line for line in render(coverage))


def test_codes_of_later_steps_count_for_the_verb_they_call(tmp_path):
    sampled = suite([], samples.table("advise_mr/sample", ADVICE))
    line = samples.result(
        sampled.cases[0],
        observed={"returned": "0", "afterwards": [{"returned": "EPERM"}]},
    )
    later = [{"call": "ibv_advise_mr(pd=pd)", "outcome": "refused"}]
    line["expected"] = {**line["expected"], "afterwards": later}
    coverage = covered(sampled, tmp_path, line)
    assert {code.code for code in coverage.codes if code.observed} == {"EPERM"}


def test_a_smoke_run_verifies_no_rule_and_a_dialect_is_not_judged(tmp_path):
    sampled = suite()
    smoke = {"tier": "smoke", "rules": sampled.registry.as_data()}
    totals = "\n".join(
        render(
            covered(sampled, tmp_path, samples.result(sampled.cases[0]), complete=False, **smoke)
        ),
    )
    assert "rules: 1 PARTIAL, " in totals
    assert " without a result, 6 of a vendor's dialect not judged" in totals


def test_results_of_a_run_cut_short_are_called_incomplete(tmp_path):
    sampled = suite()
    coverage = covered(sampled, tmp_path, samples.result(sampled.cases[0]), complete=False)
    assert coverage.complete is False
    assert "these results are from an incomplete run" in list(render(coverage))


@pytest.mark.parametrize("rules, status", [(FOUR, 0), ([], 1)])
def test_the_exit_status_says_whether_a_rule_has_no_case(rules, status, monkeypatch, cli):
    monkeypatch.setattr("commands.cli.run_arguments.load_suite", lambda folders: suite(rules))
    assert cli(status, "list", "coverage").out.startswith("rule ")
