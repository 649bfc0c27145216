"""Runs cases in a worker outside of this process and records what comes, whatever becomes of it.

A worker is one life of the kernel or process under test: a guest, or pytest on this host's device.
It streams lines; when it dies or falls silent, the case in flight gets CRASH or HANG, and another
worker takes the rest. Not for how a worker is made (fixtures/) and not for judging.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from conformance import judging
from conformance.case import Case
from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.results import Line, decode, footer_line, result_line
from conformance.results_file import ResultsFile
from conformance.suite import Suite

# A case takes milliseconds, and one compiles a program; software emulation on a busy machine is some
# hundred times slower.
CASE_DEADLINE_S = 120.0
# Until the first case: pytest's start and the reading of the tables, under emulation.
START_DEADLINE_S = 180.0
EVIDENCE_LINES = 80


class Worker(Protocol):
    """One life of what runs the cases; see fixtures.softroce.guest.Guest."""

    def next_line(self, timeout: float) -> bytes | None: ...
    def kill(self) -> None: ...
    def tail_of_console(self, lines: int = 30) -> list[str]: ...
    def close(self) -> None: ...


class Listener(Protocol):
    """Who is told how the run goes."""

    def began(self, header: Line, total: int) -> None: ...
    def took(self, line: Line, done: int, total: int) -> None: ...
    def restarted(self, reason: str) -> None: ...


class Supervisor:
    """One run: the planned cases, the results so far, and the file they go to."""

    def __init__(
        self,
        suite: Suite,
        cases: Sequence[Case],
        results: ResultsFile,
        listener: Listener,
        header: Mapping[str, Any],
        console: Path,
        repro: str = "./rdma-cts run --only",
    ) -> None:
        """`console` is where workers put what they have to say besides lines.

        `header` holds what only this side knows: stack, argv and the like. `repro` and a case's id
        make the command that runs just that case in the same place.
        """
        self.suite = suite
        self.cases = {case.id: case for case in cases}
        self.file = results
        self.listener = listener
        self.known = dict(header)
        self.console = console
        self.repro = repro
        self.header: Line | None = None
        self.done: dict[str, Line] = {}
        self.workers = 0
        self.why_ended = ""

    def run(self, start: Callable[[Sequence[str]], Worker]) -> Line:
        """Runs every case in as many workers as it takes; gives the footer, which is also recorded.

        `start` makes a worker for the ids given to it. Raises UserError when no worker said what it
        is on: then there is nothing that results could be about.
        """
        began = time.monotonic()
        while batch := self._next_batch():
            before = len(self.done)
            try:
                worker = start(batch)
            except UserError as error:
                if self.header is None:
                    raise
                self.why_ended = error.message
                break
            self.workers += 1
            try:
                self._listen(worker)
            finally:
                worker.close()
            if len(self.done) == before:
                break  # a worker that brings nothing to an end would not do so the next time
            if any(case not in self.done for case in batch):
                self.listener.restarted(self.why_ended)
        if self.header is None:
            raise UserError(f"no case was begun: {self.why_ended}", log=str(self.console), status=3)
        for case in [case for case in self.cases if case not in self.done]:
            self._record(case, judging.MISSED, f"not run: {self.why_ended}", [])
        footer = footer_line(
            list(self.cases), self.done.values(), self.suite.registry,
            duration_s=time.monotonic() - began, boots=self.workers,
        )
        self.file.append(footer)
        return footer

    def _next_batch(self) -> list[str]:
        """The cases for the next worker: all that are harmless, then the hazardous ones one by one."""
        remaining = [case for case in self.cases.values() if case.id not in self.done]
        harmless = [case.id for case in remaining if not case.hazardous]
        return harmless or [case.id for case in remaining[:1]]

    def _listen(self, worker: Worker) -> None:
        in_flight = ""
        started: set[str] = set()
        self.why_ended = "the worker ended before it was through"
        until = time.monotonic() + START_DEADLINE_S
        while True:
            raw = worker.next_line(max(0.0, until - time.monotonic()))
            if raw is None:
                worker.kill()
                self._lost(in_flight, judging.HANG, "no answer within its deadline", worker)
                return
            if not raw:
                self._lost(in_flight, judging.CRASH, "the kernel or process under test died", worker)
                return
            before = (len(started), len(self.done), self.header is None)
            in_flight = self._take(raw, in_flight)
            started.add(in_flight)
            if before != (len(started), len(self.done), self.header is None):  # noise is no sign of life
                until = time.monotonic() + (CASE_DEADLINE_S if in_flight else START_DEADLINE_S)

    def _take(self, raw: bytes, in_flight: str) -> str:
        """Takes one line; gives the case now in flight."""
        try:
            line = decode(raw)
        except ValueError:
            return in_flight  # torn by the worker's end, or noise on the port
        kind = line["type"]
        if kind in ("start", "result") and (self.header is None or line["case"] not in self.cases):
            return in_flight  # what it would be about is not known
        if kind == "header" and self.header is None:
            self.header = {**line, **self.known, "planned": list(self.cases)}
            self.file.append(self.header)
            self.listener.began(self.header, len(self.cases))
        elif kind == "start" and line["case"] not in self.done:
            return str(line["case"])
        elif kind == "result" and line["case"] not in self.done:
            self._append(line)
            return "" if line["case"] == in_flight else in_flight
        elif kind == "guest" and line.get("event") == "exit":
            self.why_ended = f"the command in the guest ended with status {line.get('status')}"
        elif kind == "guest" and line.get("event") == "broken":
            self.why_ended = str(line.get("reason"))
        return in_flight

    def _lost(self, in_flight: str, verdict: str, reason: str, worker: Worker) -> None:
        if not in_flight:
            if verdict == judging.HANG:
                self.why_ended = reason
            return
        self.why_ended = f"{reason} in {in_flight}"
        log = worker.tail_of_console(EVIDENCE_LINES)
        cause = judging.first_alarm(log)
        self._record(in_flight, verdict, f"{self.cases[in_flight].when}: {reason}{cause and f' ({cause})'}", log)

    def _record(self, case: str, verdict: str, reason: str, log: Sequence[str]) -> None:
        kernel = {"log": list(log)} if log else {}
        self._append(result_line(self.cases[case], self.suite.registry, Judgement(verdict, reason), {}, kernel=kernel))

    def _append(self, line: Line) -> None:
        # Where the table stands on this side, which a guest sees elsewhere.
        place = self.cases[line["case"]].place
        line = {**line, "source": {"file": place.file, "line": place.line}, "repro": f"{self.repro} {line['case']}"}
        self.done[line["case"]] = line
        self.file.append(line)
        self.listener.took(line, len(self.done), len(self.cases))
