"""Writes what a command was asked to write with `--out`, and says before anything else if it cannot be there."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from pathlib import Path

from commands import plan
from commands.output import show
from commands.run_folder import OUT
from conformance.errors import UserError
from conformance.results import points, records
from conformance.results.files import not_written, write_atomically
from reports.history import OUTCOME_FILE

STANDARD_OUTPUT = Path("-")
RECORDED = (records.FILE_NAME, plan.FILE_NAME, OUTCOME_FILE)  # what reports are made from, and never replace


def out_path(text: str) -> Path:
    """The path that `--out` names; the type of that option. Raises UserError (status 2) if nothing can be made there.

    Its directory must exist, or be OUT: no tree of directories is made of a mistyped path.
    """
    if not text:  # as of a variable that is not set
        raise argparse.ArgumentTypeError(f"{text!r} is no path")
    path = Path(text)
    if path == STANDARD_OUTPUT or os.path.lexists(path):
        return path
    folder = path.parent
    if folder.absolute() == OUT.absolute() and not os.path.lexists(folder):
        folder = folder.parent
    if not os.path.isdir(folder):
        missing = not os.path.lexists(folder)
        raise UserError(
            f"{path} cannot be written: {f'there is no directory {folder}' if missing else f'{folder} is no directory'}"
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{path} cannot be written: {os.strerror(errno.EACCES)}")
    return path


def out_directory(text: str) -> Path:
    """The same of an option that names a directory."""
    path = out_path(text)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UserError(f"{path} is no directory")
    return path


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
