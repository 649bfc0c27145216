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
    counts: Counter[str] = Counter()
    total = 0
    for values in _of_parameters(judged.array):
        there = set(map(values, reached))
        # of the points with the same combination, the first has the last word
        reason_of = dict(zip(map(values, reversed(skipped)), reversed(skipped.values())))
        missing = reason_of.keys() - there
        counts.update(map(reason_of.__getitem__, missing))
        total += len(there) + len(missing)
    in_order = dict.fromkeys(skipped.values())
    return Counter({reason: counts[reason] for reason in in_order if counts[reason]}), total


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


def pairs(judged: Judged) -> PairsFacts:
    axes = judged.array.model.parameters
    violated = {point for group in judged.groups.values() for point in group.points}
    judged_points = [point for point in judged.array.points if point not in judged.skipped]
    right_points = [point for point in judged_points if point not in violated]
    wrong_points = [point for point in judged_points if point in violated]
    states = []
    for first, second in itertools.combinations(range(len(axes)), 2):
        values = itemgetter(first, second)
        there, right, wrong = (
            {*map(values, points)} for points in (judged.array.points, right_points, wrong_points)
        )
        for pair in itertools.product(axes[first].labels, axes[second].labels):
            states.append(_state(pair in right, pair in wrong) if pair in there else "-")
    lacking, combinations = unreached(judged)
    return {
        "parameters": {axis.name: list(axis.labels) for axis in axes},
        "states": "".join(states),
        "points": {str(verdict): count for verdict, count in judged.verdicts.items()},
        "combinations": combinations,
        "lacking": dict(lacking),
    }


def _state(has_right: bool, has_wrong: bool) -> str:
    if has_right and has_wrong:
        return "s"
    if has_right:
        return "r"
    return "w" if has_wrong else "n"
