"""Signals that ask this process to end.

What ends the process from outside becomes an exception, so that temporary files are removed on the way. Not for
workers: these end with the process that started them.
"""

from __future__ import annotations

import signal
from types import FrameType

_ENDING = (signal.SIGTERM, signal.SIGHUP)
SIGNALLED = 128  # as in a shell: the exit status after a signal is this and its number


class Terminated(KeyboardInterrupt):
    """The process was asked to end by a signal other than that of Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def heed_signals() -> None:
    """SIGTERM and SIGHUP raise Terminated in the main thread, unless this process was started to ignore them."""
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    for each in _ENDING:  # a second one ends the process at once
        signal.signal(each, signal.SIG_DFL)
    raise Terminated(number)
