"""Forks children of this process, each with a pipe in each direction."""

import os
from collections.abc import Callable
from dataclasses import dataclass

_LONGEST = 400  # bytes of a report
# The pipes by which this process wakes its children. A later child must not hold them: an earlier child would not
# notice that they are closed.
_wakes: set[int] = set()


@dataclass(frozen=True)
class Child:
    """A child process. The child exits when this process exits, because its pipe is then closed."""

    pid: int
    _wake: int
    _report: int

    def report(self) -> bytes:
        """Returns the next report. The report is empty if the child has exited without a report."""
        return os.read(self._report, _LONGEST)

    def wake(self) -> None:
        os.write(self._wake, b"\0")

    def end(self) -> None:
        """Closes the pipes, which wakes a waiting child, and waits until the child has exited."""
        _wakes.discard(self._wake)
        os.close(self._wake)
        os.close(self._report)
        os.waitpid(self.pid, 0)


def fork(work: Callable[[Callable[[bytes], object], Callable[[], object]], object]) -> Child:
    """Returns a child that calls `work` with two functions: the first sends a report, and the second waits for `wake`.
    Exceptions of `work` are not reported. The child runs no exit handlers and no cleanup of this process."""
    (waits, wake), (said, report) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for inherited in (wake, *_wakes):
                os.close(inherited)
            _wakes.clear()
            work(lambda text: os.write(report, text[:_LONGEST]), lambda: os.read(waits, 1))
        finally:
            os._exit(0)
    os.close(waits)
    os.close(report)
    _wakes.add(wake)
    return Child(pid, wake, said)
