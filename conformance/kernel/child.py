"""A forked child of this process, with a pipe in each direction. Not for what a child does."""

import os
from collections.abc import Callable
from dataclasses import dataclass

_LONGEST = 400  # bytes of a report


@dataclass(frozen=True)
class Child:
    """A child process. It ends when this process ends, because its pipe is closed then."""

    pid: int
    _wake: int
    _report: int

    def report(self) -> bytes:
        """The next report; empty if the child has ended without one."""
        return os.read(self._report, _LONGEST)

    def wake(self) -> None:
        os.write(self._wake, b"\0")

    def end(self) -> None:
        """Closes the pipes, which wakes a child that waits, and waits until it has ended."""
        os.close(self._wake)
        os.close(self._report)
        os.waitpid(self.pid, 0)


def fork(work: Callable[[Callable[[bytes], object], Callable[[], object]], object]) -> Child:
    """A child that does `work`, which is given two functions: one that reports, and one that waits to be woken.

    Exceptions of `work` are not reported. No exit handler and no cleanup of this process runs in the child.
    """
    (waits, wake), (said, report) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(wake)
            work(lambda text: os.write(report, text[:_LONGEST]), lambda: os.read(waits, 1))
        finally:
            os._exit(0)
    os.close(waits)
    os.close(report)
    return Child(pid, wake, said)
