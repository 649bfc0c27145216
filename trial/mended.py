"""The trial of the mended stack: leaving out one change has to bring back the violations of its defect, and no others.

The selection, the comparison and the table. Not for running it (trial/mended_runs.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.defects import defects_of
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.record import ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.tables.tiers import EXHAUSTIVE

SAMPLE = 40  # one in so many of the cases without relation to a defect or the change is run as well


@dataclass(frozen=True)
class LeftOut:
    """The outcome of leaving one change out: the cases whose verdict differs from that on the whole mended stack.

    `violated` are those that violate a rule only without it, `not_verified` those that the device no longer offers
    without it. `of_other_rules` are the violations of none of the change's rules. `defects` are the
    fingerprints of the violations, with their titles; `declared` are the defects that the change claims to mend.
    """

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
        """In words: whether violations came back, and whether all of them belong to the change."""
        if not self.violated and not self.not_verified:
            return "nothing: no case sees it"
        return "others as well" if self.of_other_rules else "its own alone"


def selected(change_rules: Sequence[str], cases: Sequence[Case], shipped: Mapping[str, ResultRecord]) -> list[str]:
    """The ids of the cases to run without a change: those of its rules, those that the shipped stack violates, and a
    sample.

    `shipped` are the results of the stack as shipped, by case. Hazardous cases and sweeps are run only if they are of
    its rules; of the exhaustive tier only rows of its rules are run, since its sweeps and sequences take minutes.
    """
    rest = 0
    chosen = []
    for case in cases:
        own = bool(set(case.rules) & set(change_rules))
        row = case.kind is Kind.ROW
        if not own and (case.alone or not row):  # they need a guest of their own, or take long
            continue
        if case.tier == EXHAUSTIVE and not (own and row):
            continue
        record = shipped.get(case.id)
        if own or (record is not None and record["verdict"] in VIOLATIONS):
            chosen.append(case.id)
            continue
        rest += 1
        if rest % SAMPLE == 0:
            chosen.append(case.id)
    return chosen


def left_out(
    change: str,
    rules: Sequence[str],
    declared: Sequence[str],
    whole: Mapping[str, ResultRecord],
    without: Sequence[ResultRecord],
) -> LeftOut:
    """Compares the results without a change with those of the whole mended stack, by case."""
    last = {record["case"]: record for record in without}
    before = {case: whole[case]["verdict"] for case in last if case in whole}
    violated = [r for case, r in last.items() if r["verdict"] in VIOLATIONS and before.get(case) not in VIOLATIONS]
    lost = [
        case
        for case, r in last.items()
        if before.get(case) == Verdict.PASS and r["verdict"] in (Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
    ]
    others = [record["case"] for record in violated if not set(record["rules"]) & set(rules)]
    defects = {defect.fingerprint: defect.title for defect in defects_of(violated)}
    return LeftOut(
        change,
        tuple(rules),
        tuple(declared),
        tuple(record["case"] for record in violated),
        tuple(lost),
        defects,
        tuple(others),
        len(last),
    )


def table(findings: Sequence[LeftOut]) -> str:
    lines = ["| left out | rules | violated again | not verified any more | defects | comes back |"]
    lines.append("|---|---|---:|---:|---|---|")
    for each in findings:
        defects = ", ".join(f"`{fingerprint}`" for fingerprint in each.defects) or "none"
        lines.append(
            f"| {each.change} | {', '.join(each.rules)} | {len(each.violated)} | {len(each.not_verified)} | {defects} "
            f"| {each.outcome} |"
        )
    return "\n".join(lines) + "\n"
