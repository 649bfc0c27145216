"""Waits for events that must come, with more time for a slow machine. Not itself a test.

A bound here ends a test that hangs; it never decides whether a test passes. So it is longer than any machine needs.
"""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE_S = 1800.0
_POLL_S = 0.01


def await_true(condition: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Returns once the condition holds; AssertionError if it does not within `patience_s` seconds."""
    end = time.monotonic() + patience_s
    while not condition():
        assert time.monotonic() < end, f"not within {patience_s:g} s"
        time.sleep(_POLL_S)


def is_running(pid: int) -> bool:
    """Whether this process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def longer_and_longer(first_s: float) -> Iterator[float]:
    """Time-outs in seconds, each four times the one before, up to PATIENCE_S.

    For a test of a time-out that must not pass before something else has happened: it tries again with the next one.
    """
    while first_s < PATIENCE_S:
        yield first_s
        first_s *= 4


def calls_of(function: Callable[[], object]) -> int:
    """The number of calls of Python and C functions that a function makes: a measure of its cost that no machine's
    speed changes."""
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
