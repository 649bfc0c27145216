"""Helpers of tests: places where nothing can be written or read, such as a full disk or directories of another user."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

NOBODY = 65534


@contextmanager
def as_another_user() -> Iterator[None]:
    """Makes this process act as another user if it is root, because file modes do not apply to root."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)


@contextmanager
def full_disk(after: int) -> Iterator[None]:
    """Limits the files of this process to `after` bytes, like a disk that is nearly full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (after, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
