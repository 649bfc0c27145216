"""The kinds of change between two runs, and the change of one case, of some points of its sweep, or of one of its rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from conformance.defects.symptom import violated_rules
from conformance.errors import format_count
from conformance.model.record import ResultRecord
from conformance.model.verdict import (
    INCOMPLETE,
    KEPT,
    NOT_TESTABLE,
    UNJUDGED,
    VERDICTS,
    VIOLATIONS,
    Verdict,
)

REGRESSED, UNKNOWN, FIXED, UNSUPPORTED, UNCONFIRMED = (
    "regressed",
    "regressed or newly supported",
    "fixed",
    "became unsupported",
    "not confirmed",
)
NEWLY_WRONG = "newly supported, and wrong"
NEWLY_JUDGED = "newly judged, and wrong"
REQUIRED = "newly required by the profile"
NEWLY_RIGHT = "newly supported, and right"
JUDGED_RIGHT = "newly judged, and right"
IN_BOTH, NOT_TRIED = "in both", "not tried by the old run"
NEWLY_WAIVED, NO_LONGER_WAIVED = "newly waived", "no longer waived"
NEW, GONE, UNNEEDED, UNDECIDED, CHANGED = (
    "new",
    "gone",
    "waiver no longer needed",
    "no longer decided",
    "changed",
)
HIT, NOT_HIT = "hit only now", "not hit again"
UNCOVERED = "no longer hidden"  # of a defect of both runs, by defects that are gone
# The kinds of change, in the order of the output, with their meaning.
KINDS: Mapping[str, str] = {
    REGRESSED: "a new violation, or a worse one than before",
    UNKNOWN: "the old run judged only some points of the case, and its record does not tell whether these are wrong now",
    NEWLY_WRONG: "the old stack did not support the tested feature; the new stack supports it and violates a rule",
    NEWLY_JUDGED: "the old run has no verdict: the situation could not be set up, or the case was not decided or not run",
    REQUIRED: "the profiles differ: that of the new run requires what the device lacks, as in the old run",
    HIT: "a race that violates a rule in tries of the new run only, too few to show that this is new",
    UNCONFIRMED: "a new violation, or a worse one, that did not occur when the case was repeated",
    UNDECIDED: "had a verdict; now the harness or the environment failed, or the case was not run",
    UNSUPPORTED: "was judged; now the device does not declare the capability, or the situation cannot be set up",
    UNNEEDED: "was waived, and is no longer a violation",
    FIXED: "was a violation, and passes now",
    NOT_HIT: "a race that violated a rule in tries of the old run only, too few to show that it is fixed",
    NEWLY_RIGHT: "the old stack did not support the tested feature; the new stack supports it, and no rule is violated",
    JUDGED_RIGHT: "the old run has no verdict, and no rule is violated now",
    CHANGED: "any other change of the verdict",
    NEW: "only in the new run",
    GONE: "only in the old run",
}
# The kinds of change for which a comparison fails.
FAILING = (REGRESSED, UNKNOWN, NEWLY_WRONG, NEWLY_JUDGED, REQUIRED)
# The kinds for which it fails, by the value of `compare --fail-on`.
DEFAULT_FAIL_ON = "newly-wrong"
FAIL_ON: Mapping[str, tuple[str, ...]] = {DEFAULT_FAIL_ON: FAILING, "regressed": (REGRESSED,)}
# The kinds of a violation where the old run judged nothing.
NOT_JUDGED = (NEWLY_WRONG, NEWLY_JUDGED, REQUIRED)
# The kinds of a violation that only the new run has.
WORSE = (*FAILING, HIT)
# The kinds of a defect that only the new run has.
NEW_KINDS = (NEW, UNKNOWN, NEWLY_WRONG, NEWLY_JUDGED, REQUIRED, HIT)
DEATHS = (Verdict.CRASH, Verdict.HANG)
MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Change:
    """A changed verdict of a case, or of some points of its sweep. `points` is the number of points; it is 0 for a
    change of a whole case. `examples` has the names of some of the points, for `run --only`. `rule` is set if only the
    points of one rule changed, in a case whose points are recorded inside its result. `old_points` has the numbers of the
    old run's points by verdict, if it left some points of a newly wrong case without a verdict. `failing_points` has the
    verdicts that points which violated a rule have now, if these are none on the device."""

    kind: str
    case: str
    old: str
    new: str
    record: ResultRecord
    points: int = 0
    examples: tuple[str, ...] = ()
    rule: str = ""
    old_points: str = ""
    failing_points: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The case or, of points, the number of points and an example."""
        if self.points:
            example = f", such as {self.examples[0]}" if self.examples else ""
            return f"{format_count(self.points, 'point')} of {self.case}{example}"
        return self.case

    @property
    def rules(self) -> Sequence[str]:
        """The violated rules; those of the case if none is violated now."""
        return violated_rules(self.record) or self.record["rules"]

    @property
    def arrow(self) -> str:
        """Both verdicts, the old one with the numbers of points."""
        old = f"{self.old} ({self.old_points})" if self.old_points else self.old
        return " -> ".join(verdict for verdict in (old, self.new) if verdict) + self.hidden

    @property
    def hidden(self) -> str:
        """Says that the change does not show a defect to be fixed; empty for any other change."""
        return hidden_points(self.failing_points)


def kind_of(old: str, new: str) -> str:
    """Returns the kind of the change from one verdict to another; empty if they are equal."""
    if old == new:
        return ""
    if new in VIOLATIONS:
        if old == Verdict.UNSUPPORTED:
            return NEWLY_WRONG
        if old in UNJUDGED:
            return NEWLY_JUDGED
        worse = old not in VIOLATIONS or VERDICTS.index(new) < VERDICTS.index(old)
        if worse:
            return REGRESSED
        return CHANGED
    if new in INCOMPLETE:
        if old in INCOMPLETE:
            return CHANGED
        return UNDECIDED
    if old == Verdict.WAIVED:
        return UNNEEDED
    if new in NOT_TESTABLE:
        if old in NOT_TESTABLE or old in INCOMPLETE:
            return CHANGED
        return UNSUPPORTED
    if new not in KEPT:
        return CHANGED
    if old in VIOLATIONS:
        return FIXED
    if old == Verdict.UNSUPPORTED:
        return NEWLY_RIGHT
    if old in UNJUDGED:
        return JUDGED_RIGHT
    return CHANGED


def worst_of(kinds: set[str]) -> str:
    """Returns the first of the kinds of a violation that only the new run has; empty if it is a regression, or if there is
    none."""
    worst = next((kind for kind in WORSE if kind in kinds), "")
    return "" if worst == REGRESSED else worst


def hidden_points(verdicts: Collection[str]) -> str:
    """Returns the words for what violated a rule and has no verdict on the device now; empty without such verdicts."""
    return f" (its failing points {' or '.join(sorted(verdicts))})" if verdicts else ""


def amount(changes: Sequence[Change]) -> str:
    """Returns the numbers of changed cases and points: `2 cases and 12 points`."""
    cases, points = (
        sum(not change.points for change in changes),
        sum(change.points for change in changes),
    )
    amounts = ((cases, "case"), (points, "point"))
    return " and ".join(format_count(number, amount) for number, amount in amounts if number)
