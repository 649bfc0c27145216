"""Shows the progress of a run: a bar on a terminal, plain lines elsewhere.

Written here because a library for progress bars would be one more package that every command needs.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from conformance.model.preflight import format_findings
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import Verdict
from reports.terminal import NORMAL, QUIET, VERBOSE, can_redraw, coloured, device_line
from reports.text import columns_of, fitted, format_count, one_line

_EVERY = 50  # cases between two plain lines
_BAR, _LEAST_BAR = 24, 4  # characters, on a wide terminal and on the narrowest that has a bar at all
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
        self._began = self._ticks[0]
        self._expected: Mapping[str, float] = {}
        self._done_s = self._left_s = 0.0  # of the expected durations
        self._lock = threading.RLock()
        self._unreachable: set[str] = set()  # the reasons that were shown

    def say(self, text: str) -> None:
        """Prints one line, unless the level is QUIET."""
        if self.level > QUIET:
            with self._lock:
                self.clear()
                print(fitted(one_line(text), self.stream), file=self.stream, flush=True)

    def expect(self, seconds: Mapping[str, float]) -> None:
        """How long each case that is still to be run will take, in seconds. Only the proportions matter."""
        self._expected = seconds
        self._left_s = sum(seconds.values())
        self._began = self.clock()

    def run_started(self, header: HeaderRecord, total: int) -> None:
        """The run has its header: `total` cases are planned."""
        self.say(f"{format_count(total, 'case')} on {device_line(header)}")
        for line in format_findings(header["device"].get("preflight", {})):
            self.say(f"  {line}")
        self._began = self.clock()
        self._ticks = [self._began]

    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None:
        """A result was recorded; it is shown at once unless it is PASS, UNSUPPORTED or not new."""
        with self._lock:
            self._result_recorded(record, done, total)

    def _result_recorded(self, record: ResultRecord, done: int, total: int) -> None:
        self._ticks = [*self._ticks[-_RECENT:], self.clock()]
        expected_s = self._expected.get(record["case"], 0.0)
        self._done_s += expected_s
        self._left_s -= expected_s
        if self.level == VERBOSE or self._is_news(record):
            self._show(record)
        if self.redraws:
            self.clear()
            print(self._bar(record, done, total), end="", file=self.stream, flush=True)
            if done == total:
                self.clear()
        elif self.level == NORMAL and done % _EVERY == 0 and done < total:
            self.say(f"  {done} of {total}, {', '.join(self._pace(total - done))}")

    def _is_news(self, record: ResultRecord) -> bool:
        """Whether a result is shown at once. UNREACHABLE results are shown once for each reason."""
        if record["effective"] != Verdict.UNREACHABLE:
            return record["effective"] not in (Verdict.PASS, Verdict.UNSUPPORTED)
        reason = record["reason"].partition(";")[0]
        known = reason in self._unreachable
        self._unreachable.add(reason)
        return not known

    def worker_restarted(self, reason: str) -> None:
        """The worker has ended, and another one runs the rest."""
        self.say(f"  starting a new worker: {reason}")

    def _show(self, record: ResultRecord) -> None:
        if self.level > QUIET:
            self.clear()
            verdict = record["effective"]
            line = fitted(f"  {verdict} {one_line(record['case'])}: {one_line(record['reason'])}", self.stream)
            print(line.replace(verdict, coloured(verdict, self.stream), 1), file=self.stream, flush=True)

    def _bar(self, record: ResultRecord, done: int, total: int) -> str:
        """The parts that fit into a line of the terminal: first the figures and the time left, then the bar, speed and
        case."""
        columns = columns_of(self.stream) - 1
        left, *pace = self._pace(total - done)
        figures = f"{done} of {total}, {left}"
        room = min(_BAR, columns - len(figures) - 3)
        full = room * done // max(total, 1)
        bar = f"{'#' * full}{'.' * (room - full)} " if room >= _LEAST_BAR else ""
        line = f"  {bar}{figures}"
        more = f"{line}, {', '.join(pace)}"
        return (f"{more}  {one_line(record['case'])}" if len(more) <= columns else line)[:columns]

    def _pace(self, remaining: int) -> list[str]:
        """How long the rest will take, and the cases per second of the latest cases.

        With expected durations, the rest is assumed to exceed them by the same factor as what is done.
        """
        now, spent = self._ticks[-1], self._ticks[-1] - self._ticks[0]
        if spent <= 0:
            return ["just started"]
        rate = (len(self._ticks) - 1) / spent
        left = self._left_s * (now - self._began) / self._done_s if self._done_s else remaining / rate
        return [f"{_span(max(left, 0.0))} left", f"{rate:.3g} per second"]

    def clear(self) -> None:
        """Removes the bar, so that something else can be written in its line."""
        if self.redraws:
            print("\r\x1b[K", end="", file=self.stream)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
