"""Runs one case: issues its calls, watches the kernel, and judges the observation. The plugin, the trial and the tests
all run cases with `run_case`, each with its own RunContext. combinations/runners.py has the runner of each kind of case, and
procedure.py issues the calls."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from conformance.bench.interface import Bench
from conformance.errors import DeviceSilent, HostLacks
from conformance.execution.context import CaseContext
from conformance.execution.procedure import set_up, set_up_and_call
from conformance.execution.wire import silent
from conformance.header import FAIL, NOT_COVERED, PASS, Check
from conformance.judging import Basis, Judgement, conclude
from conformance.judging.chance import SURE, chance_of_hits
from conformance.judging.steps import was_in_flight, was_too_fast
from conformance.kernel.module_memory import ModuleMemory
from conformance.kernel.resources import Counts, count_when_settled, kept, leaked, resource_evidence
from conformance.model.capability import PRECONDITIONS
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.observation import KernelEvidence, Observation, TriesInFlight, UnfreedMemory
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.model.vocabulary import WIRE


class Watch(Protocol):
    """Observes the kernel while cases run (kernel/log.py)."""

    def since_last(self) -> KernelEvidence:
        """Returns the kernel's log and taint since this method was last called."""
        ...


class Unwatched:
    """A watch for cases that do not involve a kernel, such as cases on the reference implementation."""

    def since_last(self) -> KernelEvidence:
        return {}


class Progress(Protocol):
    """A callback that a long case calls regularly."""

    def __call__(self, point: str, done: int) -> None:
        """`point` is the name of the next part of the case, and `done` is the number of finished parts."""
        ...


def no_progress(point: str, done: int) -> None:
    """Ignores the progress."""


@dataclass(frozen=True)
class CaseRun:
    """A case that has been run. Its judgement is NOT_JUDGED if the supervisor will judge it. `case` is the case that
    was judged: for a point of a sweep, the table row for this point."""

    case: Case
    judgement: Judgement
    observation: Observation
    kernel: KernelEvidence
    duration_us: int


NOT_JUDGED = Judgement("", "")
# How often a case with requests in flight is tried at most until they are in flight during its call. With one emulated
# processor, the kernel may complete all requests before the program runs again. After _SLOW_RACES tries, it is tried
# again only while all tries together have lasted less than _RACES_S.
_RACES, _SLOW_RACES, _RACES_S = 32, 8, 0.5
# How often the requests of such a case are in flight at most. A violation may depend on the moment of the call: two runs
# then agree more often.
_OVERLAPS = 4
_KILLED_OVERLAPS = 2  # if each try starts a process, which takes ten times as long as another try
# How often it is tried with requests in flight after a violation, while all tries have not lasted so long and the hits do
# not yet tell the stack from one without a hit in its tries, as hits in four of five tries finally do (reports/races.py).
_TRIES_OF_HIT, _TRIES_OF_HIT_S = 32, 3.0


class LastCounts:
    """Stores the kernel's counts after the last case if that case has not changed the counts. The next case then needs
    no count before its calls: in an emulated guest, counting takes as long as creating a pair of queue pairs."""

    def __init__(self) -> None:
        self._known: tuple[Bench, Counts] | None = None

    def take(self, bench: Bench) -> Counts:
        """Returns the counts before a case, and discards the stored counts."""
        kernel_log, self._known = self._known, None
        if kernel_log and kernel_log[0] is bench:
            return kernel_log[1]
        return bench.resources()

    def keep(self, bench: Bench, before: Counts, after: Counts) -> None:
        """Stores the counts after a case if they have not changed. If they have, a change may still be in progress."""
        self._known = (bench, after) if after == before else None


@dataclass(frozen=True)
class RunContext:
    """The data that all cases of a run share. `runners` has the runner of each kind of case; `seed` shuffles the points
    of sweeps. `memory` is None on a kernel that does not count the memory of its modules. If `only_observes`, the
    supervisor judges the rows, because judging a row in an emulated guest takes as long as the row's calls."""

    bench: Bench
    basis: Basis
    watch: Watch
    runners: Mapping[Kind, KindRunner]
    seed: int | None = None
    last_counts: LastCounts = field(default_factory=LastCounts)
    memory: ModuleMemory | None = None
    only_observes: bool = False

    def run_of(
        self,
        case: Case,
        observed: Observation,
        kernel: KernelEvidence,
        duration_us: int,
    ) -> CaseRun:
        """Returns the run of a case. Judges the observation if no supervisor judges it."""
        if self.only_observes:
            judged = (NOT_JUDGED, observed)
        else:
            judged = conclude(case, self.basis, observed, kernel)
        return CaseRun(case, *judged, kernel, duration_us)

    def unfreed(self, repeat: Callable[[], object], progress: Progress) -> list[UnfreedMemory]:
        """Returns the memory that kernel modules have leaked in a case. `repeat` runs the case once more."""

        def again(number: int) -> None:
            progress(f"repetition {number}", number)
            repeat()

        if self.memory:
            return self.memory.leaked_by(again)
        return []


# Runs a case of one kind. The preconditions of the case are met.
KindRunner = Callable[[Case, RunContext, Progress], CaseRun]


def run_case(case: Case, run: RunContext, progress: Progress = no_progress) -> CaseRun:
    """Runs a case of any kind. Failures of the harness are raised as exceptions (see judging.broken).

    If the host lacks something that the set-up needs, the case is UNREACHABLE, and the reason describes how to provide
    it. If the device also lacks a needed capability, the reason begins with the capability: without the capability, the
    case would not verify the rule on any host.
    """
    case = run.basis.resolved(case)  # a point of a sweep becomes a row
    run.watch.since_last()  # discards messages from before the case
    unmet = run.basis.capabilities.unmet(case.needs, case.entry)
    if unmet:
        reasons = "; ".join(PRECONDITIONS[name] for name in unmet)
        return _not_run(case, run, {"unreachable": reasons, "precondition": unmet})
    try:
        return run.runners[case.kind](case, run, progress)
    except HostLacks as error:
        if isinstance(error, DeviceSilent) and case.when.call == WIRE:
            return _not_run(case, run, silent())
        undeclared = run.basis.capabilities.undeclared(_needs(case), case.entry)
        absent = f"the device does not declare {', '.join(undeclared)}, and this host lacks what a trial needs: "
        return _not_run(case, run, {"unreachable": f"{absent if undeclared else ''}{error}"})
    except (ImportError, AttributeError) as error:
        from conformance.device.bindings import lacking_binding  # slow, and seldom needed

        lacking = lacking_binding(error)
        if not lacking:
            raise
        return _not_run(case, run, {"no_binding": lacking})


def _not_run(case: Case, run: RunContext, observed: Observation) -> CaseRun:
    """Returns a CaseRun for a case that cannot be run here. The observation contains the reason, so that the case can
    be judged again elsewhere."""
    return run.run_of(case, observed, run.watch.since_last(), 0)


def _needs(case: Case) -> list[str]:
    """Returns the capabilities without which the case cannot verify a rule. For a sweep, these include the capabilities
    that all its rules need."""
    if case.sweep is None:
        return list(case.needs)
    common, *others = case.sweep.needs_of.values()
    for needs in others:
        common = tuple(need for need in common if need in needs)
    return [*case.needs, *common]


def run_calls(case: Case, run: RunContext, progress: Progress) -> CaseRun:
    def attempt() -> Observation:
        return set_up_and_call(CaseContext(case, run.bench, progress), set_up)

    return run_observing(case, run, lambda: _raced(case, run, attempt), progress)


def _raced(case: Case, run: RunContext, attempt: Callable[[], Observation]) -> Observation:
    """Returns the observation of a case. If its requests are in flight during its call, it is tried until it shows a
    violation, at most _OVERLAPS or _KILLED_OVERLAPS times. After a violation, which counts, it is tried on."""
    most = _KILLED_OVERLAPS if case.when.call == "killed_in_flight" else _OVERLAPS
    began = time.monotonic()
    tries: TriesInFlight = {"hits": 0, "of": 0}
    kept: Observation | None = None
    for number in range(_RACES):
        if number >= _SLOW_RACES and time.monotonic() >= began + _RACES_S:
            break
        seen = attempt()
        if was_too_fast(seen):
            continue
        kept = seen
        if not was_in_flight(seen):
            break
        verdict = conclude(case, run.basis, seen)[0].verdict
        if verdict in VIOLATIONS:
            tries["hits"] += 1
        if verdict in (Verdict.PASS, *VIOLATIONS):
            tries["of"] += 1
        if verdict != Verdict.PASS or tries["of"] == most:
            break
    if tries["hits"]:
        _try_on(case, run, attempt, tries, most, began + _TRIES_OF_HIT_S)
    if kept is None:
        return seen
    return {**kept, "in_flight": tries} if tries["of"] else kept


def _try_on(
    case: Case,
    run: RunContext,
    attempt: Callable[[], Observation],
    tries: TriesInFlight,
    without: int,
    until: float,
) -> None:
    """Counts further tries of a case that has shown a violation, until its hits tell this stack from one that has no hit in
    `without` tries."""
    while tries["of"] < _TRIES_OF_HIT and time.monotonic() < until:
        if chance_of_hits(tries["hits"], tries["of"], without) <= SURE:
            return
        try:
            seen = attempt()
            verdict = conclude(case, run.basis, seen)[0].verdict
        except Exception:  # the violation counts, whatever happens after it
            return
        if was_too_fast(seen):
            continue
        if verdict not in (Verdict.PASS, *VIOLATIONS):
            return
        tries["hits"] += verdict in VIOLATIONS
        tries["of"] += 1


def run_api(case: Case, run: RunContext, progress: Progress) -> CaseRun:
    """Runs a comparison with the installed header and bindings. While the compiler runs, progress is reported, so that
    the case does not count as hung."""
    waits = itertools.count(1)
    return run_observing(
        case,
        run,
        lambda: _observe_api(case, run.bench, lambda: progress("the compiler", next(waits))),
        progress,
    )


def _observe_api(case: Case, bench: Bench, waiting: Callable[[], None]) -> Observation:
    """Returns the checks on the enumeration, struct or prototype that `case` names, as an observation. `waiting` is
    called repeatedly while the compiler runs. If no checks exist because the header or a compiler is missing,
    `unreachable` of the observation has the reason."""
    item = str(case.when.arguments["item"])
    all_checks = bench.api_checks(waiting)
    checks = [check for check in all_checks if _is_about(check.item, item)]
    seen: dict[str, list[Check]] = {PASS: [], FAIL: [], NOT_COVERED: []}
    for check in checks:
        if check.outcome in seen:
            seen[check.outcome].append(check)
    if seen[FAIL]:
        returned = "differs"
    elif seen[PASS]:
        returned = "0"
    else:
        returned = "nothing"
    observation: Observation = {"rc": None, "returned": returned, "errno": "", "layer": "header"}
    observation["checks"] = {outcome: len(answer) for outcome, answer in seen.items()}
    if seen[FAIL]:
        observation["differences"] = [_format_check(check) for check in seen[FAIL]]
    if seen[NOT_COVERED]:
        observation["not_covered"] = [_format_check(check) for check in seen[NOT_COVERED]]
    if returned == "nothing":
        reasons = [check.reason for check in checks or all_checks if check.reason]
        observation["unreachable"] = (
            reasons[0] if reasons else f"nothing installed could be compared with {item}"
        )
    return observation


def _format_check(check: Check) -> str:
    return f"{check.item}: {check.reason} ({check.found})"


def _is_about(check: str, item: str) -> bool:
    """Whether a check is about the item or a part of the item."""
    return check == item or (
        check.startswith((f"{item}.", f"{item} ")) and not check.endswith("(experimental)")
    )


def run_observing(
    case: Case,
    run: RunContext,
    observe: Callable[[], Observation],
    progress: Progress,
) -> CaseRun:
    """Runs a case with `observe`, and judges the observation together with the kernel's evidence. If kernel resources
    have leaked, adds them to `left_behind` of the observation."""
    started = time.perf_counter_ns()
    before = run.last_counts.take(run.bench)
    observed = observe()
    after = count_when_settled(before, run.bench.resources)
    run.last_counts.keep(run.bench, before, after)
    duration_us = (time.perf_counter_ns() - started) // 1000
    leak = leaked(before, after)
    if leak:
        observed.setdefault("left_behind", []).append(leak)
    if remark := kept(before, after):
        observed.setdefault("remarks", []).append(remark)
    unfreed = run.unfreed(observe, progress)
    kernel = run.watch.since_last() | resource_evidence(before, after)
    if unfreed:
        kernel["unfreed"] = unfreed
    return run.run_of(case, observed, kernel, duration_us)
