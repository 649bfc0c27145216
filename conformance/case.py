"""One case: what is set up, the one call that is judged, what must come of it, and what it proves.

Frozen data between the tables that people write and the execution on a device. Not for reading
tables (tables.py) and not for running (execution.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.quantity import Quantity
from conformance.yamltext import Place


@dataclass(frozen=True)
class Flags:
    """A bit mask as a table wrote it: the mask and the names, unknown bits as `bit N`."""

    mask: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return "|".join(self.names) if self.names else "0"


Argument = Quantity | Flags | str


@dataclass(frozen=True)
class MemorySpec:
    """Memory to be made for a case: a kind of language.MEMORY_KINDS and a size in bytes."""

    kind: str
    size: Quantity


@dataclass(frozen=True)
class MrSpec:
    """A memory region that is there before the judged call."""

    arguments: Mapping[str, Argument]


@dataclass(frozen=True)
class Given:
    """What exists before the judged call, by name. A PD called `pd` is always there."""

    memory: Mapping[str, MemorySpec] = field(default_factory=dict)
    pds: tuple[str, ...] = ()
    mrs: Mapping[str, MrSpec] = field(default_factory=dict)
    memlock: Quantity | None = None


@dataclass(frozen=True)
class Expectation:
    """What the document says must come of a call.

    `outcome`: see language.OUTCOMES. `errno`: the names allowed; empty: none is asked for; ("any",):
    some errno must be given. `mr`: "as_asked" when the region's fields must be those asked for.
    """

    outcome: str
    errno: tuple[str, ...] = ()
    mr: str = ""

    def as_data(self) -> dict[str, Any]:
        """The expectation as it stands in a result."""
        data: dict[str, Any] = {"outcome": self.outcome}
        if self.errno:
            data["errno"] = list(self.errno)
        if self.mr:
            data["mr"] = self.mr
        return data


@dataclass(frozen=True)
class Step:
    """One call of a case and what must come of it. `name` is what its product is called afterwards."""

    call: str
    arguments: Mapping[str, Argument]
    then: Expectation
    name: str = ""

    def __str__(self) -> str:
        return f"{self.call}({', '.join(f'{key}={shown(value)}' for key, value in self.arguments.items())})"


@dataclass(frozen=True)
class Case:
    """A row after expansion. `id` is `<verb>/<table>/<row>`, the same in every run on every device."""

    id: str
    verb: str
    rules: tuple[str, ...]
    needs: tuple[str, ...]
    entry: str
    given: Given
    when: Step
    afterwards: tuple[Step, ...]
    place: Place
    about: str = ""


def shown(argument: Argument) -> str:
    """An argument as a person writes it."""
    return argument.text if isinstance(argument, Quantity) else str(argument)
