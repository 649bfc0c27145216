"""Records what the kernel reports while a case runs: its log lines and its taint mask. Also reads files of the kernel.
If this process may not read the kernel log, the evidence has no key `log`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from conformance.kernel.sanitizer import SanitizerLog
from conformance.model.observation import KernelEvidence

_CHUNK = 1 << 16


class KernelFile:
    """A file of the kernel that remains open, because opening takes longer than reading. The kernel generates the text
    at each read. A forked process opens the file again, because an open file below /proc/self belongs to the process
    that opened it."""

    def __init__(self, path: Path, at_once: bool = False) -> None:
        """Opens the file. If the file cannot be opened, each read tries to open it. `at_once`: the kernel returns the
        text in one piece, so that a short read is the last read."""
        self._path = path
        self._at_once = at_once
        self._descriptor = -1
        self._opened_by = 0
        with suppress(OSError):
            self._open()

    def read(self) -> str:
        """Returns the current text. Raises OSError if the file does not exist or cannot be read."""
        if self._opened_by != os.getpid():
            self._open()
        parts: list[bytes] = []
        read = 0
        while part := os.pread(self._descriptor, _CHUNK, read):
            parts.append(part)
            read += len(part)
            if self._at_once and len(part) < _CHUNK:
                break
        return b"".join(parts).decode(errors="replace")

    def text(self) -> str:
        """Returns the current text; empty if the file cannot be read."""
        try:
            return self.read()
        except OSError:
            return ""

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        self._opened_by = os.getpid()

    def __del__(self) -> None:
        if self._opened_by == os.getpid():
            os.close(self._descriptor)


def text_of(path: Path) -> str:
    """Returns the content of a file of the kernel; empty if the file cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:  # the file does not exist, or its value is not set (EINVAL)
        return ""


def number_after(text: str, name: str) -> int | None:
    """Returns the number after `name` at the beginning of a line, or None. `name` includes the separator, as in
    `VmPin:`."""
    words = f"\n{text}".partition(f"\n{name}")[2].split(None, 1)
    if words and words[0].isdecimal():
        return int(words[0])
    return None


_TAINT = Path("/proc/sys/kernel/tainted")
_KMSG = "/dev/kmsg"
# The variable with a descriptor of the kernel's log, inherited from a process that has the right to read the log.
INHERITED = "RDMA_CTS_KERNEL_LOG"
_RECORD = 8192
_MOST_LINES = 10_000  # in one call, because a driver can log faster than this process reads


def open_log() -> int | None:
    """Returns a descriptor at the end of the kernel's log, or None if this process may not read the log."""
    try:
        inherited_fd = os.environ.get(INHERITED)
        if inherited_fd:
            log = os.dup(int(inherited_fd))
        else:
            log = os.open(_KMSG, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.lseek(log, 0, os.SEEK_END)
    except (OSError, ValueError):
        return None
    return log


class KernelWatch:
    """Reads the kernel log in parts, beginning with the lines after the creation of the object."""

    def __init__(self, suspects: Sequence[str] = ()) -> None:
        """A line counts against the device if it contains a name of `suspects`. Without names, all lines count."""
        self._suspects = list(suspects)
        self._fd = open_log()
        self._sanitizer = SanitizerLog()
        self._tainted = KernelFile(_TAINT, at_once=True)
        self._taint = self._mask()

    def since_last(self) -> KernelEvidence:
        """Returns `taint`, `taint_before` if the taint has changed, the `log` lines since the last call, and the reports of
        AddressSanitizer, if there are any."""
        before, self._taint = self._taint, self._mask()
        evidence: KernelEvidence = {"taint": self._taint, "log": self._lines()}
        if before != self._taint:
            evidence["taint_before"] = before
        if self._suspects and (evidence["log"] or "taint_before" in evidence):
            evidence["suspects"] = self._suspects
        if self._fd is None:
            del evidence["log"]
        if reports := self._sanitizer.since_last():
            evidence["sanitizer"] = reports
        return evidence

    def _mask(self) -> int:
        """Returns the kernel's taint mask; 0 means not tainted or not readable."""
        return int(self._tainted.text() or 0)

    def _lines(self) -> list[str]:
        lines: list[str] = []
        while self._fd is not None and len(lines) < _MOST_LINES:
            try:
                record = os.read(self._fd, _RECORD)
            except BlockingIOError:
                break
            except (
                BrokenPipeError
            ):  # the kernel overwrote records of the ring buffer before they were read
                lines.append("(kernel log lines were lost)")
                continue
            # <priority>,<sequence>,<microseconds>,<flags>;<text>\n followed by indented properties
            text = record.decode("utf-8", "replace").partition(";")[2]
            lines.append(text.splitlines()[0] if text else "")
        return lines

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
