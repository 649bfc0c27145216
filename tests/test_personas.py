"""Tests with violations and personas: no case fails because of a known driver's behaviour, and violations are also
detected on personas. By day, cases run on four personas, and one violation of each rule is tried on the reference. At
night, cases run on every persona, and each violation is tried on one persona. `rdma-cts trial personas` tries each
violation on every persona."""

import json
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache

import pytest

from commands.__main__ import main
from conformance.execution import runner
from conformance.execution.runner import CaseRun, run_case
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.preflight import NOT_OFFERED
from conformance.model.transport import IWARP as IWARP_TRANSPORT
from conformance.model.verdict import VIOLATIONS as OF_A_DEVICE
from conformance.model.verdict import Verdict
from conformance.results.case_record import case_record
from conformance.results.conclusions import exit_status
from conformance.results.new_records import footer_record
from conformance.results.waivers import with_effective
from conformance.tables.carried import is_of_packets
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from recorded_reference import is_dear
from samples import header
from trial import report
from trial.catalogue import UNTRIABLE, VIOLATIONS, VOCABULARY, named
from trial.mutant_table import Violation
from trial.personas.persona import BEHAVIOURS, PERSONAS, Persona
from trial.personas.trying import CleanRun, outcome, run_clean, table, try_on, try_personas
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.report import Trial
from trial.running import on_reference, on_the_reference
from trial.single_cases import violated_by
from trial.trying import KILLED, SURVIVED, finding, try_all, try_violation

BY_NAME = {persona.name: persona for persona in PERSONAS}
# On these personas, no statuses of the InfiniBand specification are required.
IWARP = {"irdma-iwarp", "erdma", "cxgb4", "qedr-iwarp", "siw"}
# By day, cases run on: a persona with all features of InfiniBand, software iWARP, a persona without RC and windows, and
# RoCE without atomics and ibv_query_qp.
BY_DAY = {"mlx5", "siw", "efa", "mana"}
# By day, a persona in this list has the cases of the rules that its driver violates, and a third of the other cases.
THIRDS = ["siw", "efa", "mana"]
AT_NIGHT = "RDMA_CTS_FUZZED" in os.environ
ONE_OF_EACH_RULE = list({violation.rule: violation for violation in VIOLATIONS}.values())


@cache
def cases() -> list[Case]:
    return [case for case in of_tier(load_suite().cases, DEFAULT) if not is_dear(case)]


def cases_on(persona: Persona) -> list[Case]:
    if AT_NIGHT or persona.name not in THIRDS:
        return cases()
    third = {case.id for case in cases()[THIRDS.index(persona.name) :: len(THIRDS)]}
    violated = {*persona.violates}
    return [case for case in cases() if case.id in third or not violated.isdisjoint(case.rules)]


@cache
def clean(name: str) -> CleanRun:
    persona = BY_NAME[name]
    return run_clean(persona, cases_on(persona))


in_turn = pytest.mark.parametrize("persona", PERSONAS, ids=lambda item: item.name)
some_by_day = pytest.mark.parametrize(
    "persona",
    [
        pytest.param(
            persona, id=persona.name, marks=() if persona.name in BY_DAY else pytest.mark.nightly
        )
        for persona in PERSONAS
    ],
)


@some_by_day
def test_a_persona_fails_exactly_the_rules_its_driver_violates(persona):
    outcome_seen = outcome(persona, clean(persona.name))
    assert (outcome_seen.wrong, outcome_seen.passed) == ((), True)
    assert outcome_seen.verdicts[Verdict.PASS] > len(cases_on(persona)) / 20
    assert Verdict.BROKEN not in outcome_seen.verdicts


def test_a_bind_checked_at_access_fails_only_rules_about_its_refusal():
    """The firmware of mlx5 may check a bind only when a peer uses the window, so that an invalid bind succeeds."""
    mlx5 = BY_NAME["mlx5"]
    persona = replace(mlx5, behaves={**mlx5.behaves, "binds-checked-at-access": ""})
    results = run_clean(persona, [case for case in cases() if case.given.windows])
    about = {"BIND-05", "BIND-07", "BIND-10", *mlx5.mistakes}
    assert [(id_, reason) for id_, rules, reason in results.failed if about.isdisjoint(rules)] == []
    assert results.verdicts[Verdict.UNREACHABLE] > 25
    assert results.broken == ()


def test_requests_that_a_fast_device_has_completed_are_no_evidence_about_requests_in_flight(
    monkeypatch,
):
    persona = BY_NAME["mlx5"]
    fast = replace(persona, behaves={**persona.behaves, "completes-at-once": ""})
    racing = []
    for case in cases():
        calls = {step.call for step in (*case.before, case.when)}
        if not calls.isdisjoint({"post_traffic", "traffic_beside", "killed_in_flight"}):
            racing.append(case)
    # Rows about an exporter's buffers compare the bytes after it has revoked or moved them, in flight or not.
    racing = [case for case in racing if "reg_dmabuf_mr" not in case.verb]
    assert {case.when.call for case in racing} > {"traffic_beside", "killed_in_flight"}
    monkeypatch.setattr(runner, "_RACES", 2)  # test_tries_in_flight.py has the number of tries
    usual, quick = clean("mlx5"), run_clean(fast, racing)
    ids = {case.id for case in racing}
    assert len(ids & usual.passed) == quick.verdicts[Verdict.UNREACHABLE] > 5
    assert Verdict.PASS not in quick.verdicts
    failed = tuple(violation for violation in usual.failed if violation[0] in ids)
    assert (quick.failed, quick.broken) == (failed, ())


def test_a_type_that_is_refused_without_errno_is_not_offered():
    assert run_clean(BY_NAME["bnxt_re"], []).findings.pairs["UC"] == NOT_OFFERED


def test_another_process_may_also_read_on_iwarp():
    """Memory that receives the response of a READ needs REMOTE_WRITE on some iWARP devices."""
    persona = BY_NAME["cxgb4"]
    some = [case for case in cases() if case.id.startswith("reg_mr/keys_of_others/second-element")]
    assert len(some) > 2
    ran = run_clean(persona, some)
    assert (ran.failed, ran.broken) == ((), ())


def test_rows_of_a_reset_are_unreachable_if_a_queue_pair_cannot_leave_it():
    some = [case for case in cases() if case.id.startswith("wire/resets/")]
    ran = run_clean(BY_NAME["irdma-e810"], some)
    assert some
    assert (ran.failed, ran.broken, ran.passed) == ((), (), frozenset())


def test_a_passing_case_that_detects_no_violation_is_vacuous():
    persona = BY_NAME["mlx5"]
    some = [case for case in cases() if case.rules == ("REG-22",) and case.kind is Kind.ROW]
    ran = run_clean(persona, some)
    blind = replace(VIOLATIONS[0], kind=Device)
    assert try_on(persona, ran, blind, [some[0].id], some) is None
    killed = finding(blind, KILLED, {some[0].id: "it failed"}, 1)
    ids = [some[0].id, some[1].id]
    assert outcome(persona, ran, [killed], ids).vacuous == (some[1].id,)
    assert outcome(persona, ran, [killed], ids[:1]).vacuous == ()


def test_a_refusal_without_a_granted_control_proves_nothing():
    """mana has no atomics, so that a refused atomic does not show that a right was taken away."""
    name = "reg_mr/modified_access/atomics-taken-away"
    tables = ("reg_mr/modified_access/", "reg_mr/rights/")
    some = [case for case in cases() if case.id.startswith(tables)]
    ran = run_clean(BY_NAME["mana"], some)
    assert name in ran.passed
    assert name in ran.unproven
    assert name not in run_clean(BY_NAME["mlx4"], some).unproven
    assert f"| {len(ran.unproven)} |" in table([outcome(BY_NAME["mana"], ran)])


@in_turn
def test_the_port_of_a_persona_is_chosen_and_has_its_transport(persona):
    transport, chosen = persona.port.begin()
    assert chosen == persona.port.chosen
    assert transport.iba is persona.stack.has("iba_statuses")
    assert (transport is IWARP_TRANSPORT) is (persona.name in IWARP)


@some_by_day
def test_a_device_conforms_if_only_the_kernel_core_violates_rules(persona):
    """A run about the device has exit status 1 only if the driver itself violates a rule, or declares a capability
    that it lacks."""
    failing = {id_ for id_, _, _ in clean(persona.name).failed}
    failed = [case for case in cases() if case.id in failing]
    assert failed
    with closing(ReferenceBench(persona.kind()(persona.stack))) as bench:
        bench.adapt(clean(persona.name).findings)
        run = on_the_reference(bench)
        records = [case_record(run_case(case, run), load_suite().registry) for case in failed]
    for subject, status in (
        ("device", 1 if persona.claims or persona.mistakes else 0),
        ("stack", 1),
    ):
        done = [with_effective(record, header(subject=subject), None) for record in records]
        footer = footer_record(
            [case.id for case in failed],
            done,
            load_suite().registry,
            duration_s=0,
        )
        assert (subject, exit_status(footer)) == (subject, status), [
            record["reason"] for record in done
        ]


@some_by_day
def test_statuses_are_required_only_if_the_transport_defines_them(persona):
    # Points of a model are judged by other rules, too, where no status is defined.
    rows = [case for case in cases() if case.verb != "access"]
    status_cases = [case for case in rows if "STAT-" in " ".join(case.rules)]
    passed = [case for case in status_cases if case.id in clean(persona.name).passed]
    if persona.name in IWARP:
        assert passed == []
    else:
        assert passed or not persona.stack.has("rc")


def test_a_violation_of_each_rule_is_detected():
    """For each violation, cases run until one fails: first the cases of its rule, then all; cheap cases come first."""
    rows_first = sorted(cases(), key=lambda case: case.cost)
    elsewhere = 0
    for violation in ONE_OF_EACH_RULE:
        own_rows = [case for case in rows_first if violation.rule in case.rules]
        if detected(violation, own_rows):
            continue
        elsewhere += 1
        assert detected(violation, rows_first), violation.name
    assert elsewhere <= report.MISATTRIBUTED_AT_MOST * len(ONE_OF_EACH_RULE)


def detected(violation: Violation, cases: Sequence[Case]) -> bool:
    return any(
        judgement.verdict in OF_A_DEVICE for _, judgement in on_reference(cases, violation.kind)
    )


@pytest.mark.nightly
def test_no_violation_of_the_reference_survives_and_few_are_misattributed():
    # Only violations that survive the fast cases are tried with the slow cases.
    slow = [case for case in load_suite().cases if case not in cases()]
    findings = [
        finding if finding.outcome != SURVIVED else try_violation(named(finding.name), slow)
        for finding in try_all(VIOLATIONS, cases())
    ]
    assert [report.line(finding) for finding in findings if finding.outcome == SURVIVED] == []
    assert Trial(findings, UNTRIABLE, 0.0, "the reference").passed


@pytest.mark.nightly
@in_turn
def test_violations_are_killed(persona):
    findings = []
    for violation in VIOLATIONS[PERSONAS.index(persona) :: len(PERSONAS)]:
        killers = try_violation(violation, cases()).by
        findings.append(try_on(persona, clean(persona.name), violation, killers, cases()))
    offered = [finding for finding in findings if finding is not None]
    assert [
        f"{violation.name}: {violation.outcome}"
        for violation in offered
        if violation.outcome != KILLED
    ] == []
    assert offered


def test_a_name_of_the_tables_has_one_meaning():
    """Mutants and behaviours use the names of these modules; the last module with a name would hide the others."""
    meanings: dict[str, tuple[str, object]] = {}
    for module in VOCABULARY:
        if not module.__name__.startswith("trial."):
            continue
        for name, value in vars(module).items():
            if name.startswith("_"):
                continue
            first, meaning = meanings.setdefault(name, (module.__name__, value))
            assert meaning == value, f"{name} of {first} and of {module.__name__}"


@in_turn
def test_every_behaviour_changes_the_reference(persona):
    kinds = persona.kind().__mro__
    behaves = [BEHAVIOURS[name] for name in persona.behaves]
    assert [kind for kind in behaves if kind not in kinds or kind is Device] == []
    assert persona.claims.keys() <= persona.lacks.keys()
    assert persona.hides.keys().isdisjoint(persona.lacks)


@some_by_day
def test_a_masked_violation_fails_no_row_of_its_rule(persona):
    run = clean(persona.name)
    passed = [case for case in cases() if case.id in run.passed and case.kind is Kind.ROW]
    rows = [case for case in passed if not is_of_packets(case)]
    for violation in (violation for violation in VIOLATIONS if violation.name in persona.masked):
        own_rows = [case for case in rows if violation.rule in case.rules]
        judged = on_reference(own_rows, persona.kind(violation.kind), persona.stack, run.findings)
        seen = [case.id for case, judgement in judged if judgement.verdict == Verdict.FAIL]
        assert (violation.name, seen) == (violation.name, [])


def test_a_violation_is_skipped_if_not_offered_and_survives_if_undetected(monkeypatch):
    wraps = named("end-of-a-bind-wraps")
    few = [case for case in cases() if "BIND-17" in case.rules and case.kind is Kind.ROW]
    killers = try_violation(wraps, few).by
    assert killers
    outcomes = {}
    for name in ("mana", "mlx5", "mlx4"):
        run = run_clean(BY_NAME[name], few)
        outcomes[name] = (try_on(BY_NAME[name], run, wraps, killers, few), run)
    assert outcomes["mana"][0] is None  # not offered: mana has no windows
    assert outcomes["mlx5"][0] is None  # masked by a behaviour of the persona
    assert outcomes["mlx4"][0] is not None
    assert outcomes["mlx4"][0].outcome == KILLED
    monkeypatch.setattr(Persona, "masked", frozenset())
    survived = try_on(BY_NAME["mlx5"], outcomes["mlx5"][1], wraps, killers, few)
    assert survived is not None
    assert survived.outcome == SURVIVED
    assert not outcome(BY_NAME["mlx5"], outcomes["mlx5"][1], [survived]).passed


def test_the_command_writes_its_table_and_suggests_personas(tmp_path, monkeypatch, capsys):
    about = {named("one-byte-too-short").rule, *BY_NAME["efa"].violates}
    few = [case for case in cases() if about.intersection(case.rules)]
    monkeypatch.setattr("trial.violation_runs.of_tier", lambda *_: few)
    arguments = ["trial", "personas", "efa", "--violation", "one-byte-too-short", "--jobs", "1"]
    assert main([*arguments, "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0].startswith("| persona | right | wrong | vacuous | BROKEN |")
    data = json.loads((tmp_path / "personas.json").read_text())
    assert [persona["persona"] for persona in data["personas"]] == ["efa"]
    assert (tmp_path / "personas.md").read_text() in text
    assert main(["trial", "personas", "erdma", "--list"]) == 0
    assert "has immediate_data and does not declare it (providers/erdma/" in capsys.readouterr().out


def test_personas_can_be_tried_without_violations():
    mana = BY_NAME["mana"]
    few = [case for case in cases() if not mana.violates.keys().isdisjoint(case.rules)]
    (finding,) = try_personas([mana], [], few, jobs=1)
    assert (finding.passed, finding.findings) == (True, ())


def test_a_sweep_may_fail_only_by_the_expected_rule(monkeypatch):
    persona = BY_NAME["mlx5"]
    (sweep,) = [case for case in cases() if case.id == "bind_mw/rights_space/type-1"]
    ran = run_clean(persona, [sweep])
    assert [rules for _, rules, _ in ran.failed] == [("REG-10",)]
    monkeypatch.setattr("trial.personas.trying.violated_by", _another_rule)
    (wrong, *_) = outcome(persona, run_clean(persona, [sweep])).wrong
    assert wrong.startswith("bind_mw/rights_space/type-1: ")


def _another_rule(done: CaseRun) -> frozenset[str]:
    return violated_by(done) | {"BIND-09"}


def test_a_device_may_refuse_requests_and_receives_in_the_error_state():
    """On cxgb4, and a READ is refused there if its local memory lacks REMOTE_WRITE."""
    cxgb4 = BY_NAME["cxgb4"]
    names = {
        "access/model/slice",
        "reg_mr/requester_fields/of-four-reads-of-which-the-third-is-refused",
    }
    ran = run_clean(cxgb4, [case for case in cases() if case.id in names])
    assert sum(ran.verdicts.values()) == len(names)
    unexpected = [reason for _, rules, reason in ran.failed if not {*rules} & {*cxgb4.violates}]
    assert (unexpected, ran.broken) == ([], ())
