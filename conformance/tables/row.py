"""Reads the body of a row: its `given`, the judged call, and the steps before and after the judged call. loader.py uses
this module for each expanded row. For a sweep, this module also replaces the placeholders for axes by values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.model import memory_kinds, vocabulary
from conformance.model.case import Given, Step, format_argument
from conformance.model.kind import BY_CALL
from conformance.model.operations import FLUSHES, WINDOWS_POSTER
from conformance.model.quantity import Quantity
from conformance.model.space import Axis, Space
from conformance.older_python import zip
from conformance.tables.arguments import Names, product, read_step
from conformance.tables.expansion import names_in, substitute
from conformance.tables.given import read_given
from conformance.tables.scripts import check_peer
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

# The keys of a row that `read_row_body` reads.
KEYS = ("given", "before", "call", "when", "then", "afterwards")


@dataclass(frozen=True)
class RowBody:
    """The set-up, calls and expectations of a row."""

    given: Given
    before: tuple[Step, ...]
    when: Step
    afterwards: tuple[Step, ...]
    names: Names  # the kind of each object that exists at the judged call


def read_row_body(
    reader: Reader,
    default_call: str,
    table_given: Node | None,
    fields: Mapping[str, Node],
    row: Node,
) -> RowBody:
    """Reads the body of a row. Without `then`, the expected outcome of the judged call is `open`."""
    set_up, names = read_given(reader, (table_given, fields.get("given")))
    before: list[Step] = []
    for node in reader.items(fields.get("before"), "before"):
        before += _extra(reader, node, names, "a step before")
        names = {**names, **(product(before[-1]) if before else {})}
    known_names = names
    call = reader.word(fields.get("call"), "call", vocabulary.CALLS) or default_call
    steps = [read_step(reader, call, fields.get("when"), fields.get("then"), row, names)]
    if steps[0].then.after:
        reader.note(
            row.location,
            "only a step in `afterwards` can have `after`; the judged call is always executed",
        )
    for node in reader.items(fields.get("afterwards"), "afterwards"):
        names = {**names, **product(steps[-1])}
        steps += _extra(reader, node, names, "a step afterwards")
    for step in (*before, *steps):
        _check_contents(reader, row, set_up, step)
        events = entries(fields.get("when")).get("packets") if step is steps[0] else None
        check_peer(reader, row.location, step, set_up.qps, elements(events))
        via = str(step.arguments.get("via"))
        pair, op = set_up.qps.get(via), step.arguments.get("op")
        needs_builder = (
            op in ("ATOMIC_WRITE", *FLUSHES) and step.arguments.get("poster") != vocabulary.WIRE
        )
        if pair and needs_builder and pair.extended != WINDOWS_POSTER and not pair.wire:
            reader.note(
                row.location,
                f"queue pair {via!r} cannot post {op}; give it `poster: {WINDOWS_POSTER}`",
            )
    return RowBody(set_up, tuple(before), steps[0], tuple(steps[1:]), known_names)


def _check_contents(reader: Reader, row: Node, set_up: Given, step: Step) -> None:
    """Notes a step that would write known contents to memory that this process cannot write."""
    place = step.arguments.get("at") or step.arguments.get("addr")
    if step.arguments.get("contents") != "made" or not isinstance(place, Quantity):
        return
    for name, _ in place.names:
        region = set_up.mrs.get(name)
        start = region.arguments.get("addr") if region else place
        memories = [of for of, _ in start.names] if isinstance(start, Quantity) else []
        for memory in set(memories) & set(set_up.memory):
            kind = set_up.memory[memory].kind
            if kind in memory_kinds.NOT_WRITABLE:
                reader.note(
                    row.location,
                    f"{step.call} writes known bytes to {memory!r} and around its range, and memory of kind {kind!r}"
                    " cannot be written; give it `contents: zeros` or `filled`",
                )
                return


def _extra(reader: Reader, node: Node, names: Names, what: str) -> list[Step]:
    """Reads a step before or after the judged call. Returns a list with the step, or an empty list after a mistake."""
    required = ("call",) if what == "a step before" else ("call", "then")
    if not isinstance(node.value, dict):
        reader.note(node.location, f"{what} must be a mapping, not {node.kind}")
        return []
    for key in required:
        if key not in node.value:
            reader.note(node.location, f"{what} lacks the key {key!r}")
            return []
    call = reader.word(node.value["call"], "call", vocabulary.CALLS)
    if call is None:
        return []
    if call in BY_CALL:
        reader.note(
            node.value["call"].location,
            f"{call} cannot be {what}; write a separate row for this call",
        )
        return []
    extra = {key: value for key, value in node.value.items() if key not in required}
    keys = {key: location for key, location in (node.keys or {}).items() if key in extra}
    return [
        read_step(
            reader,
            call,
            Node(extra, node.location, keys=keys),
            node.value.get("then"),
            node,
            names,
        ),
    ]


@dataclass(frozen=True)
class RowText:
    """The YAML of a row with a sweep."""

    call: str  # the judged call
    table_given: Node | None  # `given` of the table
    fields: Mapping[str, Node]
    row: Node
    # the values of each axis; empty for an axis of subsets of flags
    nodes: Mapping[str, tuple[Node, ...]]
    space: Space

    def axes_in(self, *nodes: Node) -> list[Axis]:
        """Returns the axes that occur in these parts of the row, in the order of the space."""
        names = {name for node in nodes for name in names_in(node)}
        return [axis for axis in self.space.axes if axis.name in names]

    def fill(self, node: Node, axes: Sequence[Axis], key: Sequence[int], reader: Reader) -> Node:
        """Returns a part of the row in which values replace `axes`. `key` has the number of a value for each axis."""
        binding = {
            axis.name: self._value(axis, value) for axis, value in zip(axes, key, strict=True)
        }
        return substitute(node, binding, reader)

    def _value(self, axis: Axis, value: int) -> Node:
        if not axis.flags:
            return self.nodes[axis.name][value]
        flags = [flag for bit, flag in enumerate(axis.flags) if value >> bit & 1]
        return Node(tuple(Node(flag, self.row.location) for flag in flags), self.row.location)

    def body(self, key: Sequence[int], reader: Reader) -> RowBody:
        """Reads the body of the row. `key` has the number of a value for each axis; `reader` records mistakes."""
        fields = {
            name: self.fill(node, self.space.axes, key, reader)
            for name, node in self.fields.items()
        }
        return read_row_body(reader, self.call, self.table_given, fields, self.row)


def one_at_a_time(axes: Sequence[Axis]) -> Iterator[tuple[int, ...]]:
    """Yields a key for each value of each axis; all other axes have their first value. For an axis of subsets of flags,
    only the empty subset and the set of all flags are used."""
    for position, axis in enumerate(axes):
        for value in (0, axis.size - 1) if axis.flags else range(axis.size):
            yield tuple(value if index == position else 0 for index in range(len(axes)))


def elements(node: Node | None) -> tuple[Node, ...]:
    """Returns the elements of a list; an empty tuple for any other node."""
    if node is not None and isinstance(node.value, tuple):
        return node.value
    return ()


def entries(node: Node | None) -> Mapping[str, Node]:
    """Returns the fields of a mapping; an empty mapping for any other node."""
    if node is not None and isinstance(node.value, dict):
        return node.value
    return {}


def format_arguments(step: Step, written: Node | None) -> dict[str, str]:
    """Returns the arguments of a step as texts. An argument with an axis has the text that the table has."""
    nodes = entries(written)
    return {
        key: _format(nodes[key])
        if key in nodes and names_in(nodes[key])
        else format_argument(value)
        for key, value in step.arguments.items()
    }


def _format(node: Node) -> str:
    """Returns the text of a value in the table. A list is formatted like flags: most lists are lists of flags."""
    if isinstance(node.value, tuple):
        return "|".join(_format(item) for item in node.value)
    if isinstance(node.value, dict):
        return f"{{{', '.join(_format(item) for item in node.value.values())}}}"
    return str(node.value)
