"""A table as a suite has it."""

from dataclasses import dataclass
from pathlib import Path

from conformance.model.case import Case


@dataclass(frozen=True)
class Table:
    """A table without mistakes. `name` is `<folder>/<file name without .yaml>`."""

    name: str
    verb: str
    path: Path
    cases: tuple[Case, ...]
