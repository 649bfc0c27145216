"""`rdma-cts trial`: tests the suite itself on references and drivers that break one rule at a time. This module
has only the arguments of the subcommands. Their code is in trial/violation_runs.py, kernel_runs.py, mended.py and
reproduction.py."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from commands.cli.run_arguments import add, add_argument
from conformance.option import positive_count
from conformance.regular_file import remove_below
from conformance.results.files import writing
from conformance.tables.suite import Suite, load_suite
from fixtures.guest.driver import DEFAULT_DRIVER, DRIVERS
from fixtures.guest.recipe import DEFAULT_STACK, STACKS
from trial import answers, kernel_runs, mended, reproduction, violation_runs
from trial.report import FINDINGS

_Trying = Callable[[argparse.Namespace, Suite, Callable[[str], None]], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="trial", metavar="TRIAL", required=True)

    def trial(name: str, trying: _Trying, text: str) -> argparse.ArgumentParser:
        command = subparsers.add_parser(name, help=text, description=text)
        command.set_defaults(trying=trying)
        add(command, "--out DIR", "where to write the findings")
        return command

    reference = trial(
        "reference",
        violation_runs.reference,
        "run against the reference, with one rule broken at a time",
    )
    personas = trial(
        "personas",
        violation_runs.personas,
        "run against references that behave like known drivers",
    )
    add(personas, "personas [NAME...]", "only these personas (default: all of them)")
    for command in (reference, personas):
        add(command, "--blind", "use the violations whose authors had not seen the cases")
        _add_selection(command)
        add(command, "--shard K/N", "only the Kth of N parts, for N machines")
        add(
            command,
            "--permitted",
            "only variants that the documents permit: every case must pass on them",
        )
        _add_jobs(command)
    add(reference, "--whole", "run all cases, also those of other rules")

    mending = trial(
        "mended",
        mended.execute,
        "run on the mended stack, each time without one of its changes",
    )
    add(mending, "run RUN", "a run on the stack without any of the changes")
    add(mending, "--change NAME", "leave out only this change", action="append", default=[])
    violated = "run only the cases that violate a rule in RUN, and tell the defects of each change"
    add(mending, "--violated", violated)
    add(mending, "--list", "only list the changes")

    kernel = trial(
        "kernel",
        kernel_runs.execute,
        "run on a driver in guests, each time with a mutant of it",
    )
    _add_mutants(kernel)

    reproducers = trial(
        "reproducers",
        reproduction.execute,
        "run C programs of the violations of a run, in the guest",
    )
    add(reproducers, "--run RUN", "the run (default: the latest)")
    add(reproducers, "--whole", "also run the programs of cases that passed")
    _add_jobs(reproducers)

    arrays = trial(
        "arrays",
        answers.execute,
        "make the stored arrays of the models anew, by the reference",
    )
    add(
        arrays,
        "--array NAME",
        "only this array, or the arrays of this model",
        action="append",
        default=[],
    )
    add(arrays, "--anew", "without the points of the stored arrays, which else are kept")

    for command in (mending, kernel, reproducers):
        add(command, "--yes", "install what is needed without asking")
    add(
        reproducers,
        "--stack",
        "the guest's Debian release",
        choices=tuple(STACKS),
        default=DEFAULT_STACK,
    )


def _add_selection(command: argparse.ArgumentParser) -> None:
    add(command, "--rule ID", "only violations of this rule", action="append", default=[])
    add(command, "--violation NAME", "only this violation", action="append", default=[])
    add(command, "--list", "only list the violations")
    add(command, "-v,--verbose", "print a line for each violation")


def _add_mutants(command: argparse.ArgumentParser) -> None:
    add(
        command,
        "--driver",
        "the driver of the mutants (default: rxe)",
        choices=tuple(DRIVERS),
        default=DEFAULT_DRIVER,
    )
    add(command, "--mutant NAME", "only this mutant", action="append", default=[])
    add(command, "--rule ID", "only mutants of this rule", action="append", default=[])
    add(
        command,
        "--file NAME",
        "only mutants of this file of the driver",
        action="append",
        default=[],
    )
    add(command, "--permitted", "only changes that the documents permit")
    add(command, "--only CASE", "only these cases", action="append", default=[])
    add(command, "--verb VERB", "only cases of this verb", action="append", default=[])
    add_argument(command, "seed", None)
    add(
        command,
        "--own",
        "run only the cases of the violated rule, also for mutants that survive these cases",
    )
    add(
        command,
        "--build",
        "only compile the modules; with --out, also write each mutant as a patch",
    )
    add(
        command,
        "--before DIR",
        "an earlier trial: its killed mutants must still be killed",
        type=Path,
    )
    add(
        command,
        "--night",
        "only the mutants not killed in --before, and a random tenth of all mutants (without --before: all)",
    )
    add(command, "--shard K/N", "only the Kth of N parts, for N machines")
    rdma_core = "also run rdma-core's own tests, in DIR, on each mutant; on mutants in --before, run only these tests"
    add(command, "--rdma-core-tests DIR", rdma_core, type=Path)
    unit_test = "also run Google's rdma-unit-test: the program that trial/kernel/build-rdma-unit-test.sh builds"
    add(command, "--rdma-unit-test PROGRAM", unit_test, type=Path)
    add(command, "--list", "only list the mutants")
    add(command, "-v,--verbose", "print a line for each mutant")


def _add_jobs(command: argparse.ArgumentParser) -> None:
    text = "processes (default: one for each processor)"
    add(command, "--jobs N", text, type=positive_count, default=0)


def execute(arguments: argparse.Namespace) -> int:
    """Runs the trial of the subcommand. Returns exit status 0 if the suite has behaved as expected, else 1."""
    trying: _Trying = arguments.trying
    if arguments.out:
        with writing(arguments.out):
            remove_below(arguments.out, FINDINGS)  # of an earlier trial
    if trying is answers.execute:  # with the arrays of another model, the suite cannot be read
        return answers.execute(arguments)
    return trying(arguments, load_suite(), lambda text: print(text, file=sys.stderr))
