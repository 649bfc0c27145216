"""Creates the directory of a run, cleans the directory up before and after the run, and removes the directory if the
run has recorded nothing."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from conformance.errors import UserError
from conformance.regular_file import is_partial, regular_lines, remove_below
from conformance.results.files import new_directory
from conformance.results.points import FOLDER as POINTS
from conformance.results.records import FILE_NAME, PLAN_FILE

OUT = Path("out")  # the default parent of the directories of runs
WORK = "work-"  # the prefix of the names of temporary directories
OUTCOME_FILE = "cell.json"  # of a run in a night
RUN_LOG = "run.log"  # what a run in a night prints; `nightly` creates it before the run
_OF_RUN = (WORK, "console", PLAN_FILE, RUN_LOG)  # the files of a run that had no result


def directory_for(file: Path) -> str:
    """Returns the hint after a file was given where the directory of its run is needed."""
    if (file.parent / FILE_NAME).exists():
        return f"give the directory {file.parent}"
    reading = "xz -dc" if file.suffix == ".xz" else "cat"
    return f"mkdir RUN && {reading} {shlex.quote(str(file))} > RUN/{FILE_NAME} makes one"


@contextmanager
def run_folder(given: Path | None = None, what: str = "") -> Iterator[Path]:
    """Yields the directory of a run: `given`, or a new directory in OUT, whose name has the time and `what`. After the
    block, the directory and its new parents are removed if the directory has only empty console files. Raises UserError
    if a directory in OUT cannot be created."""
    created = [
        folder for folder in ((given, *given.parents) if given else (OUT,)) if not folder.exists()
    ]
    out = given or _new_folder(what)
    if not given:
        created.insert(0, out)
    try:
        yield out
    finally:
        # a directory with files, and its parents, are not removed
        with contextlib.suppress(OSError):
            if created:
                for console in out.glob("console*.log"):
                    if not console.stat().st_size:
                        remove_below(out, console.name)
            for folder in created:
                folder.rmdir()


def check_free(out: Path) -> None:
    """Raises UserError (status 2) if a new run would be written among other files: a directory may only have files of
    an earlier run, which are checked when they are opened."""
    if not out.is_dir() or (out / FILE_NAME).exists():
        return
    names = sorted(path.name for path in out.iterdir())
    foreign = [name for name in names if not (name.startswith(_OF_RUN) or is_partial(name))]
    if foreign:
        what = f"{out} is not empty (it has {foreign[0]}), and is not the directory of a run"
        raise UserError(what, hint="give --out a new or an empty directory")


@contextmanager
def tidied(out: Path) -> Iterator[None]:
    """Removes the temporary directories and the incomplete files of a killed session before the block, and the
    directories of this session after the block. Only a process that has locked the results in `out` may use this context
    manager, because no other process then uses the directories."""
    _remove_work(out)
    for folder in (out, out / POINTS):
        for path in folder.iterdir() if folder.is_dir() else ():
            if is_partial(path.name):
                with contextlib.suppress(OSError):
                    remove_below(folder, path.name)
    try:
        yield
    finally:
        _remove_work(out)


def latest(folder: Path) -> Path | None:
    """Returns the run in `folder` whose results were written last; None without a run."""
    return next(latest_first(folder), None)


def latest_first(folder: Path) -> Iterator[Path]:
    """Yields the runs in `folder`, the most recently written results first, without those that have no header: they
    were ended before, and must not keep the others from being found."""
    files = sorted(
        folder.glob(f"*/{FILE_NAME}"),
        key=lambda file: file.stat().st_mtime,
        reverse=True,
    )
    return (file.parent for file in files if _is_begun(file))


def _is_begun(file: Path) -> bool:
    """Returns whether results have a complete line, the first of which is the header."""
    with contextlib.suppress(OSError):
        return any(line.strip(b"\0\n") and line.endswith(b"\n") for line in regular_lines(file))
    return False


def _new_folder(what: str) -> Path:
    return new_directory(OUT / f"{datetime.now():%Y%m%dT%H%M%S}-{what}")


def _remove_work(out: Path) -> None:
    for folder in out.iterdir() if out.is_dir() else ():
        if folder.name.startswith(WORK):
            with contextlib.suppress(OSError):
                remove_below(out, folder.name)
