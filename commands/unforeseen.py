"""What nobody foresaw: one line for the user, the traceback in a file, and never the status of a violation."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from conformance.errors import UserError


def explained(error: Exception, folder: Path | None = None) -> UserError:
    """The error to print (status 3). The traceback is in a file of `folder`, or else of the temporary directory."""
    text = "".join(traceback.format_exception(error))
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    try:
        log = _written(text, folder)
    except OSError as full:
        log = f"nowhere, since it cannot be written: {full.strerror}"
    return UserError(f"this is a defect of the suite, or of its environment: {what}", log=log, status=3)


def _written(text: str, folder: Path | None) -> str:
    descriptor, path = tempfile.mkstemp(".log", "error-" if folder else "rdma-cts-error-", folder)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    return path
