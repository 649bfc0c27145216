"""Creates the case of each point of a sweep from the resolved row.

Not for resolving rows (tables/row_resolution.py).
"""

from __future__ import annotations

from dataclasses import replace

from conformance.model.case import Case, Given, Step
from conformance.model.kind import Kind
from conformance.model.sweep import Sweep


class PointTemplate:
    """The case of a sweep, from which the cases of its points are created.

    Caches the set-up of the last point, because most points have the same set-up as the previous one.
    """

    def __init__(self, case: Case, sweep: Sweep) -> None:
        self._case = replace(case, kind=Kind.ROW, sweep=None)
        self._sweep, self._row = sweep, sweep.row
        self._setup_axes = sweep.in_order(sweep.row.setup_axes)
        self._setup: tuple[list[int], Given, tuple[Step, ...]] | None = None

    def case(self, point: int) -> Case:
        """The case of a point. The expectation of its judged call is open."""
        row, values = self._row, self._sweep.space.values(point)
        key = [values[axis] for axis in self._setup_axes]
        if self._setup is None or self._setup[0] != key:
            self._setup = (key, row.given.at(values), tuple(step.at(values) for step in row.before))
        _, given, before = self._setup
        return replace(
            self._case, given=given, before=before, when=row.when.at(values),
            afterwards=tuple([step.at(values) for step in row.afterwards]),
        )  # fmt: skip
