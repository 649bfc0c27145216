"""Writes a results file: whole lines, appended as a run goes; what the lines say stands in results.py."""

from __future__ import annotations

import os
from pathlib import Path

from conformance.errors import UserError
from conformance.results import Line, encode


class ResultsFile:
    """Appends lines to a results file; each is on disk before the next case begins."""

    def __init__(self, path: Path) -> None:
        """Creates the file. Raises UserError where a run has been recorded already."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path.parent} cannot be made: {error.strerror}", status=3) from error
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError as error:
            raise UserError(f"{path} exists: a run is recorded there", hint="choose another --out") from error
        except OSError as error:
            raise UserError(f"{path} cannot be written: {error.strerror}", status=3) from error
        self.path = path

    def append(self, line: Line) -> None:
        """Writes one line, whole or (when the disk is full) with UserError."""
        data = memoryview(encode(line))
        try:
            while data:
                data = data[os.write(self._fd, data):]
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}", status=3) from error

    def close(self) -> None:
        """Closes the file after its contents have reached the disk."""
        os.fsync(self._fd)
        os.close(self._fd)
