"""Mutants: references and altered real calls that break one rule, or make a choice that a rule leaves open.

Mutants are rows of tables (mutant_table.py). The mutants of a driver are in trial/kernel/; trying.py tries the mutants.
"""

from dataclasses import dataclass
from typing import Any

BLIND = "blind"


@dataclass(frozen=True)
class Violation:
    """`kind`, a reference or an alteration of real calls, violates `rule`; `about` describes how.

    A `permitted` mutant keeps `rule`, but not the recommendations (rules of the level `should`) in `departs_from`,
    whose cases rightly fail. `written` is BLIND if the mutant's author had not seen the cases.
    """

    name: str
    rule: str
    about: str
    kind: type[Any]
    departs_from: tuple[str, ...] = ()
    permitted: bool = False
    written: str = ""
