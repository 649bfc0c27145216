"""Runs tasks in several processes. The processes exit when this process exits or is killed."""

import gc
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any, TypeVar

from conformance.errors import UserError
from fixtures.system.processes import die_with_parent

_Result = TypeVar("_Result")
Waiting = Callable[[Sequence[str]], None]
_WAITING_S = 1.0


def in_processes(
    task: Callable[[int], _Result],
    names: Sequence[str],
    jobs: int = 0,
    waiting: Waiting = lambda names: None,
) -> Iterator[_Result]:
    """Yields task(0), task(1), … in order, one for each name, computed in `jobs` processes (0: one per processor).
    Calls `waiting` with the names of the present tasks, once for each second in which no task has finished.
    Raises the UserError of a task, RuntimeError with the name of the task for any other exception, and UserError
    (status 3) if a process dies. All processes have exited when the iteration is over."""
    context = multiprocessing.get_context("fork")
    processes: dict[Connection, ForkProcess] = {}
    try:
        for _ in range(min(jobs or os.cpu_count() or 1, len(names))):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve,
                args=(task, theirs, die_with_parent()),
                daemon=True,
            )
            process.start()
            theirs.close()
            processes[ours] = process
        yield from _results(list(processes), names, waiting)
    finally:
        for process in processes.values():
            process.kill()
        for pipe, process in processes.items():
            process.join()
            pipe.close()


def _serve(task: Callable[[int], Any], pipe: Connection, prepare: Callable[[], None]) -> None:
    """Runs the tasks whose numbers it receives, in a child process, until the pipe is closed or the parent exits."""
    prepare()
    # reference counts release the objects of a case, so that collections rarely find objects
    gc.set_threshold(100_000)
    for handled in (signal.SIGTERM, signal.SIGHUP):  # not by the parent's handlers
        signal.signal(handled, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # after Ctrl-C, the parent kills this process
    while True:
        number = pipe.recv()
        try:
            result: tuple[bool, Any] = True, task(number)
        except Exception as error:
            error.__notes__ = [traceback.format_exc()]
            result = False, error
        pipe.send(result)


def _results(
    pipes: Sequence[Connection],
    names: Sequence[str],
    waiting: Waiting,
) -> Iterator[Any]:
    """Yields the result of each task, in order. Each process has one task at a time."""
    numbers, at, done = iter(range(len(names))), dict[Connection, int](), dict[int, Any]()
    for pipe in pipes:
        at[pipe] = next(numbers)
        pipe.send(at[pipe])
    for expected in range(len(names)):
        while expected not in done:
            ready = wait(list(at), _WAITING_S)
            if not ready:
                waiting([names[number] for number in at.values()])
            for pipe in [pipe for pipe in at if pipe in ready]:
                number = at.pop(pipe)
                try:
                    succeeded, done[number] = pipe.recv()
                except (EOFError, OSError) as error:
                    message = f"a process of the trial died during {names[number]}"
                    raise UserError(message, hint="try each name separately", status=3) from error
                if not succeeded:
                    raised = done[number]
                    if isinstance(raised, UserError):
                        raise raised
                    raise RuntimeError(
                        f"{names[number]}: {type(raised).__name__}: {raised}",
                    ) from raised
                if (following := next(numbers, None)) is not None:
                    at[pipe] = following
                    pipe.send(following)
        yield done.pop(expected)
