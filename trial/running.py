"""Runs cases on the reference in this process, with the engine's runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from conformance.execution.runner import RunContext, Unwatched
from conformance.judging import Judgement
from conformance.model.capability import PRECONDITIONS
from conformance.model.case import Case
from conformance.model.preflight import Findings
from trial.mutant_code import refuse_mistakes
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.stack import OF_STREAMS, STACKS, Stack
from trial.single_cases import run_context, violations_by


def on_the_reference(bench: ReferenceBench) -> RunContext:
    """Returns the context of cases on a reference. There is no kernel log to watch."""
    return run_context(bench, bench.capabilities(), Unwatched())


def judgement_on(case: Case, run: RunContext) -> Judgement:
    """Returns the judgement on one case. An exception of the harness is BROKEN, as in a run."""
    return violations_by(case, run)[1]


def stack_for(case: Case) -> Stack | None:
    """Returns the first stack of the reference that meets the needs of a case, or None."""
    if "iwarp" in case.needs:
        return OF_STREAMS
    needed = [need for need in case.needs if need in PRECONDITIONS]
    for stack in STACKS:
        if all(stack.reach(need) for need in needed):
            return stack
    return None


def on_reference(
    cases: Iterable[Case],
    kind: type[Device] = Device,
    only: Stack | None = None,
    findings: Findings | None = None,
) -> Iterator[tuple[Case, Judgement]]:
    """Runs each case on a reference of the class `kind`: one reference for each stack, or only on the stack `only`.
    `findings` has the findings of preflight on a persona, to which the bench is adapted. Raises UserError for a mistake
    in the code of a mutant: the harness takes it for a failure of its own."""
    grouped: dict[Stack, list[Case]] = {}
    for case in cases:
        stack = only or stack_for(case) or STACKS[0]
        grouped.setdefault(stack, []).append(case)
    for stack, chosen in grouped.items():
        device = kind(stack)
        with closing(ReferenceBench(device)) as bench:
            if findings is not None:
                bench.adapt(findings)
            run = on_the_reference(bench)
            for case in chosen:
                judgement = judgement_on(case, run)
                refuse_mistakes(device)
                yield case, judgement
