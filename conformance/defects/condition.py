"""The shortest condition that all symptoms of a defect share and no successful call has. Not for causes (cause.py)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence

from conformance.defects.cause import group_of
from conformance.defects.symptom import Symptom, verb_of
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.verbs import ENUMS

Flags = frozenset[str]

_ACCESS = frozenset(ENUMS["ibv_access_flags"].short_names)
_FLAGS = re.compile(r"\baccess=([A-Z_|]+)")
_ABSENT = re.compile(r"^!(\w+)$")
_MOST_FLAGS = 2


def granted(results: Iterable[ResultRecord]) -> Mapping[str, frozenset[Flags]]:
    """The access flags with which calls have succeeded as they should, by the group of their verb."""
    found: dict[str, set[Flags]] = {}
    for record in results:
        if record["verdict"] == Verdict.PASS and record["expected"].get("outcome") == "success":
            found.setdefault(group_of(verb_of(record["call"])), set()).add(_flags_in(record["call"]) or Flags())
    return {group: frozenset(flags) for group, flags in found.items()}


def common_flags(symptoms: Sequence[Symptom], succeeded: Mapping[str, frozenset[Flags]]) -> tuple[str, ...]:
    """The fewest access flags that all failing calls have and no successful one; empty if there are none so few."""
    found = [flags for each in symptoms if (flags := _flags_of(each))]
    if not found:
        return ()
    good = succeeded.get(group_of(symptoms[0].verb), frozenset())
    for count in range(1, _MOST_FLAGS + 1):
        for names in itertools.combinations(sorted(Flags.intersection(*found)), count):
            if not any(set(names) <= flags for flags in good):
                return names
    return ()


def absent_flags(symptoms: Sequence[Symptom]) -> tuple[str, ...]:
    """The flags without which whole sweeps fail."""
    return tuple(sorted({found[1] for each in symptoms if (found := _ABSENT.match(each.when))} & _ACCESS))


def row_in_words(symptom: Symptom) -> str:
    """The row of a case as words: ids of rows say what is special about them."""
    row = symptom.case.rpartition("/")[2].partition("@")[0]
    return row.replace("---", " - ").replace("-+-", " + ").replace("-", " ").replace("   ", " - ")


def _flags_of(symptom: Symptom) -> Flags | None:
    of_point = Flags(re.split(r"\W+", symptom.smallest.get("access", ""))) & _ACCESS
    return _flags_in(symptom.call) or of_point or None


def _flags_in(call: str) -> Flags | None:
    found = _FLAGS.search(call)
    return Flags(found[1].split("|")) & _ACCESS if found else None
