"""What all formats say of a comparison in the same words: its conclusion, its numbers, and the defects of a change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conformance.errors import format_count
from reports.compared.changes import (
    HIT,
    NEW,
    NEW_KINDS,
    NEWLY_JUDGED,
    NEWLY_WAIVED,
    NEWLY_WRONG,
    NO_LONGER_WAIVED,
    REGRESSED,
    REQUIRED,
    UNKNOWN,
    Change,
)
from reports.compared.comparison import Comparison, stacks
from reports.compared.waivers import unwaived

_OF_SUITE = ("tables", "profile", "tier", "seed")
_NOTHING = "nothing has regressed"
_CONCLUSIONS = {
    REGRESSED: "something has regressed",
    UNKNOWN: "something has regressed, or is newly supported and wrong",
    NEWLY_WRONG: "a newly supported feature is wrong",
    NEWLY_JUDGED: "a newly judged case is wrong",
    REQUIRED: "the profile of the new run requires what the device lacks",
}
_MOST_NAMED = 3  # the most of what is no longer waived, in the first line


def conclusion(comparison: Comparison) -> str:
    """Returns the conclusion about the cases that both runs tried, with the numbers of new defects by kind."""
    words = _conclusion(comparison)
    if comparison.has_other_tables:
        words += "; the tables differ: only cases of both runs are compared"
    if comparison.has_other_profile:
        words += "; the profiles differ"
    if comparison.failing and comparison.failing not in comparison.fail_on:
        words += "; a failure is only what has regressed"
    return words


def _conclusion(comparison: Comparison) -> str:
    parts = []
    for kind in NEW_KINDS:
        if new := comparison.defects.by_kind[kind]:
            count = format_count(len(new), "new defect")
            if kind != NEW:
                count = f"{len(new)} {kind}"
            parts.append(f"{count}, the worst: {new[0].severity.label}")
    parts += _unwaived(comparison)
    if waived := comparison.defects.newly_waived:
        parts.append(f"{format_count(len(waived), 'defect')} {NEWLY_WAIVED}")
    more = ""
    if parts:
        more = f": {'; '.join(parts)}"
    if comparison.failing:
        return f"{_CONCLUSIONS[comparison.failing]}{more}"
    if comparison.of(HIT):
        return f"a race was hit only in the new run, which does not show that it is new{more}"
    if not comparison.compared:
        return "nothing was compared: no case was tried by both runs"
    if comparison.status:
        return f"no decided case has regressed, but the new run is incomplete or undecided{more}"
    if comparison.pointless:
        return f"no case that both runs tried has regressed{more}"
    if parts or any(comparison.untried):
        return f"nothing that both runs tried has regressed{more}"
    return _NOTHING


def _unwaived(comparison: Comparison) -> Iterator[str]:
    """Yields how many defects, and how many cases or rules, are no longer waived, with the reasons of the first ones."""
    by_noun: dict[str, list[str]] = {}
    for target, reason in unwaived(comparison).items():
        _, _, why = reason.partition("the waiver of ")[2].partition(") ")
        item = f"{target.removeprefix('defect ')}, {why or 'its waiver is not applied'}"
        by_noun.setdefault(_noun_of(target), []).append(item)
    for noun, items in by_noun.items():
        named = items[:_MOST_NAMED]
        if len(items) > _MOST_NAMED:
            named.append(f"and {len(items) - _MOST_NAMED} more")
        yield f"{_are(len(items), noun)} {NO_LONGER_WAIVED} ({'; '.join(named)})"


def _noun_of(target: str) -> str:
    """Returns what a waiver is of, by its name."""
    if target.startswith("defect "):
        return "defect"
    if "/" in target:
        return "case"
    return "rule"


def _are(number: int, noun: str) -> str:
    if number == 1:
        return f"1 {noun} is"
    return f"{format_count(number, noun)} are"


def compared_cases(comparison: Comparison) -> str:
    """Returns the numbers of compared cases, of cases that only one run tried, and of sweeps without points."""
    both = f"{format_count(comparison.compared, 'case')} compared"
    old, new = comparison.untried
    untried = [
        f"{number:,} tried only by the {run} run"
        for run, number in (("old", old), ("new", new))
        if number
    ]
    if comparison.not_by_point:
        untried.append(comparison.not_by_point)
    if untried:
        return f"{both} ({', '.join(untried)})"
    return both


def changed_stacks(comparison: Comparison) -> Mapping[str, list[tuple[str, str, str]]]:
    changes: dict[str, list[tuple[str, str, str]]] = {}
    for stack in stacks(comparison.old, comparison.new):
        if stack[0] in _OF_SUITE:
            heading = "different settings of the suite"
        else:
            heading = "what was under test has changed"
        changes.setdefault(heading, []).append(stack)
    return changes


def newly_waived(comparison: Comparison) -> Iterator[str]:
    if not (defects := comparison.defects.newly_waived):
        return
    yield ""
    waived = f"{len(defects)} of {len(comparison.defects.waived)} waived defects of the new run"
    verb = "are"
    if len(defects) == 1:
        verb = "is"
    yield f"{NEWLY_WAIVED}: {waived} {verb} not in the old run"
    for defect in defects:
        waiver = defect.symptoms[0].record["waiver"] or {}
        terms = ", ".join(filter(None, (waiver.get("owner"), waiver.get("issue"))))
        yield f"  {defect.severity.label:13}  {defect.fingerprint}  {defect.title} ({terms})"


def regressed_by_layer(comparison: Comparison) -> str:
    """Returns how many defects have regressed, by the layer that answers."""
    counts = comparison.defects.regressed_by_layer.items()
    return f"regressed by layer: {', '.join(f'{layer} {number}' for layer, number in counts)}"


def shown_by(change: Change, comparison: Comparison) -> str:
    defects = ", ".join(fingerprints(change, comparison))
    if defects:
        return f" (defect {defects})"
    return ""


def fingerprints(change: Change, comparison: Comparison) -> list[str]:
    return [defect.fingerprint for defect in comparison.defects.of_change(change)]
