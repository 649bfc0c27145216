"""What the judgements of a run and of a bundle share: the new results as a run, and sentences about recorded verdicts
that do not follow from the observations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

from conformance.errors import UserError, format_count
from conformance.model.printable import one_line
from conformance.model.record import ConfirmationRecord, HeaderRecord, ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.new_records import footer_record
from conformance.results.records import FILE_NAME, Recorded
from conformance.results.rejudge import WITHOUT_POINTS, Rejudged, find
from conformance.results.waivers import Waivers, with_effective
from conformance.results.writer import ResultsFile
from conformance.tables.suite import VERSION, Suite

_MOST_SHOWN = 10


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
        "left_out": len(suite.left_out(recorded.header["planned"])),
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
        if why := recorded.footer.get("not_repeated"):
            footer["not_repeated"] = why
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


def refuse_other_tables(header: HeaderRecord, suite: Suite, digest_then: str, them: str) -> None:
    """Raises UserError for results of different tables. `digest_then` and `them` are the message's words for the results."""
    by = header.get("suite") or {}
    if by.get("tables_sha256") != suite.tables_sha256:
        raise UserError(
            f"{digest_then} {made_with(by, suite)}",
            hint=f"use the version of rdma-cts that made {them}; --cases DIR adds other tables",
        )


def made_with(by: Mapping[str, object], suite: Suite) -> str:
    """Returns the words about results of the suite `by`, as in a header, and about the present suite."""
    tables, version = str(by.get("tables_sha256"))[:12], one_line(str(by.get("version", "?")))
    return (
        f"made with the tables {tables} of rdma-cts {version}, and the present tables are "
        f"{suite.tables_sha256[:12]} of rdma-cts {VERSION}"
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
