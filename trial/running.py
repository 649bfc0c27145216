"""Runs cases on a bench in this process, without pytest, results file or supervisor, by the engine's own runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing

from conformance.bench.interface import Bench
from conformance.execution.runner import Progress, RunContext, Unwatched, Watch, run_case
from conformance.judging import Basis, Judgement, broken
from conformance.model.capability import PRECONDITIONS, Capabilities
from conformance.model.case import Case
from conformance.model.observation import Observation
from conformance.sweeps.runners import runners
from reference.bench import ReferenceBench
from reference.device import Device
from reference.stack import STACKS, Stack
from trial.searching import FIRST_SEED, for_sequences, observe

# Of random sequences; a case that takes them is worth a few dozen others.
_SEQUENCES = 20


def run_context(bench: Bench, capabilities: Capabilities, watch: Watch) -> RunContext:
    """What cases on this bench have in common: no profile, and few random sequences."""

    def random_sequences(case: Case, progress: Progress) -> Observation:
        return observe(case, bench, capabilities, for_sequences(_SEQUENCES), FIRST_SEED, progress)

    return RunContext(bench, Basis(capabilities), watch, runners(random_sequences))


def on_the_reference(bench: ReferenceBench) -> RunContext:
    """What cases on a reference have in common: no kernel takes part in them, so none is watched."""
    return run_context(bench, bench.capabilities(), Unwatched())


def judgement_on(case: Case, run: RunContext) -> Judgement:
    """The judgement on one case; what the harness itself cannot do is BROKEN, as in a run."""
    try:
        return run_case(case, run).judgement
    except Exception as error:
        return broken(error)


def stack_for(case: Case) -> Stack | None:
    """The first of the reference's stacks that reaches what a case needs; None if none does."""
    needed = [need for need in case.needs if need in PRECONDITIONS]
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
            run = on_the_reference(bench)
            for case in chosen:
                yield case, judgement_on(case, run)
