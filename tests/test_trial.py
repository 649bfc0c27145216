"""Tests of the trial of the suite: trials and reports of violations, and tables of mutants. test_personas.py tries every
seeded violation."""

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
import traceback
import types
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main
from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.tables.suite import ROOT, Suite, load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from fixtures.system.processes import die_with_parent
from kinds import rows
from patience import PATIENCE_S, await_true, is_running
from samples import user_error
from trial import report, violation_runs
from trial.catalogue import PERMITTED_VARIANTS, UNTRIABLE, VIOLATIONS, named
from trial.mutant_table import Violation, mutants_of
from trial.processes import in_processes
from trial.reference import objects
from trial.reference.device import Device
from trial.report import Trial
from trial.trying import (
    KILLED,
    MISATTRIBUTED,
    SURVIVED,
    Extent,
    Finding,
    check_baseline,
    try_all,
    try_violation,
)

SUITE = load_suite()
DEFAULT_CASES = of_tier(SUITE.cases, DEFAULT)


def cases_of(*rules: str, suite: Suite = SUITE) -> list[Case]:
    return [case for case in suite.cases if case.kind is Kind.ROW and set(case.rules) & set(rules)]


def test_violations_have_unique_names_descriptions_and_a_rule():
    names = {violation.name for violation in VIOLATIONS}
    assert len(names) == len(VIOLATIONS)
    assert [violation.name for violation in VIOLATIONS if not violation.about.endswith(".")] == []
    assert {violation.rule for violation in VIOLATIONS} <= set(SUITE.registry)
    assert {violation.rule for violation in VIOLATIONS}.isdisjoint(UNTRIABLE)
    assert all(UNTRIABLE.values())


class Deadly(Device):
    def access_fault(self, access: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0


class RefusesEverything(Device):
    """A reference that refuses every registration with EOPNOTSUPP."""

    def access_fault(self, access: int) -> int:
        return errno.EOPNOTSUPP


def test_a_violation_that_breaks_nothing_survives():
    finding = try_violation(
        Violation("sound", "REG-15", "Nothing.", Device),
        cases_of("REG-15", "DEREG-01"),
    )
    assert (finding.outcome, finding.by) == (SURVIVED, ())


def test_a_violation_detected_only_by_other_rules_is_misattributed():
    wrongly = replace(named("keys-outlive-the-region"), rule="REG-15")
    finding = try_violation(wrongly, cases_of("REG-15", "DEREG-01"))
    assert finding.outcome == MISATTRIBUTED
    assert {"dereg_mr", "reg_dmabuf_mr"} <= {case.split("/")[0] for case in finding.by}


def test_a_violation_can_be_tried_with_the_cases_of_its_rule_alone():
    wrongly = replace(named("keys-outlive-the-region"), rule="REG-15")
    finding = try_violation(wrongly, cases_of("REG-15", "DEREG-01"), Extent.OWN)
    assert (finding.outcome, finding.tried) == (SURVIVED, len(cases_of("REG-15")))


def test_a_device_that_refuses_every_registration_fails_the_rules_of_registrations():
    for rule in ("REG-01", "REG-03", "REG-17", "IOVA-01", "IOVA-04"):
        finding = try_violation(
            Violation("deaf", rule, "Everything is refused.", RefusesEverything),
            cases_of(rule),
        )
        assert finding.outcome == KILLED


def test_a_failing_reference_is_refused_as_baseline(monkeypatch):
    monkeypatch.setattr(Device, "write_alone", lambda self, access: False)
    with user_error("reg_mr/access_flags/remote-write", status=3, one_line=False):
        check_baseline(cases_of("REG-15"))


def test_a_chosen_violation_needs_no_other_cases_on_the_unbroken_reference(monkeypatch):
    nothing = Violation("nothing", "DEREG-01", "Nothing is violated.", Device)
    arguments = Namespace(rule=[], violation=["nothing"], jobs=1, out=None, verbose=False)

    def tried(*rules: str) -> list[Finding]:
        cases = cases_of(*rules)
        return violation_runs._findings(arguments, [nothing], cases, Extent.UNTIL_DETECTED)

    monkeypatch.setattr(Device, "write_alone", lambda self, access: False)
    assert [finding.outcome for finding in tried("DEREG-01")] == [SURVIVED]
    with user_error("reg_mr/access_flags/remote-write", status=3, one_line=False):
        tried("DEREG-01", "REG-15")  # what detects is checked too
    arguments.violation = []
    with user_error("reg_mr/access_flags/remote-write", status=3, one_line=False):
        tried("DEREG-01", "REG-15")


def test_a_survivor_of_a_chosen_rule_says_how_to_try_the_other_cases(monkeypatch, capsys):
    nothing = Violation("nothing", "DEREG-03", "Nothing is violated.", Device)
    few = replace(SUITE, tables=tuple(table for table in SUITE.tables if table.verb == "api"))
    monkeypatch.setattr(violation_runs, "VIOLATIONS", (nothing,))
    monkeypatch.setattr("commands.trial.load_suite", lambda: few)
    command = ["trial", "reference", "--violation", "nothing", "--jobs", "1"]
    assert main(command) == 1
    said = capsys.readouterr().out
    assert "by none of 0 cases" in said
    assert "Only the cases of the violated rule were run" in said
    assert main([*command, "--whole"]) == 1
    assert "--whole" not in capsys.readouterr().out


def test_a_mistake_that_shows_when_the_code_of_a_mutant_runs_is_that_of_its_table(tmp_path):
    text = row_of("R-1 write_alone: |\n    wanted = access\n    return wanted.flag")
    (mutant,) = made(tmp_path, text, Device)
    place = "topic.yaml:4:1: write_alone raises AttributeError: 'int' object has no attribute"
    with pytest.raises(UserError, match=place) as raised:
        try_violation(mutant, cases_of("REG-15"))
    assert raised.value.status == 2


@pytest.mark.parametrize("code", ["check(EINVAL) or 0", "|\\n    raise Refused(EINVAL)"])
def test_a_refusal_by_the_code_of_a_mutant_is_no_mistake(tmp_path, code):
    (mutant,) = made(tmp_path, row_of(f"R-1 access_fault: {code}"), Device)
    assert try_violation(mutant, cases_of("REG-15")).broken == ()


def test_a_mutant_can_refuse_a_packet_in_other_words():
    violation = named("nak-of-a-key-says-invalid-request")
    rule = violation.rule
    cases = [case for case in cases_of(rule) if case.id.startswith("wire/first_packets/")]
    assert try_violation(violation, cases, Extent.OWN).outcome == KILLED


def test_the_mistakes_of_all_tables_of_mutants_are_lines_of_their_own(tmp_path):
    (tmp_path / "other.yaml").write_text(row_of("R-1 answer: ["))
    with pytest.raises(UserError) as raised:
        list(made(tmp_path, row_of("R-1 answer: nummer") + "- 3\n"))
    assert [re.sub(r".*?(\w+\.yaml:[\d:]+).*", r"\1", line) for line in raised.value.lines] == [
        "other.yaml:2:15:",
        "topic.yaml:2:15:",
        "topic.yaml:3:3:",
    ]


def test_documents_name_violations_that_exist():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    written = set(re.findall(r" --violation ([a-z][a-z-]+)", "".join(map(Path.read_text, pages))))
    assert written
    assert written <= {violation.name for violation in (*VIOLATIONS, *PERMITTED_VARIANTS)}


def test_several_processes_return_the_findings_of_one_process_in_order():
    few = [violation for violation in VIOLATIONS if violation.rule in ("DEREG-03", "REG-03")]
    cases = cases_of("DEREG-03", "REG-03")
    alone = [try_violation(violation, cases) for violation in few]
    assert list(try_all(few, cases, jobs=2)) == alone
    assert {finding.outcome for finding in alone} == {KILLED}


def test_a_process_that_dies_ends_the_trial_with_the_name_of_the_violation():
    deadly = Violation("deadly", "REG-03", "A registration kills the process.", Deadly)
    with user_error(
        "a process of the trial died during deadly; try each name separately",
        status=3,
    ):
        list(try_all([deadly], cases_of("REG-03"), jobs=1))


def test_a_task_that_takes_long_is_named_while_it_runs(tmp_path):
    noticed = tmp_path / "noticed"

    def task(number: int) -> int:
        await_true(noticed.exists)
        return number

    def waiting(names: Sequence[str]) -> None:
        assert names == ["long"]
        noticed.touch()

    assert list(in_processes(task, ["long"], jobs=1, waiting=waiting)) == [0]


def test_the_progress_of_a_violation_that_survives_is_a_line_each_minute(monkeypatch, capsys):
    now = iter([0.0, 30.0, 61.0, 90.0, 122.0])
    clock = types.SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(violation_runs, "time", clock)
    progress = violation_runs.Progress(2)
    for _ in range(4):
        progress.waiting(["survivor"])
    lines = [f"0 of 2, trying survivor for {seconds} s" for seconds in (61, 122)]
    assert capsys.readouterr().err.splitlines() == lines


def test_an_exception_in_a_process_is_reported_with_the_name_of_the_violation_and_its_place():
    def task(number: int) -> int:
        return {0: 0}[number]

    with pytest.raises(RuntimeError, match="second: KeyError: 1") as caught:
        list(in_processes(task, ["first", "second"], jobs=1))
    assert "return {0: 0}[number]" in "".join(traceback.format_exception(caught.value))


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_sigint_ends_a_trial_and_all_its_processes():
    """One of the processes is stopped before the signal."""
    trial_of_all = [sys.executable, "-P", "-m", "commands", "trial", "personas", "--jobs", "2"]
    # a process that a shell starts in the background ignores SIGINT
    command = ["env", "--default-signal=INT", *trial_of_all]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=die_with_parent(),
    ) as trial:
        await_true(lambda: trial.poll() is not None or len(children(trial.pid)) == 2)
        assert trial.poll() is None
        began = children(trial.pid)
        os.kill(began[0], signal.SIGSTOP)
        time.sleep(0.5)
        trial.send_signal(signal.SIGINT)
        said = trial.communicate(timeout=PATIENCE_S)[1].decode()
    assert trial.returncode == 128 + signal.SIGINT
    assert "Traceback" not in said
    await_true(lambda: not any(map(is_running, began)))


def finding(outcome: str, rule: str = "REG-15") -> Finding:
    by = () if outcome == SURVIVED else ("reg_mr/a/b",)
    return Finding("name", rule, "Does something.", outcome, by, "because", 3)


@pytest.mark.parametrize(
    "outcomes, passed",
    [
        ([KILLED] * 20, True),
        ([KILLED] * 19 + [MISATTRIBUTED], True),
        ([KILLED] * 18 + [MISATTRIBUTED] * 2, False),
        ([KILLED] * 99 + [SURVIVED], False),
    ],
)
def test_a_trial_passes_without_survivors_and_with_few_misattributed(outcomes, passed):
    assert (
        Trial([finding(outcome) for outcome in outcomes], {}, 1.0, "the reference").passed is passed
    )


def test_a_violation_known_as_undetectable_must_survive():
    entry = {"name": "no page says so"}
    survived = Trial([finding(SURVIVED)], {}, 1.0, "the reference", undetected=entry)
    assert survived.passed
    assert "must survive: no page says so" in report.summary(survived)
    detected = replace(survived, findings=[finding(KILLED)])
    assert not detected.passed
    assert "killed        REG-15" in report.summary(detected)


def test_a_report_has_the_kill_ratio_by_rule(tmp_path):
    trial = Trial(
        [finding(KILLED), finding(SURVIVED), finding(KILLED, "REG-16")],
        {"REREG-15": "why"},
        1.0,
        "here",
    )
    report.write(trial, tmp_path)
    assert "| REG-15 | 2 | 1 | 0 | 1 | 50 % |" in (tmp_path / "trial.md").read_text()
    data = json.loads((tmp_path / "trial.json").read_text())
    assert (data["passed"], [finding["outcome"] for finding in data["findings"]]) == (
        False,
        [KILLED, SURVIVED, KILLED],
    )
    assert "survived      REG-15" in report.summary(trial)
    assert "not tried: REREG-15, because why" in report.summary(trial)


def test_each_finding_of_a_trial_is_written_at_once(tmp_path):
    def findings() -> Iterator[Finding]:
        yield finding(KILLED)
        yield finding(SURVIVED)
        raise KeyboardInterrupt

    arguments = Namespace(out=tmp_path / "out", verbose=False)
    with pytest.raises(KeyboardInterrupt):
        violation_runs._shown(arguments, findings(), 3)
    lines = (tmp_path / "out" / report.FINDINGS).read_text().splitlines()
    assert [json.loads(line)["outcome"] for line in lines] == [KILLED, SURVIVED]


def test_a_few_violations_are_tried_by_name(monkeypatch, capsys):
    rules = {
        violation.rule
        for violation in VIOLATIONS
        if violation.name in ("negative-errno", "minus-one")
    }
    tables = (
        replace(table, cases=tuple(cases_of(*rules, suite=replace(SUITE, tables=(table,)))))
        for table in SUITE.tables
    )
    few = replace(SUITE, tables=tuple(tables))
    monkeypatch.setattr("commands.trial.load_suite", lambda: few)
    assert (
        main(
            [
                "trial",
                "reference",
                "--violation",
                "negative-errno",
                "--violation",
                "minus-one",
                "--jobs",
                "1",
            ],
        )
        == 0
    )
    assert "2 violations" in capsys.readouterr().out


@pytest.mark.parametrize(
    "variant",
    [variant for variant in PERMITTED_VARIANTS if not variant.written],
    ids=lambda variant: variant.name,
)
def test_a_permitted_variant_passes_the_cases_of_its_rule(variant):
    """All other cases are tried on the permitted variants every night (.ci/nightly)."""
    finding = try_violation(variant, [case for case in DEFAULT_CASES if variant.rule in case.rules])
    assert (finding.by, finding.broken, finding.reason) == ((), (), "")


def test_permitted_variants_depart_only_from_recommendations():
    departing = [variant for variant in PERMITTED_VARIANTS if variant.departs_from]
    assert departing
    assert {
        SUITE.registry[rule].level for variant in departing for rule in variant.departs_from
    } == {
        "should",
    }


def test_cases_of_a_recommendation_do_not_fail_its_permitted_variant():
    variant = named("local-errors-are-queue-errors")
    cases = [case for case in DEFAULT_CASES if set(case.rules) <= {"STAT-03", "STAT-04"}]
    assert cases
    assert try_violation(variant, cases).by == ()
    assert try_violation(replace(variant, departs_from=()), cases).by


@pytest.mark.parametrize(
    "by, broken, output",
    [(("a/b/c",), (), "a/b/c: why"), ((), ("a/b/d: harness",), "a/b/d: harness"), ((), (), "")],
)
def test_a_permitted_variant_that_fails_or_breaks_a_case_is_a_false_alarm(by, broken, output):
    variant = Finding("any", "REG-21", "About it.", SURVIVED, by, "why" if by else "", 1, broken)
    trial = Trial([], UNTRIABLE, 0.0, "the reference", [variant])
    assert trial.passed is not bool(output)
    assert (f"false alarm: About it. · {output}" in report.summary(trial)) is bool(output)


class Made:
    """The class that the mutants of these tests change."""

    size = 1

    def __init__(self) -> None:
        self.setup()

    def setup(self) -> None:
        """Does nothing: the class has no state."""

    def answer(self, number: int, unit: int = 1) -> int:
        return number * unit * self.size


def made(folder: Path, text: str, kind: type[Any] = Made) -> Iterator[Violation]:
    """Returns the mutants of a package that has this table."""
    (folder / "topic.yaml").write_text(text)
    package = types.ModuleType("package")
    package.__file__ = str(folder / "__init__.py")
    return mutants_of(package, kind, (objects,))


def row_of(text: str) -> str:
    return f"- some-name: A sentence.\n  {text}\n".replace("\\n", "\n")


@pytest.mark.parametrize(
    "row, answer",
    [row for row in rows("mutants_in_tables") if row[1].isdigit()],
)
def test_a_mutant_replaces_members_of_the_class(tmp_path, row, answer):
    (violation,) = made(tmp_path, row_of(row))
    assert (violation.name, violation.rule, violation.about) == ("some-name", "R-1", "A sentence.")
    assert violation.kind().answer(10, 3) == int(answer)


def test_mutants_can_be_permitted_or_blind_and_have_further_rules(tmp_path):
    row = "- one: A sentence.\n  R-1 permitted answer: 7\n- two: Another.\n  R-2 blind answer: 8\n"
    mutants = list(made(tmp_path, row + "  also: [R-3, R-4 blind three]\n"))
    assert [(mutant.name, mutant.rule, mutant.written, mutant.permitted) for mutant in mutants] == [
        ("one", "R-1", "", True),
        ("two", "R-2", "blind", False),
        ("two", "R-3", "", False),
        ("three", "R-4", "blind", False),
    ]


@pytest.mark.parametrize(
    "row, said",
    [row for row in rows("mutants_in_tables") if row[1][0] == ":"],
)
def test_a_mistake_in_a_table_of_mutants_is_located(tmp_path, row, said):
    place, _, message = said.partition(" ")
    with pytest.raises(UserError) as raised:
        list(made(tmp_path, row_of(row)))
    assert place in raised.value.message
    assert message in raised.value.message
