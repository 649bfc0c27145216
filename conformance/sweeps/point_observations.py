"""What each point of a sweep gave: an observation is kept once for all points that gave the same. Not for verdicts."""

from __future__ import annotations

from array import array

from conformance.judging import verdict_key
from conformance.model.observation import Observation
from conformance.sweeps.grouping import Numbers
from conformance.sweeps.outcome import MOST, OUTSIDE


class PointObservations:
    """`codes[point]` is a number in `observations`."""

    def __init__(self, size: int) -> None:
        self.codes = array("H", [OUTSIDE]) * size
        self.observations: list[Observation] = []
        self._numbers: dict[str, int] = {}

    def number(self, observed: Observation) -> int:
        """The number of an observation, by its verdict key; the first with a key is kept in full."""
        key = repr(verdict_key(observed))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.observations)
            if number >= MOST:
                raise OverflowError("a sweep whose points give too many different observations")
            self.observations.append(observed)
        return number

    def take(self, points: Numbers, numbers: array[int]) -> None:
        """Records the numbers of several points."""
        if isinstance(points, range):
            self.codes[points.start : points.stop] = numbers
            return
        for point, number in zip(points, numbers, strict=True):
            self.codes[point] = number

    def note(self, point: int, observed: Observation) -> None:
        """Records what a point gave."""
        self.codes[point] = self.number(observed)
