"""The kinds of case: what a case stands for, and so how it is run.

A kind is decided when a table is loaded. To add one: a member here, and its runner in sweeps/runners.py. Not for the
kinds of memory or of queue pairs, which are words of the table language (vocabulary.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Traits:
    """What is particular to a kind of case.

    `folder` and `call`: of a kind that is about no single verb, the folder of its tables in cases/, and what a row
    calls to be of it. Cases of a higher `precedence` run later. `cost` is that of a case beside that of its calls, in
    plain calls. `proves`: whether a pass shows that its rules are kept.
    """

    name: str
    folder: str = ""
    call: str = ""
    precedence: int = 0
    cost: float = 0.0
    proves: bool = True


class Kind(Enum):
    """What a case stands for."""

    ROW = Traits("row")  # the calls of one row
    POINT = Traits("point")  # those of one point of a sweep, which was asked for by its name
    SWEEP = Traits("sweep", cost=50.0)  # those of every point of a space
    # The installed header and bindings against the descriptions in verbs/. They wait for a compiler.
    API = Traits("api", folder="api", call="compare_api", precedence=1, cost=20.0)
    # Random sequences of calls, which take as long as they are given. A device may not be the same afterwards.
    SEQUENCES = Traits("sequences", folder="sequences", call="random_sequences", precedence=2, proves=False)

    @property
    def traits(self) -> Traits:
        """What is particular to the kind."""
        return self.value


# The kinds that are about no single verb, by the call that makes a row one of them.
BY_CALL = {kind.traits.call: kind for kind in Kind if kind.traits.call}
