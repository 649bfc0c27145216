"""Waivers of defects: one for all rows and sweeps in which a defect shows. Pure functions.

The fingerprint says which defect, the severity how bad it may be. Not for waivers of cases and rules (waivers.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from conformance.defects import Severity, Symptom, cause_of, severity_of, symptoms_of
from conformance.model.record import ResultRecord, WaiverFacts
from conformance.model.record_shape import completed
from conformance.model.verdict import INCOMPLETE, VIOLATIONS
from conformance.results.waiver_scope import WaiverScope
from conformance.yamldoc.nodes import Location


@dataclass(frozen=True)
class DefectWaiver:
    """The waiver of a defect that is at most as bad as `worst`.

    `also` are other fingerprints of the defect. `cases` are those in which it was seen; it also covers others.
    `unsteady` are those of them in which it does not always show.
    """

    defect: str
    also: tuple[str, ...]
    worst: Severity
    cases: tuple[str, ...]
    unsteady: tuple[str, ...]
    where: WaiverScope
    issue: str
    owner: str
    expires: date
    location: Location

    @property
    def target(self) -> str:
        return f"defect {self.defect}"

    def covers(self, symptom: Symptom) -> bool:
        """Whether the symptom is of the defect, and not worse than it."""
        return self.is_of(symptom) and severity_of(symptom).rank >= self.worst.rank

    def is_of(self, symptom: Symptom) -> bool:
        """Whether the symptom is of the defect, however bad it is."""
        return cause_of(symptom).fingerprint in (self.defect, *self.also)

    def as_data(self) -> WaiverFacts:
        return {
            "for": self.target,
            "issue": self.issue,
            "owner": self.owner,
            "expires": self.expires.isoformat(),
            "place": str(self.location),
        }

    def problems(self, results: Sequence[ResultRecord], today: date) -> Iterator[str]:
        """What is wrong with it in a run; nothing if its cases were not judged."""
        subject = f"{self.location}: the waiver of {self.target} ({self.owner}, {self.issue})"
        shown = [symptom for record in results for symptom in symptoms(record) if self.is_of(symptom)]
        if shown and self.expires < today:
            yield f"{subject} expired on {self.expires}"
        for symptom in shown:
            if not self.covers(symptom):
                yield f"{subject} does not fit: {symptom.case} is worse, {severity_of(symptom).label}"
        steady = set(self.cases) - set(self.unsteady)
        judged = {record["case"] for record in results if record["verdict"] not in INCOMPLETE}
        if not shown and steady and steady <= judged:
            yield f"{subject} is not needed any more: it shows in none of its cases"


def symptoms(record: ResultRecord) -> list[Symptom]:
    """The symptoms of a result as it is written; none unless it is a violation."""
    if record["verdict"] not in VIOLATIONS:
        return []
    return list(symptoms_of(completed(record, "")))


def covering(waivers: Sequence[DefectWaiver], record: ResultRecord) -> DefectWaiver | None:
    """The waiver of the first symptom if each symptom of the result has one; None otherwise."""
    found = [next((waiver for waiver in waivers if waiver.covers(symptom)), None) for symptom in symptoms(record)]
    return found[0] if found and all(found) and not record.get("deviations_left_out") else None
