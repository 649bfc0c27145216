"""Resolves the row of a sweep while its table is loaded, into templates for its parts (model/row_template.py).

An axis can occur in arguments, in expectations and in `given`. Each part with axes is read once for each combination of
the axis values. Lists of flags are read element by element, because an axis of subsets can have too many values to
read the whole list for each. sweep_reader.py reads the keys of the sweep.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Optional, TypeVar

from conformance.model import vocabulary
from conformance.model.case import Arguments, Flags, Given, MrSpec, QpSpec, Step, WindowSpec
from conformance.model.row_template import (
    ArgumentTemplate,
    Composed,
    FlagsPart,
    FlagSubsets,
    FlagsUnion,
    Mask,
    RowTemplate,
    StepTemplate,
    Template,
    Varying,
)
from conformance.model.space import Axis
from conformance.older_python import zip
from conformance.tables.arguments import Names, product, read_argument, read_flags, read_then
from conformance.tables.expansion import names_in
from conformance.tables.given import SECTIONS, ReadObject, names_of, read_memlock
from conformance.tables.row import (
    RowBody,
    RowText,
    elements,
    entries,
    format_arguments,
    one_at_a_time,
)
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

# Far more than any table needs. Without this bound, a mistake in a table could exhaust the memory.
MAX_COMBINATIONS = 1 << 14
T = TypeVar("T")
_Read = Callable[[Reader, Node], Optional[T]]


class PartResolver:
    """Resolves parts of one row. Records mistakes in `reader`; results after a mistake must not be used. `inside` has
    a bit for each combination that is a point of the sweep (a column of model/space.py). A combination of values that
    no point has may be invalid."""

    def __init__(self, reader: Reader, text: RowText, inside: int) -> None:
        self._reader, self._text, self._inside = reader, text, inside

    def varying(self, node: Node, read: _Read[T]) -> Varying[T]:
        """Resolves a part. `read` reads the part after values have replaced the axes, or returns None."""
        axes = self._text.axes_in(node)
        names = tuple(axis.name for axis in axes)
        values: dict[tuple[int, ...], T] = {}
        if not self._each_axis(node, axes, read, values):
            return Varying(names, values)
        size = math.prod(axis.size for axis in axes)
        if size > MAX_COMBINATIONS:
            self._reader.note(
                node.location,
                f"the axes in this part have {size} combinations; at most {MAX_COMBINATIONS} are possible",
            )
            return Varying(names, values)
        for key in itertools.product(*(range(axis.size) for axis in axes)):
            if key in values:
                continue
            trial = Reader()
            value = read(trial, self._text.fill(node, axes, key, trial))
            if value is not None and not trial.mistakes:
                values[key] = value
            elif self._column(axes, key) & self._inside:
                for mistake in trial.mistakes:
                    self._reader.note(mistake.location, mistake.message)
        return Varying(names, values)

    def _each_axis(
        self,
        node: Node,
        axes: Sequence[Axis],
        read: _Read[T],
        values: dict[tuple[int, ...], T],
    ) -> bool:
        """Reads the part into `values` at the keys of `one_at_a_time`. Returns whether the part has no mistake."""
        before = len(self._reader.mistakes)
        for key in one_at_a_time(axes):
            value = read(self._reader, self._text.fill(node, axes, key, self._reader))
            if value is not None:
                values[key] = value
        return len(self._reader.mistakes) == before

    def flags(self, node: Node, enum: str) -> FlagsUnion:
        axes = self._text.axes_in(node)
        read = partial(read_flags, enum=enum)
        if not self._each_axis(node, axes, read, {}):
            return FlagsUnion(())
        parts: list[FlagsPart] = []
        for element in elements(node) or (node,):
            element_node = Node((element,), element.location)
            axes_here = self._text.axes_in(element)
            if not axes_here:
                parts.append(read(self._reader, element_node))
            elif axes_here[0].flags and len(axes_here) == 1:
                parts.append(self._subsets(element_node, axes_here[0], read))
            else:
                parts.append(self.varying(element_node, read))
        self._note_duplicates(node, parts)
        return FlagsUnion(tuple(parts))

    def _subsets(
        self,
        node: Node,
        axis: Axis,
        read: Callable[[Reader, Node], Flags],
    ) -> FlagSubsets:
        single = [
            read(self._reader, self._text.fill(node, [axis], [1 << bit], self._reader))
            for bit in range(len(axis.flags))
        ]
        return FlagSubsets(axis.name, tuple(flags.mask for flags in single), axis.flags)

    def _note_duplicates(self, node: Node, parts: Sequence[FlagsPart]) -> None:
        """Records a mistake for each flag that two parts of the list have at the same point."""
        space = self._text.space
        for first_part, other in itertools.combinations(
            [dict(self._flag_columns(part)) for part in parts],
            2,
        ):
            for name in first_part.keys() & other.keys():
                both = first_part[name] & other[name] & self._inside
                if both:
                    point = ((both & -both).bit_length() - 1) // 8
                    self._reader.note(
                        node.location,
                        f"duplicate flag {name} at the point {space.text(point)}",
                    )

    def _flag_columns(self, part: FlagsPart) -> Iterator[tuple[str, int]]:
        """Yields each flag of a part, with the column of the points at which the part has this flag."""
        space = self._text.space
        if isinstance(part, Flags):
            yield from ((name, space.everywhere()) for name in part.names)
        elif isinstance(part, FlagSubsets):
            axis = space.axis(part.axis)
            yield from ((name, space.column(axis.name, axis.truths(name))) for name in part.names)
        else:
            axes = [space.axis(name) for name in part.axes]
            for name in dict.fromkeys(
                name for flags in part.values.values() for name in flags.names
            ):
                columns = [
                    self._column(axes, key)
                    for key, flags in part.values.items()
                    if name in flags.names
                ]
                yield name, functools.reduce(operator.or_, columns)

    def _column(self, axes: Sequence[Axis], key: Sequence[int]) -> int:
        space = self._text.space
        columns = []
        for axis, value in zip(axes, key, strict=True):
            truths = bytes(index == value for index in range(axis.size))
            columns.append(space.column(axis.name, truths))
        return functools.reduce(operator.and_, columns)

    def arguments(
        self,
        call: str,
        first: Arguments,
        nodes: Mapping[str, Node],
        names: Names,
    ) -> Composed[Arguments]:
        varying = {
            key: self._argument(call, key, node, names)
            for key, node in nodes.items()
            if key in vocabulary.CALLS[call] and names_in(node)
        }
        return Composed(first, varying)

    def _argument(self, call: str, key: str, node: Node, names: Names) -> ArgumentTemplate:
        spec = vocabulary.CALLS[call][key]
        if spec.kind == "flags":
            return self.flags(node, spec.of)
        return self.varying(
            node,
            lambda reader, filled: read_argument(reader, call, key, filled, names),
        )


def resolve(reader: Reader, text: RowText, inside: int) -> tuple[RowTemplate, RowBody] | None:
    """Returns the row as a template, and the row's body at the first point, with the arguments of the judged call as
    text. `inside` is the column of the sweep's points. After mistakes, which are recorded in `reader`, returns None."""
    before = len(reader.mistakes)
    first = text.body([0] * len(text.space.axes), reader)
    if len(reader.mistakes) > before:
        for key in one_at_a_time(text.space.axes):  # finds mistakes at the other values
            text.body(key, reader)
        return None
    template = _row(PartResolver(reader, text, inside), first, text.fields)
    if len(reader.mistakes) > before:
        return None
    arguments = format_arguments(first.when, text.fields.get("when"))
    return template, replace(first, when=replace(first.when, arguments=arguments))


def _row(parts: PartResolver, first: RowBody, fields: Mapping[str, Node]) -> RowTemplate:
    names = names_of(first.given)
    before, names = _steps(parts, first.before, elements(fields.get("before")), names)
    when = _step(parts, first.when, fields.get("when"), names)
    later = {**names, **product(first.when)}
    afterwards, _ = _steps(parts, first.afterwards, elements(fields.get("afterwards")), later)
    return RowTemplate(
        _given(parts, first.given, entries(fields.get("given"))),
        before,
        when,
        afterwards,
    )


def _steps(
    parts: PartResolver,
    steps: Sequence[Step],
    nodes: Sequence[Node],
    names: Names,
) -> tuple[tuple[StepTemplate, ...], Names]:
    """Resolves successive steps; returns the steps, and the objects that exist after the last step."""
    steps_here: list[StepTemplate] = []
    for step, node in zip(steps, nodes, strict=True):
        steps_here.append(_step(parts, step, node, names))
        names = {**names, **product(step)}
    return tuple(steps_here), names


def _step(parts: PartResolver, step: Step, node: Node | None, names: Names) -> StepTemplate:
    written = entries(node)
    parts_here: dict[str, Template[Any]] = {}
    if any(
        key in vocabulary.CALLS[step.call] and names_in(value) for key, value in written.items()
    ):
        parts_here["arguments"] = parts.arguments(step.call, step.arguments, written, names)
    if "then" in written and names_in(written["then"]):
        parts_here["then"] = parts.varying(
            written["then"],
            lambda reader, filled: read_then(reader, filled, step.call),
        )
    return Composed(step, parts_here)


def _given(parts: PartResolver, given: Given, fields: Mapping[str, Node]) -> Composed[Given]:
    sections: dict[str, Template[Any]] = {}
    before = Given(pds=given.pds)
    for section, (_, read) in SECTIONS.items():
        objects, names = getattr(given, section), names_of(before)
        varying = {
            name: _object(parts, name, objects[name], node, names, read)
            for name, node in entries(fields.get(section)).items()
            if names_in(node)
        }
        if varying:
            sections[section] = Composed(objects, varying)
        before = replace(before, **{section: objects})
    memlock = fields.get("memlock")
    if memlock and names_in(memlock):
        sections["memlock"] = parts.varying(memlock, read_memlock)
    return Composed(given, sections)


def _object(
    parts: PartResolver,
    name: str,
    first: Any,
    node: Node,
    names: Names,
    read: ReadObject,
) -> Template[Any]:
    """Resolves an object of `given`: only its arguments or flags if axes occur only there, else the whole object."""
    bound = entries(entries(node).get("bound"))
    if isinstance(first, MrSpec) and _only_in(node, *vocabulary.CALLS[first.call]):
        arguments = parts.arguments(first.call, first.arguments, entries(node), names)
        return Composed(first, {"arguments": arguments})
    if isinstance(first, QpSpec) and _only_in(node, "access"):
        access = parts.flags(entries(node)["access"], "ibv_access_flags")
        return Composed(first, {"access": Mask(access)})
    if isinstance(first, WindowSpec) and bound and _only_in(node, "bound"):
        call = vocabulary.BINDS[0 if first.type == 1 else 1]
        names_bound = {**names, "mw": "window"}
        arguments = parts.arguments(call, first.bound or {}, bound, names_bound)
        return Composed(first, {"bound": arguments})
    return parts.varying(node, lambda reader, filled: read(reader, name, filled, names))


def _only_in(node: Node, *keys: str) -> bool:
    """Whether axes occur only in the values of these keys of a mapping."""
    return isinstance(node.value, dict) and not any(
        names_in(value) for key, value in node.value.items() if key not in keys
    )
