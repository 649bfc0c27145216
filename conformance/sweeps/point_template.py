"""Creates the case of each point of a sweep from the resolved row.

Not for resolving rows (tables/row_resolution.py).
"""

from dataclasses import fields, replace

from conformance.model.case import Case, Given, Step
from conformance.model.kind import Kind
from conformance.model.row_template import StepTemplate, Values
from conformance.model.sweep import Sweep

_KEPT = 4096  # steps of each call


class _Steps:
    """The steps of one call of a row. Points that differ on other axes only share a step, which is created once."""

    def __init__(self, template: StepTemplate, sweep: Sweep, entry: str) -> None:
        self._template, self._entry = template, entry
        self._axes = sweep.in_order(template.axes)
        self._known: dict[tuple[int, ...], Step] = {}

    def at(self, values: Values) -> Step:
        """The step at a point, with the entry of the case."""
        key = tuple([values[axis] for axis in self._axes])
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[key] = self._template.at(values, self._entry)
        return self._known[key]


class PointTemplate:
    """The case of a sweep, from which the cases of its points are created.

    Caches the set-up of the last point, because most points have the same set-up as the previous one.
    """

    def __init__(self, case: Case, sweep: Sweep) -> None:
        alone = replace(case, kind=Kind.ROW, sweep=None)
        self._fields = {field.name: getattr(alone, field.name) for field in fields(alone)}
        self._entry = case.entry
        self._sweep, self._row = sweep, sweep.row
        self._setup_axes = sweep.in_order(sweep.row.setup_axes)
        self._when = _Steps(sweep.row.when, sweep, case.entry)
        self._afterwards = [_Steps(step, sweep, case.entry) for step in sweep.row.afterwards]
        self._setup: tuple[list[int], Given, tuple[Step, ...]] | None = None

    def case(self, point: int) -> Case:
        """The case of a point. The expectation of its judged call is open."""
        row, values = self._row, self._sweep.space.values(point)
        key = [values[axis] for axis in self._setup_axes]
        if self._setup is None or self._setup[0] != key:
            before = tuple(step.at(values, self._entry) for step in row.before)
            self._setup = (key, row.given.at(values), before)
        _, given, before = self._setup
        # The same as dataclasses.replace, in a tenth of its time: the steps have the entry of the case already.
        case = Case.__new__(Case)
        case.__dict__.update(
            self._fields,
            given=given,
            before=before,
            when=self._when.at(values),
            afterwards=tuple([steps.at(values) for steps in self._afterwards]),
        )
        return case
