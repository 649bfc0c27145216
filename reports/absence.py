"""Says of a run that does not show a defect whether it could have shown it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from conformance.model.record import ResultRecord
from conformance.model.verdict import UNJUDGED
from reports.earlier_points import points_of, unjudged_of

NOT_SEEN, NOT_DECIDED, UNTRIED = "not seen", "not decided", "not tried"


def absence(judged: Iterable[bool | None]) -> str:
    """Returns the word for a defect that a run does not show, from what the run has judged of each of its cases: all
    (True), nothing (False), or only points that are perhaps not those of the defect (None)."""
    kinds: set[bool | None] = set()
    for kind in judged:
        kinds.add(kind)
        if True in kinds and len(kinds) > 1:
            return NOT_DECIDED
    if kinds <= {True}:
        return NOT_SEEN
    return UNTRIED if False in kinds else NOT_DECIDED


def is_judged(record: ResultRecord | None, unjudged_before: int = 0) -> bool | None:
    """Returns what a run has judged of a case with this result, for `absence`; `unjudged_before` is the number of points
    without a verdict in the run that shows the defect."""
    if record is None or record["effective"] in UNJUDGED:
        return False
    return None if _unjudged_points(record) > unjudged_before else True


def _unjudged_points(record: ResultRecord) -> int:
    """The number of points of a sweep or model without a verdict; of a race it differs by chance, and is 0."""
    if record["space"].get("tries"):
        return 0
    return unjudged_of(points_of(record))


def tried(
    cases: Iterable[str], shows: Mapping[str, ResultRecord], lacks: Mapping[str, ResultRecord]
) -> int:
    """Returns how many of these cases the run without a defect has judged, at as many points as the run that shows it."""
    count = 0
    for case in cases:
        unjudged_before = _unjudged_points(shows[case]) if case in shows else 0
        count += is_judged(lacks.get(case), unjudged_before) is True
    return count


def not_judged(results: Sequence[ResultRecord]) -> Iterator[str]:
    """Yields the ids of the cases of which a run has judged nothing; for all cases of a table, the id of the table."""
    by_table: dict[str, list[ResultRecord]] = {}
    for record in results:
        by_table.setdefault(table_of(record["case"]), []).append(record)
    for table, records in by_table.items():
        lacking = [record["case"] for record in records if is_judged(record) is False]
        yield from [table] if len(lacking) == len(records) else lacking


def judged_in_part(results: Sequence[ResultRecord]) -> Mapping[str, int]:
    """Returns the number of points without a verdict of each sweep that has them beside others."""
    return {
        record["case"]: _unjudged_points(record) for record in results if is_judged(record) is None
    }


def table_of(case: str) -> str:
    return "/".join(case.split("/")[:2])
