"""Defines the kinds of case. The kind determines how a case is run. The loader determines the kind of each case. To add
a kind, add a member here and its runner in combinations/runners.py. The kinds of memory and queue pairs are words of the table
language (vocabulary.py)."""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Traits:
    """The properties of a kind of case."""

    name: str
    # the folder of the tables in cases/, for a kind that does not belong to one verb
    folder: str = ""
    call: str = ""  # the call of the rows of such a kind
    precedence: int = 0  # cases with a higher precedence run later
    cost: float = 0.0  # the estimated cost in addition to the calls, in units of one verb call
    proves: bool = True  # a pass of the case is evidence for its rules


class Kind(Enum):
    ROW = Traits("row")  # the calls of one row
    # the calls of one point of a sweep, if the user has selected that point
    POINT = Traits("point")
    SWEEP = Traits("sweep", cost=50.0)  # the calls of every point of a space
    # Compares the installed header and bindings with the descriptions in verbs/. Runs the compiler.
    API = Traits("api", folder="api", call="compare_api", precedence=1, cost=20.0)
    # The points of a covering array of a model.
    COMBINATIONS = Traits(
        "combinations",
        folder="access",
        call="combinations",
        precedence=1,
        proves=False,
    )

    @property
    def traits(self) -> Traits:
        return self.value


# The kinds that do not belong to one verb, by the call of their rows.
BY_CALL = {kind.traits.call: kind for kind in Kind if kind.traits.call}
