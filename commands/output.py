"""The directory of a run: tidied before and after it, and removed if nothing has come of the run.

Not for the files in it.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def removed_if_unused(out: Path) -> Iterator[None]:
    """Removes `out` and its parents after the block if the block has made them, and has left nothing in them.

    Consoles on which nothing came are nothing.
    """
    made = [folder for folder in (out, *out.parents) if not folder.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # of the first directory that is not empty
            if made:
                _remove_empty_consoles(out)
            for folder in made:
                folder.rmdir()


@contextmanager
def tidied(out: Path) -> Iterator[None]:
    """Removes temporary directories after the block, and before it those of a session that was killed.

    For a process that has locked the results in `out`: the directories of another one that runs are the same.
    """
    _remove_work(out)
    try:
        yield
    finally:
        _remove_work(out)


def _remove_empty_consoles(out: Path) -> None:
    for console in out.glob("console*.log"):
        if not console.stat().st_size:
            console.unlink()


def _remove_work(out: Path) -> None:
    for folder in out.glob("work-*"):
        shutil.rmtree(folder, ignore_errors=True)
