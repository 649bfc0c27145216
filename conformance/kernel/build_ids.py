"""What is really under test, by its own marks: the running kernel, its RDMA modules, the libraries this process loaded.

Not for what somebody asked to have tested (the supervisor's side knows that).
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from pathlib import Path

from conformance.model.record import UnderTest

_SYS = Path("/sys")
_MAPS = Path("/proc/self/maps")
_LIBRARY = re.compile(r"/(?:libibverbs|libmlx[45]|libmana|libefa|libhns|[^/]*-rdmav[0-9]+)\.so[.0-9]*\Z")
_GNU, _BUILD_ID = b"GNU\0", 3  # NT_GNU_BUILD_ID of <elf.h>
_NOTE = struct.Struct("=III")


def under_test(driver: str, sys: Path = _SYS, maps: Path = _MAPS) -> UnderTest:
    """`kernel` and each of `modules` by build id (modules also by srcversion), `libraries` by SHA-256 of their file.

    Of the providers, all of which libibverbs loads, only the driver's is named, if it is called like the driver.
    What the system does not tell is left out. Open the device first: that loads the libraries.
    """
    loaded = _libraries(maps)
    used = [path for path in loaded if path.name.startswith("libibverbs.") or driver in path.name]
    return {
        "kernel": _marks(sys / "kernel" / "notes"),
        "modules": {name: _module(sys / "module" / name) for name in _modules(sys / "module")},
        "libraries": _digests(used if len(used) > 1 else loaded),
    }


def _modules(folder: Path) -> list[str]:
    """The core of the kernel's RDMA and every module that rests on it."""
    core = folder / "ib_core"
    holders = sorted(path.name for path in (core / "holders").iterdir()) if (core / "holders").is_dir() else []
    return ["ib_core", *holders] if core.is_dir() else []


def _module(folder: Path) -> dict[str, str]:
    marks = _marks(folder / "notes" / ".note.gnu.build-id")
    for name in ("srcversion", "version", "taint"):
        try:
            text = (folder / name).read_text(encoding="ascii", errors="replace").strip()
        except OSError:
            continue
        if text:
            marks[name] = text
    return marks


def _marks(notes: Path) -> dict[str, str]:
    try:
        data = notes.read_bytes()
    except OSError:
        return {}
    found = [content for name, kind, content in _notes(data) if (name, kind) == (_GNU, _BUILD_ID)]
    return {"build_id": found[0].hex()} if found else {}


def _notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """(name, type, content) of each ELF note."""
    while len(data) >= _NOTE.size:
        name_size, size, kind = _NOTE.unpack_from(data)
        start = _NOTE.size + (name_size + 3 & ~3)
        yield data[_NOTE.size : _NOTE.size + name_size], kind, data[start : start + size]
        data = data[start + (size + 3 & ~3) :]


def _libraries(maps: Path) -> list[Path]:
    names = {line.split(maxsplit=5)[-1].strip() for line in maps.read_text(errors="replace").splitlines()}
    return sorted({Path(name).resolve() for name in names if _LIBRARY.search(name)})


def _digests(paths: list[Path]) -> dict[str, str]:
    """By name or, where two of one name are loaded, by path."""
    names = [path.name for path in paths]
    return {str(path) if names.count(path.name) > 1 else path.name: _sha256(path) for path in paths}


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
