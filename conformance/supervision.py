"""Runs cases in worker processes and records their results, even if a worker dies.

A worker is one instance of the kernel or process under test: a guest, or pytest on a device of this host. It streams
records, one per line. If it dies or sends nothing until the deadline, the case in flight gets CRASH or HANG, and
another worker runs the remaining cases. Not for starting workers (fixtures/) and not for judging.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from conformance import judging
from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.model.case import Case
from conformance.model.observation import KernelEvidence
from conformance.model.record import (
    Deviation,
    FooterRecord,
    HeaderRecord,
    ProgressRecord,
    ResultRecord,
    StartRecord,
    SupervisorFacts,
)
from conformance.model.verdict import Verdict
from conformance.results.prior_sessions import PriorSessions
from conformance.results.records import decode, footer_record, result_record
from conformance.results.waivers import Waivers
from conformance.results.writer import ResultsFile
from conformance.tables.suite import Suite

# The default deadline of a case, in seconds. A case takes milliseconds, one compiles a program; software emulation on a
# busy machine is about a hundred times slower.
CASE_DEADLINE_S = 120.0
# The deadline until the first case, in seconds: pytest starts and reads the tables, under emulation.
START_DEADLINE_S = 180.0
EVIDENCE_LINES = 80
# A case whose worker is killed externally is started this many times, then it is BROKEN.
TRIES = 3


@dataclass(frozen=True)
class WorkerEnd:
    """How a worker ended. `external`: neither the kernel nor the process under test caused it."""

    what: str = "the kernel or process under test died"
    external: bool = False


class Worker(Protocol):
    """One instance of the process that runs cases; see fixtures.softroce.guest.Guest.

    `next_line` returns a line, an empty one at the end of the stream, or None after `timeout` seconds. `stuck_reason`
    says why no other worker can use the device, or is empty."""

    def next_line(self, timeout: float) -> bytes | None: ...
    def end(self) -> WorkerEnd: ...
    def kill(self) -> None: ...
    def console_tail(self, lines: int = 30) -> list[str]: ...
    def close(self) -> None: ...
    def stuck_reason(self) -> str: ...


class Listener(Protocol):
    """Is notified about the progress of a run."""

    def run_started(self, header: HeaderRecord, total: int) -> None: ...
    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None: ...
    def worker_restarted(self, reason: str) -> None: ...


class Supervisor:
    """One run: the planned cases, the results so far, and the file they go to."""

    def __init__(
        self,
        suite: Suite,
        cases: Sequence[Case],
        results: ResultsFile,
        listener: Listener,
        header: SupervisorFacts,
        console: Path,
        reproduction: Callable[[Case], str] = lambda case: f"./rdma-cts run --only {case.id}",
        *,
        deadline_s: float | None = None,
        boot_id: str = "",
        prior: PriorSessions | None = None,
        waivers: Waivers | None = None,
    ) -> None:
        """`console` is the file with the other output of workers.

        `header` are the facts of the run that workers do not know. `reproduction` returns the command that runs one
        case on the same target. A case may take `deadline_s` seconds. `boot_id` identifies the boot of the kernel under
        test if it is that of this host, which may take this process down: the file then records the start of each
        case, too. `prior` are the earlier sessions of a run that is carried on. `waivers` determine effective verdicts.
        """
        self.suite = suite
        self.cases = {case.id: case for case in cases}
        self.file = results
        self.listener = listener
        self.header_facts = header
        self.console = console
        self.reproduction = reproduction
        self.deadline_s = deadline_s or CASE_DEADLINE_S
        self.boot_id = boot_id
        self.prior = prior
        self.waivers = waivers
        self.header: HeaderRecord | None = prior.header if prior else None
        self.done: dict[str, ResultRecord] = dict(prior.done) if prior else {}
        self.header_received = False
        self.workers = 0
        self.external_ends: Counter[str] = Counter()
        self.last_progress: ProgressRecord | None = None  # of the case in flight
        self.end_reason = ""

    def run(self, start: Callable[[Sequence[str]], Worker]) -> FooterRecord:
        """Runs every case, in as many workers as necessary. Records and returns the footer.

        `start` starts a worker for cases with the given ids. Raises UserError if no worker sent a header, or if the
        header of a worker has another stack than the run began with.
        """
        started = time.monotonic()
        if self.prior:
            self._carry_on(self.prior)
        while batch := self._next_batch():
            before = self._progress()
            try:
                worker = start(batch)
            except UserError as error:
                if not self.header_received:
                    raise
                self.end_reason = error.message
                break
            self.workers += 1
            if self.header_received:
                self._count_worker()
            try:
                self._listen(worker)
            finally:
                worker.close()
            if reason := worker.stuck_reason():
                self.end_reason = f"the device is suspect: {reason}"
                break
            if self._progress() == before:
                break  # this worker has finished no case, and neither would the next
            if any(case not in self.done for case in batch):
                self.listener.worker_restarted(self.end_reason)
        if self.workers and not self.header_received:
            raise UserError(f"no case was begun: {self.end_reason}", log=str(self.console), status=3)
        for case in [case for case in self.cases if case not in self.done]:
            self._record(case, Verdict.MISSED, f"not run: {self.end_reason}")
        return self._finish(time.monotonic() - started)

    def _finish(self, duration_s: float) -> FooterRecord:
        footer = footer_record(
            list(self.cases),
            self.done.values(),
            self.suite.registry,
            duration_s=duration_s + (self.prior.seconds if self.prior else 0.0),
            boots=self.workers + (self.prior.boots if self.prior else 0),
            resumed=self.prior.resumed + 1 if self.prior else 0,
        )
        if self.waivers and self.header:
            footer["waivers"] = self.waivers.account(self.done.values(), self.header)
        self.file.append(footer)
        return footer

    def _carry_on(self, prior: PriorSessions) -> None:
        self.file.append(prior.resumed_record())
        self.listener.run_started(prior.header, len(self.cases))
        if prior.in_flight in self.cases and self.boot_id and prior.boot_id != self.boot_id:
            self._record(prior.in_flight, Verdict.CRASH, "this host went down while the case ran")

    def _progress(self) -> tuple[int, int]:
        """A value that changes if a worker has made progress, so that starting another makes sense."""
        return len(self.done), sum(min(count, TRIES - 1) for count in self.external_ends.values())

    def _next_batch(self) -> list[str]:
        """The cases for the next worker: first all that are not hazardous, then the hazardous ones one by one."""
        remaining = [case for case in self.cases.values() if case.id not in self.done]
        ordinary = [case.id for case in remaining if not case.hazardous]
        return ordinary or [case.id for case in remaining[:1]]

    def _listen(self, worker: Worker) -> None:
        in_flight = ""
        started: set[str] = set()
        self.end_reason = ""
        until = time.monotonic() + START_DEADLINE_S
        while True:
            raw = worker.next_line(max(0.0, until - time.monotonic()))
            if raw is None:
                self.end_reason = reason = "no answer within its deadline"
                if in_flight:
                    self._record_loss(in_flight, Verdict.HANG, reason, worker)
                worker.kill()
                return
            if not raw:
                self._record_end(in_flight, worker)
                return
            before = (len(started), len(self.done), self.header_received, self.last_progress)
            in_flight = self._handle_line(raw, in_flight)
            started.add(in_flight)
            if before != (
                len(started),
                len(self.done),
                self.header_received,
                self.last_progress,
            ):  # noise does not extend the deadline
                until = time.monotonic() + (self.deadline_s if in_flight else START_DEADLINE_S)

    def _handle_line(self, raw: bytes, in_flight: str) -> str:
        """Handles one line; returns the case that is in flight afterwards."""
        try:
            record = decode(raw)
        except ValueError:
            return in_flight  # cut off by the worker's end, or noise on the port
        if record["type"] == "header":
            if not self.header_received:
                self._begin(record)
        elif record["type"] == "guest":
            if record.get("event") == "broken":
                self.end_reason = str(record.get("reason"))
        elif record["type"] in ("start", "progress", "result"):
            return self._handle_case_record(record, in_flight)
        return in_flight

    def _handle_case_record(self, record: StartRecord | ProgressRecord | ResultRecord, in_flight: str) -> str:
        """Handles one record of a case; returns the case that is in flight afterwards."""
        case = record["case"]
        if not self.header_received or case not in self.cases:
            pass  # without a header, or of an unknown case
        elif record["type"] == "progress":
            if case == in_flight:
                self.last_progress = record
        elif case in self.done:
            pass
        elif record["type"] == "start":
            self.last_progress = None
            if self.boot_id:
                self.file.append(record)
            return case
        else:
            self._append(record)
            return "" if case == in_flight else in_flight
        return in_flight

    def _begin(self, worker_header: HeaderRecord) -> None:
        """Handles the first header of this session."""
        header: HeaderRecord = {**worker_header, **self.header_facts, "planned": list(self.cases)}
        header["under_test"] = {**worker_header.get("under_test", {}), **self.header_facts.get("under_test", {})}
        self.header_received = True
        if self.prior:
            self.prior.check(header)
        else:
            self.header = header
            self.file.append(header)
            self.listener.run_started(header, len(self.cases))
        self._count_worker()

    def _count_worker(self) -> None:
        self.file.append({"type": "worker", "boot_id": self.boot_id})

    def _record_end(self, in_flight: str, worker: Worker) -> None:
        """Handles the end of a worker's stream, during a case or between cases."""
        end = worker.end()
        self.end_reason = self.end_reason or end.what
        if end.external:
            self.external_ends[in_flight] += 1
            if in_flight and self.external_ends[in_flight] == TRIES:
                self._record(in_flight, Verdict.BROKEN, f"{end.what}, {TRIES} times in this case")
        elif in_flight:
            self._record_loss(in_flight, Verdict.CRASH, end.what, worker)

    def _record_loss(self, in_flight: str, verdict: Verdict, reason: str, worker: Worker) -> None:
        self.end_reason = f"{reason} in {in_flight}"
        case, at = self.cases[in_flight], self.last_progress
        row = at.get("row") if at else None
        if at and row:
            reason += f", in {at['point']}"
        elif at:
            reason += f", at the point {at['point']} or one of those soon after it"
        log = worker.console_tail(EVIDENCE_LINES)
        cause = "; ".join(filter(None, (judging.first_alarm(log), judging.crash_location(log))))
        record = self._result(in_flight, verdict, f"{case.when}: {reason}{cause and f' ({cause})'}", log)
        if at and row:  # a random sequence: record it, and the rule that it is about
            rule = str(at.get("rule"))
            deviation: Deviation = {"when": at["point"], "rules": [rule], "row": row}
            record["deviations"] = [deviation]
            record["rule_verdicts"] = {**dict.fromkeys(case.rules, Verdict.PASS), rule: verdict}
        self._append(record)

    def _record(self, case: str, verdict: Verdict, reason: str) -> None:
        self._append(self._result(case, verdict, reason, []))

    def _result(self, case: str, verdict: Verdict, reason: str, log: Sequence[str]) -> ResultRecord:
        kernel: KernelEvidence = {"log": list(log)} if log else {}
        return result_record(self.cases[case], self.suite.registry, Judgement(verdict, reason), {}, kernel=kernel)

    def _append(self, record: ResultRecord) -> None:
        # The location of the row on this side; a guest has the tables elsewhere.
        case = self.cases[record["case"]]
        record = {
            **record,
            "source": {"file": case.location.file, "line": case.location.line},
            "repro": self.reproduction(case),
        }
        record = self.file.prepared(record)
        if self.waivers and self.header:
            record = self.waivers.applied(record, self.header)
        self.done[record["case"]] = record
        self.file.append(record)
        self.listener.result_recorded(record, len(self.done), len(self.cases))
