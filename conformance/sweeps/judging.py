"""Judges the points of a sweep: each combination of expectation and observation is judged once, at its first point."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from conformance.errors import format_count
from conformance.judging import Basis, Judgement, conclude, refused_region
from conformance.judging.circumstances import located
from conformance.model.bounds import MOST_NOTES, cut
from conformance.model.case import Case, Expectation
from conformance.model.fault import WHAT, Fault
from conformance.model.observation import (
    Alarm,
    KernelEvidence,
    Observation,
    PointExample,
    without_undeclared,
)
from conformance.model.sweep import Sweep
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.sweeps.byte_columns import byte_planes, combinations
from conformance.sweeps.outcome import OUTSIDE, Outcome, PointObservations, Points, overall

# For each call of a set-up: the rule that is violated if the call is refused and the repeated set-up succeeds.
_RULE_OF_SETUP = {
    "ibv_reg_mr": "REG-17",
    "ibv_reg_mr_iova": "IOVA-04",
    "ibv_reg_dmabuf_mr": "DMA-01",
    "ibv_alloc_mw": "BIND-16",
    "ibv_bind_mw": "BIND-01",
    "post_bind_mw": "BIND-14",
}
_HEX = re.compile(r"0x[0-9a-f]+")


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep. `alarms` are kernel errors and leaked resources, each with the first and last point of its
    interval. `log` has the first lines of the kernel's log. `fault` is the fault of the first alarm."""

    points: Points
    verdict: str
    reason: str
    alarms: list[Alarm] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    fault: Fault | None = None

    @property
    def kernel(self) -> KernelEvidence:
        """The kernel's log if there are alarms; else empty."""
        if self.alarms:
            return {"log": self.log}
        return {}


class OtherPoints(ValueError):
    """Raised for recorded points that are not those of the sweep in the table; the text says what differs."""


def rejudge_sweep(
    case: Case,
    points: Points,
    basis: Basis,
    alarms: list[Alarm],
    log: list[str],
) -> SweepResult:
    """Judges recorded points by the current clauses. All points with one outcome are judged by its example. Raises
    LookupError if an outcome has no example, and OtherPoints. Tries end at the first violation, so that all points are
    recorded only without one."""
    sweep = case.sweep
    assert sweep is not None
    if points.space.as_data() != sweep.space.as_data():
        raise OtherPoints("the axes of the sweep differ from those in the table")
    different = OtherPoints("the points of the sweep differ from those in the table")
    if points.inside & ~sweep.inside:
        raise different
    record = PointObservations(sweep.space.size)
    record.codes = points.index
    record.observations = [without_undeclared(example["observed"]) for example in points.examples]
    result = conclusion_of(case, PointJudge(case, sweep, basis).points(record), alarms, log)
    has_ended = sweep.tries and result.verdict in VIOLATIONS
    if result.points.inside != sweep.inside and not has_ended:
        raise different
    return result


def conclusion_of(case: Case, points: Points, alarms: list[Alarm], log: list[str]) -> SweepResult:
    """Returns the result of a sweep whose points are judged; `alarms` and `log` are as in SweepResult."""
    assert case.sweep is not None
    counts = points.by_verdict()
    verdict = Verdict.FAIL if alarms else overall(list(counts))
    if [*counts] == [Verdict.UNREACHABLE] and all(
        "setup_failed" in example["observed"] for example in points.examples
    ):
        verdict = Verdict.BROKEN  # no set-up worked at any point
    shares = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    reason = f"{format_count(sum(counts.values()), 'point')}: {shares}"
    if verdict == Verdict.PASS:
        reason += _why_unreached(points)
    fault = None
    if alarms:
        first = alarms[0]
        reason += f"; {first['what']} (between the points {first['from']} and {first['to']})"
        if "fault" in first:
            fault = replace(located(Fault.of_data(first["fault"]), case), call="")
        else:
            fault = None
    return SweepResult(points, verdict, reason, alarms, log, fault)


def _why_unreached(points: Points) -> str:
    """Returns a clause with the reasons of the UNREACHABLE points; empty if there are none."""
    reasons = dict.fromkeys(
        outcome.observed for outcome in points.outcomes if outcome.verdict == Verdict.UNREACHABLE
    )
    if not reasons:
        return ""
    first, *others = reasons
    return f"; not reached: {first}{' (and others)' if others else ''}"


class PointJudge:
    def __init__(self, case: Case, sweep: Sweep, basis: Basis) -> None:
        self.case, self.sweep, self.basis = case, sweep, basis

    def points(self, record: PointObservations) -> Points:
        sweep = self.sweep
        clauses = sweep.clause_numbers(self._declared)
        masks, names = sweep.undeclared(self._declared)
        combined = combinations([*byte_planes(record.codes), clauses, masks])
        outcomes: dict[Outcome, int] = {}
        examples: list[PointExample] = []
        numbers: list[int] = []
        for id_, (low, high, clause, mask) in enumerate(combined.values):
            code = low | high << 8
            if code == OUTSIDE:
                numbers.append(OUTSIDE)
                continue
            outcome, example = self._outcome(
                combined.first(id_),
                clause,
                mask,
                names,
                record.observations[code],
            )
            numbers.append(outcomes.setdefault(outcome, len(outcomes)))
            if numbers[-1] == len(examples):
                examples.append(example)
        return Points(sweep.space, list(outcomes), combined.renumbered(numbers), examples)

    def violated(self, record: PointObservations) -> bool:
        """Whether one of the points that have been run violates a rule."""
        return any(outcome.verdict in VIOLATIONS for outcome in self.points(record).outcomes)

    def _declared(self, name: str) -> bool:
        return not self.basis.capabilities.undeclared([name], self.case.entry)

    def _outcome(
        self,
        point: int,
        number: int,
        mask: int,
        names: Sequence[str],
        observed: Observation,
    ) -> tuple[Outcome, PointExample]:
        clause = self.sweep.deciding[number]
        assert clause.then is not None
        single = self.sweep.point_case(self.case, self.sweep.space.text(point))
        case = self.sweep.row_of_clause(
            single,
            clause,
            [name for bit, name in enumerate(names) if mask >> bit & 1],
        )
        judgement, recorded = conclude(case, self.basis, observed)
        rule = clause.rule
        if "setup_refused_once" in observed:
            rule = _RULE_OF_SETUP.get(observed["setup_refused_once"], rule)
        elif "setup_failed" in observed and judgement.verdict == Verdict.BROKEN:
            # Unlike the set-up of a row, the set-up of some of a sweep's points may be impossible on this stack.
            unreachable = Judgement(Verdict.UNREACHABLE, judgement.reason)
            judgement = refused_region(case, observed) or unreachable
        seen = _HEX.sub("0x…", cut(judgement.reason))
        for step in case.judged_steps:
            seen = seen.replace(_HEX.sub("0x…", str(step)), step.title)
        expected, clause_text = format_expectation(clause.then), clause.text
        if rule != clause.rule:
            expected, clause_text = "a set-up that succeeds whenever it is made", ""
        fault = judgement.fault and _of_any_point(judgement.fault)
        notes = tuple(map(cut, judgement.notes[:MOST_NOTES]))
        if rule == clause.rule:
            also = clause.also
        else:
            also = ()
        outcome = Outcome(
            judgement.verdict,
            expected,
            cut(seen),
            rule,
            clause_text,
            notes,
            fault,
            also,
        )
        text = self.sweep.space.text(point)
        return outcome, {"point": text, "reason": cut(judgement.reason), "observed": recorded}


def _of_any_point(fault: Fault) -> Fault:
    """Returns the fault without the parts that differ between points: the location, and numbers."""
    came = tuple(_HEX.sub("0x…", cut(note)) for note in fault.seen[:MOST_NOTES])
    allowed = tuple(_HEX.sub("0x…", expectation) for expectation in fault.expected)
    title = fault.call.partition("(")[0]
    return Fault(
        **{
            **{name: getattr(fault, name) for name in WHAT},
            "call": title,
            "expected": allowed,
            "seen": came,
        },
    )


def clauses(case: Case) -> list[dict[str, Any]]:
    assert case.sweep is not None
    clauses_read = []
    for clause in case.sweep.clauses:
        entry: dict[str, Any] = {"if": clause.text} if clause.text else {}
        entry |= (
            {"then": format_expectation(clause.then), "rule": ", ".join(clause.rules)}
            if clause.then
            else {"needs": list(clause.needs)}
        )
        clauses_read.append(entry)
    return clauses_read


def format_expectation(then: Expectation) -> str:
    data = then.as_data()
    outcome = str(data.pop("outcome"))
    return " ".join(
        [
            outcome,
            *(f"{key} {'|'.join(v) if isinstance(v, list) else v}" for key, v in data.items()),
        ],
    )
