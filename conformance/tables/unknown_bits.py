"""The axis `{unknown bits of: ibv_access_flags, which: optional}` of a row: each bit that no flag has.

Derived from the descriptions, so that a bit which is given a name leaves the axis. Not for sweeps, whose axes
sweep_reader.py reads.
"""

from __future__ import annotations

from conformance.verbs import ENUMS, OPTIONAL_ACCESS
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

UNKNOWN, WHICH = "unknown bits of", "which"
FLAG_ENUMS = tuple(name for name, enum in ENUMS.items() if enum.flags)
# Which bits a stack that does not know them must refuse or ignore; only the access flags have such a range.
PARTS = {"mandatory": ~OPTIONAL_ACCESS, "optional": OPTIONAL_ACCESS}
_WITH_PARTS = "ibv_access_flags"


def is_axis(node: Node) -> bool:
    """Whether an axis is written in this way."""
    return isinstance(node.value, dict) and UNKNOWN in node.value


def values(reader: Reader, name: str, node: Node) -> tuple[Node, ...]:
    """`bit 10`, `bit 11` and so on, as an author would write them; none after a mistake."""
    fields = reader.mapping(node, f"axis {name!r}", (UNKNOWN, WHICH), (UNKNOWN,))
    enum = reader.word(fields.get(UNKNOWN), "enumeration of flags", FLAG_ENUMS)
    part = reader.word(fields.get(WHICH), "part of the unknown bits", PARTS)
    if enum is None or (WHICH in fields and part is None):
        return ()
    if part and enum != _WITH_PARTS:
        reader.note(fields[WHICH].location, f"only {_WITH_PARTS} has optional bits; leave {WHICH!r} out")
        return ()
    bits = [bit for bit in ENUMS[enum].unnamed_bits if not part or 1 << bit & PARTS[part]]
    return tuple(Node(f"bit {bit}", node.location) for bit in bits)
