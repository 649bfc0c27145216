"""The shortest condition that failing calls share and no successful call has: a condition on the access flags that they
request.

Not for causes (cause.py), which are derived from one result alone.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from conformance.defects.symptom import Symptom, verb_of
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.verbs import ENUMS

Flags = frozenset[str]
# The access flags of the calls that have succeeded as they should, by verb.
Granted = Mapping[str, frozenset[Flags]]
# A condition on the access flags of a call; without any it holds for every call of the verb.
Condition = tuple[str, ...]

_ACCESS = frozenset(ENUMS["ibv_access_flags"].short_names)
_FLAGS = re.compile(r"\baccess=([A-Z_|]+)")
_MOST_FLAGS = 2


def granted(results: Iterable[ResultRecord]) -> Granted:
    """The access flags with which calls have succeeded."""
    found: dict[str, set[Flags]] = {}
    for record in results:
        if record["verdict"] == Verdict.PASS and record["expected"].get("outcome") == "success":
            found.setdefault(verb_of(record["call"]), set()).add(_flags_in(record["call"]) or Flags())
    return {verb: frozenset(flags) for verb, flags in found.items()}


def conditions(symptoms: Sequence[Symptom], succeeded: Granted) -> Iterator[Condition]:
    """The conditions of at most two flags that all failing calls meet and no successful one, the shortest first.

    Symptoms whose flags are not known are left out, unless that leaves none.
    """
    found = [(each.verb, flags) for each in symptoms if (flags := flags_of(each)) is not None]
    verbs = {verb for verb, _ in found} or {each.verb for each in symptoms}
    good = [flags for verb in verbs for flags in succeeded.get(verb, ())]
    common = sorted(Flags.intersection(*(flags for _, flags in found))) if found else []
    for count in range(_MOST_FLAGS + 1):
        for names in itertools.combinations(common, count):
            if not any(set(names) <= flags for flags in good):
                yield names


def common_flags(symptoms: Sequence[Symptom], succeeded: Granted) -> Condition:
    """The shortest condition with a flag; empty without one, or if a call without it shows that flags do not matter."""
    found = next(conditions(symptoms, succeeded), ())
    return found or next((each for each in conditions(symptoms, succeeded) if each), ())


def flags_of(symptom: Symptom) -> Flags | None:
    """The access flags of the call that failed: its own, those of the smallest point, or of the set-up; else None."""
    of_call = _flags_in(symptom.call)
    if of_call is not None:
        return of_call
    of_point = Flags(re.split(r"\W+", symptom.smallest.get("access", ""))) & _ACCESS
    given = (symptom.deviation or symptom.record).get("set_up", {}).get("given", ())
    lines = (line.partition(": ")[2] for line in given)
    of_set_up = [flags for line in lines if verb_of(line) == symptom.verb and (flags := _flags_in(line)) is not None]
    return of_point or (of_set_up[0] if of_set_up else None)


def _flags_in(call: str) -> Flags | None:
    found = _FLAGS.search(call)
    return Flags(found[1].split("|")) & _ACCESS if found else None
