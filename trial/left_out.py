"""What the mended stack shows without one of its changes: the cases that violate a rule again, their rules and their
defects."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.defects import defects_of
from conformance.model.record import ResultRecord
from conformance.model.verdict import NOT_TESTABLE, VIOLATIONS, Verdict
from trial import report


@dataclass(frozen=True)
class LeftOut:
    """The cases whose verdict without one change differs from the verdict on the whole mended stack.

    `violated` has the cases that violate a rule only without the change, and `not_verified` the cases that are not
    testable without the change. `of_other_rules` has the violating cases that test none of the change's rules.
    `defects` has the titles of the violated defects by fingerprint, and `declared` the defects that the change fixes
    according to its description."""

    change: str
    rules: tuple[str, ...]
    declared: tuple[str, ...]
    violated: tuple[str, ...]
    not_verified: tuple[str, ...]
    defects: Mapping[str, str]
    of_other_rules: tuple[str, ...]
    tried: int

    @property
    def outcome(self) -> str:
        """Whether any case detects that the change is missing, and whether all violations are of the change's rules."""
        if not self.violated and not self.not_verified:
            return "none: no case detects it"
        if self.of_other_rules:
            return "others as well"
        return "only its own"


def left_out(
    change: str,
    rules: Sequence[str],
    declared: Sequence[str],
    whole: Mapping[str, ResultRecord],
    without: Sequence[ResultRecord],
) -> LeftOut:
    """Compares the results without a change with the results of the whole mended stack, by case."""
    last = {record["case"]: record for record in without}
    before = {case: whole[case]["verdict"] for case in last if case in whole}
    violated = [
        r
        for case, r in last.items()
        if r["verdict"] in VIOLATIONS and before.get(case) not in VIOLATIONS
    ]
    lost = [
        case
        for case, r in last.items()
        if before.get(case) == Verdict.PASS and r["verdict"] in NOT_TESTABLE
    ]
    cases = tuple(record["case"] for record in violated)
    other_cases = tuple(
        record["case"] for record in violated if not set(record["rules"]) & set(rules)
    )
    defects = {defect.fingerprint: defect.title for defect in defects_of(violated)}
    return LeftOut(
        change,
        tuple(rules),
        tuple(declared),
        cases,
        tuple(lost),
        defects,
        other_cases,
        len(last),
    )


def table(findings: Sequence[LeftOut]) -> str:
    rows = []
    for finding in findings:
        defects = ", ".join(f"`{fingerprint}`" for fingerprint in finding.defects) or "none"
        figures = (len(finding.violated), len(finding.not_verified))
        rows.append((finding.change, ", ".join(finding.rules), *figures, defects, finding.outcome))
    head = (
        "left out",
        "rules",
        "violated again",
        "no longer verified",
        "defects",
        "violations that occur again",
    )
    return "\n".join(report.table(head, rows, (2, 3))) + "\n"


def causes(findings: Sequence[LeftOut]) -> str:
    """Compares the defects with the changes that cure them: what one change cures is one defect, and what two changes
    cure at different cases has two causes. Returns a line for each difference; empty without one."""
    lines = []
    by_defect: dict[str, list[LeftOut]] = {}
    for finding in findings:
        if len(finding.defects) > 1:
            lines.append(
                f"one change, several defects: {finding.change}: {_names(finding.defects)}"
            )
        for fingerprint in finding.defects:
            by_defect.setdefault(fingerprint, []).append(finding)
    for fingerprint, curing in by_defect.items():
        if len(curing) > 1:
            changes = ", ".join(finding.change for finding in curing)
            lines.append(f"one defect, several changes: {fingerprint}: {changes}")
    return "\n".join(lines)


def _names(defects: Mapping[str, str]) -> str:
    return ", ".join(f"{fingerprint} ({title})" for fingerprint, title in defects.items())


def line(finding: LeftOut) -> str:
    return (
        f"{finding.change}: {finding.outcome}: {len(finding.violated)} violated again, "
        f"{len(finding.not_verified)} no longer verified, of {finding.tried} cases; defects: "
        f"{' '.join(finding.defects) or 'none'}"
    )
