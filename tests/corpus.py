"""The malformed files of tests/malformed: reading them, and the mistakes that they must cause.

A file begins with comments of the form `# expect LINE:COLUMN FRAGMENT`, one for each mistake in it. An optional
`# folder NAME` is the folder of the verb to which it belongs. Not a test itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from conformance.tables.loader import read_table
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import ROOT
from samples import registry

FOLDER = Path(__file__).parent / "malformed"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))
_EXPECT = re.compile(rb"# expect ([0-9]+:[0-9]+) (.+)\r?\n")
_IN_FOLDER = re.compile(rb"# folder ([a-z_]+)\n")


@dataclass(frozen=True)
class Expected:
    """One mistake that must be reported: `location` is line:column, `fragment` a part of the message."""

    location: str
    fragment: str


def expectations(data: bytes) -> list[Expected]:
    """Returns the mistakes that the comments at the beginning of the file expect, in their order."""
    return [Expected(location.decode(), fragment.decode()) for location, fragment in _EXPECT.findall(data)]


def mistakes(name: str, scratch: Path) -> list[str]:
    """Returns the mistakes in a file, each as `line:column: message`. Files `rules_*` are rules, others tables."""
    data = (FOLDER / name).read_bytes()
    folder = _IN_FOLDER.search(data)
    home = scratch / "cases" / (folder[1].decode() if folder else "reg_mr")
    home.mkdir(parents=True)
    path = home / ("rules.yaml" if is_rules(name) else name)
    path.write_bytes(data)
    if is_rules(name):
        found = read_registry([scratch / "cases"], ROOT)[1]
    else:
        found = read_table(path, str(path), registry())[1]
    return [str(mistake).removeprefix(f"{path}:") for mistake in found]


def is_rules(name: str) -> bool:
    """Returns whether a file of the corpus has rules and is not a table."""
    return name.startswith("rules_")
