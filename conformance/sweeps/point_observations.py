"""The observation of each point of a sweep; equal observations are kept once. Not for verdicts."""

from __future__ import annotations

from array import array

from conformance.judging import verdict_key
from conformance.model.observation import Observation
from conformance.sweeps.grouping import PointNumbers
from conformance.sweeps.outcome import MAX_OUTCOMES, OUTSIDE


class PointObservations:
    """`codes[point]` is an index of `observations`."""

    def __init__(self, size: int) -> None:
        self.codes = array("H", [OUTSIDE]) * size
        self.observations: list[Observation] = []
        self._numbers: dict[str, int] = {}

    def number(self, observed: Observation) -> int:
        """The number of an observation. If several have the same verdict key, the first is kept."""
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
