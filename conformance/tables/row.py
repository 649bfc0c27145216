"""Reads the body of a row: its `given`, the judged call, and the steps before and after it.

Called by loader.py for each expanded row. Not for the arguments of calls (arguments.py) and not for ids and rules.
"""

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
    """The set-up, calls and expectations of a row. `names` are the objects at the judged call, with their kinds."""

    given: Given
    before: tuple[Step, ...]
    when: Step
    afterwards: tuple[Step, ...]
    names: Names


def read_row_body(
    reader: Reader, default_call: str, table_given: Node | None, fields: Mapping[str, Node], row: Node
) -> RowBody:
    """Reads the body of a row. Without `then`, the judged call has the outcome open."""
    given, names = read_given(reader, (table_given, fields.get("given")))
    before: list[Step] = []
    for node in reader.items(fields.get("before"), "before"):
        before += _extra(reader, node, names, "a step before")
        names = {**names, **(product(before[-1]) if before else {})}
    known = names
    call = reader.word(fields.get("call"), "call", vocabulary.CALLS) or default_call
    steps = [read_step(reader, call, fields.get("when"), fields.get("then"), row, names)]
    if steps[0].then.after:
        reader.note(row.location, "`after` is for a step afterwards; the judged call is always made")
    for node in reader.items(fields.get("afterwards"), "afterwards"):
        names = {**names, **product(steps[-1])}
        steps += _extra(reader, node, names, "a step afterwards")
    return RowBody(given, tuple(before), steps[0], tuple(steps[1:]), known)


def _extra(reader: Reader, node: Node, names: Names, what: str) -> list[Step]:
    """Reads a step before or after the judged call. The list has one element, or none after a mistake."""
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
        reader.note(node.value["call"].location, f"{call} cannot be {what}; write a row of its own for it")
        return []
    own = {key: value for key, value in node.value.items() if key not in required}
    keys = {key: location for key, location in (node.keys or {}).items() if key in own}
    return [read_step(reader, call, Node(own, node.location, keys=keys), node.value.get("then"), node, names)]
