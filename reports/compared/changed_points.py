"""Compares the points of a sweep in two runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.model.record import ResultRecord
from conformance.model.verdict import UNJUDGED, VIOLATIONS
from conformance.older_python import zip
from conformance.sweeps.outcome import OUTSIDE, Points
from reports.compared.changes import GONE, MOST_EXAMPLES, NEW, Change, kind_of
from reports.evidence import inside

# the old and the new verdict, an example of a point, the number of points
Pair = tuple[tuple[str, str], str, int]


def changes(old: Points, new: Points, record: ResultRecord) -> Iterator[Change]:
    """Yields the changes of points. All points with the same old and the same new verdict are one change."""
    if old.space == new.space:
        pairs = _by_number(old, new)
    else:
        pairs = _by_name(old, new)
    changes: dict[tuple[str, str, str], list[str]] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    for verdicts, name, number in pairs:
        if not verdicts[0]:
            kind = NEW
        elif not verdicts[1]:
            kind = GONE
        else:
            kind = kind_of(*verdicts)
        if kind:
            key = (kind, *verdicts)
            count[key] += number
            changes.setdefault(key, []).append(name)
    for (kind, before, after), names in changes.items():
        examples = tuple(name for name in names if name)[:MOST_EXAMPLES]
        yield Change(
            kind,
            record["case"],
            before,
            after,
            record,
            count[kind, before, after],
            examples,
        )


def not_judged(old: Points, new: Points, rule: str) -> set[str]:
    pairs = {pair for pair in zip(old.index, new.index, strict=True) if OUTSIDE not in pair}
    outcomes = ((old.outcomes[before], new.outcomes[after]) for before, after in pairs)
    return {
        after.verdict
        for before, after in outcomes
        if before.verdict in VIOLATIONS
        and after.verdict in UNJUDGED
        and (not rule or rule in before.rules)
    }


def _by_number(old: Points, new: Points) -> Iterator[Pair]:
    """Compares points of equal spaces by number. Pairs of outcomes are counted, which is fast for 100,000 points."""
    first: dict[tuple[int, int], int] = {}
    count: Counter[tuple[int, int]] = Counter()
    for point, pair in enumerate(zip(old.index, new.index, strict=True)):
        first.setdefault(pair, point)
        count[pair] += 1
    for (before, after), number in count.items():
        verdicts = _verdict(old, before), _verdict(new, after)
        if verdicts[0] != verdicts[1]:
            yield verdicts, new.space.text(first[before, after]), number


def _by_name(old: Points, new: Points) -> Iterator[Pair]:
    before, after = _verdicts_by_name(old), _verdicts_by_name(new)
    for name in dict.fromkeys([*before, *after]):
        yield (before.get(name, ""), after.get(name, "")), name, 1


def _verdicts_by_name(points: Points) -> dict[str, str]:
    return {points.space.text(point): outcome.verdict for point, outcome in inside(points)}


def _verdict(points: Points, outcome: int) -> str:
    if outcome == OUTSIDE:
        return ""
    return points.outcomes[outcome].verdict
