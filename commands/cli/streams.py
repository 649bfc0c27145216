"""Standard output and error of a command.

A problem of the two streams does not end the command: their reader may have ended (`| head`), the disk may be full,
they may be closed (`>&-`), and their encoding may lack a character. Not for files (output.py).
"""

import io
import os
import select
import sys
from collections.abc import Iterable
from typing import Any, TextIO

from reports.text import fitted, one_line


def show(lines: Iterable[str], to: TextIO | None = None) -> None:
    """Prints lines that may contain foreign text, which cannot control the terminal. `to` is standard output."""
    stream = to or sys.stdout
    for line in lines:
        print("\n".join(fitted(one_line(part), stream) for part in line.split("\n")), file=stream)


class _Sink(io.FileIO):
    """A descriptor on which writing never fails; `failure` is the first error, after which nothing more is written."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        """Writes the data, as far as that works; returns their length."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest and self.failure is None:
            try:
                written = super().write(rest)
            except OSError as error:
                self.failure = error
                break
            if written is None:  # somebody else has made it non-blocking
                select.select([], [self], [])
            else:
                rest = rest[written:]
        return size


class Output:
    """The two streams of this process, replaced by streams on which writing cannot fail."""

    def __init__(self) -> None:
        """Opens closed standard descriptors, so that no file of a run gets their numbers."""
        for descriptor in range(3):
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
        self._sink = _Sink(1, "w", closefd=False)
        sys.stdout = _stream(self._sink, sys.stdout)
        sys.stderr = _stream(_Sink(2, "w", closefd=False), sys.stderr)

    def lost(self) -> str:
        """Why some output was lost, unless its reader had ended; empty if none was lost."""
        sys.stdout.flush()
        failure = self._sink.failure
        return "" if failure is None or isinstance(failure, BrokenPipeError) else failure.strerror or "unknown error"


def _stream(sink: _Sink, before: TextIO | None) -> TextIO:
    encoding = (before.encoding if before else None) or "utf-8"
    # Line by line: the lines of both streams stay in order, and a reader sees progress.
    return io.TextIOWrapper(io.BufferedWriter(sink), encoding=encoding, errors="backslashreplace", line_buffering=True)
