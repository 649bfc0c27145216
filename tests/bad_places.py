"""Helpers of tests: places where nothing can be written or read, such as a full disk or directories of another user."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from conformance.results.files import write_all

NOBODY = 65534


@contextmanager
def as_another_user() -> Iterator[None]:
    """Makes this process act, if it is root, as another user, to whom file modes apply."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)


def full_disk(after: int) -> Callable[[int, bytes], None]:
    """Returns a replacement for `write_all` on a disk that is full after `after` bytes."""
    left = after

    def write(descriptor: int, data: bytes) -> None:
        nonlocal left
        write_all(descriptor, data[:left])
        if len(data) > left:
            left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= len(data)

    return write
