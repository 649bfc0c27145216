"""If the host has a compiler, compiles the C sources that replace slow Python code: exchange.c and sweeps/loop.c. A
process compiles each source once. Without a compiler, the Python code is used."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from conformance import cache
from conformance.errors import UserError
from conformance.older_python import zip

# Names and values that must be equal in Python and in a C source: sizes and offsets in bytes, lengths of arrays.
Layout = tuple[tuple[str, int], ...]
_LAYOUT = "rdma_cts_layout"
_HEADERS = Path("/usr/include/infiniband")


@functools.cache
def library(source: Path, layout: Layout, *options: str) -> ctypes.CDLL | None:
    """Compiles and loads `source`. Returns None on failure. `options` follow the source on the compiler's command line.

    `layout` has the values that Python assumes for the C structures, in the order of the source's array
    `rdma_cts_layout`. Raises UserError if the values differ: C would then read different bytes than Python wrote.
    """
    name = f"{source.stem}-{_digest(source, options)}.so"
    loaded = _loaded(cache.lookup(name)) or _compiled(source, options, name)
    if loaded is not None:
        _check(source, layout, loaded)
    return loaded


def _digest(source: Path, options: Sequence[str]) -> str:
    """Returns a digest of all inputs: the source, the headers of the library, the options, and the machine."""
    parts = [source.read_bytes(), " ".join(options).encode(), os.uname().machine.encode()]
    for header in sorted(_HEADERS.glob("*.h")):
        with contextlib.suppress(OSError):
            parts += [header.name.encode(), header.read_bytes()]
    return cache.digest_of(parts)


def _loaded(path: Path | None) -> ctypes.CDLL | None:
    with contextlib.suppress(OSError):
        if path:
            return ctypes.CDLL(str(path))
        return None
    return None


def _compiled(source: Path, options: Sequence[str], name: str) -> ctypes.CDLL | None:
    """Compiles and loads a source, and caches the result. Returns None without a compiler, or if compiling fails."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return None
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as folder:
        output = Path(folder) / "compiled.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(output), str(source), *options]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                check=False,
                env={**os.environ, "TMPDIR": folder},
            )
        except OSError:
            return None
        if done.returncode == 0:
            loaded = _loaded(output)
        else:
            loaded = None
        if loaded is not None:
            cache.store(name, output.read_bytes())
        return loaded


def _check(source: Path, layout: Layout, loaded: ctypes.CDLL) -> None:
    number = ctypes.c_uint32.in_dll(loaded, _LAYOUT).value  # the number of elements after the first
    exported = (ctypes.c_uint32 * (1 + number)).in_dll(loaded, _LAYOUT)[1:]
    wrong = [
        f"{name} is {actual}, not {assumed}"
        for (name, assumed), actual in zip(layout, exported, strict=False)
        if assumed != actual
    ]
    if len(layout) != len(exported):
        wrong.append(f"{_LAYOUT} has {len(exported)} values, not {len(layout)}")
    if wrong:
        message = f"{source.name} as compiled here differs from what its Python module assumes: {'; '.join(wrong)}"
        hint = "change both files together; if you changed neither, report the versions of compiler and rdma-core"
        raise UserError(message, hint=hint, status=3)
