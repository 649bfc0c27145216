"""Compares the durations that a worker reports for its cases with the time that has passed. A worker whose code the
library under test has replaced could decide cases without running them. Not for a worker that waits, or that reports
shorter durations than the honest ones: only durations that cannot be true are noticed."""

from __future__ import annotations

import heapq
import time

from conformance.model.record import ResultRecord

# The guest's clock can be wrong by a few percent, because its kernel measures the rate when it boots on a busy machine.
_CLOCK_RATIO = 2
# The step of the coarsest clock of Linux, which counts the interrupts of a timer.
_CLOCK_STEP_US = 10_000
# If a virtual machine is stopped and continued, a clock in it can jump. The durations of as many cases are not counted.
_JUMPS = 8
# No machine runs a row whose call reaches the kernel in less time: the Python code of the harness alone takes 100 us on
# a processor of 2023.
_SHORTEST_US = 20


def _now_us() -> int:
    """The clock also counts the time in which the machine sleeps, because the clocks of some guests count it, too."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class ClaimedTime:
    """The durations of the cases of one worker. Is created before the worker is started."""

    def __init__(self) -> None:
        self._asked_us = _now_us()
        self._longest = [0] * _JUMPS
        self._total_us = 0  # of all cases
        self._counted_us = 0  # of all cases except the longest
        self._calls = 0

    def contradiction(self, record: ResultRecord) -> str:
        """Adds a result that has just been read. Returns why the durations of the worker cannot be true; empty if they
        can."""
        duration_us = int(record["duration_us"] or 0)
        self._total_us += duration_us
        self._counted_us += heapq.heappushpop(self._longest, duration_us)
        self._calls += record["observed"].get("layer") == "kernel"
        passed_us = _now_us() - self._asked_us
        if self._counted_us > _CLOCK_RATIO * passed_us + _CLOCK_STEP_US:
            return f"the worker reports that its cases took {_ms(self._total_us)}, but it was started {_ms(passed_us)} ago"
        if self._total_us + _CLOCK_STEP_US < self._calls * _SHORTEST_US:
            return f"the worker reports that {self._calls:,} cases took {_ms(self._total_us)}, which no machine can do"
        return ""


def _ms(microseconds: int) -> str:
    return f"{microseconds // 1000:,} ms"
