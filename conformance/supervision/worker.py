"""The interfaces that the supervisor uses: workers, their ends, observers of the progress; and threads for several
workers. Not for what these share."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from conformance.model.fault import FaultKind
from conformance.model.record import DerivedFiles, HeaderRecord, ResultRecord

# The deadline until the first case, in seconds: pytest starts and reads the tables, under emulation.
START_DEADLINE_S = 180.0
# A busy worker is given this long, because several workers start slowly on a busy host.
LONGEST_START_S = 900.0
# A case whose worker is killed externally is started this many times, then it is BROKEN.
TRIES = 3


@dataclass(frozen=True)
class WorkerEnd:
    """How a worker ended. `external`: neither the kernel nor the process under test caused it.

    Otherwise `kind` is what died, and `by` the signal or status with which a process ended.
    """

    what: str = "the kernel or process under test died"
    external: bool = False
    kind: FaultKind = FaultKind.KERNEL_DIED
    by: str = ""


class Worker(Protocol):
    """One instance of the process that runs cases; see fixtures.guest.guest.Guest.

    `next_line` returns a line, an empty one at the end of the stream, or None after `timeout` seconds. `stuck_reason`
    says why no other worker can use the device, or is empty. `held_up` says what outside the run kept it from running
    while it was silent, or is empty; `busy` whether it has used the processor in that silence. `kill` may be called
    from another thread. `derived` are the files that other guests had derived and that this one was given."""

    @property
    def derived(self) -> DerivedFiles | None: ...
    def next_line(self, timeout: float) -> bytes | None: ...
    def end(self) -> WorkerEnd: ...
    def held_up(self) -> str: ...
    def busy(self) -> bool: ...
    def kill(self) -> None: ...
    def console_tail(self, lines: int = 30) -> list[str]: ...
    def close(self) -> None: ...
    def stuck_reason(self) -> str: ...


def starts_slowly(worker: Worker, since: float) -> bool:
    """Returns whether a worker that has been silent since its start at that time is busy, and may go on."""
    return time.monotonic() < since + LONGEST_START_S and worker.busy()


# Starts a worker for cases with the given ids. Raises UserError.
Start = Callable[[Sequence[str]], Worker]


class Listener(Protocol):
    """An observer of the progress of a run; it is called by one thread at a time."""

    def run_started(self, header: HeaderRecord, total: int) -> None: ...
    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None: ...
    def worker_restarted(self, reason: str) -> None: ...
    def say(self, text: str) -> None: ...


# How long an interrupted caller waits for the other threads, in seconds.
_JOIN_S = 5.0


def run_together(functions: Sequence[Callable[[], None]], stop: Callable[[], None]) -> None:
    """Returns when all functions have returned. Calls `stop`, which must make them return soon, if one raises an
    exception.

    Raises that exception, the first one if there are several.
    """
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # of whatever kind: the caller's thread raises it
            errors.append(error)
            stop()

    # If the caller is interrupted while another thread starts a guest, the program need not wait for that guest.
    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions[1:]]
    for thread in threads:
        thread.start()
    try:
        functions[0]()
        for thread in threads:
            thread.join()
    except BaseException:
        stop()
        for thread in threads:
            thread.join(_JOIN_S)
        raise
    if errors:
        raise errors[0]
