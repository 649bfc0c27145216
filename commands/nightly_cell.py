"""A cell of a night: its image, its run, which is a `rdma-cts run` in a process of its own, and its comparison with the
last good night. reports/nights/morning.py finds the changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from commands.cli.endings import crash_report
from commands.cli.streams import show
from commands.nightly_message import ROOM, is_full_disk
from conformance.errors import UserError
from conformance.regular_file import open_below
from conformance.results.files import write_atomically, writing
from conformance.results.folder import OUTCOME_FILE, RUN_LOG, tidied
from conformance.results.records import FILE_NAME as RESULTS
from conformance.run_options import RunOptions
from fixtures.guest.image import renew_image
from fixtures.guest.recipe import DEFAULT_STACK, recipe_for
from fixtures.system import run_process
from fixtures.system.architecture import architecture_of
from fixtures.system.cache import cache_directory
from fixtures.system.processes import die_with_parent, signal_name
from fixtures.targets import builds
from reports.compared.comparison import Comparison, compare
from reports.digest import Digest, read
from reports.nights.facts import facts_of
from reports.nights.history import Cell, History
from reports.nights.morning import Morning
from reports.nights.outcome import NOT_RUN, Outcome

_SELECTING = ("verbs", "rules", "words", "only", "tier", "wire_losses")
_NEW_LOG = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_LAST_BYTES = 1 << 14  # the number of bytes at the end of a log that are searched for its last line


def renew(name: str, options: RunOptions, days: float) -> None:
    """Rebuilds the image of a cell if it is older than `days`. After a failure the old image remains."""
    recipe = recipe_for(options.stack or DEFAULT_STACK, architecture_of(options.arch))
    try:
        renew_image(recipe, cache_directory(), days, lambda line: show([f"{name}: {line}"]))
    except UserError as error:
        show([f"{name}: the image could not be renewed: {error}"])


def run_cell(
    history: History,
    night: Path,
    name: str,
    options: RunOptions,
    yes: bool,
) -> tuple[Outcome, list[str]]:
    folder = night / name
    cell = Cell(night.name, name, folder, Outcome(NOT_RUN, selection=selection_of(options)))
    try:
        morning = _compared(history, *_ran(cell, options, yes))
    except UserError as error:
        morning = _failed(history, cell, error)
    except Exception as error:
        morning = _failed(history, cell, crash_report(error, folder))
    try:
        write_atomically(folder / OUTCOME_FILE, morning.outcome.encoded())
    except UserError as error:
        # Such as a full disk: without the file, the cell is undecided for later nights.
        reasons = [str(error), morning.cell.outcome.reason.replace(f"; {ROOM}", "")]
        reasons += [ROOM] if is_full_disk(error) else []
        reason = "; ".join(filter(None, reasons))
        unwritten = replace(morning.cell.outcome, reason=reason)
        morning = replace(morning, cell=replace(morning.cell, outcome=unwritten))
    return morning.outcome, list(morning.lines())


def selection_of(options: RunOptions) -> tuple[str, ...]:
    """Returns the options that select the cases of a cell."""
    selecting = {field: getattr(options, field) for field in _SELECTING}
    return tuple(replace(RunOptions(), **selecting).arguments())


def _failed(history: History, cell: Cell, error: UserError) -> Morning:
    outcome = replace(cell.outcome, reason=str(error).splitlines()[0])
    return Morning(history, replace(cell, outcome=outcome))


def _ran(cell: Cell, options: RunOptions, yes: bool) -> tuple[Cell, Digest | None]:
    """Runs `rdma-cts run` for a cell; returns the cell and its results, if any. Raises UserError."""
    variables = builds.named_variables(options)
    # Other users can read the arguments of a process, but not its environment.
    shown = replace(options, guest_env=tuple(variables))
    passed = {builds.PASSED + name: value for name, value in variables.items()}
    command = [*run_process.COMMAND, *shown.arguments(), "--quiet", "--out", str(cell.folder)]
    log = cell.folder / RUN_LOG
    # A signal that ends the night may also end the run before the run has cleaned up.
    with writing(log), os.fdopen(open_below(log, _NEW_LOG), "wb") as output, tidied(cell.folder):
        environment = {**run_process.environment(), **passed}
        status = _finished(command + ["--yes"] * yes, environment, output.fileno())
    if status < 0:
        ended = f"ended by {signal_name(-status)}"
    else:
        ended = _last_line(log).removeprefix("rdma-cts: ") or _silent(status, log)
    see = "" if "; see " in ended or log.stat().st_size == 0 else f"; see {log}"
    failed = replace(cell, outcome=replace(cell.outcome, reason=ended + see))
    try:
        run = read(cell.folder)
    except UserError as error:
        if (cell.folder / RESULTS).exists():
            if status in (0, 1):
                raise
            reason = f"{ended}; {str(error).splitlines()[0]}{see}"
            failed = replace(cell, outcome=replace(cell.outcome, reason=reason))
        return failed, None
    # The results can be complete although the run has failed later, such as on a full disk.
    if status not in (0, 1, run.summary.concluded.status):
        cell = failed
    return replace(cell, facts=facts_of(cell.folder)), run


def _finished(command: list[str], environment: Mapping[str, str], output: int) -> int:
    """Runs a command to its end. If a signal ends this process, first terminates the command; SIGKILL of this process
    also kills the command."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        preexec_fn=die_with_parent(),
    ) as child:
        try:
            return child.wait()
        except BaseException:
            child.terminate()
            child.wait()
            raise


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LAST_BYTES))
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _silent(status: int, log: Path) -> str:
    """Returns how a run has ended that has written nothing to its log."""
    ended = f"exit status {status}, and {log} is empty"
    return f"{ended}, as on a full disk; {ROOM}" if status == 3 else ended


def _compared(history: History, cell: Cell, run: Digest | None) -> Morning:
    """Compares the cell with the last readable good night, and with the last complete night if that was not good."""
    if run is None:
        return Morning(history, cell)
    good = before = None
    candidates = history.good(cell.name, cell.night, cell.outcome.selection)
    for earlier in candidates:
        if good := _comparison(earlier, run):
            cell = replace(cell, outcome=replace(cell.outcome, against=earlier.night))
            break
    nights = [
        night
        for night in history.ran(cell.name, cell.night)
        if night.facts and night.facts.complete
    ]
    if nights and nights[-1] not in candidates:
        before = _comparison(nights[-1], run)
    alike = [
        night
        for night in history.of(cell.name)
        if night.outcome.selection == cell.outcome.selection
    ]
    damaged = [night.night for night in history.of(cell.name) if night.damaged]
    # even if that night's folder is gone
    damaged += [night.outcome.against for night in alike if night.outcome.against]
    damaged += [candidate.night for candidate in reversed(candidates)]
    if damaged and good is None:
        lost = damaged[-1]
    else:
        lost = ""
    if lost:
        cell = replace(cell, outcome=replace(cell.outcome, against=lost))
    return Morning(history, cell, run, good, before, lost)


def _comparison(earlier: Cell, run: Digest) -> Comparison | None:
    """Returns the comparison with an earlier night. If that night cannot be read, prints a line and returns None."""
    try:
        return compare(read(earlier.folder), run)
    except UserError as error:
        show([f"{earlier.night}, {earlier.name} cannot be read for the comparison: {error}"])
        return None
