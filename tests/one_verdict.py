"""Finds answers that got more than one verdict in a recorded run. Helper of tests. Two results contradict each other if
the same call, on the same set-up at the same entry, gave the same answer, and the verdicts on the answer differ.
Results of a row's later steps are left out, because other rows may have other steps. Rows that judge the status of a
refusal and not its effect are left out too. Whether a call is unsupported must not depend on addresses and lengths: for
this verdict, calls with the same flags on memory of the same kind count as the same call."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from conformance.judging import Basis, conclude, verdict_key
from conformance.model.case import Case, Flags
from conformance.model.kind import Kind
from conformance.model.observation import Observation, without_undeclared
from conformance.model.verdict import Verdict
from conformance.results.points import read_points
from conformance.results.records import Recorded
from conformance.results.rejudge import known_capabilities

# Verdicts that do not judge the answer.
_SILENT = (Verdict.UNREACHABLE, Verdict.BROKEN)
_NOT_SUPPORTED = ("EOPNOTSUPP", "ENOSYS")


def contradictions(every: Iterable[Case], recorded: Recorded, directory: Path) -> list[str]:
    """Returns one line for each answer with several verdicts: the call, the answer, and a case for each verdict."""
    basis = Basis(known_capabilities(recorded))
    found: dict[str, dict[Verdict, str]] = {}
    answers: dict[str, str] = {}
    for case, observed in _calls(every, recorded, directory, basis):
        answer = without_undeclared(observed)
        answer.pop("afterwards", None)
        verdict = Verdict(conclude(replace(case, afterwards=()), basis, answer).judgement.verdict)
        if verdict in _SILENT or case.when.then.outcome == "open" or case.when.then.because or "returned" not in answer:
            continue
        keys = [repr((str(case.when), case.entry, case.given, case.before, verdict_key(answer)))]
        if answer["errno"] in _NOT_SUPPORTED:
            flags = {name: value for name, value in case.when.arguments.items() if isinstance(value, Flags)}
            kinds = [memory.kind for memory in case.given.memory.values()]
            keys.append(repr((case.when.call, flags, kinds, case.entry, answer["errno"])))
        for key in keys:
            answers[key] = f"{case.when}@{case.entry} gave {answer['returned']} {answer['errno']}"
            found.setdefault(key, {}).setdefault(verdict, case.id)
    return [f"{answers[key]}: {verdicts}" for key, verdicts in found.items() if len(verdicts) > 1]


def _calls(
    every: Iterable[Case], recorded: Recorded, directory: Path, basis: Basis
) -> Iterator[tuple[Case, Observation]]:
    """Yields each row with its observation. For a sweep, yields one point of each group of points with the same result,
    as a row, with the point's observation."""
    cases = {case.id: case for case in every}
    for record in recorded.results:
        case = cases.get(record["case"])
        if case is None:
            continue
        if case.kind is Kind.ROW and record["observed"]:
            yield case, record["observed"]
        elif case.sweep is not None and record.get("points_file"):
            for example in read_points(directory, record).examples:
                yield basis.resolved(case.sweep.point_case(case, example["point"])), example["observed"]
