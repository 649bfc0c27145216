"""A defect as the summary of a run describes it, and the one name that the same defect has in several runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from conformance.defects import Defect, Severity
from conformance.defects.owner import ALIKE, Answering
from conformance.model.printable import one_line, plain
from reports import summary

_RANK = {severity.label: severity.rank for severity in Severity}
_REMOTE = {severity.label for severity in Severity if severity.advice}


@dataclass(frozen=True)
class KnownDefect:
    """A defect, as a summary describes it. `answered` is the layer that returned the result, with the evidence. `case`,
    `line` and `repro` describe the first case of the defect. `in_part` has the number of points without a verdict of each
    of its sweeps with such points. `worst_on` names the stacks with the severity, if other stacks have a lesser one."""

    fingerprints: tuple[str, ...]
    severity: str
    title: str
    rules: tuple[str, ...]
    means: str
    cases: tuple[str, ...]
    answered: str
    case: str
    line: str
    repro: str
    in_part: tuple[tuple[str, int], ...] = ()
    worst_on: str = ""

    @property
    def fingerprint(self) -> str:
        return self.fingerprints[0]

    @property
    def another(self) -> str:
        """That of Defect."""
        _, _, because = self.answered.rstrip(")").partition(" (")
        return because if because.startswith(ALIKE) else ""

    @property
    def is_remote(self) -> bool:
        """Whether a remote peer can trigger the defect, which is then reported in private."""
        return self.severity in _REMOTE

    @property
    def rank(self) -> int:
        """The rank of the severity: 0 for the worst severity; unknown severities come last."""
        return _RANK.get(self.severity, len(_RANK))

    def agrees(self, other: KnownDefect) -> bool:
        """Whether both have a common rule or layer."""
        layer, others = (defect.answered.partition(" (")[0] for defect in (self, other))
        return layer == others or not {*self.rules}.isdisjoint(other.rules)

    def names(self, called: Mapping[str, Sequence[KnownDefect]]) -> tuple[str, ...]:
        """Returns the fingerprints without those with which other defects are `called` that are not this one."""
        further = [
            name
            for name in self.fingerprints[1:]
            if name not in called or any(map(self.agrees, called[name]))
        ]
        return self.fingerprint, *further


def first_names_of(defects: Iterable[KnownDefect]) -> Mapping[str, str]:
    """Returns for each fingerprint of the defects the name of its defect: the fingerprint with which the first of them
    is called. Defects that share a fingerprint are one defect, also if a third one joins them; but a fingerprint of an
    earlier version joins only defects with a common rule or layer."""
    distinct = {id(defect): defect for defect in defects}.values()
    called: dict[str, list[KnownDefect]] = {}
    for defect in distinct:
        called.setdefault(defect.fingerprint, []).append(defect)
    first_names: dict[str, str] = {}
    for defect in distinct:
        names = defect.names(called)
        earlier = [first_names[name] for name in names if name in first_names]
        first, *joined = dict.fromkeys(earlier) or [defect.fingerprint]
        for name, called_first in first_names.items() if joined else ():
            if called_first in joined:
                first_names[name] = first
        first_names.update(dict.fromkeys(names, first))
    return first_names


def defect_of_summary(data: Any, names: Set[str], in_part: Mapping[str, int]) -> KnownDefect:
    """Returns a defect of a summary. `names` are the fingerprints with which the summary calls its defects: what an
    older summary lists as another name of this defect can be one of them. `in_part` is that of the Facts."""
    first = data["first"]
    also = [name for name in map(checked_text, data["also"]) if name not in names]
    cases = tuple(map(checked_text, data["cases"]))
    return KnownDefect(
        (checked_text(data["fingerprint"]), *also),
        checked_text(data["severity"]),
        checked_text(data["title"]),
        tuple(map(checked_text, data["rules"])),
        checked_text(data["means"]),
        cases,
        str(Answering(checked_text(data["answered_by"]), checked_text(data["because"]))),
        checked_text(first["case"]),
        checked_text(first["reason"]),
        checked_text(first["repro"]),
        tuple((case, in_part[case]) for case in cases if case in in_part),
    )


def described(defect: Defect) -> KnownDefect:
    """Returns a defect of a run as its summary describes it."""
    return defect_of_summary(plain(summary.of_defect(defect)), frozenset(), {})


def checked_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return one_line(value)


def checked_texts(values: Any) -> dict[str, str]:
    return {checked_text(name): checked_text(value) for name, value in values.items()}
