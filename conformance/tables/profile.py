"""Reads a device profile from a file: the name of the driver, and the capabilities that are `present` or `absent`, each
with the reason."""

from __future__ import annotations

import hashlib
from pathlib import Path

from conformance.errors import command
from conformance.model import capability
from conformance.model.profile import Profile
from conformance.model.record import GivenFile
from conformance.regular_file import read_regular
from conformance.yamldoc.nodes import Node
from conformance.yamldoc.reader import Reader, document, suggestion

_ALL = f"; {command('list', 'capabilities')} names all"
_KEYS = ("device", "present", "absent")


def read_profile(path: Path) -> Profile:
    """Returns the profile in a file. Raises UserError with a line for each mistake."""
    with document(path) as (root, reader):
        fields = reader.mapping(root, "a profile", _KEYS, ("device",))
        device = reader.text(fields.get("device"), "device") or ""
        present, absent = (
            _capabilities(reader, fields.get(key), key) for key in ("present", "absent")
        )
        for name in present:
            if name in absent:
                reader.note(fields["absent"].location, f"{name} is both present and absent")
    return Profile(device, present, absent)


def named_profile(path: Path | None) -> GivenFile | None:
    """Returns the name and hash of the profile's file, for the header; None without a profile. Raises OSError."""
    if path:
        return {"file": str(path), "sha256": hashlib.sha256(read_regular(path)).hexdigest()}
    return None


def _capabilities(reader: Reader, node: Node | None, what: str) -> dict[str, str]:
    capabilities = {}
    for name, reason in reader.named(node, what).items():
        if name not in capability.NAMES:
            if node:
                location = (node.keys or {})[name]
            else:
                location = reason.location
            reader.note(
                location,
                f"unknown capability {name!r}{suggestion(name, capability.NAMES) or _ALL}",
            )
        capabilities[name] = reader.text(reason, f"the reason for {name}") or ""
    return capabilities
