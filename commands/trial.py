"""`rdma-cts trial`: tests the suite itself, against references and altered calls that break one rule at a time.

This module has only the arguments of the subcommands. Their code is in trial/violation_runs.py, kernel_runs.py,
mended.py and reproduction.py.
"""

import argparse
import sys
from collections.abc import Callable

from commands.cli.output import out_directory
from conformance.run_options import given_path
from conformance.tables.suite import Suite, load_suite
from conformance.tables.tiers import Shard
from fixtures.guest.recipe import DEFAULT_STACK, STACKS
from trial import kernel_runs, mended, reproduction, violation_runs
from trial.searching import FIRST_SEED

_Trying = Callable[[argparse.Namespace, Suite, Callable[[str], None]], int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="trial", metavar="TRIAL", required=True)

    def add(name: str, trying: _Trying, text: str) -> argparse.ArgumentParser:
        command = subparsers.add_parser(name, help=text, description=text)
        command.set_defaults(trying=trying)
        command.add_argument("--out", type=out_directory, metavar="DIR", help="where to write the findings")
        return command

    reference = add("reference", violation_runs.reference, "run against the reference, with one rule broken at a time")
    data_path = add("data-path", violation_runs.data_path, "run against the reference, with altered data transfers")
    personas = add("personas", violation_runs.personas, "run against references that behave as known drivers")
    personas.add_argument("personas", nargs="*", metavar="NAME", help="only these personas (default: all of them)")
    guest = add("guest", violation_runs.guest, "run on Soft-RoCE in the guest, with the answers of its calls altered")
    for command in (reference, personas):
        command.add_argument(
            "--blind", action="store_true", help="use the violations whose authors had not seen the cases"
        )
    for command in (reference, data_path, personas, guest):
        _add_selection(command)
        command.add_argument("--shard", type=Shard.parse, metavar="K/N", help="only the Kth of N parts, for N machines")
        command.add_argument(
            "--permitted", action="store_true", help="only variants that the documents allow: no case may fail on them"
        )
    for command in (reference, data_path, personas):
        _add_jobs(command)
    for command in (reference, data_path):
        command.add_argument(
            "--whole", action="store_true", help="run all cases, even if cases of the violated rule failed"
        )
    guest.add_argument("--own", action="store_true", help="only the cases of the violated rule")

    mending = add("mended", mended.execute, "run on the mended stack, with each of its changes left out in turn")
    mending.add_argument("run", type=given_path, metavar="RUN", help="a run on the stack as shipped")
    mending.add_argument("--change", action="append", default=[], metavar="NAME", help="only this change")
    mending.add_argument("--list", action="store_true", help="only list the changes")

    kernel = add("kernel", kernel_runs.execute, "run on the mended driver, with a change that breaks a rule")
    kernel_runs.add_arguments(kernel)

    reproducers = add("reproducers", reproduction.execute, "run C programs of the violations of a run, in the guest")
    reproducers.add_argument("--run", type=given_path, metavar="RUN", help="the run (default: the latest)")
    reproducers.add_argument("--whole", action="store_true", help="also the programs of cases that passed")
    _add_jobs(reproducers)

    sequences = add("sequences", violation_runs.sequences, "compare two references by random sequences of calls")
    sequences.add_argument("seconds", type=float, metavar="SECONDS", help="how long to run")
    _add_selection(sequences)
    sequences.add_argument(
        "--seed", type=int, default=FIRST_SEED, metavar="N", help=f"the first seed (default {FIRST_SEED})"
    )

    for command in (guest, mending, kernel, reproducers):
        command.add_argument("--yes", action="store_true", help="install what is needed without asking")
    for command in (guest, reproducers):
        command.add_argument("--stack", choices=tuple(STACKS), default=DEFAULT_STACK, help="the guest's Debian release")


def _add_selection(command: argparse.ArgumentParser) -> None:
    command.add_argument("--rule", action="append", default=[], metavar="ID", help="only violations of this rule")
    command.add_argument("--violation", action="append", default=[], metavar="NAME", help="only this violation")
    command.add_argument("--list", action="store_true", help="only list the violations")
    command.add_argument("-v", "--verbose", action="store_true", help="print a line for each violation")


def _add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one for each processor)")


def execute(arguments: argparse.Namespace) -> int:
    """Runs the trial of the subcommand. Returns exit status 0 if the suite has behaved as expected, else 1."""
    trying: _Trying = arguments.trying
    return trying(arguments, load_suite(), lambda text: print(text, file=sys.stderr))
