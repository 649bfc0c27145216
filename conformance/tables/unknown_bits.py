"""The axis `{unknown bits of: ibv_access_flags, which: optional}` of a row: each bit without a name.

Derived from the descriptions in verbs/, so that a bit leaves the axis when it gets a name. Not for the axes of sweeps
(sweep_reader.py).
"""

from conformance.verbs import ENUMS, OPTIONAL_ACCESS
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

UNKNOWN, WHICH = "unknown bits of", "which"
FLAG_ENUMS = tuple(name for name, enum in ENUMS.items() if enum.flags)
# Unknown bits that a stack must refuse (mandatory) or ignore (optional). Only the access flags have both.
PARTS = {"mandatory": ~OPTIONAL_ACCESS, "optional": OPTIONAL_ACCESS}
_WITH_PARTS = "ibv_access_flags"


def is_axis(node: Node) -> bool:
    return isinstance(node.value, dict) and UNKNOWN in node.value


def values(reader: Reader, name: str, node: Node) -> tuple[Node, ...]:
    """The values of the axis: `bit 10`, `bit 11` and so on; an empty tuple after a mistake."""
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
