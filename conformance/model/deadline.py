"""Defines the deadlines of a case and of a completion. The deadline of a case has the name `deadline` in all code
from the command line to the worker. The deadline of a completion is computed from the deadline of its case."""

import os
import time

# The default deadline of a case, in seconds; each report of progress restarts the deadline. Most cases need
# milliseconds, and one case compiles a program. Software emulation on a busy machine is a hundred times slower.
CASE_DEADLINE_S = 120.0
# The deadline of a completion in seconds, and its maximum share of a case's deadline. Loopback needs microseconds, but
# software emulation on a busy machine needs far longer. A case must be judged before its own deadline, even if it waits
# for several missing completions.
COMPLETION_DEADLINE_S = 20.0
_COMPLETION_SHARE = 1 / 6
# How often a wait must yield the processor for each second of its deadline. On an idle emulated processor, a wait
# yields ten times as often.
TURNS_PER_S = 1000
# Seconds to wait for what was missing after refusals of another kind. Loopback needs microseconds.
TAUGHT_S = 0.05
# The maximum duration of a case as a multiple of its deadline, even if it reports progress: two hours by default.
_DEADLINES = 60


def completion_deadline_s(deadline: float) -> float:
    """Returns the deadline of one completion, computed from the deadline of its case; both in seconds."""
    return min(COMPLETION_DEADLINE_S, deadline * _COMPLETION_SHARE)


def longest_case_s(deadline: float) -> float:
    """Returns the maximum duration of a case with this deadline; both in seconds."""
    return deadline * _DEADLINES


class Wait:
    """A wait for the work of a kernel thread, such as a completion. The wait is over once `seconds` have passed and the
    processor has been yielded a thousand times for each second. The yields count because a host may give little time to
    a guest's processor."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds
        self._turns = int(seconds * TURNS_PER_S)

    def over(self) -> bool:
        """Whether the wait is over; if not, yields the processor."""
        self._turns -= 1
        if self._turns <= 0 and time.monotonic() >= self._until:
            return True
        os.sched_yield()
        return False
