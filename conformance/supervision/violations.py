"""The violations of a run, each with the cases that ran before it in its worker. Not for trying them again
(confirmation.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from conformance.defects import Cause, cause_of, symptoms_of
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.record import Occurrence, ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.records import occurrence
from conformance.tables.suite import POINT


@dataclass(frozen=True)
class Violation:
    """A violation of a run: of a case, or at a point of a sweep.

    `before` are the cases that ran before it in its worker; `first`: there was none, as far as known. `cause` is that
    of the defect that it shows.
    """

    case: str
    point: str
    seen: Occurrence
    before: tuple[str, ...]
    first: bool
    cause: Cause

    @property
    def name(self) -> str:
        """The case, or case and point, to run in order to see it alone."""
        return f"{self.case}{POINT}{self.point}" if self.point else self.case


def violations(results: Mapping[str, ResultRecord], cases: Mapping[str, Case]) -> Iterator[Violation]:
    """The violations among results, which are in the order of completion.

    Violations that random sequences found are left out: each was already repeated to make it short. A sweep whose
    points are tries of one thing is one violation.
    """
    by_worker: dict[int, list[str]] = {}
    for case, record in results.items():
        number = record.get("worker", 0)
        before = tuple(by_worker.setdefault(number, []))
        by_worker[number].append(case)
        if record["verdict"] not in VIOLATIONS or cases[case].kind is Kind.SEQUENCES:
            continue
        first = bool(number) and not before
        causes = {each.name: cause_of(each) for each in symptoms_of(record)}
        other = next(iter(causes.values()))
        tries = record.get("space", {}).get("tries")
        points = [each for each in record.get("deviations", ()) if each.get("smallest") and not tries]
        for each in points:
            if each.get("verdict", Verdict.FAIL) in VIOLATIONS:
                text = ",".join(f"{axis}={label}" for axis, label in each["smallest"].items())
                seen: Occurrence = {"verdict": each["verdict"], "reason": each["observed"]}
                cause = causes.get(f"{case}{POINT}{text}", other)
                yield Violation(case, text, seen, before if number else (), False, cause)
        if not points:
            yield Violation(case, "", occurrence(record), before if number else (), first, other)
