"""`rdma-cts run`: runs the cases on a device of this host or of a host that is reached over ssh, or in the guest. This
module connects the engine, the target and the reports. fixtures/targets/target.py chooses the target and starts the
workers. What the first guest does not need is imported late, while QEMU resumes this guest."""

from __future__ import annotations

import argparse
import os
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from commands.cli import run_arguments
from commands.cli.choice import choose, of_target
from commands.cli.endings import crash_reports_in
from commands.cli.run_arguments import add
from commands.cli.streams import remark
from conformance.errors import UserError, command
from conformance.results.folder import OUT, check_free, run_folder, tidied
from conformance.results.plan import FILE_NAME as PLAN_FILE_NAME
from conformance.results.plan import (
    LabPlan,
    Plan,
    read_lab_plan,
    read_plan,
    write_plan,
)
from conformance.results.records import FILE_NAME, LAB_FILE, Recorded
from conformance.results.writer import ResultsFile
from conformance.run_options import OPTIONS, RunOptions
from conformance.supervision.run import Run
from conformance.tables.suite import VERSION, Suite, load_suite
from fixtures.targets import builds, target
from fixtures.targets.builds import guest_driver
from fixtures.targets.guests import Guests, is_prepared
from reports.terminal import NORMAL, QUIET, VERBOSE, Progress, summary

if TYPE_CHECKING:
    from conformance.supervision.recording import Recording
    from reports.digest import Digest
    from reports.novelty import Novelty

NAME = "run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = f"{parser.prog} [OPTION ...]"
    run_arguments.add_options(parser)
    several = parser.add_argument_group("several hosts")
    add(several, "--lab FILE", "run the cases on all hosts in FILE at once (see docs/lab.md)")
    earlier = parser.add_argument_group("an earlier run")
    add(
        earlier,
        "--failed [RUN]",
        f"only cases that failed or were not decided in RUN, or in the latest run below RUN (default: {OUT})",
        const=OUT,
    )
    add(earlier, "--resume RUN", "continue a run or lab that was interrupted")
    output = parser.add_argument_group("output")
    add(output, "--out DIR", "the directory for results (default: out/<time>-<device>)")
    # a lab chooses the cases once for all its hosts
    parser.set_defaults(level=NORMAL, argv=(), chosen=None, suite=None)
    loudness = output.add_mutually_exclusive_group()
    add(
        loudness,
        "-q,--quiet",
        "print only the summary",
        dest="level",
        action="store_const",
        const=QUIET,
    )
    add(
        loudness,
        "-v,--verbose",
        "print a line for each case",
        dest="level",
        action="store_const",
        const=VERBOSE,
    )
    add(parser, "--yes", "install what is needed without asking")
    add(parser, "--shell", "run no case; open a shell in the prepared guest")


def execute(arguments: argparse.Namespace) -> int:
    """Runs the cases, writes results.jsonl and the reports, prints the summary, and returns the exit status
    (docs/results.md)."""
    if arguments.resume:
        return _resume(arguments)
    options = run_arguments.options_from(arguments)
    if arguments.failed or not all("/" in case for case in options.only):
        from reports.earlier import with_earlier  # imported late: few runs name a defect

        arguments.suite = load_suite(options.cases)
        options = with_earlier(options, arguments.failed, arguments.suite, remark)
    if arguments.lab:
        return int(_lab().run_lab(arguments.lab, options, arguments))
    if arguments.shell:
        return _shell(options, arguments)
    return _run(options, arguments, _earlier(options.against))


def _chosen(options: RunOptions, arguments: argparse.Namespace) -> Run:
    return choose(options, arguments.chosen, arguments.argv, arguments.suite)


def _lab() -> ModuleType:
    from commands import lab  # imported late: only labs need it

    return lab


def _shell(options: RunOptions, arguments: argparse.Namespace) -> int:
    """Opens a shell in the guest that a run would use. Only the guest's console is recorded."""
    if options.device or options.host:
        raise builds.only_for_guest("--shell", options)
    if arguments.out:
        _refuse_recorded(arguments.out)
    builds.refuse_within_overlay(options, arguments.out or OUT)
    with run_folder(arguments.out, "shell") as out, tidied(out):
        Guests(options, out, Progress().say, arguments.yes).shell()
    return 0


def _refuse_recorded(out: Path) -> None:
    """Raises UserError for a directory in which a run or a lab is recorded, or which has other files."""
    if any(os.path.lexists(out / name) for name in (FILE_NAME, PLAN_FILE_NAME, LAB_FILE)):
        what = f"{out} has a recorded run, which would get the console of the shell"
        raise UserError(what, hint="give --out a new or an empty directory")
    check_free(out)


def _resume(arguments: argparse.Namespace) -> int:
    is_lab = bool(arguments.lab) or (arguments.resume / LAB_FILE).exists()
    # also with default values
    flags = [option.flag for name, option in OPTIONS.items() if name in vars(arguments)]
    flags += [f"--{name}" for name in ("out", "shell", "failed") if getattr(arguments, name)]
    if flags:
        raise UserError(
            f"{', '.join(flags)} cannot be given with --resume",
            hint="all options are taken from the run that is resumed",
        )
    plan = read_lab_plan(arguments.resume) if is_lab else read_plan(arguments.resume)
    options = run_arguments.recorded_options(
        plan.argv,
        arguments.resume / (LAB_FILE if is_lab else PLAN_FILE_NAME),
    )
    before = None if is_lab else _begun(arguments.resume.absolute())
    if before and before.footer and before.footer["complete"]:
        Progress(level=arguments.level).say(f"the run in {before.directory} is complete")
        earlier = _earlier(options.against)
        with (
            closing(ResultsFile(before.directory / FILE_NAME, carry_on=True)),
            tidied(before.directory),
        ):
            return _reported(before, before.directory, arguments.level, "", "", earlier)
    first = argparse.Namespace(
        out=arguments.resume.absolute(),
        yes=arguments.yes,
        level=arguments.level,
        argv=list(plan.argv),
        shell=False,
        chosen=arguments.chosen,
    )
    if arguments.lab:
        file = arguments.lab.absolute()
    else:
        file = None
    try:
        os.chdir(plan.directory)
    except OSError as error:
        raise UserError(
            f"the run was started in {plan.directory}, which cannot be used: {error.strerror}",
        ) from error
    if isinstance(plan, LabPlan):
        return int(_lab().run_lab(file or Path(plan.file), options, first, resumed=True))
    first.suite = first.chosen.suite if first.chosen else load_suite(options.cases)
    _refuse_other_suite(plan, before, first.suite, arguments.resume)
    return _run(options, first, _earlier(options.against), plan)


def _earlier(against: Path | None) -> Digest | None:
    """Returns the earlier run of --against; None without this option."""
    if against:
        from reports.digest import read

        return read(against)
    return None


def _begun(folder: Path) -> Digest | None:
    """Returns the run in a directory; None if nothing is recorded. Needs no device and no connection."""
    from reports.digest import read

    try:
        return read(folder)
    except UserError:  # reported when the run is resumed
        return None


def _refuse_other_suite(
    plan: Plan,
    before: Digest | None,
    suite: Suite,
    folder: Path,
) -> None:
    """Raises UserError if the plan in `folder`, or the run `before` that is recorded there, is of another suite."""
    by = (before and before.header.get("suite")) or {}
    if plan.tables_sha256 != suite.tables_sha256:
        by = {**by, "tables_sha256": plan.tables_sha256}
    elif by in ({}, {"version": VERSION, "tables_sha256": suite.tables_sha256}):
        return
    from commands.cli.judged import made_with  # imported late: only a mistake needs it

    raise UserError(
        f"the run in {folder} was {made_with(by, suite)}",
        hint="use the version of rdma-cts that made it, or start a new run",
    )


def _run(
    options: RunOptions,
    arguments: argparse.Namespace,
    earlier: Digest | None,
    recorded_plan: Plan | None = None,
) -> int:
    """Runs the cases. `arguments` is used only for values that are not in the `options`: output, level, --yes. The
    reports list first what is new against the `earlier` run."""
    target.check_before_tables(options)
    builds.refuse_within_overlay(options, arguments.out or OUT)
    progress = Progress(level=arguments.level)
    if earlier:
        from reports.novelty import known_in

        progress.is_known = known_in(earlier)
    resumed = recorded_plan is not None
    with ExitStack() as around:
        run = host = guests = None
        if resumed or not options.guest or not is_prepared(options):
            run = _chosen(options, arguments)  # a mistake is reported before anything is prepared
        if arguments.out:  # a mistake in the path is reported before any host or device is used
            claim(arguments.out, resumed, around)
        if options.host:
            from fixtures.targets import hosts  # imported late: only runs over ssh need it

            if not arguments.chosen:  # a lab has already installed the client
                hosts.install_client(progress.say, arguments.yes)
            host = around.enter_context(hosts.opened(options, progress.say))
        options = target.with_target(options, host, progress.say)
        if run:
            run = of_target(replace(run, options=options), progress.say)
        name = "+".join(options.devices) or guest_driver(options).device
        out = arguments.out or around.enter_context(run_folder(what=name))
        if run and options.device:
            from commands.cli.announcement import errors_on_purpose

            for line in errors_on_purpose(run.cases, () if host else run.devices):
                progress.say(line)
        around.enter_context(crash_reports_in(out))
        durable = bool(options.device) and not host
        file = ResultsFile(out / FILE_NAME, carry_on=resumed, durable=durable)
        file = around.enter_context(closing(file))
        around.enter_context(tidied(out))
        before = file.recorded()
        if not run:  # the first guest is resumed while this process reads the tables
            guests = Guests(options, out, progress.say, installed=True)
            around.enter_context(closing(guests)).begin()
            run = of_target(_chosen(options, arguments), progress.say)
        run = target.prepare(run, out, progress.say, arguments.yes, host, guests)
        if recorded_plan:
            recorded_plan.check(run.plan)
        else:
            write_plan(run.plan, out)
        if before and before.header.get("waivers") != run.facts["waivers"]:
            raise UserError(
                "the run cannot be resumed, because its waivers have changed",
                hint="start a new run",
            )
        from conformance.supervision.recording import Recording
        from reports.digest import read

        recording = Recording(run, file, progress, file.cut_back(before))
        begun = len(recording.done)
        try:
            _supervise(recording, progress, out, earlier, beside_library=durable)
        except UserError as error:
            # the records before the failure, such as a full disk, are intact
            if len(recording.done) > begun:
                print(summary(read(out), out, level=arguments.level, status=error.status))
            raise
        judged = _judged_here(recording, before, out)
        if host:
            lost = host.gone
        else:
            lost = ""
        changed = file.changed() or next(iter(recording.doubts), "")
    with crash_reports_in(out):
        return _reported(judged or read(out), out, arguments.level, lost, changed, earlier)


def _judged_here(recording: Recording, before: Recorded | None, out: Path) -> Digest | None:
    """Returns the results that this process has judged; None if there are none. If the run was resumed and has no
    violation, the earlier results are judged again, so that a changed verdict cannot hide a violation. Raises UserError
    (status 3) if a verdict was changed."""
    from reports.digest import digest

    recorded = recording.recorded
    if recorded is None:
        return None
    judged = digest(recorded.shown(), out, str(out), is_own=not before)
    if judged.summary.concluded.status == 0 and (wrong := recording.contradiction()):
        raise UserError(
            f"{out / FILE_NAME} was changed before the run was resumed: {wrong}",
            status=3,
        )
    return judged


def claim(out: Path, resumed: bool, around: ExitStack) -> None:
    """Creates the directory of --out, and removes it if the run records nothing. Raises UserError."""
    if (out / LAB_FILE).exists():
        raise UserError(
            f"{out} is the directory of a lab",
            hint="choose another --out, or --resume the lab",
        )
    if not resumed:
        check_free(out)
    around.enter_context(run_folder(out))
    ResultsFile(out / FILE_NAME, carry_on=resumed).close()


def _supervise(
    recording: Recording,
    progress: Progress,
    out: Path,
    earlier: Digest | None,
    beside_library: bool,
) -> None:
    """Runs the cases. The reports of an interrupted run list first what is new against `earlier`. `beside_library` is
    whether the library under test runs on this host."""
    from commands import report
    from conformance.supervision.supervisor import Supervisor

    run = recording.run
    if beside_library:
        from commands.cli import loaded  # runs in the guest do not need it

        loaded.load_all()
    else:
        report.load_beside()
    again = () if run.options.no_confirm else run.target.again
    try:
        Supervisor(recording, out / "console.log").run(*run.target.starts, again=again)
    except KeyboardInterrupt as end:
        progress.clear()
        end.args = (_kept(out, len(recording.done), len(run.cases), progress.level, earlier),)
        raise


def _reported(
    judged: Digest,
    out: Path,
    level: int,
    lost: str,
    changed: str,
    earlier: Digest | None = None,
) -> int:
    """Writes the reports, prints the summary, and returns the exit status. Both list first what is new against the
    `earlier` run.

    The exit status is also 1 if a case has regressed that its waiver does not name. It does not depend on files that
    the driver or the library under test could change.

    Raises UserError with the message `lost` if the connection to the host was lost, or with `changed` if the results
    file was changed.
    """
    from commands import report

    reported = False
    news = _news(judged, earlier)
    status = news.status if news else judged.summary.status
    if changed:
        status = judged.summary.status or 3
    elif lost:
        status = 3
    try:
        report.write_beside(out, judged, news)
        reported = True
    except UserError as error:
        status = error.status
        raise
    finally:
        print(summary(judged, out, level=level, reported=reported, news=news, status=status))
    if changed:
        hint = "summary and reports show what the run itself has judged"
        raise UserError(changed, hint=hint, status=status)
    if lost:
        raise UserError(
            lost,
            hint=f"{command('run', '--resume', out)} runs the remaining cases",
            status=status,
        )
    return status


def _news(judged: Digest, earlier: Digest | None) -> Novelty | None:
    if earlier is None:
        return None
    from reports.novelty import novelty

    return novelty(judged, earlier)


def _kept(
    out: Path, done: int, total: int, level: int = NORMAL, earlier: Digest | None = None
) -> str:
    """Writes the reports of an interrupted run; prints the summary if an `earlier` run is given. Returns a text about the
    results and about resuming the run."""
    if not done:
        return f"no case has a result yet; {command('run', '--resume', out)} starts the run again"
    from commands import report
    from reports.digest import read

    run = read(out)
    news = _news(run, earlier)
    report.write_beside(out, run, news)
    if news:
        print(summary(run, out, level=level, news=news))
    results = f"{done} of {total} results and their report are in {out}"
    return f"{results}; {command('run', '--resume', out)} runs the remaining cases"
