"""Reads the stream of one worker until it ends, and records the worker's results. The case in flight is the case that
the worker has begun but not yet finished. Results and progress of other cases are ignored."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from conformance.errors import UserError
from conformance.judging.kernel_alarms import alarms_in
from conformance.model.bounds import cut
from conformance.model.case import Case
from conformance.model.fault import FaultKind, verdict_of
from conformance.model.record import (
    DerivedFiles,
    HeaderRecord,
    ProgressRecord,
    Record,
    ResultRecord,
    StartRecord,
)
from conformance.model.record_shape import RESULT, mismatch_of
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.records import decode
from conformance.supervision.calls import contradiction
from conformance.supervision.claimed_time import ClaimedTime
from conformance.supervision.examiner import SILENT, Examiner, loss_of
from conformance.supervision.recording import Recording
from conformance.supervision.run import Run
from conformance.supervision.worker import TRIES, Crew, Deadline, Worker, WorkerEnd

_ABSENT_S = 10.0  # a shorter time in which this process does not listen is usual
_EXPLAIN_ALARMS = (
    *VIOLATIONS,
    Verdict.BROKEN,
)  # the verdicts that an error on the console does not change
EVIDENCE_LINES, _LINES_OF_REPETITION = (
    80,
    30,
)  # the number of lines of a worker's last output that are recorded


class Session:
    """The supervisor's view of one worker. After `listen`, `end_reason` says why the worker ended, `refused` whether
    the worker could not run any case, and `progress` whether another worker should be started."""

    def __init__(
        self,
        worker: Worker,
        number: int,
        batch: Iterable[str],
        recording: Recording | Repetition,
        crew: Crew,
        claimed: ClaimedTime | None = None,
    ) -> None:
        """`batch` has the cases for which the worker was started. Their results are added to `recording`. `claimed` was
        created before the start of the worker, which runs on this machine."""
        self._worker = worker
        self._number = number
        self._batch = set(batch)
        self._recording = recording
        self._crew = crew
        self._claimed = claimed
        self._header: HeaderRecord | None = None
        self._examiner: Examiner | None = None  # set when the worker has sent its header
        self._in_flight = ""
        self._latest = ""  # the case that was begun last, and the time when it began
        self._begun = 0.0
        self._last_progress: ProgressRecord | None = None  # the last progress of the case in flight
        self._first_begun = 0.0  # when the worker has begun a case for the first time
        self._has_given_up = False  # whether other workers run some of its cases
        self._has_begun = False  # whether the worker has begun a case
        self._results = 0  # the lines with results since then
        self._seen: set[str] = set()
        self._logged: set[str] = set()  # errors of the kernel that are in the result of a case
        # the latest result if it is not recorded yet, and the errors on the console that no log had when it came
        self._suspect: tuple[ResultRecord, set[str]] | None = None
        self._changes = 0  # counts the progress that extends the deadline
        self.end_reason = ""
        self.refused = False
        self.progress = False

    def listen(self, until: Callable[[], bool] = lambda: False) -> None:
        """Reads lines and records results until the worker ends or `until` returns true. Kills a worker whose deadline
        has passed. Raises UserError if a record cannot be written, or if a worker runs on a different stack than the
        run and the recording has received no header before."""
        try:
            self._listen(lambda: until() or self._is_shortened_and_done())
        finally:
            self._recording.slow.end(self._latest)
        with self._crew.changed:
            # The errors on the console may be those of a case that this worker has given up. Its last case runs again.
            if not self._crew.stopped and not self._is_shortened_and_done():
                self._decide_suspect(explained=())

    @property
    def waiting(self) -> set[str]:
        """The cases that the worker has not begun."""
        return self._batch - self._seen

    @property
    def begun(self) -> set[str]:
        return self._seen

    @property
    def spent_s(self) -> float:
        """The time since the worker has begun its first case, in seconds; 0 before."""
        return time.monotonic() - self._first_begun if self._seen else 0.0

    def give_up(self, cases: Iterable[str]) -> None:
        """Lets other workers run these waiting cases. The worker ends before it has run them."""
        self._batch.difference_update(cases)
        self._has_given_up = True

    def _is_shortened_and_done(self) -> bool:
        return self._has_given_up and not self._in_flight and not self.waiting

    def _listen(self, until: Callable[[], bool]) -> None:
        run = self._recording.run
        deadline = Deadline(self._worker, run.deadline)
        heard = time.monotonic()
        while not until():
            listening = time.monotonic()
            self._postpone(deadline, listening - heard)
            left_s = deadline.left_s
            raw = self._worker.next_line(left_s)
            heard = time.monotonic()
            if self._postpone(deadline, heard - listening - left_s) and raw is None:
                continue
            if raw == b"":
                end = self._worker.end()
            else:
                end = None
            record, problem = self._read(raw) if raw else (None, "")
            with self._crew.changed:
                if self._crew.stopped:
                    return
                before = self._changes
                if end:
                    self._ended(end)
                    return
                if problem:
                    self._handle_malformed(problem)
                if record:
                    self._handle(record)
                # The clock is read after each line, because a worker can send lines without an end.
                if self._in_flight and time.monotonic() >= self._begun + run.longest_case_s:
                    self._endless()
                    return
                if self._changes != before:
                    deadline.restart(
                        bool(self._in_flight),
                        self._begun + run.longest_case_s if self._in_flight else inf,
                    )
                elif deadline.is_over(bool(self._in_flight), silent=raw is None):
                    self._hung()
                    return

    def _postpone(self, deadline: Deadline, absent_s: float) -> bool:
        """Does not count a long time for which this process has not listened against the worker. Returns whether the
        time was long: this process was stopped, or the host is busy."""
        if absent_s <= _ABSENT_S:
            return False
        deadline.postpone(absent_s)
        self._begun += absent_s
        return True

    def _read(self, raw: bytes) -> tuple[Record | None, str]:
        """Returns the record in a line, or the problem of a line that is not a record. Ignores an incomplete last line,
        and the result of a case that is not in flight. A returned result has the supervisor's judgement."""
        if not raw.endswith(b"\n"):
            return None, ""
        try:
            record = decode(raw)
        except ValueError as error:
            return None, str(error)
        self._has_begun |= record["type"] == "start"
        self._results += self._has_begun and record["type"] in ("result", "observed")
        if record["type"] not in ("result", "observed"):
            wrong = mismatch_of(record)
            if wrong:
                return (None, wrong)
            return (record, "")
        if (
            record["case"] != self._in_flight
            or not self._examiner
            or not self._recording.expects(self._in_flight)
        ):
            return None, ""
        judged = self._examiner.judged(self._recording.cases[self._in_flight], record)
        impossible = self._claimed.contradiction(judged) if self._claimed else ""
        wrong = impossible or self._untraced(judged)
        if wrong and judged["verdict"] not in _EXPLAIN_ALARMS:
            judged = self._examiner.broken(self._recording.cases[self._in_flight], wrong, judged)
        return self._recording.prepared(judged, self._number), ""

    def _untraced(self, judged: ResultRecord) -> str:
        """Returns why the kernel's trace contradicts a result; empty if it does not, or if the worker is not traced."""
        case = self._recording.cases[self._in_flight]
        if not self._worker.is_traced:
            return ""
        return contradiction(case, judged["observed"], self._worker.calls(self._results))

    def _unlogged_alarms(self) -> set[str]:
        """Returns the errors of the kernel on the guest's console that no log of a case has, each once. The console can be
        later than a log."""
        alarms = set(self._worker.alarms())
        unlogged = alarms - self._logged
        self._logged |= alarms
        return unlogged

    def _record_result(self, record: ResultRecord) -> None:
        """Records a result. The console can also be ahead of the results, and have the errors of the next case. Therefore
        the result of a case without a violation waits for the next result if the console has errors. The log of the next
        case explains them only if they count against that case."""
        logged = alarms_in(record["kernel"])
        counts = record["verdict"] in _EXPLAIN_ALARMS
        self._decide_suspect(explained=logged if counts else ())
        if counts:
            self._logged.update(self._worker.alarms(), logged)
        elif alarms := self._unlogged_alarms():
            self._suspect = record, alarms
            return
        self._recording.append(record)

    def _decide_suspect(self, explained: Iterable[str]) -> None:
        """Records the result that waits, if one does. The case is BROKEN if the console had errors that are not in
        `explained`, the errors of the next case."""
        if self._suspect is None or self._examiner is None:
            return
        record, alarms = self._suspect
        self._suspect = None
        if unlogged := alarms.difference(explained):
            broken = self._examiner.broken(
                self._recording.cases[record["case"]], _unlogged(unlogged), record
            )
            record = self._recording.prepared(broken, self._number)
        self._recording.append(record)

    def _handle(self, record: Record) -> None:
        if record["type"] == "header":
            self._handle_header(record)
        elif record["type"] == "offered":
            if self._header and not self._in_flight:
                self._examiner = self._recording.examiner(self._header, record)
        elif record["type"] == "guest":
            if record.get("event") == "broken":
                self.end_reason = cut(str(record.get("reason")))
                self.refused = True
        elif record["type"] == "progress":
            if record["case"] == self._in_flight and record != self._last_progress:
                self._last_progress = record
                self._recording.slow.reach(record["case"], record["point"])
                self._changes += 1
        elif record["type"] == "start":
            self._handle_start(record)
        elif record["type"] == "result" and self._recording.expects(record["case"]):
            self._record_result(record)
            self._done(record["case"])

    def _handle_header(self, record: HeaderRecord) -> None:
        if self._header:
            return
        is_first = not self._recording.header_received
        try:
            self._examiner = self._recording.heard_from(self._number, record, self._worker.derived)
        except UserError as error:
            if is_first:
                raise
            self.end_reason = error.message
            self.refused = True
            self._worker.kill()
            return
        self._header = record
        self._changes += 1

    def _handle_start(self, record: StartRecord) -> None:
        case = record["case"]
        if not self._examiner or case not in self._batch or case == self._in_flight:
            return
        if not self._recording.expects(case) or self._waits(case):
            return
        if self._in_flight:
            self._break("the worker began the next case without a result of this case")
        if not self._latest:
            self._logged.update(self._worker.alarms())  # before the first case
        self._store_duration()
        self._latest, self._begun = case, time.monotonic()
        self._first_begun = self._first_begun or self._begun
        self._recording.slow.begin(case)
        self._in_flight = case
        self._last_progress = None
        self._recording.case_started(record)
        self._changes += case not in self._seen
        self._seen.add(case)

    def _waits(self, case: str) -> bool:
        return self._suspect is not None and self._suspect[0]["case"] == case

    def _handle_malformed(self, problem: str) -> None:
        if self._in_flight:
            self._break(f"the worker sent a malformed line: {problem}")
        elif not self._header:
            self.end_reason = cut(f"the worker sent a malformed line: {problem}")

    def _break(self, reason: str) -> None:
        self._recording.record(self._in_flight, Verdict.BROKEN, cut(reason), self._number)
        self._done(self._in_flight)

    def _done(self, case: str) -> None:
        self._changes += 1
        self.progress = True
        self._recording.slow.end(case)
        if case == self._in_flight:
            self._in_flight = ""
        self._store_duration()

    def _store_duration(self) -> None:
        """Stores the duration of the latest case, which includes the time until the next case begins."""
        if self._latest and not self._in_flight:
            self._recording.took[self._latest] = time.monotonic() - self._begun

    def _hung(self) -> None:
        """Handles a worker without progress until the deadline: a HANG, unless the worker was stopped externally."""
        if held := self._worker.held_up():
            self._ended(WorkerEnd(held, external=True))
        else:
            self.end_reason = SILENT.what
            if self._in_flight:
                self._record_loss(SILENT)
        self._worker.kill()

    def _endless(self) -> None:
        """Handles a case that makes progress but does not finish: the case is BROKEN."""
        seconds = self._recording.run.longest_case_s
        self.end_reason = (
            f"{self._in_flight} did not finish within {seconds:,.0f} s, although it made progress"
        )
        self._break(f"the case did not finish within {seconds:,.0f} s, although it made progress")
        self._worker.kill()

    def _ended(self, end: WorkerEnd) -> None:
        self.end_reason = self.end_reason or end.what
        if self._latest and not self._in_flight and not self._has_given_up:
            if alarms := self._unlogged_alarms():
                self._recording.suspect(f"after {self._latest}, {_unlogged(alarms)}")
            elif end.kind is FaultKind.KERNEL_DIED and not end.external:
                self._recording.suspect(f"after {self._latest}, {end.what} without a message")
        if end.external:
            self._count_external_end(end.what)
        elif self._in_flight:
            self._record_loss(end)

    def _count_external_end(self, what: str) -> None:
        self._recording.external_ends[self._in_flight] += 1
        tries = self._recording.external_ends[self._in_flight]
        self.progress |= tries < TRIES
        if self._in_flight and tries == TRIES:
            reason = f"{what}, {TRIES} times in this case"
            self._recording.record(self._in_flight, Verdict.BROKEN, reason, self._number)
            self.progress = True

    def _record_loss(self, end: WorkerEnd) -> None:
        self._decide_suspect(explained=self._worker.alarms())
        self.end_reason = f"{end.what} in {self._in_flight}"
        case = self._recording.cases[self._in_flight]
        log = self._worker.console_tail(EVIDENCE_LINES)
        self._recording.record_loss(case, end, self._last_progress, log, self._number)
        self.progress = True


def _unlogged(alarms: Iterable[str]) -> str:
    return (
        f"the guest's console has an error of the kernel that its log does not have: {min(alarms)}"
    )


class Repetition:
    """The results of cases that are repeated in one worker. A session uses it in place of a Recording. A case that the
    worker did not finish has a result only if the worker died or hung."""

    header_received = (
        False  # a session therefore raises the error for a header of a different stack
    )

    def __init__(self, cases: Mapping[str, Case], recording: Recording) -> None:
        self.cases = cases
        self.run: Run = recording.run
        self.slow = recording.slow
        self.examiner = recording.examiner
        self.done: dict[str, ResultRecord] = {}
        self.took: dict[str, float] = {}
        self.external_ends: Counter[str] = Counter()

    def is_complete(self) -> bool:
        return len(self.done) == len(self.cases)

    def heard_from(
        self,
        worker: int,
        header: HeaderRecord,
        derived: DerivedFiles | None,
    ) -> Examiner:
        return self.examiner(header, None)

    def expects(self, case: str) -> bool:
        return case in self.cases and case not in self.done

    def suspect(self, reason: str) -> None:
        pass  # the violation that is repeated counts anyway

    def case_started(self, record: StartRecord) -> None:
        pass

    def prepared(self, record: ResultRecord, worker: int) -> ResultRecord:
        return record

    def append(self, record: ResultRecord) -> None:
        self.done[record["case"]] = record

    def record(self, case: str, verdict: Verdict, reason: str, worker: int) -> None:
        pass  # BROKEN does not show whether the violation occurs again

    def record_loss(
        self,
        case: Case,
        end: WorkerEnd,
        at: ProgressRecord | None,
        log: Sequence[str],
        worker: int,
    ) -> None:
        log = log[-_LINES_OF_REPETITION:]
        fault = loss_of(case, end, log)
        verdict = verdict_of(fault.kind)
        record: ResultRecord = {**RESULT, "case": case.id, "verdict": verdict, "effective": verdict}
        self.append(
            {**record, "reason": end.what, "fault": fault.as_data(), "kernel": {"log": [*log]}},
        )
