"""Runs a sweep on a bench: set-up once for the points that share it, one record a point, judged by kinds.

What a call does stands in steps.py and its verdict in judging.py, as for every row. Points that
expect the same and gave the same are judged once, by the first of them.
"""

from __future__ import annotations

import json
import random
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance import judging
from conformance.bench import Bench
from conformance.capability import Capabilities
from conformance.case import Case, Expectation
from conformance.execution import make_calls, set_up, still_counted
from conformance.language import NULL
from conformance.scene import Observation, Scene, SetupRefused
from conformance.sweeps.outcome import MOST, OUTSIDE, Outcome, Points, overall
from conformance.sweeps.space import Space
from conformance.sweeps.stencil import Stencil
from conformance.sweeps.sweep import Sweep

# Calls that leave what was set up as it was, so that the next point can use it too.
_REPEATABLE = (
    "ibv_reg_mr", "ibv_reg_mr_iova", "ibv_reg_dmabuf_mr", "ibv_advise_mr", "ibv_alloc_mw", "traffic", "local_traffic",
    "resident",
)  # fmt: skip
# Points between two looks at the kernel's log and accounts, and two signs of life.
STRETCH = 512
_LARGEST_GROUP = 4096
_LOG_LINES = 40
_HEX = re.compile(r"0x[0-9a-f]+")

Tell = Callable[[str, int], None]
Watch = Callable[[], Mapping[str, Any]]


@dataclass
class Swept:
    """What came of a sweep. `alarms` are what the kernel said or kept, with the points during which it did."""

    points: Points
    verdict: str
    reason: str
    alarms: list[dict[str, Any]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)


class Record:
    """What each point gave: `codes[point]` is a number in `observations`."""

    def __init__(self, size: int) -> None:
        self.codes = array("H", [OUTSIDE]) * size
        self.observations: list[Observation] = []
        self._numbers: dict[object, int] = {}

    def number(self, key: object, observation: Callable[[], Observation]) -> int:
        """The number of what was seen, by its essence; the first of its kind is kept in full."""
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.observations)
            if number >= MOST:
                raise OverflowError("a sweep whose points give too many different observations")
            self.observations.append(observation())
        return number

    def note(self, point: int, observed: Observation) -> None:
        """Records what a point gave."""
        key = json.dumps(judging.essence(observed), sort_keys=True, default=str)
        self.codes[point] = self.number(key, lambda: observed)


def sweep(
    case: Case, bench: Bench, capabilities: Capabilities, *,
    present: Mapping[str, str] | None = None, watch: Watch = dict, tell: Tell = lambda point, done: None,
    seed: int | None = None,
) -> Swept:  # fmt: skip
    """Runs the sweep of `case`. `tell` hears at times which point comes next and how many are done.

    `seed` shuffles the points; `present` is what a profile says must be there.
    """
    swept = case.sweep
    assert swept is not None
    run = _Run(case, swept, bench, watch, tell)
    run.through(seed)
    judge = _Judge(case, swept, capabilities, present or {})
    points = judge.points(run.record)
    return _conclusion(swept, points, run.alarms, run.log)


def judge_again(
    case: Case, points: Points, capabilities: Capabilities, present: Mapping[str, str],
    alarms: list[dict[str, Any]], log: list[str],
) -> Swept:  # fmt: skip
    """What today's clauses make of points that were recorded, each by its outcome's example; runs nothing.

    Raises LookupError for points that have no examples, or lie where the sweep has none.
    """
    swept = case.sweep
    assert swept is not None
    record = Record(swept.space.size)
    record.codes = points.index
    record.observations = [
        {key: value for key, value in each["observed"].items() if key != "lacking"} for each in points.examples
    ]
    return _conclusion(swept, _Judge(case, swept, capabilities, present).points(record), alarms, log)


def _conclusion(swept: Sweep, points: Points, alarms: list[dict[str, Any]], log: list[str]) -> Swept:
    counts = points.by_verdict()
    verdict = judging.FAIL if alarms else overall(list(counts))
    if verdict == judging.UNREACHABLE and not alarms:
        verdict = judging.BROKEN  # not one point could be set up: that is no property of a combination
    told = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    reason = f"{swept.size:,} points: {told}"
    if alarms:
        first = alarms[0]
        reason += f"; {first['what']} (between the points {first['from']} and {first['to']})"
    return Swept(points, verdict, reason, alarms, log)


class _Run:
    """One run through the points."""

    def __init__(self, case: Case, swept: Sweep, bench: Bench, watch: Watch, tell: Tell) -> None:
        self.case, self.swept, self.bench, self.watch, self.tell = case, swept, bench, watch, tell
        self.record = Record(swept.space.size)
        self.stencil = Stencil(case, swept)
        self.alarms: list[dict[str, Any]] = []
        self.log: list[str] = []
        self.done = 0
        self.before = bench.resources()

    def through(self, seed: int | None) -> None:
        """Runs all points, those of one set-up together."""
        stretch: list[int] = []
        for group in groups(self.swept, seed):
            if not stretch:
                self._begin(group[0])
            self._group(group)
            stretch.extend(group)
            if len(stretch) >= STRETCH:
                self._end(stretch)
                stretch = []
        if stretch:
            self._end(stretch)

    def _begin(self, point: int) -> None:
        self.tell(self.swept.space.text(point), self.done)
        self.watch()  # what came before is not these points'

    def _end(self, stretch: Sequence[int]) -> None:
        self.done += len(stretch)
        kernel = self.watch()
        self.log += list(kernel.get("log", ()))[: max(0, _LOG_LINES - len(self.log))]
        after = self.bench.resources()
        for what in (judging.kernel_alarm(kernel), still_counted(self.before, after)):
            if what:
                self._alarm(what, stretch)
        self.before = after

    def _alarm(self, what: str, points: Sequence[int]) -> None:
        text = self.swept.space.text
        self.alarms.append({"what": what, "from": text(points[0]), "to": text(points[-1])})

    def _group(self, group: Sequence[int]) -> None:
        """Points that share their set-up."""
        scene = Scene(self.stencil.case(group[0]), self.bench)
        with scene.cleanup:
            try:
                set_up(scene)
            except SetupRefused as refusal:
                for point in group:
                    self.record.note(point, {"setup_failed": str(refusal), "errno": refusal.code})
            else:
                for point in group:
                    self._point(scene, point)
        if scene.left_behind:
            self._alarm(f"could not be given back: {'; '.join(scene.left_behind)}", group)

    def _point(self, scene: Scene, point: int) -> None:
        branch = scene.branch(self.stencil.case(point))
        with branch.cleanup:
            try:
                observed = make_calls(branch)
            except SetupRefused as refusal:
                observed = {"setup_failed": str(refusal), "errno": refusal.code}
        if branch.left_behind:
            observed["left_behind"] = branch.left_behind
        self.record.note(point, observed)


def setup_axes(swept: Sweep) -> list[str]:
    """The axes whose values decide what has to be set up; all, where the calls change what was."""
    fields = swept.template.fields
    calls = [fields["call"].value if "call" in fields else swept.template.call]
    later = fields["afterwards"].value if "afterwards" in fields else ()
    steps = [fields["when"]] if "when" in fields else []
    for node in later if isinstance(later, tuple) else ():
        if isinstance(node.value, dict):
            calls.append(node.value["call"].value)
            steps.append(node)
    fixed = [node.value["via"] for node in steps if isinstance(node.value, dict) and "via" in node.value]
    if any(call not in _REPEATABLE for call in calls) or any(node.value != NULL for node in fixed):
        return [axis.name for axis in swept.space.axes]
    return swept.template.axes_in(fields.get("given"), fields.get("before"))


def groups(swept: Sweep, seed: int | None = None) -> Iterator[array[int]]:
    """The points that count, those with the same set-up together, in an order that `seed` decides."""
    space, inside = swept.space, swept.space.bytes_of(swept.inside)
    outer = setup_axes(swept)
    chance = random.Random(seed)
    for start, rest in _split(space, outer, chance if seed is not None else None):
        group = array("I", [start + offset for offset in rest if inside[start + offset]])
        if seed is not None:
            chance.shuffle(group)
        for first in range(0, len(group), _LARGEST_GROUP):
            yield group[first : first + _LARGEST_GROUP]


def _split(
    space: Space, outer: Sequence[str], chance: random.Random | None
) -> Iterator[tuple[int, Sequence[int]]]:
    """The first point of each group, and how far the others of a group lie behind its first."""
    starts, rest = _offsets(space, outer), _offsets(space, [a.name for a in space.axes if a.name not in outer])
    if chance is not None:
        chance.shuffle(starts)
    for start in starts:
        yield start, rest


def _offsets(space: Space, axes: Sequence[str]) -> array[int]:
    found = array("I", [0])
    for name in axes:
        stride, size = space.strides[name], space.axis(name).size
        found = array("I", [base + value * stride for base in found for value in range(size)])
    return found


class _Judge:
    """Gives every point its outcome."""

    def __init__(
        self, case: Case, swept: Sweep, capabilities: Capabilities, present: Mapping[str, str]
    ) -> None:
        self.case, self.swept, self.present = case, swept, present
        self._capabilities = capabilities

    def points(self, record: Record) -> Points:
        """The outcomes of all points by what they gave."""
        swept = self.swept
        clauses = swept.decided(self._declared)
        masks, names = swept.lacking(self._declared)
        outcomes: dict[Outcome, int] = {}
        examples: list[dict[str, Any]] = []
        known: dict[tuple[int, int, int], int] = {}
        index = array("H", [OUTSIDE]) * swept.space.size
        for point, kind in enumerate(zip(record.codes, clauses, masks, strict=True)):
            if kind[0] == OUTSIDE:
                continue
            number = known.get(kind)
            if number is None:
                outcome, example = self._outcome(point, kind, names, record.observations[kind[0]])
                number = known[kind] = outcomes.setdefault(outcome, len(outcomes))
                if number == len(examples):
                    examples.append(example)
            index[point] = number
        return Points(swept.space, list(outcomes), index, examples)

    def _lacking(self, needs: Sequence[str]) -> list[str]:
        return self._capabilities.lacking(needs, self.case.entry)

    def _declared(self, name: str) -> bool:
        return not self._lacking([name])

    def _outcome(
        self, point: int, kind: tuple[int, int, int], names: Sequence[str], observed: Observation
    ) -> tuple[Outcome, dict[str, Any]]:
        clause = self.swept.deciding[kind[1]]
        assert clause.then is not None
        single = self.swept.single(self.case, self.swept.space.text(point))
        case = self.swept.by(single, clause, [name for bit, name in enumerate(names) if kind[2] >> bit & 1])
        lacking = self._lacking(case.needs)
        judgement = judging.pin(judging.judge(case, lacking, observed), lacking, self.present)
        if "setup_failed" in observed and judgement.verdict == judging.BROKEN:
            # A row's set-up is known to work; here a combination of many may not exist on this stack.
            judgement = judging.Judgement(judging.UNREACHABLE, judgement.reason)
        seen = _HEX.sub("0x…", judgement.reason)
        for step in (case.when, *case.afterwards):
            seen = seen.replace(_HEX.sub("0x…", str(step)), step.call)
        outcome = Outcome(judgement.verdict, words(clause.then), seen, clause.rule, clause.text, judgement.notes)
        if lacking:
            observed = {**observed, "lacking": lacking}
        return outcome, {"point": self.swept.space.text(point), "reason": judgement.reason, "observed": observed}


def words(then: Expectation) -> str:
    """What is expected, in few words."""
    data = then.as_data()
    outcome = str(data.pop("outcome"))
    return " ".join([outcome, *(f"{key} {'|'.join(v) if isinstance(v, list) else v}" for key, v in data.items())])
