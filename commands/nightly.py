"""`rdma-cts nightly`: runs the cases on a matrix of stacks, stores all runs, and reports changes since the last good
night. nightly_cell.py runs a cell, nightly_history.py is about the directory of all nights, and nightly_message.py sends
the mail."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from commands.cli.arguments import driver_named
from commands.cli.choice import choose, of_target
from commands.cli.endings import SIGNALLED, signal_of
from commands.cli.output import out_directory, out_file
from commands.cli.run_arguments import add, add_options, options_from, suite_from
from commands.cli.streams import remark, show
from commands.nightly_cell import renew, run_cell, selection_of
from commands.nightly_history import check_free, cut_off, cut_short, prune, tidy
from commands.nightly_message import check_message, failure_told, tell
from conformance.errors import UserError
from conformance.option import checked
from conformance.results.files import (
    locked,
    make_directory,
    new_directory,
)
from conformance.results.folder import RUN_LOG
from conformance.run_options import RunOptions
from conformance.yamldoc.reader import suggestion
from fixtures.guest.recipe import (
    DEFAULT_STACK,
    OLDEST_STACK,
    OWN_STACKS,
    STACKS,
    stack_name,
)
from fixtures.guest.source_trees import committed, parts_of
from fixtures.system.architecture import architecture_of
from fixtures.system.processes import signal_name
from fixtures.targets import builds
from reports.earlier import with_earlier
from reports.environment import commit_text
from reports.nights.history import CELL_NAME, LOCK, format_night, read_history
from reports.nights.morning import counted, left_out, summary_of
from reports.nights.names import new_name
from reports.nights.outcome import NOT_RUN, Outcome

RENEWED_DAYS = 7
# Options of `run` that are passed to all cells.
_OPTIONS = """
arch driver guests linux modules rdma_core sanitize overlay guest_env verify_calls verbs rules words only tier cases profile waivers
no_confirm confirm dialect wire_losses deadline seed
""".split()
_KNOWN = (*STACKS, *OWN_STACKS)
_BY_DEFAULT = [name for name in STACKS if name != OLDEST_STACK]
_ALSO = (OLDEST_STACK, *OWN_STACKS)


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
    run = choose(options, suite=suite)  # reports a mistake before the night begins
    for cell in cells.values():
        builds.check(cell)
        builds.refuse_within_overlay(cell, folder)
        of_target(replace(run, options=cell), remark)
    check_message(arguments)
    with ExitStack() as stack:
        stack.enter_context(failure_told(arguments))
        check_free(folder)
        busy = UserError(f"another night is running in {folder}", hint="wait until it has finished")
        stack.enter_context(locked(folder / LOCK, busy))
        history = read_history(folder, running="")
        show(history.problems)
        tidy(history)
        night = new_directory(folder / new_name())
        if history.nights and night.name < history.nights[-1]:
            show(
                [
                    f"the history has a later night, {history.nights[-1]}: the clock was wrong then, or is wrong now",
                ],
            )
        for name in cells:  # an interrupted night also shows the cells that it has not reached
            make_directory(night / name)
        outcomes, text = [], [f"night {format_night(night.name)}: {', '.join(cells)}"]
        text += [*_own_builds(options), *cut_short(history)]
        show(text)
        text += history.problems
        reasons: dict[str, str] = {}
        try:
            for name, cell in cells.items():
                renew(name, cell, arguments.renew)
                show([f"{name:<17} is running ({RUN_LOG} in its directory)"])
                outcome, lines = run_cell(history, night, name, cell, arguments.yes)
                lines = _told_once(lines, outcome.reason, str(night / name), reasons)
                show(lines)
                outcomes.append(outcome)
                text += lines
        except KeyboardInterrupt as end:
            number = f"{len(outcomes)} of {len(cells)} cells"
            signalled = signal_of(end)
            ended = f"ended by {signal_name(signalled)}"
            unended = Outcome(NOT_RUN, reason=ended, selection=selection_of(options))
            lines = [*cut_off(history, night, [*cells][len(outcomes) :], unended)]
            lines += left_out(history, night.name, cells)
            status = SIGNALLED + signalled
            summary = ", ".join(filter(None, (counted(outcomes), number, ended)))
            lines.append(f"{summary} (exit status {status})")
            show(lines)
            tell(arguments, night, text + lines, status)
            end.args = (f"{number} have run",)
            raise
        if arguments.kept_nights:
            prune(read_history(folder, running=""), arguments.kept_nights)
    summary, status = summary_of(outcomes)
    lines = [*left_out(history, night.name, cells), summary]
    show(lines)
    return tell(arguments, night, text + lines, status)


def _told_once(lines: list[str], reason: str, folder: str, reasons: dict[str, str]) -> list[str]:
    """Returns the lines of a cell. Instead of a reason that an earlier cell of the night has, they name this cell.
    `reasons` has the cells by their reasons, without the directory of the cell."""
    name = Path(folder).name
    first = reasons.setdefault(reason.replace(folder, ""), name)
    if not reason or first == name:
        return lines
    return [lines[0].replace(reason, f"for the same reason as {first}"), *lines[1:]]


def _own_builds(options: RunOptions) -> Iterator[str]:
    """Yields a line for each tree or build of the user in the cells of a night, with the commit of a tree."""
    for name in ("linux", "modules", "rdma_core", "overlay"):
        path = getattr(options, name)
        if path is None:
            continue
        line = f"under test: --{name.replace('_', '-')} {path}"
        parts = parts_of(builds.guest_driver(options)) if name == "linux" else ()
        if path.is_dir() and (commit := commit_text(committed(path, *parts))):
            line += f" (commit {commit})"
        yield line


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
        return {name: cells[name] for name in arguments.part.part(list(cells), str, what="cell")}
    return cells
