"""Reads the retired case ids of a table, which are never used again, so that old and new runs can be compared.

Not for retired rule ids, which are in rules.yaml (rules_file.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from conformance.yamldoc.nodes import Location, Node
from conformance.yamldoc.reader import Reader

_KEYS = ("id", "why")


def read_retired(reader: Reader, node: Node | None, table: str) -> Mapping[str, Location]:
    """The retired case ids of the table `<folder>/<file stem>`, each with its location."""
    retired: dict[str, Location] = {}
    for item in reader.items(node, "retired"):
        fields = reader.mapping(item, "a retired case", _KEYS, _KEYS)
        written = reader.text(fields.get("id"), "id")
        reader.text(fields.get("why"), "why")
        if not written:
            continue
        case, location = f"{table}/{written}", fields["id"].location
        if case in retired:
            reader.note(location, f"duplicate retired case {case} (first in line {retired[case].line})")
        retired.setdefault(case, location)
    return retired


def check_unused(reader: Reader, retired: Mapping[str, Location], used: Mapping[str, Node]) -> None:
    """Notes each case id in `used` that is retired."""
    for case, node in used.items():
        if case in retired:
            line = retired[case].line
            reader.note(node.location, f"case {case} is retired (line {line}); give the row another id")
