"""Reads and writes the memory of this process. An unmapped address causes no crash."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


@functools.cache
def _call(name: str) -> Any:
    function = ctypes.CDLL(None, use_errno=True)[name]
    function.restype = ctypes.c_ssize_t
    pointer, count = ctypes.c_void_p, ctypes.c_ulong
    function.argtypes = (ctypes.c_int, pointer, count, pointer, count, count)
    return function


def _copied(name: str, addr: int, buffer: Any, length: int) -> bool:
    here = _Part(ctypes.addressof(buffer), length)
    there = _Part(addr, length)
    return bool(
        _call(name)(os.getpid(), ctypes.addressof(here), 1, ctypes.addressof(there), 1, 0)
        == length,
    )


def content_at(addr: int, length: int) -> bytes | None:
    buffer = ctypes.create_string_buffer(length or 1)
    if not length or _copied("process_vm_readv", addr, buffer, length):
        return buffer.raw[:length]
    return None


def put(addr: int, content: bytes) -> bool:
    """Writes the bytes to `addr`. Returns False if the memory is not mapped or is read-only."""
    if not content:
        return True
    buffer = (ctypes.c_char * len(content)).from_buffer_copy(content)
    return _copied("process_vm_writev", addr, buffer, len(content))
