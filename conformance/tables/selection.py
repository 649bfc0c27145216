"""Selects the cases of a run: by verb, by rule, by words in the id, or by exact ids of cases and points.

Not for the order of the cases and not for what a tier contains (tiers.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from conformance.errors import PROGRAM, UserError
from conformance.model.case import Case
from conformance.model.vocabulary import TIERS
from conformance.tables.suite import POINT, Suite
from conformance.tables.tiers import EXHAUSTIVE, of_tier
from conformance.yamldoc.reader import suggestion

_LISTED = {"verb": "describe", "rule": "list --rules", "case": "list"}  # the command that shows all of them


@dataclass(frozen=True)
class Selection:
    """The criteria of a selection; an empty one selects everything. All `words` must be in a case's id.

    The others select among the cases of the `tier`, which does not apply to the cases that `only` names.
    """

    verbs: Sequence[str] = ()
    rules: Sequence[str] = ()
    words: Sequence[str] = ()
    only: Sequence[str] = ()
    tier: str = EXHAUSTIVE

    def apply(self, suite: Suite) -> list[Case]:
        """Returns the matching cases of `suite`, in the suite's order; single points come last.

        Raises UserError if a verb, rule or id does not exist, or if no case matches.
        """
        verbs = sorted({table.verb for table in suite.tables})
        wanted = [verb if verb in verbs else f"ibv_{verb.removeprefix('ibv_')}" for verb in self.verbs]
        _check("verb", wanted, verbs)
        _check("rule", self.rules, suite.registry)
        points = [suite.find(case) for case in self.only if POINT in case]
        _check("case", [case for case in self.only if POINT not in case], [case.id for case in suite.cases])
        chosen = larger = [
            case
            for case in suite.cases
            if (not wanted or case.verb in wanted)
            and (not self.rules or set(self.rules) & set(case.rules))
            and (not self.only or case.id in self.only)
            and all(word.lower() in case.id.lower() for word in self.words)
        ]
        if not self.only:
            in_tier = {case.id for case in of_tier(suite.cases, self.tier)}
            chosen = [case for case in larger if case.id in in_tier]
            if larger and not chosen:
                tier = min((case.tier for case in larger), key=list(TIERS).index)
                raise UserError(f"no case of tier {self.tier} matches the selection", hint=f"--tier {tier} has some")
        chosen += [case for case in points if case is not None]
        if not chosen:
            raise UserError("no case matches the selection", hint=f"see {PROGRAM} list")
        return chosen


def _check(what: str, words: Sequence[str], known: object) -> None:
    names = list(known)  # type: ignore[call-overload]
    for word in words:
        if word not in names:
            near = suggestion(word, names)
            raise UserError(f"unknown {what} {word!r}{near}", hint="" if near else f"see {PROGRAM} {_LISTED[what]}")
