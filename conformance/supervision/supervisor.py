"""Runs cases in several workers at a time, until each case has a result. Each concurrent worker has a thread; the first
thread is that of the caller. One lock guards the data that the threads share."""

import time
from collections.abc import Sequence
from pathlib import Path

from conformance.errors import UserError, format_count
from conformance.model.record import FooterRecord
from conformance.model.verdict import Verdict
from conformance.supervision.claimed_time import ClaimedTime
from conformance.supervision.confirmation import Confirmation
from conformance.supervision.durations import expected_durations
from conformance.supervision.recording import Recording
from conformance.supervision.schedule import Schedule
from conformance.supervision.session import Session
from conformance.supervision.worker import Crew, Start

_LOOK_S = 1.0  # how often a free worker looks whether another has too many cases


class Supervisor:
    """One run: its records, and the distribution of its cases to workers."""

    def __init__(self, recording: Recording, console: Path) -> None:
        """`console` is the file that has the workers' output other than records."""
        self._recording = recording
        self._console = console
        self._end_reason = ""
        self._crew = Crew()  # the lock of `changed` guards the attributes below and the recording
        self._schedule = Schedule((), 1, {})
        self._sessions: dict[Session, list[str]] = {}  # with the cases of their workers
        self._started = 0
        self._busy = 0
        self._refused = False  # a worker has reported that it cannot run any case

    def run(self, *starts: Start, again: Sequence[Start] = ()) -> FooterRecord:
        """Runs every case, in as many workers as necessary. Records and returns the footer. Names cases that take long.

        Each of `starts` starts one worker at a time. Each of `again` starts a worker in which violations are repeated;
        without `again`, or if cases have no result, violations are not confirmed. Raises UserError if no worker could
        be started or sent a header, if none could run a case, or if the first worker's stack differs from the run's.
        """
        with self._recording.slow.watched():
            return self._run(starts, again)

    def _run(self, starts: Sequence[Start], again: Sequence[Start]) -> FooterRecord:
        began = time.monotonic()
        recording = self._recording
        durations = recording.run.durations
        recording.listener.expect(expected_durations(recording.remaining, durations))
        recording.carry_on()
        takes_over = not recording.boot_id
        self._schedule = Schedule(recording.remaining, len(starts), durations, takes_over)
        try:
            self._crew.run(self._serve, starts)
        except Exception as error:
            self._end_broken(error, time.monotonic() - began)
            raise
        if self._started and (
            not self._recording.header_received or (self._refused and not self._recording.done)
        ):
            raise UserError(
                f"no case was begun: {self._end_reason}",
                log=str(self._console),
                status=3,
            )
        missing = [case for case in self._recording.cases if case not in self._recording.done]
        if again and not missing:
            self._confirm(again)
        for case in missing:
            self._recording.record(case, Verdict.MISSED, f"not run: {self._end_reason}")
        return self._recording.finish(time.monotonic() - began)

    def _end_broken(self, error: Exception, duration_s: float) -> None:
        """Records a footer after a failure of the harness. A UserError is not a failure of the harness."""
        if isinstance(error, UserError) or not self._recording.header_received:
            return
        reason = f"not run: the harness failed ({type(error).__name__})"
        for case in self._recording.cases:
            if case not in self._recording.done:
                self._recording.record(case, Verdict.MISSED, reason)
        self._recording.finish(duration_s)

    def _confirm(self, starts: Sequence[Start]) -> None:
        violations_left = self._recording.to_repeat()
        if any(not violation.first for violation in violations_left):
            seen = format_count(len(self._recording.unconfirmed()), "violation")
            self._recording.listener.say(
                f"repeating {len(violations_left):,} of {seen} in fresh workers",
            )
        # On a device of this host, a violation that crashed the process may have damaged the kernel.
        repeats_losses = not self._recording.boot_id
        Confirmation(violations_left, self._recording, repeats_losses).run(*starts)

    def _serve(self, start: Start) -> None:
        """Runs workers one after the other, until no case is left or a worker makes no progress."""
        while batch := self._next_batch():
            try:
                useful = self._run_batch(start, batch)
            finally:
                with self._crew.changed:
                    self._busy -= 1
                    self._schedule.give_back(
                        case for case in batch if case not in self._recording.done
                    )
                    self._crew.changed.notify_all()
            if not useful:
                return

    def _next_batch(self) -> list[str]:
        """Returns the cases for the next worker. Waits while other workers run, because their cases may be put back, or
        may take so long that this worker runs some of them."""
        with self._crew.changed:
            while not self._crew.stopped:
                if batch := self._schedule.take() or self._taken_over():
                    self._busy += 1
                    return batch
                if not self._busy:
                    break
                self._crew.changed.wait(_LOOK_S)
        return []

    def _taken_over(self) -> list[str]:
        """Returns cases that another guest would run last: the durations of a busy machine, of another stack or of new
        cases are only guessed. A host's process is not ended before its last case."""
        if self._recording.boot_id:
            return []
        for session, batch in self._sessions.items():
            begun_s = self._schedule.total(session.begun)
            pace = session.spent_s / begun_s if begun_s else 0.0
            if cases := self._schedule.second_half(session.waiting, pace):
                session.give_up(cases)
                batch[:] = [case for case in batch if case not in cases]
                return cases
        return []

    def _run_batch(self, start: Start, batch: list[str]) -> bool:
        """Runs one worker. Returns whether another worker should be started."""
        if len(batch) == 1 and self._recording.cases[batch[0]].alone:
            self._recording.listener.say(
                f"  a separate guest or process for {batch[0]}, because the case may crash it",
            )
        claimed = ClaimedTime()
        try:
            worker = start([*batch])
        except UserError as error:
            return self._not_started(error)
        with self._crew.changed:
            if self._crew.stopped:
                worker.close()
                return False
            self._started += 1
            session = Session(
                worker,
                self._recording.worker_started(worker.derived),
                batch,
                self._recording,
                self._crew,
                claimed if worker.on_this_machine else None,
            )
            self._sessions[session] = batch
        with self._crew.employing(worker):
            session.listen()
        stuck = worker.stuck_reason()
        with self._crew.changed:
            del self._sessions[session]
            self._refused |= session.refused
            if not self._crew.stopped:
                self._end_reason = (
                    f"the device is suspect: {stuck}" if stuck else session.end_reason
                )
        if stuck:
            self._crew.stop()
            return False
        with self._crew.changed:
            rest = any(case not in self._recording.done for case in batch)
            if rest and session.progress and not self._crew.stopped:
                self._recording.listener.worker_restarted(session.end_reason)
        return session.progress

    def _not_started(self, error: UserError) -> bool:
        """Handles a failed start. Raises the error if no other worker runs and no worker has sent a header."""
        with self._crew.changed:
            if not self._recording.header_received and self._busy == 1:
                raise error
            self._end_reason = error.message
            if self._busy > 1:
                self._recording.listener.say(f"continuing with one worker fewer: {error.message}")
        return False
