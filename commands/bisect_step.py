"""`rdma-cts bisect-step`: runs the cases of a defect, and exits with the status that `git bisect run` needs."""

import argparse
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace

from commands import run
from commands.cli.choice import choose, of_target
from commands.cli.endings import crash_report
from commands.cli.run_arguments import options_from, suite_from
from commands.cli.streams import remark, show
from conformance.errors import UserError
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.folder import OUT, run_folder
from conformance.run_options import OPTIONS, RunOptions
from conformance.tables.suite import Suite
from fixtures.system.devices import present_devices
from fixtures.targets import builds, target
from reports.digest import read
from reports.earlier import with_earlier

GOOD, BAD, SKIP = 0, 1, 125
_BUILDS = ("kernel", "modules", "linux", "rdma_core", "overlay")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a run. --only names a case or a defect."""
    run.add_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the cases and returns the exit status for their verdicts. Raises UserError for a mistake that does not
    depend on the commit; the command line then stops the bisection."""
    for name in ("lab", "resume", "shell"):
        if getattr(arguments, name):
            raise UserError(f"--{name} cannot be given with bisect-step")
    options = options_from(arguments)
    suite = suite_from(options)
    if not options.only:
        raise UserError(
            "bisect-step needs a case",
            hint="--only CASE, or --only with a defect's fingerprint",
        )
    options = with_earlier(options, arguments.failed, suite, remark)
    if options.against:
        read(options.against)
    _refuse_mistakes(options, suite)
    builds.refuse_within_overlay(options, arguments.out or OUT)
    for name in _BUILDS:
        build = getattr(options, name)
        if build and not build.exists():
            raise UserError(f"{OPTIONS[name].flag} {build} does not exist")
    # so that run.execute does not look up the defect again
    arguments.only, arguments.failed = list(options.only), None
    with ExitStack() as around:
        if arguments.out:
            run.claim(arguments.out, False, around)
        arguments.out = around.enter_context(run_folder(arguments.out, "bisect"))
        try:
            run.execute(arguments)
            verdicts = [Verdict(record["verdict"]) for record in read(arguments.out).results]
        except UserError as error:  # the build of this commit is unusable or does not boot
            show(error.lines, sys.stderr)
            verdicts = []
        except Exception as error:
            raise crash_report(error, None) from error
    status = status_of(verdicts)
    print(f"bisect-step: {', '.join(verdicts) or 'no verdict'}: {status}")
    return status


def _refuse_mistakes(options: RunOptions, suite: Suite) -> None:
    """Raises UserError for mistakes in the options that are found without a target. Without a device, it is the guest."""
    if not (options.device or options.host or present_devices()):
        options = replace(options, guest=True)
    target.refuse_conflicts(options)
    target.check_addresses(options)
    of_target(choose(options, suite=suite), lambda _: None)


def status_of(verdicts: Iterable[Verdict]) -> int:
    """Returns BAD if a verdict is a violation, GOOD if all verdicts are PASS, else SKIP."""
    verdicts_seen = set(verdicts)
    if verdicts_seen & set(VIOLATIONS):
        return BAD
    if verdicts_seen == {Verdict.PASS}:
        return GOOD
    return SKIP
