"""Reads what a row says beside its id and rules: what is given, the judged call, the steps around it.

Between a row's text (loader.py expands it) and its arguments (arguments.py reads them).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance.model import vocabulary
from conformance.model.case import Given, Step
from conformance.model.kind import BY_CALL
from conformance.tables.arguments import Names, product, read_step
from conformance.tables.given import read_given
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

# The keys of a row that `read_row_body` reads.
KEYS = ("given", "before", "call", "when", "then", "afterwards")


@dataclass(frozen=True)
class RowBody:
    """What a row sets up, calls and expects; `names` are the objects that exist at the judged call, with kinds."""

    given: Given
    before: tuple[Step, ...]
    when: Step
    afterwards: tuple[Step, ...]
    names: Names


def read_row_body(
    reader: Reader, default_call: str, table_given: Node | None, fields: Mapping[str, Node], row: Node
) -> RowBody:
    """The parts of a row; without `then` its judged call is open."""
    given, names = read_given(reader, (table_given, fields.get("given")))
    before: list[Step] = []
    for node in reader.items(fields.get("before"), "before"):
        before += _extra(reader, node, names, "a step before")
        names = {**names, **(product(before[-1]) if before else {})}
    known = names
    call = reader.word(fields.get("call"), "call", vocabulary.CALLS) or default_call
    steps = [read_step(reader, call, fields.get("when"), fields.get("then"), row, names)]
    for node in reader.items(fields.get("afterwards"), "afterwards"):
        names = {**names, **product(steps[-1])}
        steps += _extra(reader, node, names, "a step afterwards")
    return RowBody(given, tuple(before), steps[0], tuple(steps[1:]), known)


def _extra(reader: Reader, node: Node, names: Names, what: str) -> list[Step]:
    """A step before or after the judged call, as a list of one; of none if it says no call."""
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
        reader.note(node.value["call"].location, f"{call} is a case of its own and cannot be {what}; give it a row")
        return []
    own = {key: value for key, value in node.value.items() if key not in required}
    keys = {key: location for key, location in (node.keys or {}).items() if key in own}
    return [read_step(reader, call, Node(own, node.location, keys=keys), node.value.get("then"), node, names)]
