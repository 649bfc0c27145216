"""Runs functions at the same time, the first one in the caller's thread. Not for what they share."""

import threading
from collections.abc import Callable, Sequence

# How long an interrupted caller waits for the other threads, in seconds.
_JOIN_S = 5.0


def run_together(functions: Sequence[Callable[[], None]], stop: Callable[[], None]) -> None:
    """Returns when all functions have. Calls `stop`, which must make them return soon, if one raises an exception.

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
