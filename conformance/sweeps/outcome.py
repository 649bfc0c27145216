"""What came of a sweep: an outcome for each point, and how many points there are of each.

An outcome is what is recorded of a point: verdict, what was expected and observed in few words, and
the rule. Points with the same outcome share one, so that a space of any size stays small.
"""

from __future__ import annotations

import base64
import sys
import zlib
from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.model.observation import PointExample
from conformance.model.record import OutcomeFacts, PointsFile
from conformance.model.space import MAX_POINTS, Space
from conformance.model.verdict import VERDICTS, Verdict
from conformance.sweeps.byte_columns import kinds, planes

OUTSIDE = 0xFFFF  # the index of a point that is not in the space
MOST = OUTSIDE - 1


@dataclass(frozen=True)
class Outcome:
    """What points can have in common: `expected` and `observed` are words for people.

    `clause` is the predicate, as the table has it, that decided what was expected.
    """

    verdict: str
    expected: str
    observed: str
    rule: str
    clause: str = ""
    notes: tuple[str, ...] = ()

    def as_data(self) -> OutcomeFacts:
        """The outcome as the side file has it."""
        data: OutcomeFacts = {
            "verdict": Verdict(self.verdict), "expected": self.expected, "observed": self.observed, "rule": self.rule,
        }  # fmt: skip
        if self.clause:
            data["clause"] = self.clause
        if self.notes:
            data["notes"] = list(self.notes)
        return data


@dataclass
class Points:
    """The outcome of every point: `index[point]` is a number in `outcomes`, or OUTSIDE.

    `examples` has for each outcome one point in full: its call's reason and raw observation.
    """

    space: Space
    outcomes: list[Outcome]
    index: array[int]
    examples: list[PointExample] = field(default_factory=list)

    def counts(self) -> list[int]:
        """How many points have each outcome."""
        found = kinds(planes(self.index))
        count = Counter({low | high << 8: found.ids.count(kind) for kind, (low, high) in enumerate(found.values)})
        return [count[number] for number in range(len(self.outcomes))]

    def by_verdict(self) -> dict[str, int]:
        """How many points have each verdict, the best first."""
        total: Counter[str] = Counter()
        for outcome, count in zip(self.outcomes, self.counts(), strict=True):
            total[outcome.verdict] += count
        return {verdict: total[verdict] for verdict in reversed(VERDICTS) if total[verdict]}

    def by_rule(self) -> dict[str, str]:
        """The verdict on each rule that decided a point."""
        rules: dict[str, set[str]] = {}
        open_: dict[str, set[str]] = {}
        for outcome in self.outcomes:
            proving = open_ if outcome.expected == "open" else rules
            proving.setdefault(outcome.rule, set()).add(outcome.verdict)
        # What is left open says something of a rule only if nothing else does, or if it failed all the same.
        for rule, verdicts in open_.items():
            rules[rule] = verdicts if rule not in rules else rules[rule] | (verdicts - {Verdict.PASS})
        return {rule: overall(verdicts) for rule, verdicts in rules.items()}

    def column(self, number: int) -> int:
        """The column (see model/space.py) of the points with an outcome."""
        return int.from_bytes(bytes(map(number.__eq__, self.index)), "little")

    def as_data(self, case: str) -> PointsFile:
        """The points as the side file has them."""
        return {
            "case": case,
            "axes": self.space.as_data(),
            "outcomes": [each.as_data() for each in self.outcomes],
            "examples": self.examples,
            "index": encode_index(self.index),
        }

    @classmethod
    def of_data(cls, data: PointsFile) -> Points:
        """Points as a side file has them. Raises ValueError, KeyError or TypeError for what are none."""
        space = Space.of_data(data["axes"])
        outcomes = [
            Outcome(each["verdict"], each["expected"], each["observed"], each["rule"], each.get("clause", ""),
                    tuple(each.get("notes", ())))
            for each in data["outcomes"]
        ]  # fmt: skip
        if not 0 < space.size <= MAX_POINTS:
            raise ValueError(f"a space of {space.size} points")
        index = decode_index(data["index"], space.size)
        if len(index) != space.size or any(each >= len(outcomes) and each != OUTSIDE for each in set(index)):
            raise ValueError("points that do not fit their axes or outcomes")
        return cls(space, outcomes, index, list(data.get("examples", ())))


def overall(verdicts: Sequence[str] | set[str]) -> str:
    """The verdict on a sweep whose points have these.

    What is worse than a pass counts, but for absence: a space of which a part is verified to be
    unsupported, or cannot be reached, has passed where the rest does.
    """
    absent = (Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
    present = [verdict for verdict in verdicts if verdict not in absent] or list(verdicts)
    return min(present, key=VERDICTS.index)


def encode_index(index: array[int]) -> str:
    """A number for each point as base64 of zlib of little-endian 16-bit words."""
    return base64.b64encode(zlib.compress(little(index).tobytes(), 6)).decode("ascii")


def decode_index(text: str, points: int) -> array[int]:
    """What `encode_index` made of so many points; of more, one too many is given. Raises ValueError."""
    try:
        # Bounded, because the file comes from wherever the results come from.
        data = zlib.decompressobj().decompress(base64.b64decode(text, validate=True), 2 * (points + 1))
    except zlib.error as error:
        raise ValueError(f"no index of points: {error}") from error
    index = array("H")
    index.frombytes(data)
    return little(index)


def little(words: array[int]) -> array[int]:
    """The words as a little-endian machine would hold them, or the other way round."""
    if sys.byteorder == "little":
        return words
    swapped = array(words.typecode, words)
    swapped.byteswap()
    return swapped
