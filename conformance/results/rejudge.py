"""Judges what was recorded again, by today's rules and tables, without a device.

What a device did stays as it was recorded; verdict, reason and expectation become today's. Where
nothing was observed (a crash, a case that was not run) the recorded verdict stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import UserError
from conformance.judging import Basis, conclude
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.observation import without_undeclared
from conformance.results.points import POINTS_FILE, read_points
from conformance.results.records import Record, Recorded, result_record
from conformance.results.sweep_record import sweep_record
from conformance.sweeps.run import judge_again
from conformance.tables.suite import Suite

# What is of the run and not of the judging.
_KEPT = ("source", "repro", "duration_us", "kernel", "layer")


@dataclass(frozen=True)
class Again:
    """A result as today's rules have it, or as it was with `kept`, the reason why it could not be judged."""

    line: Record
    kept: str = ""


def rejudge(
    suite: Suite, recorded: Recorded, directory: Path, present: Mapping[str, str] | None = None
) -> Iterator[Again]:
    """Every result of a run whose other files lie in `directory`, in its order; `present` is what a profile pins.

    A sweep's line has its points under `points_data`, as one that has just been run. Raises UserError for an
    observation that is none.
    """
    basis = Basis(known_capabilities(recorded), present or {})
    for line in recorded.results:
        try:
            yield _again(suite, line, directory, basis)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{directory}: what was observed of {line['case']} cannot be judged ({reason})") from error


def known_capabilities(recorded: Recorded) -> Capabilities:
    """What the run knew of its stack: what the device declared, and what its results say is not there."""
    caps = recorded.header["device"].get("caps", {})
    offered: dict[str, dict[str, bool]] = {}
    for line in recorded.results:
        for name in line.get("observed", {}).get("lacking", ()):
            if name not in caps:
                offered.setdefault(str(line.get("entry", "")), {})[name] = False
    return Capabilities({name: value for name, value in caps.items() if isinstance(value, bool)}, offered, {})


def _again(suite: Suite, line: Record, directory: Path, basis: Basis) -> Again:
    case = _find(suite, line["case"])
    if case is None:
        return Again(line, "there is no such case any more")
    if case.kind is Kind.SWEEP:
        return _sweep(suite, case, line, directory, basis)
    if not line.get("observed"):
        return Again(line, "nothing was observed")
    case = basis.resolved(case)
    later = [each["call"] for each in line["expected"].get("afterwards", ())]
    if [line["call"], *later] != [str(step) for step in (case.when, *case.afterwards)]:
        return Again(line, "its calls are others now")
    came = conclude(case, basis, without_undeclared(line["observed"]), line.get("kernel"))
    return Again(_merged(result_record(case, suite.registry, came.judgement, came.observation), line))


def _find(suite: Suite, case: str) -> Case | None:
    try:
        return suite.find(case)
    except UserError:
        return None


def _sweep(suite: Suite, case: Case, line: Record, directory: Path, basis: Basis) -> Again:
    if not line.get(POINTS_FILE):
        return Again(line, "nothing was observed")
    points = read_points(directory, line)
    assert case.sweep is not None
    if points.space.as_data() != case.sweep.space.as_data():
        return Again(line, "its space is another now")
    swept = judge_again(case, points, basis, line.get("alarms", []), line["kernel"].get("log", []))
    return Again(_merged(sweep_record(case, suite.registry, swept, 0), line))


def _merged(new: Record, old: Record) -> Record:
    """Today's line with what the run alone knew; a waiver goes with the verdict that it was for."""
    merged = {**new, **{key: old[key] for key in _KEPT if key in old}}
    if old.get("waiver") and old["verdict"] == new["verdict"]:
        merged |= {"effective": old["effective"], "waiver": old["waiver"]}
    return merged
