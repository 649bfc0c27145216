"""Runs one case on a bench in this process with the engine's runner, without pytest, a results file or a supervisor. Guests
of mutants run this module, and have no reference."""

from __future__ import annotations

from conformance.bench.interface import Bench
from conformance.combinations.runners import RUNNERS
from conformance.execution.runner import (
    CaseRun,
    Progress,
    RunContext,
    Watch,
    no_progress,
    run_case,
)
from conformance.judging import Basis, Judgement, broken
from conformance.judging.combinations import Judged, verdicts_of_rules
from conformance.model.case import Case
from conformance.model.declared import Capabilities
from conformance.model.verdict import VIOLATIONS
from conformance.sweeps.run import SweepRun


def run_context(
    bench: Bench,
    capabilities: Capabilities,
    watch: Watch,
    seed: int | None = None,
) -> RunContext:
    """Returns the context of cases on a bench, without a profile."""
    return RunContext(bench, Basis(capabilities), watch, RUNNERS, seed)


def violations_by(
    case: Case,
    run: RunContext,
    progress: Progress = no_progress,
) -> tuple[frozenset[str], Judgement]:
    """Returns the rules that a case, or the points of a sweep, report as violated, and the judgement."""
    try:
        done = run_case(case, run, progress)
    except Exception as error:
        return frozenset(), broken(error)  # the harness is at fault
    return violated_by(done), done.judgement


def violated_by(done: CaseRun) -> frozenset[str]:
    """Returns the rules that a case, or the points of a sweep, report as violated."""
    case, seen = done.case, done.observation.get("combinations")
    if seen is not None and case.array is not None:
        fault = done.judgement.fault
        kind = str(fault.kind) if fault else ""
        judged = Judged(case.array, seen)
        verdicts = verdicts_of_rules(case.rules, done.judgement.verdict, kind, judged)
        rules = [rule for rule, verdict in verdicts.items() if verdict in VIOLATIONS]
    elif isinstance(done, SweepRun) and not done.result.alarms:
        rules = [
            rule for rule, verdict in done.result.points.by_rule().items() if verdict in VIOLATIONS
        ]
    elif done.judgement.verdict in VIOLATIONS:
        rules = list(case.rules)
    else:
        rules = []
    return frozenset(rules)
