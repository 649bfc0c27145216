"""The malformed files of tests/malformed: reading them, and what their first lines say must be told.

A file begins with remarks of the form `# expect LINE:COLUMN FRAGMENT`, one for each mistake in it, and
perhaps `# folder NAME`, the verb's folder in which it would stand. No test itself.
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
    """One mistake that has to be told: `place` is line:column, `fragment` a part of the message."""

    place: str
    fragment: str


def expectations(data: bytes) -> list[Expected]:
    """What the file's first lines say, in their order."""
    return [Expected(place.decode(), fragment.decode()) for place, fragment in _EXPECT.findall(data)]


def mistakes(name: str, scratch: Path) -> list[str]:
    """What the loader says of a file, each as `line:column: message`; files `rules_*` are rules."""
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
    """Whether a file of the corpus is one of rules, not a table."""
    return name.startswith("rules_")
