"""Makes the case of each point of a sweep from the row that the table's loading has resolved."""

from __future__ import annotations

from dataclasses import replace

from conformance.model.case import Case, Given, Step
from conformance.model.kind import Kind
from conformance.model.sweep import Sweep


class PointTemplate:
    """The case of a sweep without its sweep, ready for a point's own parts.

    Keeps the set-up of the last point, which most points share with the one before them.
    """

    def __init__(self, case: Case, swept: Sweep) -> None:
        self._case = replace(case, kind=Kind.ROW, sweep=None)
        self._swept, self._row = swept, swept.row
        self._setup_axes = swept.in_order(swept.row.setup_axes)
        self._setup: tuple[list[int], Given, tuple[Step, ...]] | None = None

    def case(self, point: int) -> Case:
        """The case of a point; what its judged call must give is left open."""
        row, values = self._row, self._swept.space.values(point)
        key = [values[axis] for axis in self._setup_axes]
        if self._setup is None or self._setup[0] != key:
            self._setup = (key, row.given.at(values), tuple(step.at(values) for step in row.before))
        _, given, before = self._setup
        return replace(
            self._case, given=given, before=before, when=row.when.at(values),
            afterwards=tuple([step.at(values) for step in row.afterwards]),
        )  # fmt: skip
