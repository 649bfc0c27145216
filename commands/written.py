"""Writes what a command was asked to write with `--out`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from commands import plan
from commands.output import show
from conformance.errors import UserError
from conformance.results import points, records
from conformance.results.files import not_written, write_atomically
from reports.history import OUTCOME_FILE

STANDARD_OUTPUT = Path("-")
RECORDED = (records.FILE_NAME, plan.FILE_NAME, OUTCOME_FILE)  # what reports are made from, and never replace


def write_out(path: Path, data: bytes, what: str) -> None:
    """Writes a file as a whole, and says so; through what is no regular file, such as a FIFO or /dev/stdout.

    `-` is standard output. Raises UserError (status 2) if the data cannot be written, or if a run is recorded there.
    """
    refuse_recorded(path)
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


def refuse_recorded(path: Path) -> None:
    """Raises UserError (status 2) for a file in which a run or a night is recorded."""
    place = path.resolve()
    in_points = place.parent.name == points.FOLDER and (place.parent.parent / records.FILE_NAME).exists()
    if place.is_file() and (place.name in RECORDED or in_points):
        raise UserError(f"{path} is recorded data, which no output replaces", hint="give another file to --out")


def is_standard_output(path: Path) -> bool:
    """Whether this is standard output, or the file behind it, as /dev/stdout; opened again, it would lose its text."""
    return path == STANDARD_OUTPUT or (path.exists() and os.path.samestat(path.stat(), os.fstat(1)))
