"""What a person sees while a run goes: a bar on a terminal, plain lines elsewhere.

Little enough to be written here: a library for bars would be one more package for every command.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import Verdict
from reports.digest import one_line
from reports.terminal import coloured, device_line, moves

_EVERY = 50  # cases between two plain lines
_BAR = 24
_LATELY = 64  # cases from which the present speed is taken
QUIET, NORMAL, VERBOSE = 0, 1, 2


class Progress:
    """Tells how a run goes: with `level` QUIET nothing, VERBOSE a line for each case."""

    def __init__(
        self, stream: TextIO | None = None, level: int = NORMAL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.stream = stream or sys.stdout
        self.level = level
        self.clock = clock
        self.moving = moves(self.stream) and level > QUIET
        self._ticks: list[float] = [clock()]

    def say(self, text: str) -> None:
        """One line about what is going on."""
        if self.level > QUIET:
            self._clear()
            print(one_line(text), file=self.stream, flush=True)

    def run_started(self, header: HeaderRecord, total: int) -> None:
        """The header of the run has come."""
        self.say(f"{total} cases on {device_line(header)}")
        self._ticks = [self.clock()]

    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None:
        """A result has come; what is no PASS and no UNSUPPORTED is shown at once."""
        self._ticks = [*self._ticks[-_LATELY:], self.clock()]
        if self.level == VERBOSE or record["effective"] not in (Verdict.PASS, Verdict.UNSUPPORTED):
            self._show(record)
        if self.moving:
            self._clear()
            print(self._bar(record, done, total), end="", file=self.stream, flush=True)
            if done == total:
                self._clear()
        elif self.level == NORMAL and done % _EVERY == 0 and done < total:
            self.say(f"  {done} of {total}, {self._pace(total - done)}")

    def worker_restarted(self, reason: str) -> None:
        """The worker is gone and another takes the rest."""
        self.say(f"  starting again: {reason}")

    def _show(self, record: ResultRecord) -> None:
        if self.level > QUIET:
            self._clear()
            word = coloured(record["effective"], self.stream)
            print(f"  {word} {one_line(record['case'])}: {one_line(record['reason'])}", file=self.stream, flush=True)

    def _bar(self, record: ResultRecord, done: int, total: int) -> str:
        full = _BAR * done // max(total, 1)
        head = f"  {'#' * full}{'.' * (_BAR - full)} {done} of {total}, {self._pace(total - done)}  "
        return (head + one_line(record["case"]))[: shutil.get_terminal_size().columns - 1]

    def _pace(self, remaining: int) -> str:
        """How many cases a second came lately, and how long the rest will take at that pace."""
        spent = self._ticks[-1] - self._ticks[0]
        if spent <= 0:
            return "just begun"
        rate = (len(self._ticks) - 1) / spent
        return f"{rate:.3g} a second, {_span(remaining / rate)} left"

    def _clear(self) -> None:
        if self.moving:
            print("\r\x1b[K", end="", file=self.stream)


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
