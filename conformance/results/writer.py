"""Writes a results file: appends whole lines during a run. The file is locked while it is open, in order that only one
process writes it. The kernel unlocks the file when the process exits, for any reason."""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from conformance.cache import has_private_status
from conformance.errors import UserError, command
from conformance.model.bounds import (
    MOST_RESULTS_BYTES,
    MOST_RESULTS_VALUES,
    RESERVED_BYTES,
    RESERVED_VALUES,
)
from conformance.model.case import Case, Expectation
from conformance.model.record import Record, ResultRecord, Shows
from conformance.model.rules import distinct_points, shown_by
from conformance.model.verdict import NOT_TESTABLE, VERDICTS, Verdict
from conformance.older_python import file_digest
from conformance.regular_file import open_folder, opened_in, remove_below
from conformance.results.checked_json import values_in
from conformance.results.files import write_all, writing
from conformance.results.points import store_points
from conformance.results.prior_sessions import PriorSessions
from conformance.results.records import PLAN_FILE, Recorded, decode, encode, read_written
from conformance.results.shared import MANY, SharedValues, size_of
from conformance.sweeps.outcome import OUTSIDE, Points


def shown_in(case: Case, record: ResultRecord) -> list[Shows]:
    """Returns the evidence that a case shows; for a sweep, each part of the evidence has a rule and a verdict."""
    if "points_data" in record:
        return _of_points(case, Points.of_data(record["points_data"]))
    outcome = record["expected"].get("outcome", case.when.then.outcome)
    return [shown.as_data() for shown in shown_by(_expecting(case, outcome))]


def _expecting(case: Case, outcome: str) -> Case:
    """Returns the case with the expected outcome `outcome`. The outcome of a sweep's point depends on the device."""
    return replace(case, when=replace(case.when, then=Expectation(outcome)))


def _of_points(case: Case, points: Points) -> list[Shows]:
    assert case.sweep is not None
    # by evidence and rule: the number of the best outcome
    best: dict[tuple[str, str, str], int] = {}
    for number, point in distinct_points(case.sweep, points.index):
        if number == OUTSIDE:
            continue
        outcome = points.outcomes[number]
        expected = outcome.expected.partition(" ")[0]
        for shown in shown_by(_expecting(case.sweep.case_at(case, point), expected)):
            data = shown.as_data()
            for rule in outcome.rules:
                key = (data["shows"], data["on"], rule)
                best[key] = max(
                    best.get(key, number),
                    number,
                    key=lambda point: VERDICTS.index(points.outcomes[point].verdict),
                )
    return [_shows(points, number, *key) for key, number in sorted(best.items())]


def _shows(points: Points, number: int, shows: str, on: str, rule: str) -> Shows:
    shows_data: Shows = {
        "shows": shows,
        "on": on,
        "rule": rule,
        "verdict": Verdict(points.outcomes[number].verdict),
    }
    if points.examples:
        example = points.examples[number]
    else:
        example = None
    if example and shows_data["verdict"] in NOT_TESTABLE:
        shows_data["lacking"] = (
            ", ".join(example["observed"].get("lacking", ())) or example["reason"]
        )
    return shows_data


def in_progress(out: Path, resumed: bool) -> UserError:
    """Returns the error for a directory that another run uses. A run that is `resumed` has no other directory."""
    hint = (
        "wait until the run ends" if resumed else "choose another --out, or wait until the run ends"
    )
    return UserError(f"a run is in progress in {out}", hint=hint)


def check_not_recorded(path: Path) -> None:
    """Raises UserError (status 2) if a file of results is not empty."""
    if path.is_file() and path.stat().st_size:
        on = ""
        if (path.parent / PLAN_FILE).exists():
            on = f", or {command('run', '--resume', path.parent)}"
        raise UserError(
            f"{path} exists: a run is recorded there",
            hint=f"choose another --out{on}",
        )


class ResultsFile:
    """Appends records to a results file. Each record is written at once, and not lost if this process crashes."""

    # the first new record cuts the file to this length; with None, the file is not cut
    _keep: int | None = None

    def __init__(self, path: Path, *, carry_on: bool = False, durable: bool = False) -> None:
        """Creates or opens the file. Raises UserError if the file is in use, or if it has records and `carry_on` is
        false. An error in the path has status 2, because it is a mistake of the user; a full disk has status 3. With
        `durable`, `append` returns when the record is on disk: the kernel under test is that of this host."""
        self.path = path
        self._durable = durable
        self._values = 0  # the number of JSON values in the file, as a reader counts them
        self._shared: SharedValues | None = None  # set only for a run of many cases
        # the hash of the bytes that this process has written or read
        self._content = hashlib.sha256()
        with writing(path), open_folder(path.parent) as folder:
            # other users could exchange the files of the run
            if not has_private_status(os.fstat(folder)):
                raise UserError(
                    f"{path.parent} belongs to another user, or other users can write it",
                    hint="choose another --out, such as a new directory below it",
                )
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK
            self._fd = opened_in(folder, path.name, flags)
        try:
            # opening a FIFO for reading and writing does not block
            if not stat.S_ISREG(os.fstat(self._fd).st_mode):
                raise UserError(f"{path} is not a regular file")
            self._lock(carry_on)
            if not carry_on:
                check_not_recorded(path)
        except UserError:
            os.close(self._fd)
            raise

    def _lock(self, carry_on: bool) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.fstat(self._fd).st_nlink:  # another run has just removed the file
                raise BlockingIOError
        except BlockingIOError as error:
            raise in_progress(self.path.parent, carry_on) from error
        except OSError as error:
            raise UserError(f"{self.path} cannot be locked: {error.strerror}", status=3) from error

    def recorded(self) -> Recorded | None:
        """Returns the contents of the file; None if the run was cut short before its header was written."""
        data = self.path.read_bytes()
        if b"\n" in data:
            return read_written(self.path)
        return None

    def cut_back(self, recorded: Recorded | None) -> PriorSessions | None:
        """Prepares the next session: its first record replaces the end of the run, which is MISSED cases, the footer
        and a torn line. If the session fails before its first record, the file is unchanged. Returns the earlier
        sessions. Raises UserError if the file does not end like a results file."""
        if recorded is None:
            self._keep = 0
            return None
        data, ended = self.path.read_bytes(), self.path.stat().st_mtime
        complete_lines = data[: data.rfind(b"\n") + 1]
        missed = [record for record in recorded.results if record["verdict"] == Verdict.MISSED]
        end = b"".join(encode(record) for record in (*missed, recorded.footer) if record)
        if not complete_lines.endswith(end):
            raise UserError(
                f"{self.path} does not end like the results of a run; it cannot be resumed",
            )
        self._keep = len(complete_lines) - len(end)
        self._content = hashlib.sha256(complete_lines[: self._keep])
        lines = filter(None, complete_lines[: self._keep].split(b"\n"))
        self._values = 0
        for line in lines:
            self._count(decode(line), line)
        return PriorSessions.of(recorded, ended)

    def prepared(self, record: ResultRecord, case: Case | None = None) -> ResultRecord:
        """Returns the stored form of the record of `case`. Also writes the points of a sweep to the side file."""
        if case:
            record = {**record, "evidence": shown_in(case, record)}
        if "points_data" in record:
            return store_points(record, self.path.parent, case)
        return record

    def append(self, record: Record) -> Record:
        """Appends a record, after writing the side file of a sweep. Raises UserError (status 3) if the disk is full.
        Returns the record; in a large run, the returned record shares the values that earlier results have."""
        if record["type"] == "result":
            record = self.prepared(record)
        data = encode(record)
        with writing(self.path):
            if self._keep is not None:
                os.ftruncate(self._fd, self._keep)
                self._keep = None
            write_all(self._fd, data)
            self._content.update(data)
            record = self._count(record, data[:-1])
            if self._durable:
                os.fdatasync(self._fd)
        return record

    def _count(self, record: Record, line: bytes) -> Record:
        """Counts a record's new values. Repeated values do not count, because a reader stores them only once. Returns
        the record, with repeated values shared."""
        if record["type"] == "header":
            if len(record["planned"]) > MANY:
                self._shared = SharedValues()
            else:
                self._shared = None
        if self._shared and record["type"] == "result":
            written, _, values = self._shared.accept(cast(ResultRecord, decode(line)))
            self._values += size_of(values)
            return written
        self._values += values_in(line)
        return record

    def lacks_room(self, record: ResultRecord, later: int = 0) -> str:
        """Returns a reason if the file with this record would be too large to be read, or would have no room for short
        results of the `later` cases; else an empty text."""
        data = encode(record)
        left = MOST_RESULTS_BYTES - later * RESERVED_BYTES
        if len(data) > RESERVED_BYTES and os.fstat(self._fd).st_size + len(data) > left:
            limit = f"a file of results has at most {MOST_RESULTS_BYTES:,} bytes"
            return f"{limit}; with the {len(data):,} bytes of this result, it would have more"
        if self._values + values_in(data) > MOST_RESULTS_VALUES - later * RESERVED_VALUES:
            limit = f"a file of results has at most {MOST_RESULTS_VALUES:,} values"
            return (
                f"{limit}; with the {values_in(data):,} values of this result, it would have more"
            )
        return ""

    def changed(self) -> str:
        """Returns a message if another process has changed the file while this process wrote to it; else empty."""
        try:
            there = self.path.stat()
            with open(self._fd, "rb", closefd=False) as file:
                file.seek(0)
                content = file_digest(file, "sha256")
            if (
                os.path.samestat(there, os.fstat(self._fd))
                and content.digest() == self._content.digest()
            ):
                return ""
        except OSError:
            pass
        return f"{self.path} was changed by another process while the run wrote it"

    def empty(self) -> None:
        """Removes all records."""
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Closes and unlocks the file once its contents are on disk. Removes a file without records."""
        os.fsync(self._fd)
        if not os.fstat(self._fd).st_size:
            with suppress(OSError):
                remove_below(self.path.parent, self.path.name)
        os.close(self._fd)
