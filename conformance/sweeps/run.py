"""Runs a sweep: set-up once for the points that share it, an observation a point, judged by kinds of point.

What a call does is in execution/steps.py and its verdict in judging/, as for every row. Points that expect the same and
gave the same are judged once, by the first of them.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from conformance.device.native_exchange import MOST
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext
from conformance.execution.procedure import (
    make_all_calls,
    not_set_up,
    refused_once,
    set_up,
    set_up_and_call,
    set_up_ground,
    set_up_objects,
)
from conformance.execution.runner import CaseRun, Progress, RunContext
from conformance.execution.traffic import again_if_lost, is_lost
from conformance.judging import Basis, Judgement, conclude, kernel_alarm
from conformance.kernel.resources import count_when_settled, leaked
from conformance.model.case import Case, Expectation
from conformance.model.observation import Alarm, KernelEvidence, Observation, PointExample, without_undeclared
from conformance.model.sweep import Sweep
from conformance.model.verdict import Verdict
from conformance.sweeps.byte_columns import kinds, planes
from conformance.sweeps.grouping import LARGEST, LARGEST_IN_C, Group, Numbers, groups, setup_axes, shares_ground
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points, overall
from conformance.sweeps.point_observations import PointObservations
from conformance.sweeps.point_template import PointTemplate
from conformance.sweeps.registration_loop import loop_for

# Points between two looks at the kernel's log and accounts, and two signs of life.
STRETCH = 512
_LOG_LINES = 40
# At so many points is tried again what was lost; a transport that loses more is not merely busy.
_MOST_LOST = 64
# The rule that a set-up violates which was refused at one point and done when it was made again, by the refused call.
_RULE_OF_SETUP = {
    "ibv_reg_mr": "REG-17", "ibv_reg_mr_iova": "IOVA-04", "ibv_reg_dmabuf_mr": "DMA-01", "ibv_alloc_mw": "BIND-16",
    "ibv_bind_mw": "BIND-01", "post_bind_mw": "BIND-14",
}  # fmt: skip
_HEX = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class Swept:
    """What came of a sweep. `alarms` are what the kernel showed or kept, with the points during which it did.

    `log` has the first lines of the kernel's log of all stretches.
    """

    points: Points
    verdict: str
    reason: str
    alarms: list[Alarm] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    @property
    def kernel(self) -> KernelEvidence:
        """What is recorded of the kernel: its log where anything was amiss."""
        return {"log": self.log} if self.alarms else {}


@dataclass(frozen=True)
class SweepRun(CaseRun):
    """What came of running a sweep; its observations are the examples of `swept.points`."""

    swept: Swept


def run_sweep(case: Case, run: RunContext, progress: Progress) -> SweepRun:
    """Runs the sweep of `case`. `progress` is told at times which point comes next and how many are done."""
    started = time.perf_counter_ns()
    assert case.sweep is not None
    pass_ = _Pass(case, case.sweep, run, progress)
    pass_.through(run.seed)
    judge = _Judge(case, case.sweep, run.basis)
    points = judge.points(pass_.record)
    if pass_.try_lost_again(points):
        points = judge.points(pass_.record)
    swept = _conclusion(case.sweep, points, pass_.alarms, pass_.log)
    duration_us = (time.perf_counter_ns() - started) // 1000
    return SweepRun(case, Judgement(swept.verdict, swept.reason), {}, swept.kernel, duration_us, swept)


def judge_again(case: Case, points: Points, basis: Basis, alarms: list[Alarm], log: list[str]) -> Swept:
    """What today's clauses make of points that were recorded, each by its outcome's example; runs nothing.

    Raises LookupError for points that have no examples, or lie where the sweep has none.
    """
    swept = case.sweep
    assert swept is not None
    record = PointObservations(swept.space.size)
    record.codes = points.index
    record.observations = [without_undeclared(each["observed"]) for each in points.examples]
    return _conclusion(swept, _Judge(case, swept, basis).points(record), alarms, log)


def _conclusion(swept: Sweep, points: Points, alarms: list[Alarm], log: list[str]) -> Swept:
    counts = points.by_verdict()
    verdict = Verdict.FAIL if alarms else overall(list(counts))
    if verdict == Verdict.UNREACHABLE and not alarms and _never_set_up(points):
        verdict = Verdict.BROKEN  # that is no property of a combination
    shares = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    reason = f"{swept.size:,} points: {shares}"
    if alarms:
        first = alarms[0]
        reason += f"; {first['what']} (between the points {first['from']} and {first['to']})"
    return Swept(points, verdict, reason, alarms, log)


def _never_set_up(points: Points) -> bool:
    return all("setup_failed" in example["observed"] for example in points.examples)


class _Pass:
    """One pass through the points: `record` is what they gave, `alarms` and `log` are as in Swept."""

    def __init__(self, case: Case, swept: Sweep, run: RunContext, progress: Progress) -> None:
        self.case, self.swept, self.bench, self.watch, self.progress = case, swept, run.bench, run.watch, progress
        self.record = PointObservations(swept.space.size)
        self.point_template = PointTemplate(case, swept)
        self.alarms: list[Alarm] = []
        self.log: list[str] = []
        self.done = 0
        self.loop = loop_for(case, swept, self.bench.entry(case.entry))
        self.outer = self.loop.outer if self.loop else setup_axes(swept)
        self.shared = self.loop is None and case.given.memlock is None and shares_ground(swept)
        self.ground: CaseContext | None = None
        self.before = self.bench.resources()

    def through(self, seed: int | None) -> None:
        """Runs all points, those of one set-up together."""
        first, last, points = 0, 0, 0
        try:
            for group in groups(self.swept, self.outer, seed, LARGEST_IN_C if self.loop else LARGEST):
                if not points:
                    first = group.points[0]
                    self._begin(first)
                self._group(group)
                last, points = group.points[-1], points + len(group.points)
                if points >= STRETCH:
                    self._end(first, last, points)
                    points = 0
            if points:
                self._end(first, last, points)
        finally:
            self._leave_ground()

    def _begin(self, point: int) -> None:
        self.progress(self.swept.space.text(point), self.done)
        self.watch.since_last()  # what came before is not these points'

    def _end(self, first: int, last: int, points: int) -> None:
        left = self._leave_ground()
        if left:
            self._alarm(f"could not be given back: {'; '.join(left)}", first, last)
        self.done += points
        kernel = self.watch.since_last()
        self.log += list(kernel.get("log", ()))[: max(0, _LOG_LINES - len(self.log))]
        after = count_when_settled(self.before, self.bench.resources)
        for what in (kernel_alarm(kernel), leaked(self.before, after)):
            if what:
                self._alarm(what, first, last)
        self.before = after

    def _alarm(self, what: str, first: int, last: int) -> None:
        text = self.swept.space.text
        self.alarms.append({"what": what, "from": text(first), "to": text(last)})

    def _leave_ground(self) -> list[str]:
        """Gives back what the points of a stretch shared; gives what could not be."""
        ground, self.ground = self.ground, None
        if ground is None:
            return []
        ground.cleanup.close()
        return ground.left_behind

    def _context(self, case: Case) -> CaseContext:
        """A context with the case's domains, memory and queue pairs: those already there, if points share them.

        The pairs are as new again when the context is closed. Raises SetupRefused.
        """
        if not self.shared:
            return CaseContext(case, self.bench)
        if self.ground is None:
            self.ground = CaseContext(case, self.bench)
            try:
                set_up_ground(self.ground)
            except SetupRefused:
                self._leave_ground()
                raise
        branch = self.ground.branch(case)
        for name, pair in self.ground.pairs.items():
            branch.cleanup.callback(branch.give_back, f"queue pair {name} made new", pair.renew)
        return branch

    def _group(self, group: Group) -> None:
        """Points that share their set-up.

        A set-up that was refused is made once more. If it is done then, the refusal is recorded at the first point, and
        the others are run.
        """
        refusal = self._attempt(group)
        if refusal is None:
            return
        again = self._attempt(Group(group.points[1:], group.picks[1:], group.points[0])) if refusal.call else refusal
        if again is None:
            self.record.note(group.points[0], refused_once(refusal))
        else:
            for point in group.points:
                self.record.note(point, not_set_up(refusal))

    def _attempt(self, group: Group) -> SetupRefused | None:
        """Sets up the points of a group and makes their calls. Gives what the device refused of the set-up."""
        points = group.points
        case = self.point_template.case(group.set_up_as)
        try:
            context = self._context(replace(case, given=self.loop.given(case.given)) if self.loop else case)
        except SetupRefused as refusal:
            return refusal
        refused: SetupRefused | None = None
        with context.cleanup:
            try:
                if self.shared:
                    set_up_objects(context)
                else:
                    set_up(context)
            except SetupRefused as refusal:
                refused = refusal
            else:
                if len(points):
                    self._calls(context, group)
        if context.left_behind:
            last = points[-1] if len(points) else group.set_up_as
            self._alarm(f"could not be given back: {'; '.join(context.left_behind)}", group.set_up_as, last)
        return refused

    def _calls(self, context: CaseContext, group: Group) -> None:
        if self.loop is not None:
            context.left_behind += self.loop.run(context, group, self.record, self._alone)
            return
        call_all(context, self.point_template, group.points, self.record)

    def try_lost_again(self, points: Points) -> bool:
        """Sends again what had to arrive over an unreliable transport and was lost. Whether there was any."""
        lost = [
            number for number, (outcome, example) in enumerate(zip(points.outcomes, points.examples, strict=True))
            if outcome.verdict == Verdict.FAIL and outcome.expected == "success" and self._is_lost(example["observed"])
        ]  # fmt: skip
        found = [point for point, number in enumerate(points.index) if number in lost][:_MOST_LOST]
        for point in found:
            seen = self.record.observations[self.record.codes[point]]
            self.record.note(point, again_if_lost(seen, functools.partial(self._alone, point)))
        return bool(found)

    @staticmethod
    def _is_lost(observed: Observation) -> bool:
        return "moved" in observed and is_lost(observed)

    def _alone(self, point: int) -> Observation:
        """What one point gives with a set-up of its own."""
        return set_up_and_call(CaseContext(self.point_template.case(point), self.bench), set_up)


def call_all(context: CaseContext, point_template: PointTemplate, points: Numbers, record: PointObservations) -> None:
    """Records what the calls of each point give, on what is set up in `context`.

    The cases of as many points are made at a time as C can make exchanges in one call.
    """
    for first in range(0, len(points), MOST):
        some = points[first : first + MOST]
        for point, observed in zip(some, make_all_calls(context, [*map(point_template.case, some)]), strict=True):
            record.note(point, observed)


class _Judge:
    """Gives every point its outcome."""

    def __init__(self, case: Case, swept: Sweep, basis: Basis) -> None:
        self.case, self.swept, self.basis = case, swept, basis

    def points(self, record: PointObservations) -> Points:
        """The outcomes of all points by what they gave."""
        swept = self.swept
        clauses = swept.decided(self._declared)
        masks, names = swept.undeclared(self._declared)
        found = kinds([*planes(record.codes), clauses, masks])
        outcomes: dict[Outcome, int] = {}
        examples: list[PointExample] = []
        numbers: list[int] = []
        for kind, (low, high, clause, mask) in enumerate(found.values):
            code = low | high << 8
            if code == OUTSIDE:
                numbers.append(OUTSIDE)
                continue
            outcome, example = self._outcome(found.first(kind), clause, mask, names, record.observations[code])
            numbers.append(outcomes.setdefault(outcome, len(outcomes)))
            if numbers[-1] == len(examples):
                examples.append(example)
        return Points(swept.space, list(outcomes), found.renumbered(numbers), examples)

    def _declared(self, name: str) -> bool:
        return not self.basis.capabilities.undeclared([name], self.case.entry)

    def _outcome(
        self, point: int, number: int, mask: int, names: Sequence[str], observed: Observation
    ) -> tuple[Outcome, PointExample]:
        clause = self.swept.deciding[number]
        assert clause.then is not None
        single = self.swept.single(self.case, self.swept.space.text(point))
        case = self.swept.by(single, clause, [name for bit, name in enumerate(names) if mask >> bit & 1])
        conclusion = conclude(case, self.basis, observed)
        judgement = conclusion.judgement
        rule = clause.rule
        if "setup_refused_once" in observed:
            rule = _RULE_OF_SETUP.get(observed["setup_refused_once"], rule)
        elif "setup_failed" in observed and judgement.verdict == Verdict.BROKEN:
            # A row's set-up is known to work; here a combination of many may not exist on this stack.
            judgement = Judgement(Verdict.UNREACHABLE, judgement.reason)
        seen = _HEX.sub("0x…", judgement.reason)
        for step in (case.when, *case.afterwards):
            seen = seen.replace(_HEX.sub("0x…", str(step)), step.title)
        expected, text = words(clause.then), clause.text
        if rule != clause.rule:
            expected, text = "a set-up that is done whenever it is made", ""
        outcome = Outcome(judgement.verdict, expected, seen, rule, text, judgement.notes)
        text = self.swept.space.text(point)
        return outcome, {"point": text, "reason": judgement.reason, "observed": conclusion.observation}


def words(then: Expectation) -> str:
    """What is expected, in few words."""
    data = then.as_data()
    outcome = str(data.pop("outcome"))
    return " ".join([outcome, *(f"{key} {'|'.join(v) if isinstance(v, list) else v}" for key, v in data.items())])
