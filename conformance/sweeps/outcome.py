"""The observations and outcomes of a sweep's points, and the number of points with each. An outcome is the record of a
point: its verdict, short texts of the expectation and the observation, and the rule. Points with equal outcomes share
one object, and so do points with equal observations, so that a large space needs little memory."""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, cast

from conformance.judging import verdict_key
from conformance.model.fault import Fault
from conformance.model.observation import Observation, PointExample
from conformance.model.record import OutcomeFacts, PointsFile
from conformance.model.space import MAX_POINTS, Space
from conformance.model.typed import mismatch
from conformance.model.verdict import NOT_TESTABLE, VERDICTS, Verdict
from conformance.sweeps.byte_columns import byte_planes, combinations
from conformance.sweeps.grouping import PointNumbers

OUTSIDE = 0xFFFF  # the index of a point that is not in the space
MAX_OUTCOMES = OUTSIDE - 1


@dataclass(frozen=True)
class Outcome:
    """The outcome of points. `expected` and `observed` are short texts for people. `clause` is the text of the
    predicate in the table that determined the expectation. `fault` is the fault without the parts that differ between
    points."""

    verdict: str
    expected: str
    observed: str
    rule: str
    clause: str = ""
    notes: tuple[str, ...] = ()
    fault: Fault | None = None

    def as_data(self) -> OutcomeFacts:
        data = {name: getattr(self, name) for name in ("verdict", "expected", "observed", "rule")}
        fault = self.fault and self.fault.as_data()
        more = {"fault": fault, "clause": self.clause, "notes": list(self.notes)}
        return cast(OutcomeFacts, data | {name: value for name, value in more.items() if value})

    @classmethod
    def of_data(cls, data: OutcomeFacts) -> Outcome:
        fault = Fault.of_data(data["fault"]) if data.get("fault") else None
        known = {each.name for each in fields(cls)}
        values: Any = {name: value for name, value in data.items() if name in known}
        return cls(**{**values, "notes": tuple(data.get("notes", ())), "fault": fault})


@dataclass
class Points:
    """The outcome of every point: `index[point]` is an index of `outcomes`, or OUTSIDE. For each outcome, `examples`
    has one point in full: the reason and the raw observation."""

    space: Space
    outcomes: list[Outcome]
    index: array[int]
    examples: list[PointExample] = field(default_factory=list)

    def counts(self) -> list[int]:
        found = combinations(byte_planes(self.index))
        count = Counter({low | high << 8: found.ids.count(id_) for id_, (low, high) in enumerate(found.values)})
        return [count[number] for number in range(len(self.outcomes))]

    def by_verdict(self) -> dict[str, int]:
        """The number of points with each verdict, the best verdict first."""
        total: Counter[str] = Counter()
        for outcome, count in zip(self.outcomes, self.counts(), strict=True):
            total[outcome.verdict] += count
        return {verdict: total[verdict] for verdict in reversed(VERDICTS) if total[verdict]}

    def by_rule(self) -> dict[str, Verdict]:
        """The verdict on each rule that determined the expectation of a point."""
        rules: dict[str, set[str]] = {}
        open_: dict[str, set[str]] = {}
        for outcome in self.outcomes:
            proving = open_ if outcome.expected == "open" else rules
            proving.setdefault(outcome.rule, set()).add(outcome.verdict)
        # Points with an open expectation count for a rule only if the rule has no other points, or if they failed.
        for rule, verdicts in open_.items():
            rules[rule] = verdicts if rule not in rules else rules[rule] | (verdicts - {Verdict.PASS})
        return {rule: Verdict(overall(verdicts)) for rule, verdicts in rules.items()}

    def column(self, number: int) -> int:
        """The column (see model/space.py) of the points with an outcome."""
        return int.from_bytes(bytes(map(number.__eq__, self.index)), "little")

    @property
    def inside(self) -> int:
        """The column (see model/space.py) of the points that belong to the space."""
        return int.from_bytes(bytes(map(OUTSIDE.__ne__, self.index)), "little")

    def as_data(self, case: str) -> PointsFile:
        return {
            "case": case,
            "axes": self.space.as_data(),
            "outcomes": [each.as_data() for each in self.outcomes],
            "examples": self.examples,
            "index": encode_index(self.index),
        }

    @classmethod
    def of_data(cls, data: PointsFile) -> Points:
        """Returns the points in a side file. Raises ValueError, KeyError or TypeError for invalid data."""
        if wrong := mismatch(data, PointsFile):
            raise ValueError(wrong)
        space = Space.of_data(data["axes"])
        outcomes = [Outcome.of_data(each) for each in data["outcomes"]]
        if not 0 < space.size <= MAX_POINTS:
            raise ValueError(f"a space of {space.size} points")
        index = decode_index(data["index"], space.size)
        if len(index) != space.size or any(each >= len(outcomes) and each != OUTSIDE for each in set(index)):
            raise ValueError("points that do not fit their axes or outcomes")
        return cls(space, outcomes, index, list(data.get("examples", ())))


def overall(verdicts: Sequence[str] | set[str]) -> str:
    """The verdict on a sweep whose points have these verdicts. It is the worst verdict apart from UNSUPPORTED and
    UNREACHABLE: if a part of a space is unsupported or unreachable, the other points determine the verdict."""
    present = [verdict for verdict in verdicts if verdict not in NOT_TESTABLE] or list(verdicts)
    return min(present, key=VERDICTS.index)


def encode_index(index: array[int]) -> str:
    """The numbers of all points, as base64 of zlib of little-endian 16-bit words."""
    return base64.b64encode(zlib.compress(little(index).tobytes(), 6)).decode("ascii")


def decode_index(text: str, points: int) -> array[int]:
    """The reverse of `encode_index`, for at most `points` + 1 points. Raises ValueError."""
    try:
        # Bounded, because the file may be of any origin.
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 2 * (points + 1))
    except zlib.error as error:
        raise ValueError(f"invalid index of points: {error}") from error
    index = array("H")
    index.frombytes(data)
    return little(index)


def little(words: array[int]) -> array[int]:
    """The words converted between the byte order of this machine and little-endian."""
    if sys.byteorder == "little":
        return words
    swapped = array(words.typecode, words)
    swapped.byteswap()
    return swapped


class PointObservations:
    """`codes[point]` is an index of `observations`."""

    def __init__(self, size: int) -> None:
        self.codes = array("H", [OUTSIDE]) * size
        self.observations: list[Observation] = []
        self._numbers: dict[str, int] = {}

    def number(self, observed: Observation) -> int:
        """The index of an observation. If several observations have the same verdict key, the first is kept."""
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
