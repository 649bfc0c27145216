"""C beside the Python that it is quicker than, compiled once a process where there is a compiler.

Without one everything takes longer and finds the same. Not for what the C does (exchange.c, sweeps/loop.c).
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path


@functools.cache
def library(source: Path, *options: str) -> ctypes.CDLL | None:
    """The compiled `source`; None without a compiler that makes it. `options` come behind it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        return None
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as folder:
        made = Path(folder) / "made.so"
        command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(made), str(source), *options]
        try:
            done = subprocess.run(command, capture_output=True, check=False, env={**os.environ, "TMPDIR": folder})
            return ctypes.CDLL(str(made)) if done.returncode == 0 else None
        except OSError:
            return None
