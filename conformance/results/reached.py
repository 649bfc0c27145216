"""Counts the combinations of values of an array that no judged point of a run has, by the reason. Also tells for each
pair of values what its points show."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter

from conformance.judging.combinations import Judged
from conformance.model.combinations import CoveringArray, Point
from conformance.model.record import PairsFacts
from conformance.model.verdict import VIOLATIONS


def unreached(judged: Judged) -> tuple[Counter[str], int]:
    """Returns how many combinations were not reached, by the reason at the first point that has the combination, and
    how many combinations the array has."""
    skipped = judged.skipped
    reached = [point for point in judged.array.points if point not in skipped]
    reasons: Counter[str] = Counter()
    total = 0
    for values in _of_parameters(judged.array):
        there = set(map(values, reached))
        missing = dict[tuple[str, ...], str]()
        for point, reason in skipped.items():
            combination = values(point)
            if combination not in there:
                missing.setdefault(combination, reason)
        reasons.update(missing.values())
        total += len(there) + len(missing)
    return reasons, total


def _of_parameters(array: CoveringArray) -> Iterator[Callable[[Point], Point]]:
    """Yields for each combination of parameters a function that returns their values at a point."""
    numbers = range(len(array.model.names))
    return (itemgetter(*chosen) for chosen in itertools.combinations(numbers, array.strength))


def unseen(judged: Judged) -> dict[str, int]:
    """Returns for each rule that no point violates how many combinations of its points show nothing about it, although
    the device offers them: none if the rule is verified."""
    counts: Counter[str] = Counter()
    hidden = {
        rule: (points, judged.points_of(rule))
        for rule, points in judged.hidden.items()
        if judged.rules.get(rule) not in VIOLATIONS
    }
    for values in _of_parameters(judged.array):
        for rule, (points, seen) in hidden.items():
            counts[rule] += len({*map(values, points)} - {*map(values, seen)})
    return {rule: count for rule, count in counts.items() if count}


def told(judged: Judged) -> str:
    """Returns a sentence about the combinations that were not reached; empty if all were."""
    reasons, total = unreached(judged)
    if not reasons:
        return ""
    parts = [f"{count:,} {reason}" for reason, count in reasons.most_common()]
    count = sum(reasons.values())
    return f"{count:,} of {total:,} combinations were not reached: {', '.join(parts)}"


def pairs(judged: Judged) -> PairsFacts:
    axes = judged.array.model.parameters
    wrong = {point for group in judged.groups.values() for point in group.points}
    judgements: dict[tuple[int, str, int, str], set[bool]] = {}
    for point in judged.array.points:
        values = list(enumerate(point))
        for (first, label), (second, other) in itertools.combinations(values, 2):
            results = judgements.setdefault((first, label, second, other), set())
            if point not in judged.skipped:
                results.add(point not in wrong)
    states = []
    for first, second in itertools.combinations(range(len(axes)), 2):
        for label, other in itertools.product(axes[first].labels, axes[second].labels):
            states.append(_state(judgements.get((first, label, second, other))))
    return {
        "parameters": {axis.name: list(axis.labels) for axis in axes},
        "states": "".join(states),
    }


def _state(results: set[bool] | None) -> str:
    if results is None:
        return "-"
    if not results:
        return "n"
    if len(results) == 2:
        return "s"
    if results == {True}:
        return "r"
    return "w"
