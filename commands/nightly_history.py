"""The directory of all nights: what a new night finds there, and what it leaves when it is interrupted. reports/nights/history.py
reads the directory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from commands.cli.streams import show
from conformance.errors import UserError
from conformance.older_python import UTC
from conformance.regular_file import remove_below
from conformance.results.files import write_atomically
from conformance.results.folder import OUTCOME_FILE, WORK, tidied
from conformance.results.points import FOLDER as POINTS
from conformance.results.records import FILE_NAME as RESULTS
from conformance.results.writer import ResultsFile
from reports.nights.facts import facts_of, keep_facts
from reports.nights.history import LOCK, MESSAGE, PAGE, History, format_night
from reports.nights.morning import standing_lines
from reports.nights.names import is_night
from reports.nights.outcome import ENDED, UNDECIDED, Outcome
from reports.summary import FILE_NAME as SUMMARY

_END_OF_TIME = "~"  # sorts after every name of a night
_WITHOUT_NIGHTS = (LOCK, PAGE, "lost+found")


def check_free(folder: Path) -> None:
    """Raises UserError if a history would begin among other files. Nights that could not begin leave files, too, and a
    new disk has its own."""
    if not folder.is_dir():
        return
    names = sorted(path.name for path in folder.iterdir())
    foreign = [name for name in names if name not in _WITHOUT_NIGHTS and not name.endswith(MESSAGE)]
    if foreign and not any(map(is_night, names)):
        what = f"{folder} is not empty (it has {foreign[0]}), and is not a history"
        raise UserError(what, hint="give --history a new or an empty directory")


def cut_off(history: History, night: Path, names: Sequence[str], ended: Outcome) -> Iterator[str]:
    """Stores the outcome of the cells that a signal has kept from one, and yields their lines."""
    for number, name in enumerate(names):
        reason = f"{'not begun' if number else 'cut short'}, {ended.reason}"
        outcome = replace(ended, reason=reason)
        path = night / name / OUTCOME_FILE
        with suppress(UserError):
            if facts_of(path.parent):
                outcome = replace(outcome, outcome=UNDECIDED)
        with suppress(UserError):  # such as a full disk
            if not path.exists():
                write_atomically(path, outcome.encoded())
        yield f"{name:<17} {outcome.outcome:<10} {reason}"
        yield from standing_lines(history, night.name, name)


def cut_short(history: History) -> Iterator[str]:
    """Yields a line if the last night has cells without an outcome: a night that is killed cannot report that itself,
    and a full disk has no room for the outcome."""
    unfinished = [
        cell.name
        for cell in history.cells
        if cell.night == history.nights[-1] and not (cell.folder / OUTCOME_FILE).exists()
    ]
    if unfinished:
        night = history.nights[-1]
        booted_s = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        booted = f"{datetime.fromtimestamp(booted_s, UTC):%Y%m%dT%H%M%SZ}"
        if booted > night:
            why = f"; this machine was started again at {format_night(booted)}"
        else:
            why = f": {ENDED}"
        cells = ", ".join(unfinished)
        yield f"the last night, {format_night(night)}, has no {OUTCOME_FILE} of {cells}{why}"


def prune(history: History, keep: int) -> None:
    """Keeps, before the last `keep` nights, only each cell's last good run by selection, and data for history.html. A cell
    without a readable outcome keeps all its files, which say what has happened to it."""
    old = set(history.nights[:-keep])
    good = [
        history.good(cell.name, _END_OF_TIME, cell.outcome.selection)[:1] for cell in history.cells
    ]
    good_folders = {cell.folder for cells in good for cell in cells}
    for cell in history.cells:
        is_known = not cell.damaged and (cell.folder / OUTCOME_FILE).exists()
        if cell.night in old and cell.folder not in good_folders and is_known:
            if cell.facts:
                try:
                    keep_facts(cell.folder)
                except UserError as error:
                    show([f"{cell.night}, {cell.name} keeps its results: {error}"])
                    continue
            for path in cell.folder.iterdir():
                if path.name == POINTS or not (
                    path.is_dir() or path.name in (OUTCOME_FILE, SUMMARY)
                ):
                    remove_below(cell.folder, path.name)


def tidy(history: History) -> None:
    """Removes leftovers of killed runs, but no files of runs that are still running."""
    for cell in history.cells:
        if any(cell.folder.glob(f"{WORK}*")):
            with (
                suppress(UserError),
                closing(ResultsFile(cell.folder / RESULTS, carry_on=True)),
                tidied(cell.folder),
            ):
                pass
