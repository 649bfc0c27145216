"""Controls the suite's own exporter of dma-bufs, whose buffers move and can be revoked (fixtures/guest/exporter/).

The exporter is a kernel module. In the guest of a mended stack, it is part of the build; on a host, --exporter names
its file. The module is loaded when a case first needs it. Without it, such cases are UNREACHABLE.
"""

import fcntl
import os
import struct
import subprocess
from io import FileIO
from pathlib import Path

from conformance.errors import HostLacks

DEVICE = Path("/dev/rdma_cts_exporter")
IN_GUEST = Path("/opt/rdma-cts/rdma_cts_exporter.ko")
_INTERFACE = 1  # as in rdma_cts_exporter.c
_ARGUMENT = struct.Struct("=iI")  # a descriptor, and a value
# The requests of rdma_cts_exporter.c, in their order.
_VERSION = 0x7301
_REQUESTS = {
    name: _VERSION + 1 + number
    for number, name in enumerate(("create", "move", "revoke", "changed", "pins", "attachments"))
}
_HINT = "compile fixtures/guest/exporter for this kernel, and name the module with --exporter"
_file = IN_GUEST


def use(file: Path) -> None:
    """Names the file of the module."""
    global _file
    _file = file


def create(size: int) -> int:
    """Returns the descriptor of a new buffer of `size` bytes. Raises HostLacks or OSError."""
    return _request("create", -1, size // os.sysconf("SC_PAGESIZE"))[0]


def request(name: str, fd: int) -> int:
    """Moves or revokes a buffer, or returns the number of `changed` bytes on pages that the buffer has left, of `pins`
    or of `attachments`. Raises OSError if the exporter refuses the request."""
    return _request(name, fd, 0)[1]


def _request(name: str, fd: int, value: int) -> tuple[int, int]:
    with _opened() as device:
        _check_version(device)
        answer = fcntl.ioctl(device, _REQUESTS[name], _ARGUMENT.pack(fd, value))
    found, value = _ARGUMENT.unpack(answer)
    return found, value


def _opened() -> FileIO:
    if not DEVICE.exists():
        _load()
    try:
        return FileIO(DEVICE, "r")
    except OSError as error:
        raise HostLacks(f"{DEVICE} cannot be opened ({error.strerror})", _HINT) from error


def _load() -> None:
    if not _file.exists():
        raise HostLacks("this host has no exporter of dma-bufs that move", _HINT)
    loaded = subprocess.run(
        ["insmod", str(_file)],
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if loaded.returncode:
        reason = (loaded.stderr.strip().splitlines() or [f"status {loaded.returncode}"])[-1]
        raise HostLacks(f"the exporter of dma-bufs cannot be loaded ({reason})", _HINT)


def _check_version(device: FileIO) -> None:
    try:
        answer = fcntl.ioctl(device, _VERSION, _ARGUMENT.pack(-1, 0))
    except OSError as error:
        raise HostLacks(
            f"{DEVICE} is not the suite's exporter ({error.strerror})",
            _HINT,
        ) from error
    version = _ARGUMENT.unpack(answer)[1]
    if version != _INTERFACE:
        raise HostLacks(
            f"the exporter has the interface {version}, and the suite needs {_INTERFACE}",
            _HINT,
        )
