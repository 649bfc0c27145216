"""Judges recorded observations again, by the current rules and tables, without a device. The observations stay the
same; verdict, reason and expectation are new. If nothing was observed (after a crash, or if the case was not run), or
if the supervisor did not accept the worker's verdict, the verdict stays the same, and the record has the current rules
of its case."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from conformance.errors import UserError
from conformance.judging import Basis, conclude
from conformance.model.case import Case
from conformance.model.declared import Capabilities
from conformance.model.kind import Kind
from conformance.model.observation import Observation, without_undeclared
from conformance.model.profile import Profile
from conformance.model.record import ResultRecord
from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.results.combined import is_of_model, with_command, without_points
from conformance.results.new_records import result_record
from conformance.results.points import FOLDER, read_points
from conformance.results.records import Recorded
from conformance.results.sweep_record import sweep_record
from conformance.sweeps.judging import OtherPoints, rejudge_sweep
from conformance.tables.suite import Suite

UNOBSERVED = "nothing was observed"
DISPUTED = "the supervisor did not accept the worker's verdict"
WITHOUT_POINTS = "the points of the sweep are not with the results"
OTHER_MODEL = "its model is different now"
# The verdicts that a known case may have without an observation. Any other verdict needs an observation.
WITHOUT_EVIDENCE = (*VIOLATIONS, *INCOMPLETE)
# Keys of the observation of a case that was not run.
_NOT_RUN = {"unreachable", "no_binding"}
# the keys that do not depend on judging
_KEPT = ("source", "repro", "duration_us", "kernel", "layer", "worker")


@dataclass(frozen=True)
class Rejudged:
    """A result that was judged again, or a result that could not be judged again, with the reason `kept`."""

    record: ResultRecord
    kept: str = ""

    @property
    def unfounded(self) -> str:
        """A line about a verdict that needs an observation but has none; empty for any other verdict."""
        verdict = self.record["verdict"]
        if not self.kept or (self.kept in (UNOBSERVED, DISPUTED) and verdict in WITHOUT_EVIDENCE):
            return ""
        return f"{verdict} of {self.record['case']}: {self.kept}"


def rejudge(
    suite: Suite,
    recorded: Recorded,
    directory: Path,
    profile: Profile | None = None,
) -> Iterator[Rejudged]:
    """Judges every result of a run again, in the order of the run. `directory` has the side files of the run. The new
    record of a sweep has its points under `points_data`, like the record of a worker. Raises UserError if an
    observation cannot be judged."""
    basis = Basis(known_capabilities(recorded, directory), profile or Profile())
    for record in recorded.results:
        try:
            yield _judged(suite, record, directory, basis)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UserError(
                f"{directory}: the observation of {record['case']} cannot be judged ({reason})",
            ) from error


def unfounded(
    suite: Suite,
    recorded: Recorded,
    directory: Path,
    cases: Collection[str],
    profile: Profile,
) -> Iterator[str]:
    """Yields a line for each result of these cases whose observation does not support its verdict."""
    for before, again in zip(
        recorded.results,
        rejudge(suite, recorded, directory, profile),
        strict=True,
    ):
        if before["case"] in cases:
            if again.unfounded:
                yield again.unfounded
            elif again.record["verdict"] != before["verdict"]:
                yield f"{before['case']} is recorded as {before['verdict']}, but is judged {again.record['verdict']}"


def unfounded_repetitions(
    suite: Suite,
    recorded: Recorded,
    directory: Path,
    profile: Profile | None,
) -> Iterator[str]:
    """Yields a line for each violation without an observation that counts as not confirmed, although no observation of
    its repetition shows that the case can pass. Otherwise any violation could be recorded as such a hang."""
    basis = Basis(known_capabilities(recorded, directory), profile or Profile())
    results = {record["case"]: record for record in recorded.results}
    for about in recorded.confirmations:
        record, case = results[about["case"]], find(suite, about["case"])
        if about["confirmed"] or record.get("observed") or case is None:
            continue
        if case.kind is Kind.SWEEP:
            continue  # the repetition of a sweep has no observation in the file of results
        observed = about["alone"].get("observed")
        verdict: str = Verdict.MISSED
        if observed:
            resolved = basis.resolved(case)
            verdict = conclude(resolved, basis, without_undeclared(observed), {})[0].verdict
        if verdict in WITHOUT_EVIDENCE:
            yield f"{record['verdict']} of {about['case']} is not confirmed, without a repetition that passes"


def known_capabilities(recorded: Recorded, directory: Path | None = None) -> Capabilities:
    """Returns the capabilities of the recorded stack: those that the device declares, and those that results report as
    missing. A declared capability that is reported as missing counts as absent. If `directory`, the run's directory, is
    given, the points of sweeps count too, because a run with only sweeps has no other source."""
    caps = recorded.header["device"].get("caps") or {}
    offered: dict[str, dict[str, bool]] = {}
    absent: dict[str, str] = {}
    for record in recorded.results:
        for name in _lacking(record, directory):
            if name not in caps:
                offered.setdefault(str(record.get("entry", "")), {})[name] = False
            elif caps[name] is True:
                absent[name] = ""
    return Capabilities(
        {name: value for name, value in caps.items() if isinstance(value, bool)},
        offered,
        {},
        absent,
    )


def _lacking(record: ResultRecord, directory: Path | None) -> set[str]:
    """Returns the capabilities that a result, or an example of its points, reports as missing."""
    seen: list[Observation] = [record.get("observed") or {}]
    if directory and record.get("points_file") and (directory / FOLDER).exists():
        seen += [example["observed"] for example in read_points(directory, record).examples]
    return {name for observed in seen for name in observed.get("lacking") or ()}


def _judged(suite: Suite, record: ResultRecord, directory: Path, basis: Basis) -> Rejudged:
    case = find(suite, record["case"])
    if case is None:
        return Rejudged(record, "the case no longer exists")
    if record.get("points_file") and case.kind is Kind.SWEEP:
        if not (directory / FOLDER).exists():  # somebody has kept only the results
            return Rejudged(record, WITHOUT_POINTS)
        return _sweep(suite, case, record, directory, basis)
    observed = record.get("observed") or {}
    # A sweep without points was not run; its record has only the reason.
    if not observed or (case.kind is Kind.SWEEP and not _NOT_RUN & observed.keys()):
        return Rejudged(_on_its_rules(case, record, basis), UNOBSERVED)
    if record["verdict"] == Verdict.BROKEN and record.get("claimed"):
        return Rejudged(_on_its_rules(case, record, basis), DISPUTED)
    if case.array is not None and not is_of_model(observed, case.array):
        return Rejudged(record, OTHER_MODEL)
    case = basis.resolved(case)
    later = [step["call"] for step in record["expected"].get("afterwards", ())]
    if [record["call"], *later] != [str(step) for step in case.judged_steps]:
        return Rejudged(record, "its calls are different now")
    concluded = conclude(case, basis, without_undeclared(observed), record.get("kernel"))
    return Rejudged(_merged(result_record(case, suite.registry, *concluded), record))


def _on_its_rules(case: Case, record: ResultRecord, basis: Basis) -> ResultRecord:
    """Returns the record with the current rules of its case."""
    copy_of_record = record.copy()
    if tuple(record["rules"]) != basis.resolved(case).rules:
        copy_of_record["rules"] = list(case.rules)
    if case.array is not None:
        return without_points(copy_of_record, case)
    copy_of_record.pop("rule_verdicts", None)
    return copy_of_record


def find(suite: Suite, case: str) -> Case | None:
    """Returns the case, or the point of a sweep, with this id; None if it no longer exists."""
    try:
        return suite.find(case)
    except UserError:
        return None


def _sweep(
    suite: Suite,
    case: Case,
    record: ResultRecord,
    directory: Path,
    basis: Basis,
) -> Rejudged:
    points = read_points(directory, record)
    alarms, log = record.get("alarms", []), record["kernel"].get("log", [])
    try:
        result = rejudge_sweep(case, points, basis, alarms, log)
    except OtherPoints:
        return Rejudged(record, "its space is different now")
    return Rejudged(_merged(sweep_record(case, suite.registry, result, 0), record))


def _merged(new: ResultRecord, old: ResultRecord) -> ResultRecord:
    """Returns the new result with the old values of `_KEPT`; if the verdict is the same, also with the old waiver."""
    merged = cast(
        ResultRecord,
        {**new, **{key: value for key, value in old.items() if key in _KEPT}},
    )
    if "repro" in old:
        merged = with_command(merged, old["repro"])
    if old.get("waiver") and old["verdict"] == new["verdict"]:
        merged |= {"effective": old["effective"], "waiver": old["waiver"]}
    return merged
