"""Says what is no longer waived between two runs, and what a user has to waive."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from conformance.defects import Defect
from conformance.model.verdict import Verdict
from conformance.results.waivers import OF_RDMA_CORE
from reports.compared.changes import FAILING, NOT_JUDGED, REQUIRED, Change
from reports.compared.comparison import Comparison


def unwaived(comparison: Comparison) -> Mapping[str, str]:
    """Returns what is no longer waived, such as `defect de19cd258c26`, with the reason."""
    reasons = (
        reason
        for change in comparison.failing_changes
        for reason in _reasons_against(change, comparison)
    )
    return {reason.partition("the waiver of ")[2].partition(" (")[0]: reason for reason in reasons}


def why_not_waived(change: Change, comparison: Comparison) -> str:
    """Returns why a violation counts that was waived in the old run: the problem of its waiver, or that there is none;
    empty for any other change."""
    return next(_reasons_against(change, comparison), "")


def _reasons_against(change: Change, comparison: Comparison) -> Iterator[str]:
    pair = comparison.pair(change.case)
    if pair is None or change.kind not in FAILING or change.old != Verdict.WAIVED:
        return
    waiver, now = pair.before["waiver"], comparison.new.summary.waivers
    if not waiver or not pair.has_no_new_cause:
        return
    targets = {waiver["for"]}
    for defect in comparison.defects.of_change(change):
        targets |= {f"defect {name}" for name in defect.fingerprints}
    of_target = re.compile(f": the waiver of (?:{'|'.join(map(re.escape, targets))}) \\(")
    reasons = [*filter(of_target.search, now.get("problems", ()))]
    out_of_range = tuple(f"{target} (" for target in targets)
    reasons += [
        f"the waiver of {name} does not cover this kernel{f' or {OF_RDMA_CORE}' if OF_RDMA_CORE in name else ''}"
        for name in now.get("out_of_range", ())
        if name.startswith(out_of_range)
    ]
    terms = f"the waiver of {waiver['for']} ({waiver['owner']}, {waiver['issue']})"
    yield from reasons or [f"the new run does not apply {terms}"]


def to_waive(comparison: Comparison) -> Sequence[Defect]:
    """Returns the defects without whose waivers something is newly wrong: also known ones, of cases that are newly wrong,
    and none that only the new profile requires: that is to be corrected in the profile."""
    by_profile = comparison.defects.by_kind[REQUIRED]
    defects = [*comparison.defects.newly_found]
    for change in comparison.failing_changes:
        if change.kind == REQUIRED:
            continue
        if change.rule and change.kind not in NOT_JUDGED:
            # the whole result counts
            shown: Sequence[Defect] = comparison.new.violations.defects_in(change.case)
        else:
            shown = comparison.defects.of_change(change)
        defects += [defect for defect in shown if defect in comparison.defects.counted]
    by_fingerprint = {defect.fingerprint: defect for defect in defects}
    return [defect for defect in by_fingerprint.values() if defect not in by_profile]
