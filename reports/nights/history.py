"""Reads a history: the runs of many nights on the same cells (stacks of the guest). docs/nightly.md describes its
directory. Each foreign or damaged file is reported in one line, and does not affect other cells. commands/nightly.py
runs a night, and compared/comparison.py compares two runs."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from conformance.errors import UserError, reading
from conformance.model.printable import one_line
from conformance.regular_file import open_regular, read_regular
from conformance.results.checked_json import parse
from conformance.results.folder import OUTCOME_FILE
from conformance.results.records import FILE_NAME as RESULTS
from reports import summary
from reports.nights.facts import Facts, FactsReader, facts_of
from reports.nights.names import NIGHT, is_night
from reports.nights.outcome import COMPARABLE, NO_OUTCOME, NOT_RUN, RUNNING, UNDECIDED, Outcome

# MESSAGE is the suffix of the file with a night's mail
LOCK, PAGE, MESSAGE = ("lock", "history.html", ".eml")
CELL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_MOST_PROBLEMS = 20
_END_BYTES = 1 << 16  # of results, in which their last line begins


@dataclass(frozen=True)
class Cell:
    """A cell in a night: the directory of its run, its outcome, and its facts. `facts` is None without results. The
    outcome and the facts of a `damaged` cell are unknown."""

    night: str
    name: str
    folder: Path
    outcome: Outcome
    facts: Facts | None = None
    damaged: bool = False


@dataclass(frozen=True)
class History:
    """All cells of all nights, and a line for each cell that could not be read."""

    folder: Path
    nights: tuple[str, ...] = ()
    cells: tuple[Cell, ...] = ()
    problems: tuple[str, ...] = ()

    @cached_property
    def _by_name(self) -> Mapping[str, list[Cell]]:
        by_name: dict[str, list[Cell]] = {}
        for cell in self.cells:
            by_name.setdefault(cell.name, []).append(cell)
        return by_name

    @property
    def is_readable(self) -> bool:
        """Whether a cell has results or a summary that can be read, or has none only because its night is running."""
        return any(cell.facts or cell.outcome.outcome == RUNNING for cell in self.cells)

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    def of(self, name: str) -> Sequence[Cell]:
        """Returns the cell of this name in each of its nights, the earliest first."""
        return self._by_name.get(name, ())

    def ran(self, name: str, before: str = "") -> list[Cell]:
        """Returns the cell in the nights in which it has results; if `before` is given, only in earlier nights."""
        return [
            cell for cell in self.of(name) if cell.facts and (not before or cell.night < before)
        ]

    def good(self, name: str, before: str, selection: tuple[str, ...]) -> list[Cell]:
        """Returns the cell in the nights before `before` with a good run of the same cases, the latest first."""
        return [
            cell
            for cell in reversed(self.ran(name, before))
            if cell.outcome.outcome in COMPARABLE and cell.outcome.selection == selection
        ]


def known_nights(cells: Iterable[Cell], has: Callable[[Facts], bool | None]) -> dict[str, bool]:
    """Returns the value of `has` for each night; nights for which the value is unknown are left out."""
    nights = {cell.night: has(cell.facts) for cell in cells if cell.facts}
    return {night: seen for night, seen in nights.items() if seen is not None}


def since(has: Mapping[str, bool], night: str) -> str:
    """Returns the first night of the unbroken series of nights up to `night` for which `has` is true; empty without
    such a series."""
    latest_first = sorted((item for item in has if item <= night), reverse=True)
    return min(takewhile(has.__getitem__, latest_first), default="")


def running_night(folder: Path) -> str:
    """Returns the name of the night that is running in a history; empty if none is. A running night has locked the
    history; it is the last one."""
    with suppress(OSError):  # no history, or another user's
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(folder / LOCK, flags)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            nights = [path.name for path in _entries(folder) if is_night(path.name)]
            return nights[-1] if nights else ""
        finally:
            os.close(descriptor)
    return ""


def read_history(folder: Path, running: str | None = None) -> History:
    """Reads the history in a directory. `running` is the night whose cells may have no outcome yet; by default the
    night that is running now. Raises UserError only if the directory itself cannot be read."""
    if running is None:
        running = running_night(folder)
    problems: list[str] = []
    nights, cells = [], []
    reader = FactsReader()
    for night in _entries(folder):
        if night.name in (LOCK, PAGE) or night.suffix == MESSAGE:
            continue
        if not is_night(night.name) or night.is_symlink() or not night.is_dir():
            problems.append(f"{one_line(str(night))} is not a night of a history, and is ignored")
            continue
        nights.append(night.name)
        try:
            entries = _entries(night)
        except UserError as error:
            problems.append(one_line(str(error)))
            continue
        for entry in entries:
            if not CELL_NAME.fullmatch(entry.name) or entry.is_symlink() or not entry.is_dir():
                problems.append(f"{one_line(str(entry))} is not a cell of a night, and is ignored")
                continue
            try:
                if night.name == running and not (entry / OUTCOME_FILE).exists():
                    outcome = Outcome(RUNNING)
                    cells.append(Cell(night.name, entry.name, entry, outcome))
                else:
                    cells.append(_cell(night.name, entry, reader, problems))
            except UserError as error:
                problems.append(
                    f"{night.name}, {entry.name} counts as not run: {one_line(str(error))}",
                )
                outcome = Outcome(NOT_RUN, reason=one_line(str(error)))
                cells.append(Cell(night.name, entry.name, entry, outcome, damaged=True))
    if len(problems) > _MOST_PROBLEMS:
        problems[_MOST_PROBLEMS:] = [
            f"{len(problems) - _MOST_PROBLEMS:,} more in {folder} are ignored or damaged",
        ]
    return History(folder, tuple(nights), tuple(cells), tuple(problems))


def _entries(folder: Path) -> list[Path]:
    with reading(folder):
        return sorted(folder.iterdir())


def _cell(night: str, folder: Path, reader: FactsReader, problems: list[str]) -> Cell:
    try:
        outcome = Outcome.of(parse(read_regular(folder / OUTCOME_FILE)))
    except FileNotFoundError:
        if _is_empty(folder / RESULTS):
            outcome = Outcome(NOT_RUN, reason=f"no case was recorded, and {NO_OUTCOME}")
        else:
            outcome = Outcome(UNDECIDED, reason=NO_OUTCOME)
    except OSError as error:
        raise UserError(f"{OUTCOME_FILE} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{OUTCOME_FILE} is damaged, or not of this version: {error}") from error
    if outcome.outcome == NOT_RUN:
        return Cell(night, folder.name, folder, outcome)
    facts = facts_of(folder, reader, problems.append)
    if damage := _damage(folder, outcome, facts):
        raise UserError(damage)
    if facts and outcome.undecided:
        facts = replace(facts, undecided=outcome.undecided)
    return Cell(
        night,
        folder.name,
        folder,
        outcome if facts else Outcome(NOT_RUN, reason=outcome.reason),
        facts,
    )


def _damage(folder: Path, outcome: Outcome, facts: Facts | None) -> str:
    """Returns how the files of a cell contradict its outcome, because some were cut or removed; empty if they do not."""
    says = f"{OUTCOME_FILE} says {outcome.outcome}"
    if facts is None:
        if outcome.reason == NO_OUTCOME:
            return ""
        return f"{says}, but there is neither {RESULTS} nor {summary.FILE_NAME}"
    if facts.complete and _is_cut(folder / RESULTS):
        return f"{RESULTS} was cut: it has not the end of a complete run"
    if outcome.outcome in COMPARABLE and not facts.complete:
        return f"{says}, but its run is incomplete"
    return ""


def _is_cut(path: Path) -> bool:
    """Whether results do not end with a footer. Absent results are not cut: they may have been removed for space. A last
    record of many bytes is taken for a footer."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, path.stat().st_size - _END_BYTES))
            end = file.read()
    except OSError:
        return False
    *before, last = end[:-1].split(b"\n")
    begins_earlier = not before and len(end) == _END_BYTES
    if begins_earlier or not end.endswith(b"}\n"):
        return not end.endswith(b"}\n")
    try:
        record = parse(last)
    except ValueError:
        return True
    return not isinstance(record, dict) or record.get("type") != "footer"


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return False


def format_night(night: str) -> str:
    """Returns the time of a night in UTC: `2026-11-22 03:17`."""
    match = NIGHT.fullmatch(night)
    if match:
        return "{}-{}-{} {}:{}".format(*match.groups()[:5])
    return night
