"""A file of /proc, /sys or a control group that is read before and after each case. Not for what its text means."""

import os
from contextlib import suppress
from pathlib import Path

_CHUNK = 1 << 16


class KernelFile:
    """A file of the kernel that stays open. The kernel generates its text at each read.

    To look up its path takes longer than to read it. A process that has been forked opens it again, because the kernel
    answers for the process that has opened /proc/self.
    """

    def __init__(self, path: Path) -> None:
        """Opens it. If that fails, each read tries to open it again."""
        self._path = path
        self._descriptor = -1
        self._opened_by = 0
        with suppress(OSError):
            self._open()

    def read(self) -> str:
        """The text as it is now. Raises OSError if there is no such file, or if it cannot be read."""
        if self._opened_by != os.getpid():
            self._open()
        parts: list[bytes] = []
        read = 0
        while part := os.pread(self._descriptor, _CHUNK, read):
            parts.append(part)
            read += len(part)
        return b"".join(parts).decode(errors="replace")

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        self._opened_by = os.getpid()

    def __del__(self) -> None:
        if self._opened_by == os.getpid():
            os.close(self._descriptor)


def number_after(text: str, name: str) -> int | None:
    """The number after a name that begins a line and has its separator, such as `VmPin:`; None if there is none."""
    words = f"\n{text}".partition(f"\n{name}")[2].split(None, 1)
    return int(words[0]) if words and words[0].isdecimal() else None
