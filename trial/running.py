"""Runs cases on a bench in this process with the engine's runner, without pytest, a results file or a supervisor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager

from conformance.bench.interface import Bench
from conformance.combinations.runners import RUNNERS
from conformance.execution.runner import (
    Progress,
    RunContext,
    Unwatched,
    Watch,
    no_progress,
    run_case,
)
from conformance.judging import Basis, Judgement, broken
from conformance.judging.combinations import Judged, verdicts_of_rules
from conformance.model.capability import PRECONDITIONS, Capabilities
from conformance.model.case import Case
from conformance.model.preflight import Findings
from conformance.model.verdict import VIOLATIONS
from conformance.sweeps.run import SweepRun
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.stack import OF_STREAMS, STACKS, Stack


def run_context(
    bench: Bench,
    capabilities: Capabilities,
    watch: Watch,
    seed: int | None = None,
) -> RunContext:
    """Returns the context of cases on a bench, without a profile."""
    return RunContext(bench, Basis(capabilities), watch, RUNNERS, seed)


def on_the_reference(bench: ReferenceBench) -> RunContext:
    """Returns the context of cases on a reference. There is no kernel log to watch."""
    return run_context(bench, bench.capabilities(), Unwatched())


def judgement_on(case: Case, run: RunContext) -> Judgement:
    """Returns the judgement on one case. An exception of the harness is BROKEN, as in a run."""
    return violations_by(case, run)[1]


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
    seen = done.observation.get("combinations")
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
    else:
        if done.judgement.verdict in VIOLATIONS:
            rules = list(case.rules)
        else:
            rules = []
    return frozenset(rules), done.judgement


def stack_for(case: Case) -> Stack | None:
    """Returns the first stack of the reference that meets the needs of a case, or None."""
    if "iwarp" in case.needs:
        return OF_STREAMS
    needed = [need for need in case.needs if need in PRECONDITIONS]
    for stack in STACKS:
        if all(stack.reach(need) for need in needed):
            return stack
    return None


@contextmanager
def _reference(
    kind: type[Device],
    stack: Stack,
    findings: Findings | None = None,
) -> Iterator[RunContext]:
    """Yields the context of cases on a reference of the class `kind`."""
    with closing(ReferenceBench(kind(stack))) as bench:
        if findings is not None:
            bench.adapt(findings)
        yield on_the_reference(bench)


def on_reference(
    cases: Iterable[Case],
    kind: type[Device] = Device,
    only: Stack | None = None,
    findings: Findings | None = None,
) -> Iterator[tuple[Case, Judgement]]:
    """Runs each case on a reference of the class `kind`: one reference for each stack, or only on the stack `only`.
    `findings` has the findings of preflight on a persona, to which the bench is adapted."""
    grouped: dict[Stack, list[Case]] = {}
    for case in cases:
        stack = only or stack_for(case) or STACKS[0]
        grouped.setdefault(stack, []).append(case)
    for stack, chosen in grouped.items():
        with _reference(kind, stack, findings) as run:
            for case in chosen:
                yield case, judgement_on(case, run)
