"""Identifies the software that is under test: the running kernel, its RDMA modules, and the loaded libraries."""

import re
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from conformance.kernel.log import text_of
from conformance.model.record import UnderTest
from conformance.older_python import file_digest

_SYS = Path("/sys")
_MAPS = Path("/proc/self/maps")
_LIBRARY = re.compile(
    r"/(?:libibverbs|libmlx[45]|libmana|libefa|libhns|[^/]*-rdmav[0-9]+)\.so[.0-9]*\Z",
)
_GNU, _BUILD_ID = b"GNU\0", 3  # NT_GNU_BUILD_ID of <elf.h>
_NOTE = struct.Struct("=III")


@cache  # the loaded libraries do not change once the device is open
def under_test(driver: str, sys: Path = _SYS, maps: Path = _MAPS) -> UnderTest:
    """Returns the build ids of `kernel` and `modules` (also the srcversion of modules), and the SHA-256 of `libraries`.

    libibverbs loads every provider. The result has only the provider whose file name contains `driver`, or all
    providers if no file name contains `driver`. Values that the system does not provide are omitted. The device must be
    open, because opening it loads the libraries.
    """
    loaded = _libraries(maps)
    used = [path for path in loaded if path.name.startswith("libibverbs.") or driver in path.name]
    return {
        "kernel": _build_id(sys / "kernel" / "notes"),
        "modules": {name: _module(sys / "module" / name) for name in _modules(sys / "module")},
        "libraries": _digests(used if len(used) > 1 else loaded),
    }


def kernel_build_id(sys: Path = _SYS) -> str:
    """Returns the build id of the running kernel; empty if the kernel does not report it."""
    return _build_id(sys / "kernel" / "notes").get("build_id", "")


def suspects_of(device: str, driver: str, sys: Path = _SYS) -> list[str]:
    """Returns the names by which a kernel's log refers to a device, to its driver and to the RDMA core."""
    bound = sys / "class" / "infiniband" / device / "device" / "driver" / "module"
    if bound.exists():
        of_bus = [bound.resolve().name]
    else:
        of_bus = []
    modules = [name for name in _modules(sys / "module") if driver in name]
    return list(dict.fromkeys(["ib_core", "ib_uverbs", device, driver, *modules, *of_bus]))


def _modules(folder: Path) -> list[str]:
    """Returns the names of ib_core and of every loaded module that uses ib_core."""
    core = folder / "ib_core"
    if (core / "holders").is_dir():
        holders = sorted(path.name for path in (core / "holders").iterdir())
    else:
        holders = []
    if core.is_dir():
        return ["ib_core", *holders]
    return []


def _module(folder: Path) -> dict[str, str]:
    identity = _build_id(folder / "notes" / ".note.gnu.build-id")
    for name in ("srcversion", "version", "taint"):
        if text := text_of(folder / name):
            identity[name] = text
    return identity


def _build_id(notes: Path) -> dict[str, str]:
    try:
        data = notes.read_bytes()
    except OSError:
        return {}
    ids = [content for name, kind, content in _notes(data) if (name, kind) == (_GNU, _BUILD_ID)]
    if ids:
        return {"build_id": ids[0].hex()}
    return {}


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields (name, type, content) of each ELF note."""
    while len(data) >= _NOTE.size:
        name_size, size, kind = _NOTE.unpack_from(data)
        start = _NOTE.size + (name_size + 3 & ~3)
        yield data[_NOTE.size : _NOTE.size + name_size], kind, data[start : start + size]
        data = data[start + (size + 3 & ~3) :]


def _libraries(maps: Path) -> list[Path]:
    names = {
        line.split(maxsplit=5)[-1].strip() for line in maps.read_text(errors="replace").splitlines()
    }
    return sorted({Path(name).resolve() for name in names if _LIBRARY.search(name)})


def _digests(paths: list[Path]) -> dict[str, str]:
    """Returns the SHA-256 of each file, by the file's name, or by its path if two loaded files have the same name."""
    names = [path.name for path in paths]
    return {str(path) if names.count(path.name) > 1 else path.name: _sha256(path) for path in paths}


@cache  # a loaded library does not change in this process
def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
