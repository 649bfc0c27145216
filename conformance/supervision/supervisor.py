"""Runs the cases of a run in workers, several at a time, until each case has a result.

Each place for a worker has a thread, the first one the caller's own; what they share is used under one lock. Not for
what is recorded (recording.py), for the stream of a worker (session.py) or for who runs what (schedule.py).
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.profile import Profile
from conformance.model.record import FooterRecord, SupervisorFacts
from conformance.model.verdict import Verdict
from conformance.results.prior_sessions import PriorSessions
from conformance.results.waivers import Waivers
from conformance.results.writer import ResultsFile
from conformance.supervision.confirmation import Confirmation
from conformance.supervision.recording import Recording
from conformance.supervision.schedule import Schedule
from conformance.supervision.session import Session
from conformance.supervision.threads import run_together
from conformance.supervision.worker import CASE_DEADLINE_S, Listener, Start, Worker
from conformance.tables.suite import Suite


class Supervisor:
    """One run: the planned cases, and who runs them."""

    def __init__(
        self,
        suite: Suite,
        cases: Sequence[Case],
        results: ResultsFile,
        listener: Listener,
        header: SupervisorFacts,
        console: Path,
        reproduction: Callable[[Case, str], str] = lambda case, _: f"./rdma-cts run --only {case.id}",
        *,
        deadline_s: float | None = None,
        boot_id: Callable[[], str] = str,
        prior: PriorSessions | None = None,
        waivers: Waivers | None = None,
        profile: Profile | None = None,
        durations: Mapping[str, float] | None = None,
    ) -> None:
        """`console` is the file with the other output of workers.

        `header` are the facts of the run that workers do not know. `reproduction` returns the command that runs one
        case on the same target, on the device of that name if several share the cases. A case may take `deadline_s`
        seconds. `boot_id` returns what identifies the boot of the kernel under test if that is the kernel of a host,
        which may go down and take this process along: the file then records the start of each case, too. `prior` are
        the earlier sessions of a run that is carried on. `waivers` determine effective verdicts, and `profile` what the
        device must have. `durations` are the seconds that cases took in an earlier run, by id; they only decide who
        runs what.
        """
        self._suite = suite
        self.recording = Recording(
            suite.registry,
            cases,
            results,
            listener,
            header,
            reproduction,
            boot_id,
            prior,
            waivers,
            profile or Profile(),
        )
        self.listener = listener
        self.console = console
        self.deadline_s = deadline_s or CASE_DEADLINE_S
        self.prior = prior
        self.durations = durations or {}
        self.end_reason = ""
        self._changed = threading.Condition(threading.RLock())  # guards everything below, and the recording
        self._schedule = Schedule((), 1, {})
        self._external_ends: Counter[str] = Counter()
        self._workers: set[Worker] = set()
        self._started = 0
        self._busy = 0
        self._refused = False  # a worker has said that it can run no case
        self._stopped = False

    def run(self, *starts: Start, again: Sequence[Start] = ()) -> FooterRecord:
        """Runs every case, in as many workers as necessary. Records and returns the footer.

        Each of `starts` starts one worker at a time. Each of `again` starts a worker in which a violation is tried
        once more; without them, and as long as cases are missing, violations are not confirmed. Raises UserError if no
        worker sent a header or could run a case, or if the header of a worker has another stack than the run began
        with.
        """
        began = time.monotonic()
        if self.prior:
            self.recording.carry_on(self.prior)
        remaining = [case for id_, case in self.recording.cases.items() if id_ not in self.recording.done]
        self._schedule = Schedule(remaining, len(starts), self.durations)
        try:
            run_together([functools.partial(self._serve, start) for start in starts], self._stop)
        except Exception as error:
            self._end_broken(error, time.monotonic() - began)
            raise
        if self._started and (not self.recording.header_received or (self._refused and not self.recording.done)):
            raise UserError(f"no case was begun: {self.end_reason}", log=str(self.console), status=3)
        missing = [case for case in self.recording.cases if case not in self.recording.done]
        if again and not missing:
            self._confirm(again)
        for case in missing:
            self.recording.record(case, Verdict.MISSED, f"not run: {self.end_reason}")
        return self.recording.finish(time.monotonic() - began)

    def _end_broken(self, error: Exception, duration_s: float) -> None:
        """Records a footer where the harness itself has failed; nothing where the file or the stack is the reason."""
        if isinstance(error, UserError) or not self.recording.header_received:
            return
        reason = f"not run: the harness failed ({type(error).__name__})"
        for case in self.recording.cases:
            if case not in self.recording.done:
                self.recording.record(case, Verdict.MISSED, reason)
        self.recording.finish(duration_s)

    def _confirm(self, starts: Sequence[Start]) -> None:
        found = self.recording.unconfirmed()
        if any(not each.first for each in found):
            self.listener.say(f"trying {len(found)} violations again, each alone in a fresh worker")
        # On a device of this host, what took the process down may have damaged the kernel.
        repeats_losses = not self.recording.boot_id
        confirmation = Confirmation(
            found,
            self.recording.append_confirmation,
            self.recording.examiner,
            self._suite.find,
            self.listener.say,
            self.deadline_s,
            repeats_losses,
        )
        confirmation.run(*starts)

    def _stop(self) -> None:
        """Ends the run: kills all workers, whose cases in flight get no result."""
        with self._changed:
            self._stopped = True
            for worker in self._workers:
                worker.kill()
            self._changed.notify_all()

    def _serve(self, start: Start) -> None:
        """Runs workers one after the other, as long as there are cases for them and they make progress."""
        while batch := self._next_batch():
            try:
                useful = self._run_batch(start, batch)
            finally:
                with self._changed:
                    self._busy -= 1
                    self._schedule.give_back(case for case in batch if case not in self.recording.done)
                    self._changed.notify_all()
            if not useful:
                return

    def _next_batch(self) -> list[str]:
        """The cases for the next worker; waits while others run, because these may die and leave some."""
        with self._changed:
            while not self._stopped:
                if batch := self._schedule.take():
                    self._busy += 1
                    return batch
                if not self._busy:
                    break
                self._changed.wait()
        return []

    def _run_batch(self, start: Start, batch: Sequence[str]) -> bool:
        """Runs one worker. Returns whether starting another one makes sense."""
        try:
            worker = start(batch)
        except UserError as error:
            return self._not_started(error)
        with self._changed:
            if self._stopped:
                worker.close()
                return False
            self._started += 1
            self._workers.add(worker)
            number = self.recording.worker_started()
        session = Session(
            worker,
            number,
            batch,
            self.recording,
            self._changed,
            self.deadline_s,
            self._external_ends,
            lambda: self._stopped,
        )
        try:
            session.listen()
        finally:
            with self._changed:
                self._workers.discard(worker)
            worker.close()
        stuck = worker.stuck_reason()
        with self._changed:
            self._refused |= session.refused
            if not self._stopped:
                self.end_reason = f"the device is suspect: {stuck}" if stuck else session.end_reason
        if stuck:
            self._stop()
            return False
        with self._changed:
            rest = any(case not in self.recording.done for case in batch)
            if rest and session.progress and not self._stopped:
                self.listener.worker_restarted(session.end_reason)
        return session.progress

    def _not_started(self, error: UserError) -> bool:
        """Handles a worker that could not be started. Raises the error unless another worker runs, or has run."""
        with self._changed:
            if not self.recording.header_received and self._busy == 1:
                raise error
            self.end_reason = error.message
            if self._busy > 1:
                self.listener.say(f"going on with one worker fewer: {error.message}")
        return False
