"""Runs one case: makes its calls, watches the kernel meanwhile, and judges what came.

The one way to run a case, and free of pytest: the plugin, the trial and the tests call `run_case`, each with its own
RunContext. Which runner a kind of case has is in sweeps/runners.py. Not for the calls themselves (procedure.py), and
not for what becomes of a result (results/).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from conformance.bench.interface import Bench
from conformance.execution.api_comparison import observe_api
from conformance.execution.context import CaseContext
from conformance.execution.procedure import set_up, set_up_and_call
from conformance.judging import Basis, Judgement, conclude
from conformance.kernel.resources import count_when_settled, leaked, resource_evidence
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.observation import KernelEvidence, Observation
from conformance.model.verdict import Verdict


class Watch(Protocol):
    """What looks at the kernel while cases run (kernel/log.py)."""

    def since_last(self) -> KernelEvidence:
        """What the kernel showed since the last call."""
        ...


class Unwatched:
    """The watch of cases that no kernel takes part in, as those on the reference."""

    def since_last(self) -> KernelEvidence:
        """Nothing."""
        return {}


class Progress(Protocol):
    """What is told, at times, which part of a long case comes next."""

    def __call__(self, point: str, done: int, **more: str) -> None:
        """`point` is the name of what comes next, `done` how many parts are done.

        Of random sequences `more` has the sequence as a `row` and the nearest `rule` of its last step.
        """
        ...


def no_progress(point: str, done: int, **more: str) -> None:
    """For a run that nobody follows."""


@dataclass(frozen=True)
class CaseRun:
    """What came of running a case. `case` is the case as it was judged, which is a row for a point of a sweep."""

    case: Case
    judgement: Judgement
    observation: Observation
    kernel: KernelEvidence
    duration_us: int


@dataclass(frozen=True)
class RunContext:
    """What the cases of a run have in common. `runners` has a runner for each kind of case; `seed` shuffles points."""

    bench: Bench
    basis: Basis
    watch: Watch
    runners: Mapping[Kind, KindRunner]
    seed: int | None = None


# Runs a reachable case of one kind.
KindRunner = Callable[[Case, RunContext, Progress], CaseRun]


def run_case(case: Case, run: RunContext, progress: Progress = no_progress) -> CaseRun:
    """Runs a case of any kind. What the harness itself cannot do is raised (see judging.broken)."""
    case = run.basis.resolved(case)  # the point of a sweep is a row from here on
    run.watch.since_last()  # what the kernel showed between the cases is not of this one
    unreachable = run.basis.capabilities.unreachable(case.needs, case.entry)
    if unreachable:
        return CaseRun(case, Judgement(Verdict.UNREACHABLE, unreachable), {}, run.watch.since_last(), 0)
    return run.runners[case.kind](case, run, progress)


def run_calls(case: Case, run: RunContext, progress: Progress) -> CaseRun:
    """Runs the calls of a row."""
    return run_observing(case, run, lambda: set_up_and_call(CaseContext(case, run.bench), set_up))


def run_api(case: Case, run: RunContext, progress: Progress) -> CaseRun:
    """Runs a comparison with the installed header and bindings. A compiler at work is progress, not a hang."""
    waits = itertools.count(1)
    return run_observing(case, run, lambda: observe_api(case, run.bench, lambda: progress("the compiler", next(waits))))


def run_observing(case: Case, run: RunContext, observe: Callable[[], Observation]) -> CaseRun:
    """Runs a case by `observe`, and judges what that gives together with what the kernel shows and counts.

    What is still counted afterwards and was not before is added to the observation's `left_behind`.
    """
    started = time.perf_counter_ns()
    before = run.bench.resources()
    observed = observe()
    after = count_when_settled(before, run.bench.resources)
    duration_us = (time.perf_counter_ns() - started) // 1000
    left = leaked(before, after)
    if left:
        observed.setdefault("left_behind", []).append(left)
    kernel = run.watch.since_last() | resource_evidence(before, after)
    conclusion = conclude(case, run.basis, observed, kernel)
    return CaseRun(case, conclusion.judgement, conclusion.observation, kernel, duration_us)
