"""Runs cases in a worker outside of this process and records what comes, whatever becomes of it.

A worker is one life of the kernel or process under test: a guest, or pytest on this host's device.
It streams records, a line each; when it dies or falls silent, the case in flight gets CRASH or HANG, and another
worker takes the rest. Not for how a worker is made (fixtures/) and not for judging.
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

# A case takes milliseconds, and one compiles a program; software emulation on a busy machine is some
# hundred times slower.
CASE_DEADLINE_S = 120.0
# Until the first case: pytest's start and the reading of the tables, under emulation.
START_DEADLINE_S = 180.0
EVIDENCE_LINES = 80
# How often a case is begun whose worker somebody else kills; the environment has failed it then.
TRIES = 3


@dataclass(frozen=True)
class WorkerEnd:
    """How a worker ended; `outside` if neither the kernel nor the process under test had a part in it."""

    what: str = "the kernel or process under test died"
    outside: bool = False


class Worker(Protocol):
    """One life of what runs the cases; see fixtures.softroce.guest.Guest."""

    def next_line(self, timeout: float) -> bytes | None: ...
    def end(self) -> WorkerEnd: ...
    def kill(self) -> None: ...
    def tail_of_console(self, lines: int = 30) -> list[str]: ...
    def close(self) -> None: ...
    def stuck(self) -> str: ...


class Listener(Protocol):
    """Receives how the run goes."""

    def began(self, header: HeaderRecord, total: int) -> None: ...
    def took(self, record: ResultRecord, done: int, total: int) -> None: ...
    def restarted(self, reason: str) -> None: ...


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
        """`console` is where workers put what they have to say besides lines.

        `header` holds what only this side knows of the run. `reproduction` returns
        the command that runs just that case in the same place. A case may take `deadline_s`
        seconds. `boot_id` names this start of the kernel under test if that is this host's own: then
        the file also says which case was begun, for the kernel may take this process with it.
        `prior` is what the file holds of a run that is carried on. `waivers` decide what counts.
        """
        self.suite = suite
        self.cases = {case.id: case for case in cases}
        self.file = results
        self.listener = listener
        self.known = header
        self.console = console
        self.reproduction = reproduction
        self.deadline_s = deadline_s or CASE_DEADLINE_S
        self.boot_id = boot_id
        self.prior = prior
        self.waivers = waivers
        self.header: HeaderRecord | None = prior.header if prior else None
        self.done: dict[str, ResultRecord] = dict(prior.done) if prior else {}
        self.heard = False
        self.workers = 0
        self.killed: Counter[str] = Counter()
        self.at: ProgressRecord | None = None  # how far the case in flight had got when it said so last
        self.why_ended = ""

    def run(self, start: Callable[[Sequence[str]], Worker]) -> FooterRecord:
        """Runs every case in as many workers as it takes; gives the footer, which is also recorded.

        `start` makes a worker for the ids given to it. Raises UserError when no worker sent a
        header (then there is nothing that results could be about), or one of another stack than before.
        """
        began = time.monotonic()
        if self.prior:
            self._carry_on(self.prior)
        while batch := self._next_batch():
            before = self._progress()
            try:
                worker = start(batch)
            except UserError as error:
                if not self.heard:
                    raise
                self.why_ended = error.message
                break
            self.workers += 1
            if self.heard:
                self._count_worker()
            try:
                self._listen(worker)
            finally:
                worker.close()
            if stuck := worker.stuck():
                self.why_ended = f"the device is suspect: {stuck}"
                break
            if self._progress() == before:
                break  # a worker that brings nothing to an end would not do so the next time
            if any(case not in self.done for case in batch):
                self.listener.restarted(self.why_ended)
        if self.workers and not self.heard:
            raise UserError(f"no case was begun: {self.why_ended}", log=str(self.console), status=3)
        for case in [case for case in self.cases if case not in self.done]:
            self._record(case, Verdict.MISSED, f"not run: {self.why_ended}")
        return self._finish(time.monotonic() - began)

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
        self.listener.began(prior.header, len(self.cases))
        if prior.in_flight in self.cases and self.boot_id and prior.boot_id != self.boot_id:
            self._record(prior.in_flight, Verdict.CRASH, "this host went down while the case ran")

    def _progress(self) -> tuple[int, int]:
        """Differs after a worker with which it makes sense to start another."""
        return len(self.done), sum(min(count, TRIES - 1) for count in self.killed.values())

    def _next_batch(self) -> list[str]:
        """The cases for the next worker: all that are harmless, then the hazardous ones one by one."""
        remaining = [case for case in self.cases.values() if case.id not in self.done]
        harmless = [case.id for case in remaining if not case.hazardous]
        return harmless or [case.id for case in remaining[:1]]

    def _listen(self, worker: Worker) -> None:
        in_flight = ""
        started: set[str] = set()
        self.why_ended = ""
        until = time.monotonic() + START_DEADLINE_S
        while True:
            raw = worker.next_line(max(0.0, until - time.monotonic()))
            if raw is None:
                self.why_ended = reason = "no answer within its deadline"
                if in_flight:
                    self._lost(in_flight, Verdict.HANG, reason, worker)
                worker.kill()
                return
            if not raw:
                self._ended(in_flight, worker)
                return
            before = (len(started), len(self.done), self.heard, self.at)
            in_flight = self._take(raw, in_flight)
            started.add(in_flight)
            if before != (len(started), len(self.done), self.heard, self.at):  # noise is no sign of life
                until = time.monotonic() + (self.deadline_s if in_flight else START_DEADLINE_S)

    def _take(self, raw: bytes, in_flight: str) -> str:
        """Takes one line; gives the case now in flight."""
        try:
            record = decode(raw)
        except ValueError:
            return in_flight  # torn by the worker's end, or noise on the port
        if record["type"] == "header":
            if not self.heard:
                self._begin(record)
        elif record["type"] == "guest":
            if record.get("event") == "broken":
                self.why_ended = str(record.get("reason"))
        elif record["type"] in ("start", "progress", "result"):
            return self._take_of_case(record, in_flight)
        return in_flight

    def _take_of_case(self, record: StartRecord | ProgressRecord | ResultRecord, in_flight: str) -> str:
        """Takes one record of a case; gives the case now in flight."""
        case = record["case"]
        if not self.heard or case not in self.cases:
            pass  # it is not known what the record is about
        elif record["type"] == "progress":
            if case == in_flight:
                self.at = record
        elif case in self.done:
            pass
        elif record["type"] == "start":
            self.at = None
            if self.boot_id:
                self.file.append(record)
            return case
        else:
            self._append(record)
            return "" if case == in_flight else in_flight
        return in_flight

    def _begin(self, worker_header: HeaderRecord) -> None:
        """Takes the first header of this session."""
        header: HeaderRecord = {**worker_header, **self.known, "planned": list(self.cases)}
        header["under_test"] = {**worker_header.get("under_test", {}), **self.known.get("under_test", {})}
        self.heard = True
        if self.prior:
            self.prior.check(header)
        else:
            self.header = header
            self.file.append(header)
            self.listener.began(header, len(self.cases))
        self._count_worker()

    def _count_worker(self) -> None:
        self.file.append({"type": "worker", "boot_id": self.boot_id})

    def _ended(self, in_flight: str, worker: Worker) -> None:
        """A worker's stream is at its end, in a case or between two."""
        end = worker.end()
        self.why_ended = self.why_ended or end.what
        if end.outside:
            self.killed[in_flight] += 1
            if in_flight and self.killed[in_flight] == TRIES:
                self._record(in_flight, Verdict.BROKEN, f"{end.what}, {TRIES} times in this case")
        elif in_flight:
            self._lost(in_flight, Verdict.CRASH, end.what, worker)

    def _lost(self, in_flight: str, verdict: Verdict, reason: str, worker: Worker) -> None:
        self.why_ended = f"{reason} in {in_flight}"
        case, at = self.cases[in_flight], self.at
        row = at.get("row") if at else None
        if at and row:
            reason += f", in {at['point']}"
        elif at:
            reason += f", at the point {at['point']} or one of those soon after it"
        log = worker.tail_of_console(EVIDENCE_LINES)
        cause = "; ".join(filter(None, (judging.first_alarm(log), judging.crash_location(log))))
        record = self._result(in_flight, verdict, f"{case.when}: {reason}{cause and f' ({cause})'}", log)
        if at and row:  # one of random sequences: which one, and which of the case's rules that is about
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
        self.listener.took(record, len(self.done), len(self.cases))
