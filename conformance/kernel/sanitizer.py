"""Reads the reports of AddressSanitizer about the libraries that this process and its children have loaded. The runtime
library appends them to files whose beginning `log_path` of ASAN_OPTIONS names. Not for KASAN, which reports in the
kernel's log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "ASAN_OPTIONS"
_MOST = 1 << 20  # bytes of a file in one call


class SanitizerLog:
    """Reads the reports in parts, beginning with those after the creation of the object."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        options = dict(
            text.partition("=")[::2] for text in environment.get(VARIABLE, "").split(":")
        )
        self._beginning = Path(options.get("log_path", ""))
        self._read: dict[Path, int] = {}
        self.since_last()

    def since_last(self) -> list[str]:
        """Returns the lines since the last call, of one process after the other, at most _MOST bytes of each."""
        if not self._beginning.name:
            return []
        lines: list[str] = []
        for path in sorted(self._beginning.parent.glob(f"{self._beginning.name}.*")):
            try:
                with path.open("rb") as file:
                    end = file.seek(0, os.SEEK_END)
                    if end <= self._read.get(path, 0):
                        continue
                    file.seek(self._read.get(path, 0))
                    data = file.read(_MOST)
            except OSError:  # a file of a process of another user
                continue
            self._read[path] = end
            lines += data.decode("utf-8", "replace").splitlines()
        return lines
