"""Finds equal results with unequal verdicts: the same call, with the same set-up at the same entry, returned the same
result in two cases, and only one of the cases is a violation. Such a pair means that the tables judge with two measures.

A call that other rows judge (`elsewhere`) is left out, a row that judges the status of a refusal and not its effect, one
that judges a refusal with any errno, and a row about the code with which a missing verb is refused.
Whether a refusal with EOPNOTSUPP or ENOSYS is UNSUPPORTED must not depend on addresses and lengths: for these errnos,
calls with the same flags on memory of the same kind count as the same call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.judging import Basis, conclude, verdict_key
from conformance.judging.faults import fault_of
from conformance.judging.steps import made_steps
from conformance.model.case import Case, Flags, Step
from conformance.model.kind import Kind
from conformance.model.observation import Observation, without_undeclared
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import ELSEWHERE
from conformance.results.points import FOLDER, read_points
from conformance.results.records import Recorded
from conformance.results.rejudge import find, known_capabilities
from conformance.tables.suite import Suite

_SILENT = (Verdict.UNREACHABLE, Verdict.BROKEN)
_NOT_SUPPORTED = ("EOPNOTSUPP", "ENOSYS")
_ANY = ("any",)
_OF_ABSENCE = frozenset({"advise_absent", "rereg_absent"})


def unequal_verdicts(suite: Suite, recorded: Recorded, directory: Path) -> list[str]:
    """Returns a line for each result of a call that has several verdicts: the call, its result, and a case for each
    verdict. `directory` has the points of the run's sweeps; without them, sweeps are left out."""
    basis = Basis(known_capabilities(recorded, directory))
    judged = [
        call
        for case, observed in _calls(suite, recorded, directory, basis)
        for call in _judged_calls(case, observed, basis)
    ]
    # Most calls differ from all others by their arguments; comparing and judging all of them would take long.
    number = Counter(call.name for call in judged)
    calls: dict[str, list[_Call]] = {}
    for call in judged:
        if number[call.name] > 1:
            calls.setdefault(call.key(), []).append(call)
        if call.absence:
            calls.setdefault(call.absence, []).append(call)
    lines = []
    for equal in calls.values():
        if len(equal) == 1:
            continue
        by_verdict: dict[Verdict, str] = {}
        text = ""
        for call in equal:
            verdict = call.verdict()
            if verdict not in _SILENT:
                text = _text(call.case, call.step, call.seen)
                by_verdict.setdefault(verdict, call.case.id)
        if len(by_verdict) > 1:
            examples = [f"{verdict} of {case}" for verdict, case in by_verdict.items()]
            lines.append(f"{text}: {', '.join(examples)}")
    return lines


@dataclass(frozen=True)
class _Call:
    """A judged call of a case, and its result. `calls` are those up to this one, each with its result, and `absence`
    is what makes refusals of a missing verb equal."""

    case: Case
    step: Step
    seen: Observation
    basis: Basis
    calls: Sequence[tuple[str, Observation]]
    absence: str = ""

    @property
    def name(self) -> tuple[object, ...]:
        """A part of the key that takes little time."""
        step, seen = self.calls[0]
        return (len(self.calls), step, self.calls[-1][0], self.case.entry, seen["errno"])

    def key(self) -> str:
        """Returns what makes two results equal."""
        calls = [(name, verdict_key(seen)) for name, seen in self.calls]
        return repr((calls, self.case.entry, self.case.given, self.case.before))

    def verdict(self) -> Verdict:
        if len(self.calls) == 1:
            alone = replace(self.case, afterwards=())
            return Verdict(conclude(alone, self.basis, self.seen)[0].verdict)
        if fault_of(self.step, self.seen, later=True):
            return Verdict.FAIL
        return Verdict.PASS


def _calls(
    suite: Suite,
    recorded: Recorded,
    directory: Path,
    basis: Basis,
) -> Iterator[tuple[Case, Observation]]:
    """Yields each row with its observation. For a sweep, yields one point of each group of points with the same result,
    as a row, with the point's observation."""
    has_points = (directory / FOLDER).exists()
    for record in recorded.results:
        case = find(suite, record["case"])
        if case is None:
            continue
        if case.kind is Kind.ROW and record["observed"]:
            later = [step["call"] for step in record["expected"].get("afterwards", ())]
            steps = [str(step) for step in case.judged_steps]
            if [record["call"], *later] == steps:
                yield case, record["observed"]
        elif case.sweep is not None and record.get("points_file") and has_points:
            for example in read_points(directory, record).examples:
                point = case.sweep.point_case(case, example["point"])
                yield basis.resolved(point), example["observed"]


def _judged_calls(case: Case, observed: Observation, basis: Basis) -> Iterator[_Call]:
    """Yields each judged call of a case."""
    returned = without_undeclared(observed)
    steps = made_steps(case, returned)
    alone = returned.copy()
    alone.pop("afterwards", None)
    if "returned" not in alone:
        return
    calls = [(str(case.when), alone)]
    if (
        case.when.then.judged != ELSEWHERE
        and not case.when.then.because
        and case.when.then.errno != _ANY
        and _OF_ABSENCE.isdisjoint(case.needs)
    ):
        if alone["errno"] in _NOT_SUPPORTED:
            absence = _flags_of(case, alone)
        else:
            absence = ""
        yield _Call(case, case.when, alone, basis, tuple(calls), absence)
    for step, seen in steps[1:]:
        if "not_made" in seen:
            continue
        calls.append((str(step), seen))
        if step.then.outcome != "open" and not step.then.because:
            yield _Call(case, step, seen, basis, tuple(calls))


def _text(case: Case, step: Step, seen: Observation) -> str:
    return f"{step}@{case.entry} returned {seen['returned']} {seen['errno']}".rstrip()


def _flags_of(case: Case, seen: Observation) -> str:
    arguments = case.when.arguments
    flags = {name: value for name, value in arguments.items() if isinstance(value, Flags)}
    kinds = [memory.kind for memory in case.given.memory.values()]
    return repr((case.when.call, flags, kinds, case.entry, seen["errno"]))
