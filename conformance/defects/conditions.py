"""Finds the shortest condition on access flags that is true for all failing calls of a defect and for no successful call."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from conformance.defects.symptom import Symptom, verb_of
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.verbs import ENUMS

Flags = frozenset[str]
# By verb: the access flags of each call that had to succeed and succeeded.
Granted = Mapping[str, frozenset[Flags]]
# A condition on the access flags of a call. An empty condition is true for every call of the verb.
Condition = tuple[str, ...]

_ACCESS = frozenset(ENUMS["ibv_access_flags"].short_names)
_FLAGS = re.compile(r"\baccess=([A-Z_|]+)")
_MOST_FLAGS = 2


def granted(results: Iterable[ResultRecord]) -> Granted:
    flags_by_verb: dict[str, set[Flags]] = {}
    for record in results:
        if record["verdict"] == Verdict.PASS and record["expected"].get("outcome") == "success":
            flags_by_verb.setdefault(verb_of(record["call"]), set()).add(
                flags_in(record["call"]) or Flags(),
            )
    return {verb: frozenset(flags) for verb, flags in flags_by_verb.items()}


def conditions(symptoms: Sequence[Symptom], succeeded: Granted) -> Iterator[Condition]:
    """Yields the conditions of at most two flags that are true for all failing calls and for no successful call, the
    shortest first. Symptoms whose flags are unknown are left out."""
    conditions = [
        (symptom.verb, flags) for symptom in symptoms if (flags := flags_of(symptom)) is not None
    ]
    verbs = {verb for verb, _ in conditions} or {symptom.verb for symptom in symptoms}
    good = [flags for verb in verbs for flags in succeeded.get(verb, ())]
    if conditions:
        common = sorted(Flags.intersection(*(flags for _, flags in conditions)))
    else:
        common = []
    for count in range(_MOST_FLAGS + 1):
        for names in itertools.combinations(common, count):
            if not any(set(names) <= flags for flags in good):
                yield names


def flags_of(symptom: Symptom) -> Flags | None:
    """Returns the access flags of the failed call, from the call, the smallest point or the set-up; None if unknown."""
    of_call = flags_in(symptom.call)
    if of_call is not None:
        return of_call
    of_point = Flags(re.split(r"\W+", symptom.smallest.get("access", ""))) & _ACCESS
    set_up = (symptom.deviation or symptom.record).get("set_up", {}).get("given", ())
    lines = (line.partition(": ")[2] for line in set_up)
    of_set_up = [
        flags
        for line in lines
        if verb_of(line) == symptom.verb and (flags := flags_in(line)) is not None
    ]
    return of_point or (of_set_up[0] if of_set_up else None)


def flags_in(call: str) -> Flags | None:
    match = _FLAGS.search(call)
    if match:
        return Flags(match[1].split("|")) & _ACCESS
    return None
