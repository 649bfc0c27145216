"""Reads the malformed documents of tests/malformed, and the mistakes that must be reported; a helper of tests.

Each file has the documents of one topic. A line `=== name` begins a document; if the JSON schema accepts the document,
the line is `=== name beyond the schema`. The document has a comment `# expect LINE:COLUMN FRAGMENT` for each mistake;
LINE counts from the first line of the document. An optional `# folder NAME` names the folder of the document's verb.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from conformance.older_python import zip
from conformance.tables.loader import read_table
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import ROOT
from samples import registry

_FOLDER = Path(__file__).parent / "malformed"
_NAME = re.compile(rb"^=== ([a-z0-9_]+)( beyond the schema)?\n", re.MULTILINE)
_EXPECT = re.compile(rb"# expect ([0-9]+:[0-9]+) (.+)\r?\n")
_IN_FOLDER = re.compile(rb"# folder ([a-z_]+)\n")


# The documents that the JSON schema accepts: their mistakes depend on other rows, objects or the number of cases.
BEYOND_THE_SCHEMA: set[str] = set()


def _documents() -> dict[str, bytes]:
    documents: dict[str, bytes] = {}
    for path in sorted(_FOLDER.glob("*.txt")):
        _, *parts = _NAME.split(path.read_bytes())
        for name, beyond, data in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            assert name.decode() not in documents, (
                f"{path.name} has another document {name.decode()}"
            )
            documents[name.decode()] = data
            BEYOND_THE_SCHEMA.update([name.decode()] if beyond else [])
    return documents


# The bytes of each document, by name.
DOCUMENTS = _documents()


@dataclass(frozen=True)
class Expected:
    """One mistake that must be reported: `location` is line:column, `fragment` a part of the message."""

    location: str
    fragment: str


def expectations(data: bytes) -> list[Expected]:
    """Returns the mistakes that the comments `# expect` of the document name, in their order."""
    return [
        Expected(location.decode(), fragment.decode())
        for location, fragment in _EXPECT.findall(data)
    ]


def mistakes(name: str, scratch: Path) -> list[str]:
    """Returns the mistakes in a document (rules or a table), each as `line:column: message`."""
    data = DOCUMENTS[name]
    folder = _IN_FOLDER.search(data)
    home = scratch / "cases" / (folder[1].decode() if folder else "reg_mr")
    home.mkdir(parents=True)
    path = home / ("rules.yaml" if is_rules(name) else f"{name}.yaml")
    path.write_bytes(data)
    if is_rules(name):
        mistakes = read_registry([scratch / "cases"], ROOT)[1]
    else:
        mistakes = read_table(path, str(path), registry())[1]
    return [str(mistake).removeprefix(f"{path}:") for mistake in mistakes]


def is_rules(name: str) -> bool:
    """Whether a document has rules; the other documents are tables."""
    return name.startswith("rules_")
