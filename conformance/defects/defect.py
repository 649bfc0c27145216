"""Defects: the symptoms of a run by their causes, the most severe first."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from conformance.defects.answering import UNKNOWN, Answering, answering_of
from conformance.defects.cause import Cause, cause_of
from conformance.defects.condition import granted
from conformance.defects.merging import merged
from conformance.defects.severity import Severity, severity_of
from conformance.defects.symptom import Symptom, symptoms_of
from conformance.defects.words import Shorts, title_of
from conformance.model.record import ResultRecord
from conformance.model.verdict import VERDICTS, Verdict

_NONE: Shorts = {}


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
        """The same defect, with the knowledge that it can be this severe."""
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

    `shorts` are the short names of the rules, which titles have.
    """
    records = list(results)
    by_cause: dict[Cause, list[Symptom]] = {}
    for record in records:
        for symptom in symptoms_of(record):
            by_cause.setdefault(cause_of(symptom), []).append(symptom)
    succeeded = granted(records)
    place = {id(record): number for number, record in enumerate(records)}
    found = []
    for causes in merged(by_cause, succeeded):
        symptoms = [symptom for cause in causes for symptom in by_cause[cause]]
        symptoms.sort(key=lambda symptom: (*_rank(symptom), place[id(symptom.record)]))
        found.append(Defect(tuple(causes), tuple(symptoms), title_of(causes, symptoms, succeeded, shorts)))
    return sorted(found, key=_order)


def _order(defect: Defect) -> tuple[bool, bool, int, int, int, tuple[str, ...]]:
    verdict = VERDICTS.index(Verdict(defect.first.verdict))
    return defect.of_stack, defect.waived, defect.severity.rank, verdict, -len(defect.cases), defect.rules


def _rank(symptom: Symptom) -> tuple[int, bool]:
    return severity_of(symptom).rank, bool(symptom.smallest)


def worst_severity(record: ResultRecord) -> Severity:
    return min(map(severity_of, symptoms_of(record)), key=lambda severity: severity.rank)
