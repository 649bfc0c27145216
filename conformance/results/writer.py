"""Writes a results file: whole lines, appended as a run goes. Not for what the records hold (records.py).

One process at a time: the file is locked for as long as it is open, and the kernel unlocks it with
the process's end, however that comes about.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from conformance.errors import UserError
from conformance.model.record import Record, ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.files import write_all
from conformance.results.points import stored
from conformance.results.prior_sessions import PriorSessions
from conformance.results.records import Recorded, encode, read_results


class ResultsFile:
    """Appends lines to a results file; each is with the kernel, and so survives this process, before the next."""

    def __init__(self, path: Path, *, carry_on: bool = False, durable: bool = False) -> None:
        """Creates the file. Raises UserError where a run is going on, or has been recorded and not to be carried on.

        `durable` has each line on disk before the next, for where the kernel under test is this host's.
        """
        self.path = path
        self._durable = durable
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path.parent} cannot be made: {error.strerror}", status=3) from error
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}", status=3) from error
        try:
            self._lock()
            if not carry_on and os.fstat(self._fd).st_size:
                raise UserError(f"{path} exists: a run is recorded there", hint="choose another --out, or --resume it")
        except UserError:
            os.close(self._fd)
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = "choose another --out, or let it come to its end"
            raise UserError(f"a run is going on in {self.path.parent}", hint=hint) from error
        except OSError as error:
            raise UserError(f"{self.path} cannot be locked: {error.strerror}", status=3) from error

    def recorded(self) -> Recorded | None:
        """What the file holds; None if there is not even a header, as of a run that was cut short at once."""
        data = self.path.read_bytes()
        return read_results(self.path) if b"\n" in data else None

    def cut_back(self, recorded: Recorded | None) -> PriorSessions | None:
        """Leaves what was observed and removes what a run's end left: a torn line, MISSED cases, the footer.

        Gives what a run can carry on of what `recorded` gave. Raises UserError for a file that does not end as ours.
        """
        if recorded is None:
            os.ftruncate(self._fd, 0)
            return None
        data, ended = self.path.read_bytes(), self.path.stat().st_mtime
        whole = data[: data.rfind(b"\n") + 1]
        missed = [record for record in recorded.results if record["verdict"] == Verdict.MISSED]
        end = b"".join(encode(record) for record in (*missed, recorded.footer) if record)
        if not whole.endswith(end):
            raise UserError(f"{self.path} does not end as a run ends, and cannot be resumed")
        os.ftruncate(self._fd, len(whole) - len(end))
        return PriorSessions.of(recorded, ended)

    def prepared(self, record: ResultRecord) -> ResultRecord:
        """The record as it is kept: the points of a sweep are on disk by then, and what explains them is in it."""
        return stored(record, self.path.parent) if "points_data" in record else record

    def append(self, record: Record) -> None:
        """Writes one record; the points of a sweep before it. Raises UserError (status 3) when the disk is full."""
        data = encode(self.prepared(record) if record["type"] == "result" else record)
        try:
            write_all(self._fd, data)
            if self._durable:
                os.fdatasync(self._fd)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}", status=3) from error

    def close(self) -> None:
        """Closes and unlocks the file after its contents have reached the disk."""
        os.fsync(self._fd)
        os.close(self._fd)
