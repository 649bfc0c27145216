"""Handles signals and unforeseen errors, which end a command. A signal becomes an exception, so that temporary files
are removed. An unforeseen error becomes one line for the user, with the traceback in a file; the exit status is not
that of a violation. Workers do not use this module: the kernel kills them when the process that started them exits."""

from __future__ import annotations

import errno
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from commands.cli.streams import remark
from conformance.errors import FULL_DISK, UserError
from conformance.regular_file import must_stay, open_below
from fixtures.system.cache import cache_directory, unusable

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# timeout(1) sends SIGTERM twice in succession, to its child and to its process group, and a key that is held down repeats
# Ctrl-C: the second signal is no wish to end at once, which a person expresses later than this time in seconds.
_AGAIN_S = 1.0
SIGNALLED = 128  # as in a shell, the exit status after a signal is SIGNALLED + the signal's number


class Terminated(KeyboardInterrupt):
    """Raised in the main thread by a signal that ends the process, except SIGINT."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def heed_signals() -> None:
    """Makes SIGTERM and SIGHUP raise Terminated in the main thread, and SIGINT KeyboardInterrupt, each only once. A
    signal that was ignored when this process started remains ignored."""
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _terminate)


def _terminate(number: int, frame: FrameType | None) -> None:
    until = time.monotonic() + _AGAIN_S

    def end_at_once(number: int, frame: FrameType | None) -> None:
        if time.monotonic() >= until:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for again in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(again) is not signal.SIG_IGN:
            signal.signal(again, end_at_once)
    # After a terminal is closed, SIGHUP is sent twice: by the kernel and by the shell.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)


def signal_of(end: KeyboardInterrupt) -> int:
    """Returns the number of the signal that ends the command."""
    return end.number if isinstance(end, Terminated) else signal.SIGINT


def report_signal(end: KeyboardInterrupt) -> int:
    """Says which signal has ended the command, and returns the exit status."""
    number = signal_of(end)
    by = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
    remark(": ".join(("rdma-cts", by, *end.args)))
    return SIGNALLED + number


def crash_report(error: Exception, folder: Path | None = None) -> UserError:
    """Returns the error to print (status 3). Writes the traceback to a file in `folder`, or in the temporary
    directory, unless the memory or the disk is exhausted."""
    if isinstance(error, MemoryError):
        return UserError("there is not enough memory", status=3)
    if isinstance(error, OSError) and error.errno in FULL_DISK:
        what = error.filename or "a file of this command"
        return UserError(f"{what} cannot be written: {error.strerror}", status=3)
    # Imported late: most commands do not need them.
    import traceback

    from commands.cli.start import of_python_path

    text = "".join(traceback.format_exception(error))
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        log = _written(text, folder)
    except OSError as full:
        what, log = f"{what} (the traceback cannot be written: {full.strerror})", ""
    return UserError(
        f"this is an error of the suite, or of its environment: {what}",
        hint=of_python_path(),
        log=log,
        status=3,
    )


def unusable_path(error: OSError, given: Sequence[str]) -> UserError | None:
    """Returns the error to print (status 2) if the working directory has been removed, or if this user has no
    permission for a path of the command line or below it, or if such a path is too long or below a file; the same error
    of the cache (status 3); else None."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return UserError(
            "the working directory has been removed",
            hint="change to another directory",
        )
    if not _is_of_path(error) or not isinstance(error.filename, (str, os.PathLike)):
        return None
    path = Path(error.filename).absolute()
    named = [Path(word).absolute() for path in given for word in re.split("[=,]", path) if word]
    if any(path.is_relative_to(item) for item in named):
        return UserError(f"{error.filename} cannot be used: {error.strerror}")
    with suppress(UserError):
        if path.is_relative_to(cache_directory()):
            return unusable(error.filename, error.strerror or str(error))
    return None


def _is_of_path(error: Exception) -> bool:
    """Whether a path that the user chose can be the cause of an error: no permission for it, too long, below a file."""
    return isinstance(error, OSError) and error.errno in (
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
    )


@contextmanager
def crash_reports_in(folder: Path) -> Iterator[None]:
    """Converts an unforeseen error in the block to a UserError. The traceback is in `folder`, the directory of a run. Any
    error after somebody has removed this directory becomes a UserError that says so."""
    try:
        with must_stay(folder):
            yield
    except Exception as error:
        if not folder.is_dir():
            reason = f"{folder} was removed while the run was in progress"
            raise UserError(reason, status=3) from error
        if isinstance(error, UserError) or _is_of_path(error):  # see unusable_path
            raise
        raise crash_report(error, folder) from error


def _written(text: str, folder: Path | None) -> str:
    if folder:
        path = str(folder / f"error-{os.urandom(4).hex()}.log")
        descriptor = open_below(Path(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    else:
        import tempfile  # imported late: only for a mistake of the suite without a run

        descriptor, path = tempfile.mkstemp(".log", "rdma-cts-error-")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path
