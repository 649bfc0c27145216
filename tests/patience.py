"""Waits for events that must happen, long enough for a slow machine. The bounds in this module only end a test that
hangs, and never decide whether a test passes. Therefore each bound is longer than any machine needs."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from fixtures.system.processes import has_ended

PATIENCE_S = 1800.0


def await_true(
    condition: Callable[[], object],
    patience_s: float = PATIENCE_S,
    poll_s: float = 0.01,
) -> None:
    """Returns once the condition holds; raises AssertionError if it does not hold within `patience_s` seconds."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"not within {patience_s:g} s"
        time.sleep(poll_s)


def state_of(pid: int) -> str:
    """Returns the letter of this process's state, empty if the process does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def is_running(pid: int) -> bool:
    """Whether this process exists and has not exited. A process that has exited, and for which nobody has waited, may
    be in /proc for ever."""
    return not has_ended(pid)


def command_lines() -> dict[int, list[str]]:
    """Returns the words of the command line of each process, by the id of the process."""
    lines = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has exited in the meantime
            lines[int(path.parent.name)] = path.read_text(errors="replace").split("\0")
    return lines


def longer_and_longer(first_s: float) -> Iterator[float]:
    """Yields time-outs in seconds for the code under test, each four times the previous one, up to PATIENCE_S. As
    long as a time-out expires before the event that a test needs, the test is repeated with the next time-out."""
    while first_s < PATIENCE_S:
        yield first_s
        first_s *= 4


def calls_of(function: Callable[[], object]) -> int:
    """Returns how many Python and C functions are called while `function` runs. This number measures the cost and does
    not depend on the machine's speed."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count
