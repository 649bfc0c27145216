"""Compares two runs: case_pair.py compares the results of one case, changed_points.py the points of a sweep, and this module
the whole runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from conformance.defects import Defect
from conformance.errors import format_count
from conformance.model.verdict import Verdict
from reports.compared.case_pair import CasePair, has_other_profile
from reports.compared.changes import (
    DEATHS,
    FAILING,
    FIXED,
    GONE,
    HIT,
    KINDS,
    NEW,
    NEW_KINDS,
    NOT_HIT,
    REGRESSED,
    UNDECIDED,
    UNKNOWN,
    Change,
)
from reports.compared.defects import ComparedDefects
from reports.compared.rules import ComparedRules
from reports.digest import Digest
from reports.environment import called
from reports.races import Race, is_race, races_of

# for the kind of a change, its kind if only chance decided it
_KINDS_OF_RACES = {REGRESSED: HIT, UNKNOWN: HIT, FIXED: NOT_HIT}


@dataclass(frozen=True)
class Comparison:
    """All changes, in the order of KINDS. `compared` is the number of cases that both runs tried. `untried` has the
    number of cases that only the old run tried, and the number of cases that only the new run tried. `pointless` is the
    number of compared sweeps without a file of points. `races` are those that only one run
    has hit, by case. `fail_on` are those kinds of FAILING for which the exit status is 1."""

    old: Digest
    new: Digest
    compared: int
    changes: tuple[Change, ...] = field(default=())
    untried: tuple[int, int] = (0, 0)
    pointless: int = 0
    races: Mapping[str, Race] = field(default_factory=dict)
    fail_on: Sequence[str] = FAILING

    @property
    def has_other_tables(self) -> bool:
        return self.old.environment.tables_sha256 != self.new.environment.tables_sha256

    @property
    def has_other_profile(self) -> bool:
        return has_other_profile(self.old, self.new)

    @property
    def not_by_point(self) -> str:
        """How many sweeps were compared without their points, and why; empty if none was."""
        if not self.pointless:
            return ""
        sweeps = format_count(self.pointless, "sweep")
        return f"{sweeps} not point by point, because a file of points is missing"

    @property
    def is_worse_though_waived(self) -> bool:
        """Whether a waived case is newly wrong."""
        return any(change.record["effective"] == Verdict.WAIVED for change in self.failing_changes)

    @property
    def untried_now(self) -> Sequence[str]:
        """The cases that only the old run tried, and that `untried` counts."""
        gone = {change.case for change in self.of(GONE)}
        return [
            case for case in self.old.by_case if case not in self.new.by_case and case not in gone
        ]

    @cached_property
    def defects(self) -> ComparedDefects:
        return ComparedDefects(self.old, self.new, self.changes)

    @cached_property
    def rules(self) -> ComparedRules:
        return ComparedRules(self.old, self.new, self.changes, self.untried)

    def pair(self, case: str) -> CasePair | None:
        """Returns the results of a case in both runs; None if only one run has it."""
        if case not in self.old.by_case or case not in self.new.by_case:
            return None
        return CasePair(self.old, self.new, self.old.by_case[case], self.new.by_case[case])

    def of(self, kind: str) -> list[Change]:
        """Returns the changes of a kind: first those after which the kernel or the process dies, or hangs."""
        return [change for change in self.changes if change.kind == kind]

    @property
    def failing_changes(self) -> Sequence[Change]:
        """The changes with a kind of FAILING, in the order of these kinds."""
        return [change for kind in FAILING for change in self.of(kind)]

    @property
    def failing(self) -> str:
        """The worst kind of FAILING that a change has; empty if none has one."""
        return next(filter(self.of, FAILING), "")

    @property
    def has_news(self) -> bool:
        """Whether something is newly wrong, or a defect is new. A race that may not be new is neither."""
        return bool(self.failing) or any(
            self.defects.by_kind[kind] for kind in NEW_KINDS if kind != HIT
        )

    @property
    def status(self) -> int:
        """The exit status: 1 if a change has a kind of `fail_on`; 3 if the new run is incomplete, if a verdict of the old
        run is no longer decided, if it is not known whether a point has regressed, if a race was hit that may not be new,
        or if no case was tried by both runs; else 0."""
        if any(map(self.of, self.fail_on)):
            return 1
        is_open = any(map(self.of, (UNDECIDED, UNKNOWN, HIT)))
        if is_open or self.new.footer is None or not self.compared:
            return 3
        return 0


class Comparisons:
    """The comparisons of runs that stand in an order, the earliest first. Each is made once."""

    def __init__(self, runs: Sequence[Digest]) -> None:
        self._runs = runs
        self._made: dict[tuple[int, int], Comparison] = {}

    def of(self, old: int, new: int) -> Comparison:
        """Returns the comparison of the runs with these indices."""
        if (old, new) not in self._made:
            self._made[old, new] = compare(self._runs[old], self._runs[new])
        return self._made[old, new]

    def absence(self, defect: Defect, shows: int, lacks: int) -> str:
        """Returns the word of absence.py for the run with the index `lacks`, which does not show a defect of the run with
        the index `shows`, whichever of them is the earlier one."""
        return self.of(shows, lacks).defects.absence_now(defect)


def compare(old: Digest, new: Digest) -> Comparison:
    """Returns the comparison. Of runs of different tables, the cases that both runs have are compared."""
    before, after = old.by_case, new.by_case
    pairs = {
        case: CasePair(old, new, before[case], after[case]) for case in before if case in after
    }
    races = _races(pairs)
    changes: list[Change] = []
    for case, pair in pairs.items():
        is_by_chance = case in races and not races[case].is_decided
        changes += map(_of_race, pair.changes()) if is_by_chance else pair.changes()
    gone = [record for case, record in before.items() if case not in pairs]
    added = [record for case, record in after.items() if case not in pairs]
    has_other_tables = old.environment.tables_sha256 != new.environment.tables_sha256
    # If a run has left out no case, every case that the run lacks is also missing in the run's tables.
    if has_other_tables and not new.header.get("left_out"):
        changes += [
            Change(GONE, record["case"], record["effective"], "", record) for record in gone
        ]
        gone = []
    if has_other_tables and not old.header.get("left_out"):
        changes += [
            Change(NEW, record["case"], "", record["effective"], record) for record in added
        ]
        added = []
    order = list(KINDS)
    changes.sort(
        key=lambda change: (
            order.index(change.kind),
            change.new not in DEATHS,
            change.points > 0,
        )
    )
    return Comparison(
        old,
        new,
        len(pairs),
        tuple(changes),
        untried=(len(gone), len(added)),
        pointless=sum(pair.lacks_points for pair in pairs.values()),
        races=races,
    )


def races_between(old: Digest, new: Digest) -> Mapping[str, Race]:
    """Returns the `races` of a Comparison."""
    before, after = old.by_case, new.by_case
    cases = (case for case in before if case in after and is_race(after[case]))
    return _races({case: CasePair(old, new, before[case], after[case]) for case in cases})


def _of_race(change: Change) -> Change:
    return replace(change, kind=_KINDS_OF_RACES.get(change.kind, change.kind))


def _races(pairs: Mapping[str, CasePair]) -> Mapping[str, Race]:
    """Returns the races that only one run has hit, by case. The hits of all races of a defect count together if the other
    run does not have the defect."""
    before = {case: pair.before for case, pair in pairs.items()}
    after = {case: pair.after for case, pair in pairs.items()}
    races = {
        case: race
        for case, race in races_of(before, after).items()
        if not race.is_new or pairs[case].kind_without_points() in (REGRESSED, UNKNOWN)
    }
    by_defect: dict[str, list[str]] = {}
    for case, race in races.items():
        old, new = pairs[case].old, pairs[case].new
        run, other = (new, old) if race.is_new else (old, new)
        for defect in run.violations.defects_in(case)[:1]:
            if not defect.is_among(other.violations.defects):
                by_defect.setdefault(defect.fingerprint, []).append(case)
    for cases in by_defect.values():
        together = prod(races[case].chance for case in cases)
        races |= {case: replace(races[case], together=together) for case in cases}
    return races


def stacks(old: Digest, new: Digest) -> Sequence[tuple[str, str, str]]:
    """Returns the differences between the two stacks: name, old value, new value."""
    compared = (
        "device",
        "driver",
        "firmware",
        "kernel",
        "rdma-core",
        "stack",
        "tables",
        "profile",
        "tier",
        "seed",
    )
    pairs = [
        (name, old.summary.facts[name], new.summary.facts[name])
        for name in compared
        if old.summary.facts[name] != new.summary.facts[name]
    ]
    before, after = old.environment.under_test, new.environment.under_test
    differ = [
        name
        for name in {**before, **after}
        if before.get(name) != after.get(name)
        and (name in before.keys() & after or _is_given(name))
    ]
    return [
        *pairs,
        *((called(name), before.get(name, ""), after.get(name, "")) for name in differ),
    ]


def _is_given(name: str) -> bool:
    """Whether a fact is about what the user gave, so that its absence means that a run was given nothing."""
    return name.startswith("given.") and name not in ("given.image", "given.expired")
