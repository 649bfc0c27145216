"""Finds the violations of a run, each with the cases that ran before it in its worker."""

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from conformance.defects import Cause, cause_of, symptoms_of
from conformance.model.case import Case
from conformance.model.record import Occurrence, ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.new_records import occurrence
from conformance.tables.suite import POINT

# The number of violations of a cause that are drawn.
MOST_DRAWN = 3


@dataclass(frozen=True)
class Violation:
    """A violation by a case, or at a point of a sweep. `before` has the cases that ran earlier in the worker of `case`;
    `first` is true if `case` was the worker's first case, but never for a point. `cause` is the cause of the defect."""

    case: str
    point: str
    seen: Occurrence
    before: tuple[str, ...]
    first: bool
    cause: Cause

    @property
    def name(self) -> str:
        """The id by which only the case, or only the point, can be run."""
        if self.point:
            return f"{self.case}{POINT}{self.point}"
        return self.case


def violations(
    results: Mapping[str, ResultRecord],
    cases: Mapping[str, Case],
) -> Iterator[Violation]:
    """Yields the violations among results, in the order of completion. If all points of a sweep repeat one experiment
    whose outcome depends on chance, the sweep is one violation."""
    by_worker: dict[int, list[str]] = {}
    for case, record in results.items():
        number = record.get("worker", 0)
        before = tuple(by_worker.setdefault(number, []))
        by_worker[number].append(case)
        if record["verdict"] not in VIOLATIONS:
            continue
        first = bool(number) and not before
        causes = {symptom.name: cause_of(symptom) for symptom in symptoms_of(record)}
        other = next(iter(causes.values()))
        tries = record.get("space", {}).get("tries")
        points = [
            deviation
            for deviation in record.get("deviations", ())
            if deviation.get("smallest") and not tries
        ]
        for point in points:
            if point.get("verdict", Verdict.FAIL) in VIOLATIONS:
                text = ",".join(f"{axis}={label}" for axis, label in point["smallest"].items())
                seen: Occurrence = {"verdict": point["verdict"], "reason": point["observed"]}
                cause = causes.get(f"{case}{POINT}{text}", other)
                yield Violation(case, text, seen, before if number else (), False, cause)
        if not points:
            yield Violation(case, "", occurrence(record), before if number else (), first, other)


def drawn(violations: Iterable[Violation], seed: str) -> list[Violation]:
    """Returns all hangs, and MOST_DRAWN violations of each cause, in their order. The first violation of a cause is
    among them, since it needs no repetition if its case was the first in its worker. `seed` decides the others."""
    there = list(violations)
    by_cause: dict[Cause, list[int]] = {}
    chosen: set[int] = set()
    for number, violation in enumerate(there):
        if violation.seen["verdict"] == Verdict.HANG:
            chosen.add(number)
        else:
            by_cause.setdefault(violation.cause, []).append(number)
    draw = random.Random(seed)
    for first, *similar in by_cause.values():
        chosen |= {first, *draw.sample(similar, min(len(similar), MOST_DRAWN - 1))}
    return [there[number] for number in sorted(chosen)]
