"""Runs a sweep: creates one set-up for all points that share it, and observes each point. execution/steps.py executes
the calls, as for a row; judging.py judges the points."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from conformance.bench.interface import Pair
from conformance.device.native_exchange import MAX_BATCH
from conformance.errors import SetupRefused
from conformance.execution import procedure
from conformance.execution.context import CaseContext
from conformance.execution.runner import (
    CaseRun,
    Progress,
    RunContext,
)
from conformance.execution.traffic import again_if_lost, is_lost
from conformance.judging import Judgement, memory_leak
from conformance.judging.kernel_alarms import kernel_alarm
from conformance.judging.sentences import sentence
from conformance.kernel.resources import count_when_settled, leaked
from conformance.model.case import Case
from conformance.model.fault import Fault, FaultKind
from conformance.model.observation import Alarm, Observation
from conformance.model.sweep import Sweep
from conformance.model.verdict import VIOLATIONS
from conformance.older_python import zip
from conformance.sweeps import grouping
from conformance.sweeps.grouping import Group, PointNumbers, PointTemplate
from conformance.sweeps.judging import PointJudge, SweepResult, conclusion_of
from conformance.sweeps.outcome import PointObservations, Points
from conformance.sweeps.registration_loop import loop_for

# The minimum number of points between two checks of the kernel's log and counters, each with a progress report.
CHECK_INTERVAL = 512
# After this many seconds without a report, progress is also reported between two checks.
PROGRESS_S = 5.0
_LOG_LINES = 40
# The maximum number of points at which operations with lost messages are repeated. More losses do not happen by chance.
_MOST_LOST = 64


@dataclass(frozen=True)
class SweepRun(CaseRun):
    """A sweep that has been run. Its observations are the examples in `result.points`."""

    result: SweepResult


def run_sweep(case: Case, run: RunContext, progress: Progress) -> SweepRun:
    """Runs the sweep of `case`. Calls `progress` regularly with a point and the number of finished points."""
    started = time.perf_counter_ns()
    assert case.sweep is not None
    sweep = case.sweep
    sweep_pass = _SweepPass(case, sweep, run, progress)
    judge = sweep_pass.judge
    sweep_pass.run_all(run.seed)
    points = judge.points(sweep_pass.record)
    if sweep_pass.try_lost_again(points):
        points = judge.points(sweep_pass.record)
    if unfreed := run.unfreed(
        lambda: _SweepPass(case, sweep, run, progress).run_all(run.seed),
        progress,
    ):
        sweep_pass.alarm(memory_leak(unfreed), 0, sweep.space.size - 1)
    result = conclusion_of(case, points, sweep_pass.alarms, sweep_pass.log)
    duration_us = (time.perf_counter_ns() - started) // 1000
    return SweepRun(
        case,
        Judgement(result.verdict, result.reason),
        {},
        result.kernel,
        duration_us,
        result,
    )


class _SweepPass:
    """One run of all points. `record` has their observations; `alarms` and `log` are as in SweepResult."""

    def __init__(self, case: Case, sweep: Sweep, run: RunContext, progress: Progress) -> None:
        self.case, self.sweep, self.bench, self.watch, self.progress = (
            case,
            sweep,
            run.bench,
            run.watch,
            progress,
        )
        self.record = PointObservations(sweep.space.size)
        self.judge = PointJudge(case, sweep, run.basis)
        self.point_template = PointTemplate(case, sweep)
        self.alarms: list[Alarm] = []
        self.log: list[str] = []
        # the numbers of points that were run before and after the latest check
        self.done = self.ran = 0
        self.reported_at = 0.0
        self.loop = loop_for(case, sweep, self.bench.entry(case.entry))
        self.outer = self.loop.outer if self.loop else grouping.setup_axes(sweep)
        self.shared = (
            self.loop is None and case.given.memlock is None and grouping.shares_base(sweep)
        )
        if not self.shared:
            self.set_up = procedure.set_up
        elif sweep.tries:
            self.set_up = procedure.set_up_try
        else:
            self.set_up = procedure.set_up_objects
        self.base: CaseContext | None = None
        # whether the queue pairs of the base objects were used since their latest renewal
        self.pairs_used = True
        self.before = run.last_counts.take(self.bench)

    def run_all(self, seed: int | None) -> None:
        """Runs all points; tries only until one of them violates a rule. Points with the same set-up are run one after
        the other."""
        first, last = 0, 0
        if self.loop:
            largest = grouping.MAX_GROUP_IN_C
        else:
            largest = grouping.MAX_GROUP
        try:
            for group in grouping.groups(self.sweep, self.outer, seed, largest):
                if not self.ran:
                    first = group.points[0]
                    self._report(first, self.done)
                    self.watch.since_last()  # older kernel messages do not belong to these points
                self._group(group)
                last, self.ran = group.points[-1], self.ran + len(group.points)
                if self.ran >= CHECK_INTERVAL:
                    self._end_interval(first, last)
                else:
                    self._report_in_time(last, 0)
                if self.sweep.tries and self.judge.violated(self.record):
                    break
            if self.ran:
                self._end_interval(first, last)
        finally:
            self._release_base()

    def _report(self, point: int, done: int) -> None:
        self.progress(self.sweep.space.text(point), done)
        self.reported_at = time.monotonic()

    def _report_in_time(self, point: int, done: int) -> None:
        """Reports progress if the last report was long ago. `point` was run last; `ran` lacks `done` points."""
        if time.monotonic() - self.reported_at >= PROGRESS_S:
            self._report(point, self.done + self.ran + done)

    def _end_interval(self, first: int, last: int) -> None:
        leaks = self._release_base()
        if leaks:
            self.alarm(Fault(FaultKind.LEAKED, seen=tuple(leaks)), first, last)
        self.done, self.ran = self.done + self.ran, 0
        kernel = self.watch.since_last()
        self.log += list(kernel.get("log", ()))[: max(0, _LOG_LINES - len(self.log))]
        after = count_when_settled(self.before, self.bench.resources)
        if alarm := kernel_alarm(kernel):
            self.alarm(alarm, first, last)
        if leak := leaked(self.before, after):
            self.alarm(Fault(FaultKind.LEAKED, seen=(leak,)), first, last)
        self.before = after

    def alarm(self, fault: Fault, first: int, last: int) -> None:
        text = self.sweep.space.text
        data = fault.as_data()
        self.alarms.append(
            {"what": sentence(fault), "from": text(first), "to": text(last), "fault": data},
        )

    def _release_base(self) -> list[str]:
        """Releases the base objects. Returns a text for each object that the device did not release."""
        base, self.base = self.base, None
        if base is None:
            return []
        base.cleanup.close()
        return base.left_behind

    def _context(self, case: Case) -> CaseContext:
        """Returns a context for the case. If the points share the base objects, the context has the existing objects;
        their queue pairs are renewed after use, when the context is closed. Raises SetupRefused."""
        if not self.shared:
            return CaseContext(case, self.bench)
        if self.base is None:
            self.base = CaseContext(case, self.bench)
            try:
                if self.sweep.tries:
                    procedure.set_up_memory(self.base)
                else:
                    procedure.set_up_base(self.base)
            except SetupRefused:
                self._release_base()
                raise
        branch = self.base.branch(case)
        for name, pair in self.base.pairs.items():
            branch.cleanup.callback(
                branch.release,
                f"renewing the queue pair {name}",
                functools.partial(self._renew, pair),
            )
        self.pairs_used = True
        return branch

    def _renew(self, pair: Pair) -> None:
        if self.pairs_used:
            pair.renew()

    def _group(self, group: Group) -> None:
        """Runs points that share their set-up. If a call of the set-up is refused, the set-up is repeated once. If the
        repetition succeeds, the refusal is recorded at the first point, and the other points are run."""
        refusal = self._attempt(group)
        if refusal is None:
            return
        rest = Group(group.points[1:], group.inner_points[1:], group.points[0])
        if refusal.call:
            again = self._attempt(rest)
        else:
            again = refusal
        if again is None:
            self.record.record(group.points[0], procedure.refused_once(refusal))
        else:
            for point in group.points:
                self.record.record(point, procedure.not_set_up(refusal))

    def _attempt(self, group: Group) -> SetupRefused | None:
        """Creates the set-up of a group and executes the calls of its points; returns the set-up's refusal, if any."""
        points = group.points
        case = self.point_template.case(group.set_up_as)
        try:
            context = self._context(
                replace(case, given=self.loop.given(case.given)) if self.loop else case,
            )
        except SetupRefused as refusal:
            return refusal
        refused: SetupRefused | None = None
        with context.cleanup:
            try:
                self.set_up(context)
            except SetupRefused as refusal:
                refused = refusal
                # a set-up uses queue pairs only to bind windows
                self.pairs_used = bool(context.windows)
            else:
                if len(points):
                    self._calls(context, group)
        if context.left_behind:
            if len(points):
                last = points[-1]
            else:
                last = group.set_up_as
            self.alarm(
                Fault(FaultKind.LEAKED, seen=tuple(context.left_behind)),
                group.set_up_as,
                last,
            )
        return refused

    def _calls(self, context: CaseContext, group: Group) -> None:
        if self.loop is not None:
            self.loop.run(context, group, self.record, self._observe_alone)
            return
        call_all(context, self.point_template, group.points, self.record, self._report_in_time)

    def try_lost_again(self, points: Points) -> bool:
        """Repeats operations whose message had to be received, but was lost by an unreliable transport. Returns whether
        any operation was repeated."""
        lost = [
            number
            for number, (outcome, example) in enumerate(
                zip(points.outcomes, points.examples, strict=True),
            )
            if outcome.verdict in VIOLATIONS and outcome.expected == "success"
            if "moved" in example["observed"] and is_lost(example["observed"])
        ]
        lost_points = [point for point, number in enumerate(points.index) if number in lost][
            :_MOST_LOST
        ]
        for point in lost_points:
            seen = self.record.observations[self.record.codes[point]]
            self.record.record(
                point,
                again_if_lost(seen, functools.partial(self._observe_alone, point)),
            )
        return bool(lost_points)

    def _observe_alone(self, point: int) -> Observation:
        return procedure.set_up_and_call(
            CaseContext(self.point_template.case(point), self.bench),
            procedure.set_up,
        )


def call_all(
    context: CaseContext,
    point_template: PointTemplate,
    points: PointNumbers,
    record: PointObservations,
    report: Callable[[int, int], None] = lambda point, done: None,
) -> None:
    """Executes the calls of each point on the set-up of `context`, and records the observations, a batch of points at a
    time. If a batch is fast, the next batch is twice as large, but not larger than MAX_BATCH exchanges, which C can
    execute in one call. Calls `report` after each batch, with the last point and the number of finished points."""
    done, size = 0, 1
    while done < len(points):
        began = time.monotonic()
        some = points[done : done + size]
        seen = procedure.make_all_calls(context, [*map(point_template.case, some)])
        for point, observed in zip(some, seen, strict=True):
            record.record(point, observed)
        done += len(some)
        if time.monotonic() - began < PROGRESS_S / 2:
            size = min(2 * size, MAX_BATCH)
        else:
            size = 1
        report(some[-1], done)
