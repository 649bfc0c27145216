"""`rdma-cts nightly`: runs the cases on a matrix of stacks, stores all runs, and reports changes since the last good
night. Each cell is a `rdma-cts run` in its own process, so a failure affects only this cell. reports/morning.py finds
the changes of a night, and reports/history.py reads a history."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from commands.cli import sendmail
from commands.cli.arguments import driver_named
from commands.cli.endings import SIGNALLED, Terminated, crash_report
from commands.cli.output import out_directory, out_file, refuse_foreign, write_out
from commands.cli.run_arguments import add, add_options, options_from, suite_from
from commands.cli.streams import remark, show
from conformance.errors import UserError
from conformance.model.printable import one_line
from conformance.older_python import UTC
from conformance.option import checked
from conformance.regular_file import open_below, remove_below
from conformance.results.files import (
    locked,
    make_directory,
    new_directory,
    write_atomically,
    writing,
)
from conformance.results.folder import OUTCOME_FILE, RUN_LOG, WORK, tidied
from conformance.results.points import FOLDER as POINTS
from conformance.results.records import FILE_NAME as RESULTS
from conformance.results.waiver_file import read_waivers
from conformance.results.writer import ResultsFile
from conformance.run_options import RunOptions
from conformance.tables.profile import read_profile
from conformance.yamldoc.reader import suggestion
from fixtures.guest.image import renew_image
from fixtures.guest.recipe import (
    DEFAULT_STACK,
    OLDEST_STACK,
    OWN_STACKS,
    STACKS,
    recipe_for,
    stack_name,
)
from fixtures.guest.source_trees import commit_of
from fixtures.system import run_process
from fixtures.system.architecture import architecture_of
from fixtures.system.cache import cache_directory
from fixtures.system.processes import die_with_parent, signal_name
from fixtures.targets import builds
from reports.comparison import Comparison, compare
from reports.digest import Digest, read
from reports.earlier import with_earlier
from reports.history import (
    CELL_NAME,
    ENDED,
    LOCK,
    MESSAGE,
    NOT_RUN,
    PAGE,
    UNDECIDED,
    Cell,
    History,
    Outcome,
    facts_of,
    format_night,
    keep_facts,
    read_history,
)
from reports.morning import Morning, counted, left_out, standing_lines, summary_of
from reports.night_names import is_night
from reports.summary import FILE_NAME as SUMMARY

RENEWED_DAYS = 7
_END_OF_TIME = "~"  # sorts after every name of a night
# Options of `run` that are passed to all cells.
_OPTIONS = """
arch driver guests linux modules rdma_core sanitize overlay guest_env verify_calls verbs rules words only tier cases profile waivers
no_confirm confirm dialect wire_losses deadline seed
""".split()
_KNOWN = (*STACKS, *OWN_STACKS)
_BY_DEFAULT = [name for name in STACKS if name != OLDEST_STACK]
_ALSO = (OLDEST_STACK, *OWN_STACKS)
_SELECTING = ("verbs", "rules", "words", "only", "tier", "wire_losses")
_WITHOUT_NIGHTS = (LOCK, PAGE, "lost+found")
_WEBHOOK = re.compile(rb'\{"text": "')  # how a message for a webhook begins
_NEW_LOG = os.O_WRONLY | os.O_CREAT | os.O_EXCL
_LAST_BYTES = 1 << 14  # the number of bytes at the end of a log that are searched for its last line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} --history DIR [OPTION ...]"
    add(parser, "--history DIR", "the directory of all nights", type=out_directory, required=True)
    add(
        parser,
        "--stack A,B,...",
        f"the stacks (default: {','.join(_BY_DEFAULT)}; also: {', '.join(_ALSO)})",
        type=_stacks,
    )
    add(
        parser,
        "--kernel NAME=FILE[,MODULES]",
        f"add a cell NAME: your own kernel FILE in the guest of {DEFAULT_STACK}; MODULES is the directory of the "
        "kernel's modules",
        type=_kernel,
        action="append",
        default=[],
    )
    add(
        parser,
        "--renew DAYS",
        f"rebuild a stack's image with today's packages if the image is older than DAYS (default {RENEWED_DAYS})",
        type=_days,
        default=RENEWED_DAYS,
    )
    add(
        parser,
        "--keep N",
        "keep all files of the last N nights and each cell's last good run; of other runs, only data for history.html",
        dest="kept_nights",
        type=_nights,
    )
    add(parser, "--mail-to ADDRESS", "send the report of the night with sendmail", type=_address)
    add(
        parser,
        "--webhook-file FILE",
        'write the report as {"text": …}, which chat systems accept',
        type=out_file,
    )
    add(parser, "--yes", "install what is needed without asking")
    add(
        parser,
        "--shard K/N",
        "run only the Kth of N parts of the cells; each of N machines has its own history",
        dest="part",
    )
    add_options(parser, _OPTIONS)


_days = checked(float, lambda days: 0 <= days < math.inf, "a number of days")
_nights = checked(lambda text: int(text if text.isdecimal() else ""), bool, "a number of nights")
# An address such as qa@example.org, or several with commas. sendmail could read other signs as a program or a file.
_ADDRESSES = re.compile(r"[\w.+=~%#][\w.+=~%#-]*(?:@[\w.-]+)?(?:,(?!\Z)|\Z)", re.ASCII)
_address = checked(str, lambda text: text and not _ADDRESSES.sub("", text), "an address")


def _stacks(text: str) -> list[str]:
    names = text.split(",")
    for number, name in enumerate(names):
        if name not in _KNOWN:
            near = driver_named(name) or suggestion(name, _KNOWN)
            raise argparse.ArgumentTypeError(f"{name!r} is not a stack{near}")
        if name in names[:number]:
            raise argparse.ArgumentTypeError(f"{name!r} is given twice")
    return names


def _kernel(text: str) -> tuple[str, Path, Path | None]:
    name, _, files = text.partition("=")
    kernel, _, modules = files.partition(",")
    if not CELL_NAME.fullmatch(name) or name in _KNOWN or not kernel:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not of the form NAME=FILE[,MODULES], with a new NAME",
        )
    return name, Path(kernel), Path(modules) if modules else None


def execute(arguments: argparse.Namespace) -> int:
    """Runs all cells, one after the other. Returns exit status 1 if something is newly wrong in a cell, else 3 if a cell
    is undecided or was not run, or if the message could not be sent, else 0."""
    folder: Path = arguments.history
    options_set = {
        name: value for name, value in vars(arguments).items() if name not in ("stack", "kernel")
    }
    options = replace(options_from(argparse.Namespace(**options_set)), guest=True)
    suite = suite_from(options)
    options = with_earlier(options, None, suite, remark)
    cells = _cells(arguments, options)
    options.selection.apply(suite)  # reports a mistake before the night begins
    for cell in cells.values():
        builds.check(cell)
    if options.profile:
        read_profile(options.profile)
    if options.waivers:
        read_waivers(options.waivers, suite, datetime.now().date())
    if arguments.mail_to:
        sendmail.check()
    if arguments.webhook_file:
        refuse_foreign(arguments.webhook_file, _WEBHOOK, "another file to --webhook-file")
    with ExitStack() as stack:
        stack.enter_context(_failure_told(arguments))
        _check_free(folder)
        busy = UserError(f"another night is running in {folder}", hint="wait until it has finished")
        stack.enter_context(locked(folder / LOCK, busy))
        history = read_history(folder, running="")
        show(history.problems)
        _tidy(history)
        night = new_directory(folder / _name())
        if history.nights and night.name < history.nights[-1]:
            show(
                [
                    f"the history has a later night, {history.nights[-1]}: the clock was wrong then, or is wrong now",
                ],
            )
        for name in cells:  # an interrupted night also shows the cells that it has not reached
            make_directory(night / name)
        outcomes, text = [], [f"night {format_night(night.name)}: {', '.join(cells)}"]
        text += [*_own_builds(options), *_cut_short(history)]
        show(text)
        text += history.problems
        try:
            for name, cell in cells.items():
                _renew(name, cell, arguments.renew)
                show([f"{name:<17} is running ({RUN_LOG} in its directory)"])
                outcome, lines = _cell(history, night, name, cell, arguments.yes)
                show(lines)
                outcomes.append(outcome)
                text += lines
        except KeyboardInterrupt as end:
            number = f"{len(outcomes)} of {len(cells)} cells"
            signalled = end.number if isinstance(end, Terminated) else signal.SIGINT
            ended = f"ended by {signal_name(signalled)}"
            unended = Outcome(NOT_RUN, reason=ended, selection=_selection(options))
            lines = [*_cut_off(history, night, [*cells][len(outcomes) :], unended)]
            lines += left_out(history, night.name, cells)
            lines.append(", ".join(filter(None, (counted(outcomes), number, ended))))
            show(lines)
            _tell(arguments, night, text + lines, SIGNALLED + signalled)
            end.args = (f"{number} have run",)
            raise
        if arguments.kept_nights:
            _prune(read_history(folder, running=""), arguments.kept_nights)
    summary, status = summary_of(outcomes)
    lines = [*left_out(history, night.name, cells), summary]
    show(lines)
    return _tell(arguments, night, text + lines, status)


def _check_free(folder: Path) -> None:
    """Raises UserError if a history would begin among other files. Nights that could not begin leave files, too, and a
    new disk has its own."""
    if not folder.is_dir():
        return
    names = sorted(path.name for path in folder.iterdir())
    foreign = [name for name in names if name not in _WITHOUT_NIGHTS and not name.endswith(MESSAGE)]
    if foreign and not any(map(is_night, names)):
        what = f"{folder} is not empty (it has {foreign[0]}), and is not a history"
        raise UserError(what, hint="give --history a new or an empty directory")


def _name() -> str:
    """Returns the name of a night that begins now."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"


@contextmanager
def _failure_told(arguments: argparse.Namespace) -> Iterator[None]:
    """Sends a message if the environment, such as a full disk, ends the night within the block."""
    try:
        yield
    except UserError as error:
        if error.status == 3:
            text = [f"the night has not run: {error} (exit status 3)"]
            with suppress(UserError):  # the command ends with the first error
                _tell(arguments, arguments.history / _name(), text, error.status)
        raise


def _cut_off(history: History, night: Path, names: Sequence[str], ended: Outcome) -> Iterator[str]:
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


def _tell(arguments: argparse.Namespace, night: Path, text: Sequence[str], status: int) -> int:
    """Sends the message of a night, and writes it for a webhook, as far as the options say so. Returns the exit status
    of the night: `status`, or 3 instead of 0 if the message could not be sent."""
    text = list(map(one_line, text))
    if arguments.mail_to:
        subject = f"rdma-cts, night {format_night(night.name)}: {text[-1]}"
        path = night.with_suffix(MESSAGE)
        status = sendmail.send(arguments.mail_to, subject, text, path, status)
    if arguments.webhook_file:
        data = json.dumps({"text": "\n".join(text)}, ensure_ascii=False)
        write_out(
            arguments.webhook_file,
            data.encode(),
            f"report for a webhook: {arguments.webhook_file}",
            _WEBHOOK,
        )
    return status


def _own_builds(options: RunOptions) -> Iterator[str]:
    """Yields a line for each tree or build of the user in the cells of a night, with the commit of a tree."""
    for name in ("linux", "modules", "rdma_core", "overlay"):
        path = getattr(options, name)
        if path is None:
            continue
        line = f"under test: --{name.replace('_', '-')} {path}"
        if path.is_dir() and (commit := commit_of(path)):
            line += f" (commit {commit[:12]})"
        yield line


def _cut_short(history: History) -> Iterator[str]:
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


def _prune(history: History, keep: int) -> None:
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


def _cells(arguments: argparse.Namespace, options: RunOptions) -> Mapping[str, RunOptions]:
    if arguments.stack is None:
        stacks = list(_BY_DEFAULT)
    else:
        stacks = arguments.stack
    architecture = architecture_of(options.arch)
    cells = {stack_name(name, architecture): replace(options, stack=name) for name in stacks}
    for name, kernel, modules in arguments.kernel:
        if name in cells:
            raise UserError(f"--kernel {name}: two cells have this name")
        cells[name] = replace(options, kernel=kernel, modules=modules)
    if arguments.part:
        return {name: cells[name] for name in arguments.part.part(list(cells), str)}
    return cells


def _tidy(history: History) -> None:
    """Removes leftovers of killed runs, but no files of runs that are still running."""
    for cell in history.cells:
        if any(cell.folder.glob(f"{WORK}*")):
            with (
                suppress(UserError),
                closing(ResultsFile(cell.folder / RESULTS, carry_on=True)),
                tidied(cell.folder),
            ):
                pass


def _renew(name: str, options: RunOptions, days: float) -> None:
    """Rebuilds the image of a cell if it is older than `days`. After a failure the old image remains."""
    recipe = recipe_for(options.stack or DEFAULT_STACK, architecture_of(options.arch))
    try:
        renew_image(recipe, cache_directory(), days, lambda line: show([f"{name}: {line}"]))
    except UserError as error:
        show([f"{name}: the image could not be renewed: {error}"])


def _cell(
    history: History,
    night: Path,
    name: str,
    options: RunOptions,
    yes: bool,
) -> tuple[Outcome, list[str]]:
    folder = night / name
    cell = Cell(night.name, name, folder, Outcome(NOT_RUN, selection=_selection(options)))
    try:
        morning = _compared(history, *_ran(cell, options, yes))
    except UserError as error:
        morning = _failed(history, cell, error)
    except Exception as error:
        morning = _failed(history, cell, crash_report(error, folder))
    try:
        write_atomically(folder / OUTCOME_FILE, morning.outcome.encoded())
    except (
        UserError
    ) as error:  # such as a full disk: without the file, the cell is undecided for later nights
        reason = "; ".join(filter(None, (morning.cell.outcome.reason, str(error))))
        unwritten = replace(morning.cell.outcome, reason=reason)
        morning = replace(morning, cell=replace(morning.cell, outcome=unwritten))
    return morning.outcome, list(morning.lines())


def _selection(options: RunOptions) -> tuple[str, ...]:
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
        ended = _last_line(log).removeprefix("rdma-cts: ") or f"exit status {status}"
    see = "" if "; see " in ended else f"; see {log}"
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
