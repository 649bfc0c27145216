"""Stores the observations and outcomes of a sweep's points. An outcome is the verdict on a point, with the rule and
with short texts of the expectation and of the observation. Points with equal outcomes share one object, as do points
with equal observations; therefore a large space needs little memory."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from conformance.judging import verdict_key
from conformance.model.fault import Fault
from conformance.model.observation import Observation, PointExample
from conformance.model.point_index import decode_index, encode_index
from conformance.model.record import OutcomeFacts, PointsFile
from conformance.model.space import MAX_POINTS, Space
from conformance.model.typed import mismatch
from conformance.model.verdict import NOT_TESTABLE, VERDICTS, Verdict
from conformance.older_python import zip
from conformance.sweeps.byte_columns import byte_planes, combinations
from conformance.sweeps.grouping import PointNumbers

OUTSIDE = 0xFFFF  # the index of a point that the sweep's constraint excludes
MAX_OUTCOMES = OUTSIDE - 1


@dataclass(frozen=True)
class Outcome:
    """The outcome of points. `expected` and `observed` are short texts for users. `clause` is the text of the table's
    predicate that determined the expectation. `fault` lacks the parts that differ between points."""

    verdict: str
    expected: str
    observed: str
    rule: str
    clause: str = ""
    notes: tuple[str, ...] = ()
    fault: Fault | None = None
    also: tuple[str, ...] = ()  # further rules that determined the expectation

    @property
    def rules(self) -> tuple[str, ...]:
        return (self.rule, *self.also)

    def as_data(self) -> OutcomeFacts:
        data = {name: getattr(self, name) for name in ("verdict", "expected", "observed", "rule")}
        fault = self.fault and self.fault.as_data()
        more = {"fault": fault, "clause": self.clause, "notes": list(self.notes)}
        more |= {"also": list(self.also)}
        return cast(OutcomeFacts, data | {name: value for name, value in more.items() if value})

    @classmethod
    def of_data(cls, data: OutcomeFacts) -> Outcome:
        if data.get("fault"):
            fault = Fault.of_data(data["fault"])
        else:
            fault = None
        names = {field.name for field in fields(cls)}
        values: Any = {name: value for name, value in data.items() if name in names}
        lists = {name: tuple(values.get(name, ())) for name in ("notes", "also")}
        return cls(**{**values, **lists, "fault": fault})


@dataclass
class Points:
    """The outcome of every point: `index[point]` is an index of `outcomes`, or OUTSIDE. For each outcome, `examples`
    has one point with its full reason and observation."""

    space: Space
    outcomes: list[Outcome]
    index: array[int]
    examples: list[PointExample] = field(default_factory=list)

    def counts(self) -> list[int]:
        numbers = combinations(byte_planes(self.index))
        count = Counter(
            {
                low | high << 8: numbers.ids.count(id_)
                for id_, (low, high) in enumerate(numbers.values)
            },
        )
        return [count[number] for number in range(len(self.outcomes))]

    def by_verdict(self) -> dict[str, int]:
        """Returns the number of points with each verdict, the best verdict first."""
        total: Counter[str] = Counter()
        for outcome, count in zip(self.outcomes, self.counts(), strict=True):
            total[outcome.verdict] += count
        return {verdict: total[verdict] for verdict in reversed(VERDICTS) if total[verdict]}

    def by_rule(self) -> dict[str, Verdict]:
        """Returns the verdict on each rule that determined the expectation of a point."""
        rules: dict[str, set[str]] = {}
        open_: dict[str, set[str]] = {}
        for outcome in self.outcomes:
            if outcome.expected == "open":
                proving = open_
            else:
                proving = rules
            for rule in outcome.rules:
                proving.setdefault(rule, set()).add(outcome.verdict)
        # A PASS at points with an open expectation counts only if the rule has no other points.
        for rule, verdicts in open_.items():
            rules[rule] = (
                verdicts if rule not in rules else rules[rule] | (verdicts - {Verdict.PASS})
            )
        return {rule: Verdict(overall(verdicts)) for rule, verdicts in rules.items()}

    def unreached(self) -> dict[str, int]:
        """Returns the number of UNREACHABLE points by the rule that determined their expectation."""
        total: Counter[str] = Counter()
        for outcome, count in zip(self.outcomes, self.counts(), strict=True):
            if outcome.verdict == Verdict.UNREACHABLE:
                total.update(dict.fromkeys(outcome.rules, count))
        return dict(total)

    def column(self, number: int) -> int:
        """Returns the column (see model/space.py) of the points with the outcome `number`."""
        return int.from_bytes(bytes(map(number.__eq__, self.index)), "little")

    @property
    def inside(self) -> int:
        """The column (see model/space.py) of the points that the sweep's constraint selects."""
        return int.from_bytes(bytes(map(OUTSIDE.__ne__, self.index)), "little")

    def as_data(self, case: str) -> PointsFile:
        return {
            "case": case,
            "axes": self.space.as_data(),
            "outcomes": [outcome.as_data() for outcome in self.outcomes],
            "examples": self.examples,
            "index": encode_index(self.index),
        }

    @classmethod
    def of_data(cls, data: PointsFile) -> Points:
        """Returns the points in a side file. Raises ValueError, KeyError or TypeError for invalid data."""
        if wrong := mismatch(data, PointsFile):
            raise ValueError(wrong)
        space = Space.of_data(data["axes"])
        outcomes = [Outcome.of_data(outcome) for outcome in data["outcomes"]]
        if not 0 < space.size <= MAX_POINTS:
            raise ValueError(f"a space of {space.size} points")
        index = decode_index(data["index"], space.size)
        if len(index) != space.size or any(
            number >= len(outcomes) and number != OUTSIDE for number in set(index)
        ):
            raise ValueError("points that do not fit their axes or outcomes")
        return cls(space, outcomes, index, list(data.get("examples", ())))


def overall(verdicts: Sequence[str] | set[str]) -> str:
    """Returns the verdict on a sweep whose points have these verdicts: the worst verdict. UNSUPPORTED and UNREACHABLE
    count only if no point has any other verdict."""
    present = [verdict for verdict in verdicts if verdict not in NOT_TESTABLE] or list(verdicts)
    return min(present, key=VERDICTS.index)


class PointObservations:
    """`codes[point]` is an index of `observations`."""

    def __init__(self, size: int) -> None:
        self.codes = array("H", [OUTSIDE]) * size
        self.observations: list[Observation] = []
        self._numbers: dict[str, int] = {}

    def number(self, observed: Observation) -> int:
        """Returns the index of an observation. Observations with the same verdict key share the first of them."""
        key = repr(verdict_key(observed))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.observations)
            if number >= MAX_OUTCOMES:
                raise OverflowError("the points of a sweep have too many different observations")
            self.observations.append(observed)
        return number

    def record_all(self, points: PointNumbers, numbers: array[int]) -> None:
        if isinstance(points, range):
            self.codes[points.start : points.stop] = numbers
            return
        for point, number in zip(points, numbers, strict=True):
            self.codes[point] = number

    def record(self, point: int, observed: Observation) -> None:
        self.codes[point] = self.number(observed)
