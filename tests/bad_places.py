"""Places where nothing can be written or read: a disk that becomes full, directories of another user."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from conformance.results.files import write_all

NOBODY = 65534


@contextmanager
def as_another_user() -> Iterator[None]:
    """Makes root act as a user to whom file modes apply; any other user stays the same."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)


def full_disk(after: int) -> Callable[[int, bytes], None]:
    """In place of `write_all`: a disk that is full after this many bytes."""
    left = after

    def write(descriptor: int, data: bytes) -> None:
        nonlocal left
        write_all(descriptor, data[:left])
        if len(data) > left:
            left = 0
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= len(data)

    return write
