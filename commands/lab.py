"""A lab: the same cases on several hosts at once, with one run for each host and one page about all hosts. Each host
has a `rdma-cts run --host` in its own process, so that a failure on one host does not affect the other hosts.
fixtures/hosts/lab_file.py reads the file of a lab, and reports/fleet.py makes the page."""

from __future__ import annotations

import argparse
import gc
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import replace
from datetime import datetime
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from pathlib import Path

from commands import report
from commands.__main__ import main, parser_of
from commands.cli.choice import choose
from commands.cli.endings import heed_signals, signal_of
from commands.cli.output import refuse_among_others
from commands.cli.run_arguments import recorded_options, suite_from
from commands.cli.streams import Output, show_line
from commands.compare_nodes import differences
from conformance.errors import UserError, command
from conformance.model.case import Table
from conformance.model.printable import one_line
from conformance.option import GUEST
from conformance.results.files import locked, write_atomically
from conformance.results.folder import run_folder
from conformance.results.plan import FILE_NAME as PLAN
from conformance.results.plan import LabPlan, read_plan, write_plan
from conformance.results.records import FILE_NAME, LAB_FILE
from conformance.results.waiver_file import read_waivers
from conformance.results.writer import in_progress
from conformance.run_options import OPTIONS, RunOptions
from conformance.supervision.run import Run
from conformance.tables.profile import read_profile
from conformance.tables.suite import CASES, tables_digest
from fixtures.hosts.lab_file import OF_HOSTS, PAGE, LabHost, read_lab
from fixtures.system.processes import die_with_parent
from fixtures.targets import hosts
from fixtures.targets.target import refuse_conflicts
from reports.digest import read
from reports.fleet import Fleet, page
from reports.fleet_group import Node
from reports.html import FILE_NAME as REPORT
from reports.nights.facts import facts_of
from reports.own_tables import suite_of
from reports.terminal import QUIET, VERBOSE, Progress

# The options that exclude --lab, by name, each with the hint of the message.
_REFUSED = {
    **dict.fromkeys((*OF_HOSTS, "host"), "the file has this option for each host"),
    **{name: "a lab has no guest" for name, option in OPTIONS.items() if option.only_on == GUEST},
    "rdma_core": "install that build on the hosts",
}
# The files that this process has open: for each run a pipe with its output, and the two of its process; and all others.
_FILES_OF_HOST, _FILES = 3, 100
_ENDING_S = 60.0  # the time in which a run must finish after a signal
_LOCK = ".lock"  # in the lab's directory; no host can have this name
_LOUDNESS = {QUIET: ["-q"], VERBOSE: ["-v"]}


def run_lab(
    file: Path,
    options: RunOptions,
    arguments: argparse.Namespace,
    resumed: bool = False,
) -> int:
    """Runs the cases of `options` on each host in the file and returns the exit status. The results of each host are in
    a subdirectory of the lab's directory. If the lab is `resumed`, complete runs are not repeated. Raises
    UserError for a mistake in the file."""
    _refuse_options(options, arguments)
    if options.against:
        read(options.against)
    suite, today = suite_from(options), datetime.now().date()
    progress = Progress(level=arguments.level)
    labelled = read_lab(
        file,
        {"profile": read_profile, "waivers": lambda path: read_waivers(path, suite, today)},
        lambda of_host: refuse_conflicts(replace(options, **of_host)),
        progress.say,
    )
    _allow_files(len(labelled))
    suite = replace(suite, tables=tuple(map(_side_by_side, suite.tables)))
    chosen = choose(options, Run(options, suite))  # here: a mistake is reported only once
    is_lab = resumed or not arguments.out or (arguments.out / LAB_FILE).exists()
    if not is_lab and not _has_run(arguments.out):  # a run has a line of its own
        own = {PAGE, _LOCK, *(host.name for host in labelled)}
        refuse_among_others(arguments.out, own.__contains__, "a lab")
    with (
        run_folder(arguments.out, "lab") as out,
        locked(out / _LOCK, in_progress(out, resumed)),
    ):
        arguments.out = out
        if (out / PAGE).is_dir():
            raise UserError(f"{out / PAGE} cannot be written: it is a directory")
        if not resumed:
            _refuse_runs(out, labelled)
        write_plan(LabPlan(tuple(options.arguments()), os.getcwd(), str(file.absolute())), out)
        loudness = _LOUDNESS.get(arguments.level, [])
        for name in report.BESIDE:
            report.renderer(name)
        suite_of(tables_digest([CASES]))  # the reports of all hosts use the cached suite
        parser = parser_of(["run"])
        hosts.install_client(progress.say, arguments.yes)
        runs = [_HostRun(host, options, out, loudness, parser, progress) for host in labelled]
        rules = {id_: rule.short for id_, rule in suite.registry.items()}
        try:
            _complete(runs, chosen, out)
        except KeyboardInterrupt:
            lab = _fleet(runs, rules)
            write_atomically(out / PAGE, page(lab))
            with suppress(OSError):  # a closed terminal
                _conclude(lab, ())
                show_line(f"report: {out / PAGE}")
            raise
        lab = _fleet(runs, rules)
        _conclude(lab, _left_out(out, labelled, file))
        write_atomically(out / PAGE, page(lab))
    statuses = {run.status for run in runs}
    if 2 in statuses:
        show_line(f"correct the hosts, or {file}, first; then {_rest(out)}")
    elif lab.missing:
        show_line(_rest(out))
    elif lab.broken:
        node = next(iter(lab.broken.values()))[0]
        again = command("run", "--lab", file, "--failed", out / node)
        show_line(f"{again} runs the undecided cases again")
    recorded = ", ".join(str(out / host.name) for host in labelled if _has_run(out / host.name))
    show_line(f"report: {out / PAGE}{recorded and f' (results: {recorded})'}")
    # 1 after a violation on any host; 3 if a host has no conclusion
    if 1 in statuses:
        return 1
    if any(statuses):
        return 3
    return 0


def _fleet(runs: Sequence[_HostRun], rules: Mapping[str, str]) -> Fleet:
    return Fleet(tuple(run.node() for run in runs), rules)


def _refuse_options(options: RunOptions, arguments: argparse.Namespace) -> None:
    if arguments.shell:
        raise UserError("--shell cannot be given with --lab", hint="a lab has no guest")
    for name, hint in _REFUSED.items():
        if getattr(options, name) != OPTIONS[name].default:
            raise UserError(f"{OPTIONS[name].flag} cannot be given with --lab", hint=hint)


def _complete(runs: Sequence[_HostRun], chosen: Run, out: Path) -> None:
    """Starts the run of each host, and returns when all of them have ended. A run without a conclusion is reported as
    soon as it has ended, because the other hosts may need hours."""
    signalled: int = signal.SIGTERM
    gc.freeze()  # garbage collection would write to memory that is shared with the copies of this process
    try:
        for run in runs:
            run.start(chosen)
        for run in runs:
            run.listen()
        running = {run.sentinel: run for run in runs if run.sentinel is not None}
        while running:
            for ended in running.keys() & wait([*running]):
                running.pop(ended).conclude()
    except KeyboardInterrupt as end:
        end.args = (_rest(out),)
        signalled = signal_of(end)
        raise
    finally:
        for run in runs:
            run.end(signalled)


def _conclude(lab: Fleet, left_out: Iterable[str]) -> None:
    """Prints what the runs have shown, a line for each host first."""
    for node in lab.nodes:
        print(one_line(_line(node)))
    for line in (*differences(lab), *left_out, lab.headline):
        print(one_line(line))


def _allow_files(hosts: int) -> None:
    """Raises the limit of open files as far as the hosts of a lab need it. Raises UserError if that is not permitted."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _FILES + _FILES_OF_HOST * hosts
    if needed <= soft:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(needed, hard)))
    except (ValueError, OSError) as error:
        message = (
            f"a lab of {hosts} hosts needs {needed} open files, and this process may open {hard}"
        )
        raise UserError(message, hint="raise the limit, ulimit -n", status=3) from error


def _line(node: Node) -> str:
    if node.facts is None:
        conclusion = f"not run: {node.problem}"
    else:
        conclusion = "; ".join(filter(None, (node.facts.conclusion, node.problem)))
    return f"{node.name}: {conclusion}"


def _refuse_runs(out: Path, hosts: Sequence[LabHost]) -> None:
    for folder in (out, *(out / host.name for host in hosts)):
        if _has_run(folder):
            raise UserError(
                f"{folder} already has a run",
                hint="choose another --out, or --resume the lab",
            )


def _has_run(folder: Path) -> bool:
    results = folder / FILE_NAME
    return (folder / PLAN).exists() or (results.exists() and results.stat().st_size > 0)


def _left_out(out: Path, hosts: Sequence[LabHost], file: Path) -> Iterator[str]:
    """Yields a line for each host whose run is in the lab's directory, but which is not in the lab's file."""
    names = {host.name for host in hosts}
    for folder in sorted(out.iterdir()):
        if folder.name not in names and _has_run(folder):
            yield f"{folder.name}: the run in {folder} is left out, because {file} has no host of this name"


def _rest(out: Path) -> str:
    return f"{command('run', '--resume', out)} runs the remaining cases"


def _foreign(folder: Path, options: RunOptions) -> str:
    """Returns why the run in a host's directory is not the `options` run; empty if it is the wanted run."""
    named = ", ".join(filter(None, [options.host, options.device]))
    try:
        options_then = recorded_options(read_plan(folder).argv, folder / PLAN)
    except UserError as error:
        return f"{folder} is possibly not the directory of the run of {named}: {error}"
    if options_then.host == options.host and options.device in (None, options_then.device):
        return ""
    return f"{folder} is not the directory of the run of {named}"


class _HostRun:
    """The run on one host: a copy of this process. Its output is shown with the host's name before each line.

    A copy shares the memory of this process until one of the two processes writes to it. Therefore everything is
    prepared for all runs before the first copy is made. All copies are made before any output is read, because threads
    read the output, and a process must not be copied while other threads run.
    """

    def __init__(
        self,
        host: LabHost,
        options: RunOptions,
        out: Path,
        loudness: list[str],
        parser: argparse.ArgumentParser,
        progress: Progress,
    ) -> None:
        self.host = host
        self.folder = out / host.name
        self.status = 0
        self._progress = progress
        self._last = ""
        self._process: ForkProcess | None = None
        self._reader: threading.Thread | None = None
        options_here = replace(options, **host.options)
        self._refused = _foreign(self.folder, options_here) if _has_run(self.folder) else ""
        if self._refused:
            self.status = 3
            progress.say(f"{host.name}: {self._refused}")
            return
        if (self.folder / PLAN).exists():
            arguments = ["--resume", str(self.folder)]
        else:
            hosts.archive(options_here)
            arguments = [*options_here.arguments(), "--out", str(self.folder)]
        self._words = ["run", *arguments, *loudness]
        self._arguments = parser.parse_args(self._words)

    def start(self, chosen: Run) -> None:
        if self._refused:
            return
        read_from, written_to = os.pipe()
        copied = (self._words, self._arguments, chosen, written_to, die_with_parent())
        self._process = get_context("fork").Process(target=_in_copy, args=copied, daemon=True)
        self._process.start()
        os.close(written_to)
        self._output = os.fdopen(read_from, encoding="utf-8", errors="replace")

    def listen(self) -> None:
        if self._process:
            self._reader = threading.Thread(target=self._show, daemon=True)
            self._reader.start()

    def _show(self) -> None:
        with self._output:
            for line in self._output:
                text = line.rstrip().removeprefix(f"{self.host.options['host']}: ")
                if text.startswith("rdma-cts: "):  # _conclude prints it
                    self._last = text.removeprefix("rdma-cts: ")
                    self._last = self._last.removeprefix(f"{self.host.options['host']}: ")
                elif text:
                    self._progress.say(f"{self.host.name}: {text}")

    @property
    def sentinel(self) -> int | None:
        """A file descriptor that can be read when the run has ended; None if it was not started."""
        return self._process.sentinel if self._process else None

    def conclude(self) -> None:
        """Prints the reason why the ended run has no conclusion."""
        self.wait()
        if self.status not in (0, 1):
            self._progress.say(_line(self.node()))

    def wait(self, seconds: float | None = None) -> None:
        """Waits until the run has finished, or for `seconds`."""
        if self._process:
            self._process.join(seconds)
            self.status = self._process.exitcode if self._process.exitcode is not None else 3
            if self._reader and not self._process.is_alive():
                self._reader.join()

    def end(self, signalled: int) -> None:
        """Ends the run with a signal if it has not finished. The run then removes its files from its host."""
        if self._process and self._process.pid and self._process.is_alive():
            os.kill(self._process.pid, signalled)
            self.wait(_ENDING_S)
            self._process.kill()
            self.wait()

    def node(self) -> Node:
        """Returns the data of this host for the page. A host without a group is not compared with other hosts."""
        name, group = self.host.name, self.host.group or self.host.name
        if self._refused:
            return Node(name, problem=self._refused, group=group)
        facts, problem = None, ""
        with suppress(UserError):
            facts = facts_of(self.folder)
        if facts is None:
            problem = self._last or f"the run ended with status {self.status}"
        elif self.status not in (0, 1) and (self._last or not facts.complete):
            problem = self._last or _rest(self.folder)
        return Node(name, f"{name}/{REPORT}" if facts else "", facts, problem, group)


def _side_by_side(table: Table) -> Table:
    """Returns the table with copies of its cases, and of the objects in the cases that every run reads; all copies are
    next to each other in memory, on few pages. Reading an object changes its reference count; after that, the memory
    page of the object is no longer shared with other processes."""
    cases = tuple(copy(case) for case in table.cases)
    for case in cases:
        object.__setattr__(case, "id", case.id.encode().decode())
        object.__setattr__(case, "needs", (*case.needs,))
        _ = case.cost
    return replace(table, cases=cases)


def _in_copy(
    words: list[str],
    arguments: argparse.Namespace,
    chosen: Run,
    output: int,
    die_too: Callable[[], None],
) -> None:
    """Runs `rdma-cts` in the copy with these arguments, without a terminal."""
    die_too()
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    Output()
    heed_signals()
    sys.exit(main(words, arguments, chosen=chosen))
