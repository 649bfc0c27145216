"""Writes what a command was asked to write with `--out`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from commands.output import show
from conformance.results.files import not_written, write_atomically

STANDARD_OUTPUT = Path("-")


def write_out(path: Path, data: bytes, what: str) -> None:
    """Writes a file as a whole, and says so; through what is no regular file, such as a FIFO or /dev/stdout.

    `-` is standard output. Raises UserError if the data cannot be written.
    """
    if is_standard_output(path):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    elif path.is_symlink() or (path.exists() and not path.is_file()):
        try:
            path.write_bytes(data)
        except OSError as error:
            raise not_written(path, error) from error
    else:
        write_atomically(path, data)
        show([f"{what}: {path}"])


def is_standard_output(path: Path) -> bool:
    """Whether this is standard output, or the file behind it, as /dev/stdout; opened again, it would lose its text."""
    return path == STANDARD_OUTPUT or (path.exists() and os.path.samestat(path.stat(), os.fstat(1)))
