"""Defects: the symptoms of a run by their causes, the most severe first.

One errno can have many reasons, so that refused registrations have one cause for each rule at first. Those that fail
under one condition, such as a flag, which no successful call of the run meets, become one defect.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from conformance.defects.answering import UNKNOWN, Answering, answering_of
from conformance.defects.cause import REGISTRATION, Cause, cause_of
from conformance.defects.condition import Condition, Granted, conditions, granted
from conformance.defects.severity import Severity, severity_of
from conformance.defects.symptom import Symptom, symptoms_of
from conformance.defects.words import Shorts, title_of
from conformance.model.fault import Effect
from conformance.model.record import ResultRecord
from conformance.model.verdict import VERDICTS, Verdict

_NONE: Shorts = {}
_ByCause = Mapping[Cause, Sequence[Symptom]]


@dataclass(frozen=True)
class Defect:
    """Symptoms of one or several causes that belong together, the most severe first, and then in the order of the run.

    `title` says what is wrong, in one line. `unconfirmed`: none of its violations was seen again when tried again.
    `known` is the worst severity that it has shown elsewhere: when its case ran alone, or in another run.
    """

    causes: tuple[Cause, ...]
    symptoms: tuple[Symptom, ...]
    title: str
    unconfirmed: bool = False
    known: Severity | None = None

    @property
    def fingerprint(self) -> str:
        """Identifies the defect in other runs too: the 12 hexadecimal digits of its first cause."""
        return self.causes[0].fingerprint

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of all its causes; a run of fewer cases may show only some of them."""
        return tuple(cause.fingerprint for cause in self.causes)

    @cached_property
    def severity(self) -> Severity:
        """The worst severity of its symptoms and of `known`."""
        shown = severity_of(self.symptoms[0])
        return shown if self.known is None or shown.rank < self.known.rank else self.known

    def at_least(self, severity: Severity) -> "Defect":
        """The same defect, with a severity that it is known to reach."""
        return self if severity.rank >= self.severity.rank else replace(self, known=severity)

    @property
    def first(self) -> Symptom:
        """The symptom that shows the defect best: of the worst severity, and a row rather than a sweep."""
        return self.symptoms[0]

    @cached_property
    def rules(self) -> tuple[str, ...]:
        return tuple(sorted({rule for symptom in self.symptoms for rule in symptom.rules}))

    @cached_property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(symptom.case for symptom in self.symptoms))

    @property
    def points(self) -> int:
        """The number of calls in which it shows: points of sweeps, and one for each other case."""
        return sum(symptom.points for symptom in self.symptoms)

    @cached_property
    def answering(self) -> Answering:
        found = map(answering_of, self.symptoms)
        return next((each for each in found if each.layer != UNKNOWN), answering_of(self.first))

    @cached_property
    def waived(self) -> bool:
        """Whether every result in which it shows is waived."""
        return all(symptom.record["effective"] == Verdict.WAIVED for symptom in self.symptoms)

    @cached_property
    def of_stack(self) -> bool:
        """Whether the run is about a device and every result in which the defect shows is attributed to the stack."""
        return all(symptom.record["effective"] == Verdict.STACK for symptom in self.symptoms)


def defects_of(results: Iterable[ResultRecord], shorts: Shorts = _NONE) -> list[Defect]:
    """The defects in results that have every key of record_shape.RESULT, the most severe first.

    `shorts` are the short names of the rules, for titles.
    """
    records = list(results)
    by_cause: dict[Cause, list[Symptom]] = {}
    for record in records:
        for symptom in symptoms_of(record):
            by_cause.setdefault(cause_of(symptom), []).append(symptom)
    succeeded = granted(records)
    place = {id(record): number for number, record in enumerate(records)}
    found = []
    for causes in _merged(by_cause, succeeded):
        symptoms = [symptom for cause in causes for symptom in by_cause[cause]]
        symptoms.sort(key=lambda symptom: (*_rank(symptom), place[id(symptom.record)]))
        found.append(Defect(tuple(causes), tuple(symptoms), title_of(causes, symptoms, succeeded, shorts)))
    return sorted(found, key=_order)


def _merged(by_cause: _ByCause, succeeded: Granted) -> list[list[Cause]]:
    """The causes of each defect, in the order of their keys."""
    groups: dict[tuple[str, ...], list[Cause]] = {}
    for cause in sorted(by_cause, key=lambda cause: cause.key):
        mergeable = cause.key[:2] == (Effect.REFUSED, REGISTRATION)
        groups.setdefault(cause.key[:3] if mergeable else cause.key, []).append(cause)
    return [found for causes in groups.values() for found in _by_condition(causes, by_cause, succeeded)]


def _by_condition(causes: Sequence[Cause], by_cause: _ByCause, succeeded: Granted) -> list[list[Cause]]:
    """Groups of causes that share a condition; the condition that most of them share comes first."""
    rest = {cause: set(conditions(by_cause[cause], succeeded)) for cause in causes}
    found = []
    while rest:
        best = min(
            (each for shared in rest.values() for each in shared), key=lambda each: _shared_by(each, rest), default=None
        )
        together = [cause for cause, shared in rest.items() if best in shared] if best is not None else list(rest)[:1]
        found.append(together)
        for cause in together:
            del rest[cause]
    return found


def _shared_by(condition: Condition, causes: Mapping[Cause, set[Condition]]) -> tuple[int, int, Condition]:
    return -sum(condition in shared for shared in causes.values()), len(condition), condition


def _order(defect: Defect) -> tuple[bool, bool, int, int, int, tuple[str, ...]]:
    verdict = VERDICTS.index(Verdict(defect.first.verdict))
    return defect.of_stack, defect.waived, defect.severity.rank, verdict, -len(defect.cases), defect.rules


def _rank(symptom: Symptom) -> tuple[int, bool]:
    return severity_of(symptom).rank, bool(symptom.smallest)


def worst_severity(record: ResultRecord) -> Severity:
    return min(map(severity_of, symptoms_of(record)), key=lambda severity: severity.rank)
