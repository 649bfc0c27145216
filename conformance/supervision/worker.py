"""Defines the interfaces of workers and of observers of a run, and runs workers in threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from typing import Protocol

from conformance.model.fault import FaultKind
from conformance.model.record import DerivedFiles, HeaderRecord, ResultRecord
from conformance.supervision.calls import Call

# The deadline for the start of a case, in seconds. Before the first case, pytest starts, possibly under emulation.
START_DEADLINE_S = 180.0
# The same deadline for a worker that uses the processor: on a busy host, several workers start slowly.
LONGEST_START_S = 900.0
# A case whose worker is killed externally is started at most this many times; then it is BROKEN.
TRIES = 3


@dataclass(frozen=True)
class WorkerEnd:
    """How a worker ended. If `external`, neither the kernel nor the process under test caused the end. For any other
    end, `kind` says what died, and `by` is the signal or the exit status of a process."""

    what: str = "the kernel or process under test died"
    external: bool = False
    kind: FaultKind = FaultKind.KERNEL_DIED
    by: str = ""


class Worker(Protocol):
    """An instance of the process that runs cases; see fixtures.guest.guest.Guest."""

    @property
    def on_this_machine(self) -> bool:
        """Whether the worker is stopped whenever this machine is stopped; a worker on another machine then runs on."""

    @property
    def is_traced(self) -> bool: ...

    @property
    def derived(self) -> DerivedFiles | None:
        """Describes the cached files that earlier guests have computed and that this worker was given."""

    def next_line(self, timeout: float) -> bytes | None:
        """Returns a line, an empty line at the end of the stream, or None after `timeout` seconds."""

    def end(self) -> WorkerEnd: ...

    def held_up(self) -> str:
        """Returns the external reason why a silent worker did not run, or an empty text."""

    def busy(self) -> bool:
        """Whether the worker has used the processor since its last line."""

    def kill(self) -> None:
        """Ends the worker. May be called from any thread."""

    def console_tail(self, lines: int = 30) -> list[str]: ...

    def alarms(self) -> list[str]:
        """Returns the errors that a guest's kernel has reported on its console since the last call."""

    def calls(self, result: int) -> Sequence[Call] | None:
        """Returns what the kernel of a traced worker has traced before the n-th result, counted from 1, and after the
        result before it, or None if the trace ends before."""

    def close(self) -> None: ...

    def stuck_reason(self) -> str:
        """Returns the reason why no other worker can use the device, or an empty text."""


class Deadline:
    """The time until which a worker has to make progress, during a case and between cases."""

    def __init__(self, worker: Worker, case_limit_s: float) -> None:
        self._worker, self._case_limit_s = worker, case_limit_s
        self.restart(False)

    @property
    def left_s(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def postpone(self, seconds: float) -> None:
        """Extends the deadline by a time in which this process has not listened, for instance because it was stopped."""
        self._since += seconds
        self._until += seconds

    def restart(self, case_is_running: bool, last: float = inf) -> None:
        """Sets a new deadline, which is not later than the time `last`."""
        self._since = time.monotonic()
        self._until = min(
            last, self._since + (self._case_limit_s if case_is_running else START_DEADLINE_S)
        )

    def is_over(self, case_is_running: bool, silent: bool) -> bool:
        """Whether the deadline has passed. `silent` is whether no line was received until the deadline. Between cases,
        a worker that uses the processor gets more time, because it may start slowly."""
        if not silent and self.left_s:
            return False
        if (
            case_is_running
            or time.monotonic() >= self._since + LONGEST_START_S
            or not self._worker.busy()
        ):
            return True
        self._until = time.monotonic() + START_DEADLINE_S
        return False


# Starts a worker for cases with the given ids. Raises UserError.
Start = Callable[[Sequence[str]], Worker]


class Listener(Protocol):
    """An observer of the progress of a run. `expect` gets the seconds that each remaining case may take, by id."""

    def expect(self, seconds: Mapping[str, float]) -> None: ...
    def run_started(self, header: HeaderRecord, total: int) -> None: ...
    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None: ...
    def worker_restarted(self, reason: str) -> None: ...
    def say(self, text: str) -> None: ...


# How long an interrupted caller waits for the other threads, in seconds.
_JOIN_S = 5.0


class Crew:
    """Threads that run workers. A thread must hold the lock of the condition `changed` to use shared data, and notifies
    the condition when waiting threads may continue. After `stop`, the end of a worker is not a result."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.stopped = False
        self._workers: set[Worker] = set()

    def run(self, serve: Callable[[Start], None], starts: Sequence[Start]) -> None:
        """Calls `serve` with each of `starts`, the first in this thread, and returns when all calls have returned. If a
        call raises an exception, stops the other calls and raises the exception."""
        errors: list[BaseException] = []

        def guarded(start: Start) -> None:
            try:
                serve(start)
            except BaseException as error:  # any exception is raised again in the caller's thread
                errors.append(error)
                self.stop()

        # If the caller is interrupted while another thread starts a guest, the program need not wait for that guest.
        threads = [
            threading.Thread(target=guarded, args=(start,), daemon=True) for start in starts[1:]
        ]
        for thread in threads:
            thread.start()
        try:
            serve(starts[0])
            for thread in threads:
                thread.join()
        except BaseException:
            self.stop()
            for thread in threads:
                thread.join(_JOIN_S)
            raise
        if errors:
            raise errors[0]

    def stop(self) -> None:
        """Kills all workers. Their cases in flight get no result."""
        with self.changed:
            self.stopped = True
            for worker in self._workers:
                worker.kill()
            self.changed.notify_all()

    @contextmanager
    def employing(self, worker: Worker) -> Iterator[None]:
        """Within the block, `stop` kills the worker. After the block, the worker is closed."""
        with self.changed:
            self._workers.add(worker)
        try:
            yield
        finally:
            with self.changed:
                self._workers.discard(worker)
            worker.close()
