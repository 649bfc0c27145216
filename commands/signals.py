"""Makes signals and the standard streams of this process behave as those of a command should.

What ends the process from outside becomes an exception, so that temporary files are removed on the way. Not for
workers: these end with the process that started them.
"""

from __future__ import annotations

import os
import signal
import sys
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


def complete_streams() -> None:
    """Opens standard streams that were closed, and makes sure that any text can be written.

    Without them, the next file that is opened would be the standard output of every process started here.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def abandon_output() -> None:
    """What has not reached standard output is dropped: its reader has ended, or its device is full."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
