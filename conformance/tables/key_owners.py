"""Expands the axis `{keys of others: lkey}`: the same key of every owner. A row that names a key by this axis, in an
element of a list, as a remote key, in a bind or in an invalidation, tests one description of foreign keys. The first
value is the row's own key: its success is the control of all refusals."""

from collections.abc import Mapping

from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader

OTHERS, OWNERS = "keys of others", "which"
# The owners of a key: those in this process, or another process, which a row has to start.
HERE, ELSEWHERE = "here", "elsewhere"
WHERE = (HERE, ELSEWHERE)
# A key of a region or of a window: by owner, the quantity that a table would write. The table defines the objects with
# these names. Another tag differs from the own key in the lowest eight bits; an invented key has another index.
_OF_REGIONS = {
    "own": "mr.{key}",
    "other-pd": "of_other_pd.{key}",
    "ended": "ended.{key}",
    "other-tag": "mr.{key} + 0x80",
    "other-index": "mr.{key} + 0x10000",
    "zero": "0",
}
_OF_WINDOWS = {
    "own": "mw.rkey",
    "other-pd": "of_other_pd.rkey",
    "other-queue-pair": "of_other_qp.rkey",
    "earlier": "mw.old_rkey",
    "other-tag": "mw.rkey + 0x80",
    "other-index": "mw.rkey + 0x10000",
    "of-a-region": "mr.rkey",
}
_OTHER_PROCESS = "other-process"
_QUANTITIES: Mapping[str, Mapping[str, str]] = {
    "lkey": {**_OF_REGIONS, _OTHER_PROCESS: "other_process.{key}"},
    "rkey": {**_OF_REGIONS, _OTHER_PROCESS: "other_process.{key}"},
    "window": {**_OF_WINDOWS, _OTHER_PROCESS: "other_process.window"},
}
KEYS = tuple(_QUANTITIES)


def expanded(reader: Reader, name: str, node: Node) -> Node:
    """Returns an axis of this module as an axis of named values, and any other axis unchanged."""
    if not isinstance(node.value, dict) or OTHERS not in node.value:
        return node
    fields = reader.mapping(node, f"axis {name!r}", (OTHERS, OWNERS), (OTHERS,))
    key = reader.word(fields.get(OTHERS), "key", KEYS)
    where = reader.word(fields.get(OWNERS), "owners", WHERE)
    values = {}
    for owner, quantity in _QUANTITIES.get(key or "", {}).items():
        if owner == "own" or not where or (owner == _OTHER_PROCESS) == (where == ELSEWHERE):
            values[owner] = Node(quantity.format(key=key), node.location)
    return Node(values, node.location, keys=dict.fromkeys(values, node.location))
