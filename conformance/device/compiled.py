"""C beside the Python that it is faster than, compiled once a process where there is a compiler.

Without a compiler everything takes longer and gives the same results. Not for what the C does (exchange.c,
sweeps/loop.c).
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from conformance.errors import UserError

# Names and numbers that Python and a C source must agree on: sizes and offsets in bytes, lengths of arrays.
Layout = tuple[tuple[str, int], ...]
_LAYOUT = "rdma_cts_layout"


@functools.cache
def library(source: Path, layout: Layout, *options: str) -> ctypes.CDLL | None:
    """The compiled `source`; None without a compiler that can compile it. `options` follow it on the command line.

    `layout` is what Python assumes of the C structures, in the order of the source's array `rdma_cts_layout`. Raises
    UserError where the two differ, since Python would then write beside what C reads.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return None
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as folder:
        made = Path(folder) / "made.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(made), str(source), *options]
        try:
            done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "TMPDIR": folder})
            loaded = ctypes.CDLL(str(made)) if done.returncode == 0 else None
        except OSError:
            return None
    if loaded is not None:
        _check(source, layout, _exported(loaded))
    return loaded


def _exported(loaded: ctypes.CDLL) -> Sequence[int]:
    """The array `rdma_cts_layout`, whose first element is the number of those behind it."""
    number = ctypes.c_uint32.in_dll(loaded, _LAYOUT).value
    return (ctypes.c_uint32 * (1 + number)).in_dll(loaded, _LAYOUT)[1:]


def _check(source: Path, layout: Layout, exported: Sequence[int]) -> None:
    wrong = [
        f"{name} is {there}, not {here}" for (name, here), there in zip(layout, exported, strict=False) if here != there
    ]
    if len(layout) != len(exported):
        wrong.append(f"{_LAYOUT} has {len(exported)} entries, not {len(layout)}")
    if wrong:
        raise UserError(
            f"{source.name} as compiled here differs from what the Python beside it assumes: {'; '.join(wrong)}",
            hint="change both sides together; if neither was changed, report compiler and rdma-core version", status=3,
        )  # fmt: skip
