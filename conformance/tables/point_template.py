"""The cases of a sweep's points, made quickly: each argument is read once for each value it can have.

Reading a whole row for every point would cost as much as what the point does. Not for one point
alone, which is read like any row (sweep.Sweep.at).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from conformance.model import vocabulary
from conformance.model.case import Argument, Case, Expectation, Given, Step
from conformance.model.kind import Kind
from conformance.tables.arguments import Names, product, read_argument, read_given, read_then
from conformance.tables.sweep import Sweep, Template, Values
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

# What is kept of each argument: subsets of many flags have more values than are worth keeping.
_KEPT = 4096
T = TypeVar("T")


class _Varying(Generic[T]):
    """What a part of the row reads as, by the values of the axes in it."""

    def __init__(self, template: Template, node: Node, read: Callable[[Reader, Node], T]) -> None:
        self._template, self._node, self._read = template, node, read
        self._axes = template.axes_in(node)
        self._known: dict[tuple[int, ...], T] = {}

    def at(self, values: Values) -> T:
        """The part at a point."""
        key = tuple(values[axis] for axis in self._axes)
        if key not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            reader = Reader()
            self._known[key] = self._read(reader, self._template.fill(self._node, values, reader))
            if reader.mistakes:
                raise ValueError("; ".join(map(str, reader.mistakes)))
        return self._known[key]


class _Call:
    """One step of the row with its axes still in it."""

    def __init__(self, template: Template, step: Step, written: Mapping[str, Node], names: Names) -> None:
        self._step = step
        self._varying: dict[str, _Varying[Argument | None]] = {}
        self._then: _Varying[Expectation] | None = None
        for key, node in written.items():
            if not template.axes_in(node):
                continue
            if key == "then":
                self._then = _Varying(template, node, lambda reader, node: read_then(reader, node, step.call))
            elif key in vocabulary.CALLS[step.call]:
                self._varying[key] = _Varying(template, node, _argument_of(step.call, key, names))

    def at(self, values: Values) -> Step:
        """The step at a point."""
        if not self._varying and self._then is None:
            return self._step
        arguments = dict(self._step.arguments)
        for key, varying in self._varying.items():
            argument = varying.at(values)
            if argument is not None:
                arguments[key] = argument
        then = self._then.at(values) if self._then else self._step.then
        return Step(self._step.call, arguments, then, self._step.name)


def _argument_of(call: str, key: str, names: Names) -> Callable[[Reader, Node], Argument | None]:
    return lambda reader, node: read_argument(reader, call, key, node, names)


class PointTemplate:
    """The row of a sweep, ready to be filled in."""

    def __init__(self, case: Case, swept: Sweep) -> None:
        self._case, self._swept = case, swept
        template, fields = swept.template, swept.template.fields
        parts = template.parts(swept.space.values(0), Reader())
        names = parts.names
        self._when = _Call(template, parts.when, _written(fields.get("when")), names)
        self._later: list[_Call] = []
        names = {**names, **product(parts.when)}
        later = fields["afterwards"].value if "afterwards" in fields else ()
        for step, node in zip(parts.afterwards, later if isinstance(later, tuple) else (), strict=True):
            self._later.append(_Call(template, step, _written(node), names))
            names = {**names, **product(step)}
        self._setup_axes = template.axes_in(fields.get("given"), fields.get("before"))
        self._setup: tuple[tuple[int, ...], Given, tuple[Step, ...]] = (
            (-1,) if self._setup_axes else (), parts.given, parts.before,
        )  # fmt: skip

    def case(self, point: int) -> Case:
        """The case of a point, its judged call open."""
        values = self._swept.space.values(point)
        key = tuple(values[axis] for axis in self._setup_axes)
        if self._setup[0] != key:
            self._setup = (key, *self._set_up(values))
        _, given, before = self._setup
        return replace(
            self._case, given=given, before=before, when=self._when.at(values),
            afterwards=tuple(step.at(values) for step in self._later), kind=Kind.ROW, sweep=None,
        )  # fmt: skip

    def _set_up(self, values: Values) -> tuple[Given, tuple[Step, ...]]:
        """What is given and done before at a point, whose mistakes were noted when the table was read."""
        template, reader = self._swept.template, Reader()
        if "before" in template.fields:
            parts = template.parts(values, reader)
            return parts.given, parts.before
        given, _ = read_given(reader, (template.table_given, template.fill(template.fields["given"], values, reader)))
        return given, ()


def _written(node: Node | None) -> Mapping[str, Node]:
    return node.value if node is not None and isinstance(node.value, dict) else {}
