"""The directory of a run. It is cleaned up before and after the run, and removed if the run has recorded nothing."""

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from conformance.results.files import new_directory
from conformance.results.records import FILE_NAME

OUT = Path("out")  # the default parent of the directories of runs
WORK = "work-"  # the names of temporary directories begin with this


@contextmanager
def run_folder(given: Path | None = None, what: str = "") -> Iterator[Path]:
    """A context manager for the directory of a run: `given`, or a new directory in OUT, whose name has the time and
    `what`. After the block, the directory is removed if it has only empty console files, and so are its new parents.
    Raises UserError if a directory in OUT cannot be created."""
    made = [folder for folder in ((given, *given.parents) if given else (OUT,)) if not folder.exists()]
    out = given or _new_folder(what)
    if not given:
        made.insert(0, out)
    try:
        yield out
    finally:
        with contextlib.suppress(OSError):  # a directory with files is not removed, nor are its parents
            if made:
                for console in out.glob("console*.log"):
                    if not console.stat().st_size:
                        console.unlink()
            for folder in made:
                folder.rmdir()


@contextmanager
def tidied(out: Path) -> Iterator[None]:
    """Removes temporary directories: before the block those of a killed session, and after the block those of this
    session. Only a process that has locked the results in `out` may use this, because another running process would use
    the same directories."""
    _remove_work(out)
    try:
        yield
    finally:
        _remove_work(out)


def latest(folder: Path) -> Path | None:
    """Returns the run in `folder` whose results were written last; None without a run."""
    return next(iter(latest_first(folder)), None)


def latest_first(folder: Path) -> list[Path]:
    """Returns the runs in `folder`, the most recently written results first."""
    files = sorted(folder.glob(f"*/{FILE_NAME}"), key=lambda file: file.stat().st_mtime, reverse=True)
    return [file.parent for file in files]


def _new_folder(what: str) -> Path:
    """A new directory for a run, whose name is the time and, for a second run in the same second, a number."""
    return new_directory(OUT / f"{datetime.now():%Y%m%dT%H%M%S}-{what}")


def _remove_work(out: Path) -> None:
    for folder in out.iterdir() if out.is_dir() else ():
        if folder.name.startswith(WORK):
            shutil.rmtree(folder, ignore_errors=True)
