"""Runs cases on a bench in this process and judges them: the suite without pytest, results file or supervisor."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from conformance import judging
from conformance.bench.interface import Bench
from conformance.execution.context import Observation
from conformance.execution.procedure import accounted, execute
from conformance.judging import Judgement
from conformance.model.capability import REACH, Capabilities
from conformance.model.case import Case
from conformance.model.verdict import Verdict
from conformance.sweeps.run import sweep
from reference.bench import ReferenceBench
from reference.device import Device
from reference.stack import STACKS, Stack
from trial.searching import FIRST_SEED, for_sequences, observe

# Of random sequences; a case that takes them is worth a few dozen others.
_SEQUENCES = 20


def run_case(case: Case, bench: Bench, capabilities: Capabilities) -> Judgement:
    """The judgement on one case; what the harness itself cannot do is BROKEN, as in a run."""
    unreachable = capabilities.unreachable(case.needs, case.entry)
    if unreachable:
        return Judgement(Verdict.UNREACHABLE, unreachable)
    try:
        if case.sweep and case.point is None:
            swept = sweep(case, bench, capabilities)
            return Judgement(swept.verdict, swept.reason)
        if case.sweep:
            case = case.sweep.judged(case, lambda name: not capabilities.undeclared([name], case.entry))
        observed = observed_of(case, bench, capabilities)
    except Exception as error:
        return Judgement(Verdict.BROKEN, f"the harness could not run the case: {type(error).__name__}: {error}")
    return judging.judge(case, capabilities.undeclared(case.needs, case.entry), observed)


def observed_of(case: Case, bench: Bench, capabilities: Capabilities) -> Observation:
    """What running a case gives, as a run records it."""
    if case.searches:
        return accounted(bench, lambda: observe(case, bench, capabilities, for_sequences(_SEQUENCES), FIRST_SEED))
    return execute(case, bench)


def stack_for(case: Case) -> Stack | None:
    """The first of the reference's stacks that reaches what a case needs; None if none does."""
    needed = [need for need in case.needs if need in REACH]
    return next((stack for stack in STACKS if all(stack.reach(need) for need in needed)), None)


def on_reference(
    cases: Iterable[Case], kind: type[Device] = Device, only: Stack | None = None
) -> Iterator[tuple[Case, Judgement]]:
    """Each case on a reference of a kind: on a fresh one for each stack, or on the stack `only`."""
    grouped: dict[Stack, list[Case]] = {}
    for case in cases:
        stack = only or stack_for(case) or STACKS[0]
        grouped.setdefault(stack, []).append(case)
    for stack, chosen in grouped.items():
        with closing(ReferenceBench(kind(stack))) as bench:
            capabilities = bench.capabilities()
            for case in chosen:
                yield case, run_case(case, bench, capabilities)
