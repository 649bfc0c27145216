"""Shows the progress of a run: a bar on a terminal, plain lines elsewhere.

Written here because a library for progress bars would be one more package that every command needs.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

from conformance.model.preflight import format_findings
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import Verdict
from reports.digest import one_line
from reports.terminal import NORMAL, QUIET, VERBOSE, can_redraw, coloured, device_line

_EVERY = 50  # cases between two plain lines
_BAR = 24  # characters
_RECENT = 64  # number of latest cases from which the speed is computed


class Progress:
    """Prints the progress of a run to `stream`; with `level` QUIET nothing, with VERBOSE a line for each case.

    Several threads may use it.
    """

    def __init__(
        self, stream: TextIO | None = None, level: int = NORMAL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream = stream or sys.stdout
        self.level = level
        self.clock = clock
        self.redraws = can_redraw(self.stream) and level > QUIET
        self._ticks: list[float] = [clock()]
        self._lock = threading.RLock()

    def say(self, text: str) -> None:
        """Prints one line, unless the level is QUIET."""
        if self.level > QUIET:
            with self._lock:
                self.clear()
                print(one_line(text), file=self.stream, flush=True)

    def run_started(self, header: HeaderRecord, total: int) -> None:
        """The run has its header: `total` cases are planned."""
        self.say(f"{total} cases on {device_line(header)}")
        for line in format_findings(header["device"].get("preflight", {})):
            self.say(f"  {line}")
        self._ticks = [self.clock()]

    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None:
        """A result was recorded; it is shown at once unless it is PASS or UNSUPPORTED."""
        with self._lock:
            self._result_recorded(record, done, total)

    def _result_recorded(self, record: ResultRecord, done: int, total: int) -> None:
        self._ticks = [*self._ticks[-_RECENT:], self.clock()]
        if self.level == VERBOSE or record["effective"] not in (Verdict.PASS, Verdict.UNSUPPORTED):
            self._show(record)
        if self.redraws:
            self.clear()
            print(self._bar(record, done, total), end="", file=self.stream, flush=True)
            if done == total:
                self.clear()
        elif self.level == NORMAL and done % _EVERY == 0 and done < total:
            self.say(f"  {done} of {total}, {self._pace(total - done)}")

    def worker_restarted(self, reason: str) -> None:
        """The worker has ended, and another one runs the rest."""
        self.say(f"  starting a new worker: {reason}")

    def _show(self, record: ResultRecord) -> None:
        if self.level > QUIET:
            self.clear()
            verdict = coloured(record["effective"], self.stream)
            print(f"  {verdict} {one_line(record['case'])}: {one_line(record['reason'])}", file=self.stream, flush=True)

    def _bar(self, record: ResultRecord, done: int, total: int) -> str:
        full = _BAR * done // max(total, 1)
        head = f"  {'#' * full}{'.' * (_BAR - full)} {done} of {total}, {self._pace(total - done)}  "
        return (head + one_line(record["case"]))[: shutil.get_terminal_size().columns - 1]

    def _pace(self, remaining: int) -> str:
        """The cases per second of the latest cases, and how long the rest will take at that speed."""
        spent = self._ticks[-1] - self._ticks[0]
        if spent <= 0:
            return "just started"
        rate = (len(self._ticks) - 1) / spent
        return f"{rate:.3g} per second, {_span(remaining / rate)} left"

    def clear(self) -> None:
        if self.redraws:
            print("\r\x1b[K", end="", file=self.stream)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
