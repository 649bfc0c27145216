"""Standard output and error of a command. The command continues if the reader of a stream has exited (`| head`), if the
disk is full, if a stream is closed (`>&-`), or if its encoding lacks a character. output.py is about files."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TextIO

from conformance.model.printable import one_line
from reports.text import columns_of, fitted, wrapped


def remark(text: str) -> None:
    """Prints a line on standard error, for the user and not for a program that reads the output."""
    show_line(text, sys.stderr)


def show_line(text: str, to: TextIO | None = None) -> None:
    """Prints one line to `to` (default: standard output), also if a name in it has an end of a line."""
    show([one_line(text)], to)


def show_meanings(meanings: Mapping[str, str], indent: int) -> None:
    """Prints names with their meanings, which begin in the column `indent`, for a person who reads them."""
    width = min(columns_of(sys.stdout), 100)
    for name, meaning in meanings.items():
        print(*wrapped(f"{name:<{indent}}{meaning}", width, " " * indent), sep="\n")


def show(lines: Iterable[str], to: TextIO | None = None) -> None:
    """Prints lines to `to` (default: standard output). Foreign text in the lines is escaped, so that it cannot control
    the terminal."""
    stream = to or sys.stdout
    for line in lines:
        print("\n".join(fitted(one_line(part), stream) for part in line.split("\n")), file=stream)


class _Sink(io.FileIO):
    """A descriptor on which writing never fails. `failure` is the first error; after this error nothing is written."""

    failure: OSError | None = None
    closed_by_caller = False

    def write(self, data: Any, /) -> int:
        """Writes as much of the data as possible, and returns the length of all data."""
        rest = memoryview(data).cast("B")
        size = len(rest)
        while rest and self.failure is None:
            try:
                if self.closed_by_caller:
                    raise OSError(errno.EBADF, os.strerror(errno.EBADF))
                written = super().write(rest)
            except OSError as error:
                self.failure = error
                break
            if written is None:  # another process has made the descriptor non-blocking
                select.select([], [self], [])
            else:
                rest = rest[written:]
        return size


class Output:
    """Replaces standard output and standard error by streams on which writing cannot fail."""

    def __init__(self) -> None:
        """Opens /dev/null as each standard descriptor that is closed, so that no file of a run gets its number."""
        closed = set()
        for descriptor in range(3):
            try:
                os.fstat(descriptor)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
                closed.add(descriptor)
        self._sink = _Sink(1, "w", closefd=False)
        self._sink.closed_by_caller = 1 in closed
        sys.stdout = _stream(self._sink, sys.stdout)
        sys.stderr = _stream(_Sink(2, "w", closefd=False), sys.stderr)

    def lost(self) -> str:
        """Returns why output was lost. The text is empty if no output was lost, or if the reader had exited."""
        sys.stdout.flush()
        failure = self._sink.failure
        if failure is None or isinstance(failure, BrokenPipeError):
            return ""
        return failure.strerror or "unknown error"


def _stream(sink: _Sink, before: TextIO | None) -> TextIO:
    encoding = (before.encoding if before else None) or "utf-8"
    # Buffered by lines, so that lines of both streams stay in order, and a reader sees each line at once.
    return io.TextIOWrapper(
        io.BufferedWriter(sink),
        encoding=encoding,
        errors="backslashreplace",
        line_buffering=True,
    )
