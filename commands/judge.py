"""`rdma-cts judge`: judges a recorded run again by the current rules and tables, without a device."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from commands import report
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show
from conformance.errors import UserError, format_count
from conformance.model.printable import one_line
from conformance.model.record import ConfirmationRecord, HeaderRecord, ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.equal_results import unequal_verdicts
from conformance.results.records import (
    FILE_NAME,
    Recorded,
    footer_record,
    read_results,
    read_written,
)
from conformance.results.rejudge import WITHOUT_POINTS, Rejudged, find, rejudge
from conformance.results.waiver_file import read_waivers
from conformance.results.waivers import Waivers, with_effective
from conformance.results.writer import ResultsFile
from conformance.tables.profile import named_profile, read_profile
from conformance.tables.suite import VERSION, Suite
from conformance.tables.tiers import left_out
from reports.comparison import Change, compare
from reports.digest import Digest, digest
from reports.terminal import REPORT

_MOST_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "run RUN", "the directory of a run")
    add(parser, "--out DIR", "where to write the new results, as a run")
    add(
        parser,
        "--profile FILE",
        "capabilities that the device must have, and capabilities that it lacks",
    )
    add(parser, "--waivers FILE", "a file of waivers, which replaces the waivers of the run")
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints what has changed. Returns the exit status that `run` would have had. The status is also 1 if the tables
    are those of the run and a recorded verdict does not follow from the observations."""
    suite = suite_from(arguments)
    recorded = read_written(arguments.run)
    old = digest(
        recorded.shown(),
        arguments.run if arguments.run.is_dir() else arguments.run.parent,
        str(arguments.run),
    )
    if arguments.profile:
        profile = read_profile(arguments.profile)
    else:
        profile = None
    if profile:
        profile.check(
            str(recorded.header["device"].get("name")),
            str(recorded.header["device"].get("driver")),
        )
    if arguments.waivers:
        waivers = read_waivers(arguments.waivers, suite, datetime.now().date())
    else:
        waivers = None
    again = list(rejudge(suite, recorded, old.directory, profile))
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as scratch:
        out = arguments.out or Path(scratch)
        header: HeaderRecord = {**recorded.header, "profile": named_profile(arguments.profile)}
        is_new = not out.exists()
        try:
            write_judged(out, suite, replace(recorded, header=header), again, waivers)
        except UserError:  # such as a full disk
            if is_new:
                shutil.rmtree(out, ignore_errors=True)
            raise
        judged = read_results(out)
        new = digest(judged, out, str(out), is_own=True)
        same = old.header["suite"].get("tables_sha256") == suite.tables_sha256
        unfounded = [change.unfounded for change in again if same and change.unfounded]
        unequal = unequal_verdicts(suite, judged, old.directory)
        show(_summary(old, new, again, unfounded, unequal, arguments))
        if arguments.out:
            report.write_beside(
                out,
            )  # after the conclusion, so that a full disk does not prevent the conclusion
    if unfounded:
        return 1
    return new.status


def write_judged(
    out: Path,
    suite: Suite,
    recorded: Recorded,
    again: list[Rejudged],
    waivers: Waivers | None,
) -> None:
    """Writes the results of the new judgement to a directory, in the format of a run."""
    header: HeaderRecord = {
        **recorded.header,
        "suite": {"version": VERSION, "tables_sha256": suite.tables_sha256},
        "rules": suite.registry.as_data(),
        "controls": dict(suite.registry.needs.controls),
        "left_out": len(left_out(suite.cases, recorded.header["planned"])),
        "judged_again": {
            "suite": recorded.header.get("suite"),
            "at": datetime.now().isoformat(timespec="seconds"),
        },
    }
    if waivers:
        header["waivers"] = {"file": waivers.file, "sha256": waivers.sha256}
    with closing(ResultsFile(out / FILE_NAME)) as file:
        file.append(header)
        results: list[ResultRecord] = []
        for change in again:
            record = change.record.copy()
            if change.kept != WITHOUT_POINTS:
                if change.kept:  # the points of this result are only next to the old results
                    record.pop("points_file", None)
                record = file.prepared(record, find(suite, change.record["case"]))
            results.append(with_effective(record, header, waivers))
            file.append(results[-1])
        confirmations = _still_valid(recorded, results)
        for confirmation in confirmations:
            file.append(confirmation)
        if recorded.footer is None:  # the run is incomplete, and remains incomplete
            return
        duration_s = recorded.footer.get("duration_s") or 0.0
        footer = footer_record(header["planned"], results, suite.registry, duration_s=duration_s)
        tried = recorded.footer.get("confirmation")
        if tried or confirmations:
            confirmed = sum(confirmation["confirmed"] for confirmation in confirmations)
            footer["confirmation"] = {
                "confirmed": confirmed,
                "not_confirmed": len(confirmations) - confirmed,
                "not_tried": (tried or {}).get("not_tried", 0),
            }
        if waivers:
            footer["waivers"] = waivers.account(results, header)
        elif header.get("waivers"):  # --waivers is not given: keep the recorded problems
            waived = sum(record["effective"] == Verdict.WAIVED for record in results)
            footer["waivers"] = {**recorded.footer.get("waivers", {}), "waived": waived}
        file.append(footer)


def _still_valid(recorded: Recorded, results: list[ResultRecord]) -> list[ConfirmationRecord]:
    before = {record["case"]: record["verdict"] for record in recorded.results}
    same = {record["case"] for record in results if before.get(record["case"]) == record["verdict"]}
    return [confirmation for confirmation in recorded.confirmations if confirmation["case"] in same]


def _summary(
    old: Digest,
    new: Digest,
    again: list[Rejudged],
    unfounded: list[str],
    unequal: list[str],
    arguments: argparse.Namespace,
) -> Iterator[str]:
    comparison = compare(old, new, unlike_tables=True)
    reasons = {record["case"]: record["reason"] for record in old.results}
    for change in comparison.changes:
        yield from _format_change(change, reasons.get(change.case, ""))
    for reason, count in Counter(change.kept for change in again if change.kept).items():
        yield f"{format_count(count, 'result')} kept unchanged: {reason}"
    counts = Counter("points" if change.points else "cases" for change in comparison.changes)
    yield from (f"waiver: {problem}" for problem in new.waivers.get("problems", ()))
    judged = sum(not change.kept for change in again)
    yield f"{judged} of {len(again)} results judged again: {format_count(counts['cases'], 'verdict')} changed"
    yield from (f"equal results, unequal verdicts: {line}" for line in unequal)
    yield f"{format_count(len(unequal), 'result')} with unequal verdicts in equal cases"
    yield f"before: {old.short_sentence}"
    yield f"now:    {new.short_sentence}"
    if arguments.out:
        yield f"report: {arguments.out / REPORT} (results: {arguments.out})"
    if new.header.get("waivers") and not arguments.waivers:
        yield "waivers: as recorded in the run; --waivers FILE uses the waivers in FILE"
    if unfounded:
        yield from shortened(unfounded)
        yield f"{not_founded(unfounded)} (exit status 1)"
    else:
        yield f"{new.conclusion} (exit status {new.status})"


def refuse_other_tables(header: HeaderRecord, suite: Suite, digest_then: str, them: str) -> None:
    """Raises UserError for results of different tables. `digest_then` and `them` are the message's words for the results."""
    tables = (header.get("suite") or {}).get("tables_sha256")
    if tables != suite.tables_sha256:
        raise UserError(
            f"{digest_then} made with the tables {str(tables)[:12]}, and the present tables are {suite.tables_sha256[:12]}",
            hint=f"use the version of rdma-cts that made {them}; --cases DIR adds other tables",
        )


def shortened(unfounded: Sequence[str]) -> Iterator[str]:
    """Yields lines about the first recorded verdicts that no observation supports, and a line with the number of the
    remaining verdicts."""
    yield from map(one_line, unfounded[:_MOST_SHOWN])
    if len(unfounded) > _MOST_SHOWN:
        yield f"and {len(unfounded) - _MOST_SHOWN} more"


def not_founded(unfounded: Sequence[str]) -> str:
    """Returns a sentence with the number of recorded verdicts that do not follow from the observations."""
    return f"nothing: {format_count(len(unfounded), 'recorded verdict')} not supported by the observations"


def _format_change(change: Change, before: str) -> Iterator[str]:
    arrow = f"{change.old} -> {change.new}"
    if change.points:
        yield f"{arrow}  {format_count(change.points, 'point')} of {change.case}, such as {'; '.join(change.examples)}"
        return
    yield f"{arrow}  {change.case}"
    if one_line(before) == change.record["reason"]:
        yield f"    as before: {change.record['reason']}"
        return
    yield f"    was: {one_line(before)}"
    yield f"    is:  {change.record['reason']}"
