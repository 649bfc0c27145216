"""Reads the stream of one worker until it ends, and records its results.

Not for starting another worker (supervisor.py).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager

from conformance.model.record import ProgressRecord, Record, ResultRecord, StartRecord
from conformance.model.verdict import Verdict
from conformance.results.records import decode
from conformance.supervision.recording import Recording
from conformance.supervision.worker import START_DEADLINE_S, TRIES, Worker, WorkerEnd

EVIDENCE_LINES = 80


class Session:
    """One worker, as the supervisor follows it.

    After `listen`, `end_reason` says why the worker ended, `refused` whether it has said that it can run no case, and
    `progress` whether starting another one makes sense.
    """

    def __init__(
        self,
        worker: Worker,
        number: int,
        recording: Recording,
        lock: AbstractContextManager[object],
        deadline_s: float,
        external_ends: Counter[str],
        stopped: Callable[[], bool],
    ) -> None:
        """`lock` is held to use `recording` and `external_ends`, which counts by case how often a worker was killed
        externally. `stopped`: the run has ended, so that the end of the worker is no result."""
        self._worker = worker
        self._number = number
        self._recording = recording
        self._lock = lock
        self._deadline_s = deadline_s
        self._external_ends = external_ends
        self._stopped = stopped
        self._in_flight = ""
        self._last_progress: ProgressRecord | None = None  # of the case in flight
        self._seen: set[str] = set()
        self._changes = 0  # grows with each line that is new; noise does not extend the deadline
        self.end_reason = ""
        self.refused = False
        self.progress = False

    def listen(self) -> None:
        """Reads and records until the worker ends, or kills it when its deadline has passed.

        Raises UserError if the header has another stack than the run began with, or if a record cannot be written.
        """
        until = time.monotonic() + START_DEADLINE_S
        while True:
            raw = self._worker.next_line(max(0.0, until - time.monotonic()))
            end = self._worker.end() if raw == b"" else None
            record = self._decoded(raw) if raw else None
            with self._lock:
                if self._stopped():
                    return
                if raw is None:
                    self._hung()
                    return
                if end:
                    self._ended(end)
                    return
                before = self._changes
                if record:
                    self._handle(record)
            if self._changes != before:
                until = time.monotonic() + (self._deadline_s if self._in_flight else START_DEADLINE_S)

    def _decoded(self, raw: bytes) -> Record | None:
        """The record of a line; None for one that the worker's end has cut off, and for noise on the port."""
        try:
            record = decode(raw)
        except ValueError:
            return None
        if record["type"] == "result" and self._recording.expects(record["case"]):
            return self._recording.prepared(record, self._number)
        return record

    def _handle(self, record: Record) -> None:
        if record["type"] == "header":
            if not self._recording.header_received:
                self._recording.begin(record)
                self._changes += 1
        elif record["type"] == "guest":
            if record.get("event") == "broken":
                self.end_reason = str(record.get("reason"))
                self.refused = True
        elif record["type"] == "progress":
            if record["case"] == self._in_flight and record != self._last_progress:
                self._last_progress = record
                self._changes += 1
        elif record["type"] in ("start", "result") and self._recording.expects(record["case"]):
            self._handle_expected(record)

    def _handle_expected(self, record: StartRecord | ResultRecord) -> None:
        if record["type"] == "result":
            self._append(record)
        elif record["case"] != self._in_flight:
            self._in_flight = record["case"]
            self._last_progress = None
            self._recording.case_started(record)
            self._changes += self._in_flight not in self._seen
            self._seen.add(self._in_flight)

    def _append(self, record: ResultRecord) -> None:
        self._recording.append(record)
        self._changes += 1
        self.progress = True
        if record["case"] == self._in_flight:
            self._in_flight = ""

    def _hung(self) -> None:
        """Handles a silence longer than the deadline, during a case or between cases."""
        self.end_reason = reason = "no answer within its deadline"
        if self._in_flight:
            self._record_loss(Verdict.HANG, reason)
        self._worker.kill()

    def _ended(self, end: WorkerEnd) -> None:
        """Handles the end of the stream, during a case or between cases."""
        self.end_reason = self.end_reason or end.what
        if end.external:
            self._count_external_end(end.what)
        elif self._in_flight:
            self._record_loss(Verdict.CRASH, end.what)

    def _count_external_end(self, what: str) -> None:
        self._external_ends[self._in_flight] += 1
        tries = self._external_ends[self._in_flight]
        self.progress |= tries < TRIES
        if self._in_flight and tries == TRIES:
            reason = f"{what}, {TRIES} times in this case"
            self._recording.record(self._in_flight, Verdict.BROKEN, reason, self._number)
            self.progress = True

    def _record_loss(self, verdict: Verdict, reason: str) -> None:
        self.end_reason = f"{reason} in {self._in_flight}"
        case = self._recording.cases[self._in_flight]
        log = self._worker.console_tail(EVIDENCE_LINES)
        self._recording.record_loss(case, verdict, reason, self._last_progress, log, self._number)
        self.progress = True
