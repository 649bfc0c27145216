"""The directory of a run: cleaned up before and after the run, and removed if the run has recorded nothing.

Not for the recorded files.
"""

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from conformance.results.files import new_directory
from conformance.results.records import FILE_NAME

OUT = Path("out")  # where runs have their directories by default
WORK = "work-"  # the names of temporary directories begin with this


@contextmanager
def run_folder(given: Path | None = None, what: str = "") -> Iterator[Path]:
    """The path of a run's directory: `given`, or a new directory in OUT, named by the time and `what`.

    After the block, the directory and those of its parents that did not exist before are removed, if nothing is in them
    but empty console files. Raises UserError if a new directory in OUT cannot be made.
    """
    made = [folder for folder in ((given, *given.parents) if given else (OUT,)) if not folder.exists()]
    out = given or _new_folder(what)
    if not given:
        made.insert(0, out)
    try:
        yield out
    finally:
        with contextlib.suppress(OSError):  # a directory that is not empty stays, and so do its parents
            if made:
                _remove_empty_consoles(out)
            for folder in made:
                folder.rmdir()


@contextmanager
def tidied(out: Path) -> Iterator[None]:
    """Removes temporary directories: before the block those of a session that was killed, after it those of the block.

    Only for a process that has locked the results in `out`: another running process would use the same directories.
    """
    _remove_work(out)
    try:
        yield
    finally:
        _remove_work(out)


def latest(folder: Path) -> Path | None:
    """The run in `folder` whose results were written last; None if there is none."""
    return next(iter(latest_first(folder)), None)


def latest_first(folder: Path) -> list[Path]:
    """The runs in `folder`, the most recently written results first."""
    files = sorted(folder.glob(f"*/{FILE_NAME}"), key=lambda file: file.stat().st_mtime, reverse=True)
    return [file.parent for file in files]


def _new_folder(what: str) -> Path:
    """A new directory for a run, named by the time; runs that begin in the same second get different directories."""
    return new_directory(OUT / f"{datetime.now():%Y%m%dT%H%M%S}-{what}")


def _remove_empty_consoles(out: Path) -> None:
    for console in out.glob("console*.log"):
        if not console.stat().st_size:
            console.unlink()


def _remove_work(out: Path) -> None:
    for folder in out.glob(f"{WORK}*"):
        shutil.rmtree(folder, ignore_errors=True)
