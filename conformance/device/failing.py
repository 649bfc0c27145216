"""Makes the kernel fail one memory allocation of this thread, by its fault injection (fail-nth)."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from conformance.bench.calls import Injected

_DEBUGFS = Path("/sys/kernel/debug")
_ALLOCATORS = ("failslab", "fail_page_alloc")
_NTH = "/proc/thread-self/fail-nth"


def can_fail(debugfs: Path = _DEBUGFS) -> bool:
    """Whether fault injection also covers allocations that may sleep, as almost all of a call may."""
    try:
        settings = [(debugfs / name / "ignore-gfp-wait").read_text() for name in _ALLOCATORS]
    except OSError:
        return False
    return all(setting.strip() == "N" for setting in settings)


@contextmanager
def failing_allocation(number: int) -> Iterator[Injected]:
    """Within the block the kernel fails this thread's allocation with that number, counted from 1; 0 means none."""
    injected = Injected()
    control = os.open(_NTH, os.O_RDWR)
    try:
        os.pwrite(control, b"%d" % number, 0)
        yield injected
        injected.reached = int(os.pread(control, 32, 0)) == 0
    finally:
        os.pwrite(control, b"0", 0)
        os.close(control)
