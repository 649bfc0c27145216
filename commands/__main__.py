"""The command line: `./rdma-cts COMMAND …`. Each command is a module of this package. This module finds and starts the
command. A user's mistake becomes one line on standard error and an exit status, without a traceback."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from commands.cli.arguments import NAME, Parser
from commands.cli.endings import SIGNALLED, Terminated, crash_report, heed_signals, unusable_path
from commands.cli.streams import Output, show
from conformance import cache
from conformance.errors import PROGRAM, UserError, command
from conformance.model.printable import one_line
from fixtures.system.cache import cache_directory, keeps_files

# The commands in the order of the help text, with their descriptions. _MODULES has the module names that differ from
# the command.
COMMANDS: Mapping[str, str] = {
    "run": "Run the cases on a device of this host or in the Soft-RoCE guest.",
    "nightly": "Run the cases on several stacks and compare each stack with its last good night; exit status 1 after a "
    "regression.",
    "test": "Run the project's own tests; arguments after `--` go to pytest.",
    "doctor": "Show what is missing on this host for each way of running, and the remedies.",
    "prepare": "Build the guest's image and template, without running a case.",
    "list": "List the cases of all tiers; with --rules, list the rules.",
    "report": "Write a report of recorded runs; several runs become columns of one page.",
    "site": "Write the static pages of a history: a page for each rule, each defect and each night, and badges.",
    "fleet": "Show the differences between the runs of many nodes, by node.",
    "merge": "Merge the shards of a run into one run (see run --shard); the exit status is that of the run.",
    "compare": "Compare two runs case by case and point by point; exit status 1 after a regression.",
    "judge": "Judge recorded observations again by the current rules and tables, without a device.",
    "bundle": "Pack a run with everything that is needed to judge it again elsewhere (see verify).",
    "verify": "Judge a bundled run again, and print the conclusion that the bundle supports; exit status 0, 1 or 3 as "
    "for run, 2 if the bundle was changed.",
    "explain": "Explain a rule, a case, a point of a sweep or a defect: its source, its set-up, its last verdict, and "
    "the meaning of a failure.",
    "waivers": "Write waivers of the defects in recorded runs, each with an owner, an issue and an expiry date.",
    "reproducer": "Write a C program for libibverbs that shows a violation, or a text that reports the violation.",
    "findings": "Write a page about the defects in runs on several stacks, and C programs that show the defects.",
    "patches": "Write patches for git am that fix the defects of Soft-RoCE in given source trees.",
    "bisect-step": "Run a case, and exit with the status for git bisect run: 0 good, 1 bad, 125 cannot be tested, 128 "
    "stops the bisection.",
    "coverage": "Show how many cases of each rule expect success or a refusal; with --run, also show the verdicts.",
    "describe": "Print the promises of the manual pages about a verb.",
    "trial": "Test the suite itself: does a case fail for every rule that a driver violates?",
    "schema": "Print the JSON Schema of tables or of another file format; docs/ has a copy of each schema.",
    "variables": "Print the environment variables and the purpose of each variable.",
    "completion": "Print a script with which bash, zsh or fish complete commands and options.",
}
_ALLOCATED = (
    50_000  # new objects between two garbage collections; few objects of a command become garbage
)
_ALONE = ("-h", "--help", "--version")  # options without a command
_MODULES = {"list": "listing", "bisect-step": "bisect_step"}


class _Version(argparse.Action):
    """The option --version, which reads the version only when it prints it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from commands.cli.version import version_text

        print(f"{NAME} {version_text()}")
        parser.exit()


def parser_of(commands: Collection[str]) -> Parser:
    """Returns a parser of these commands. Without commands, or with an unknown command, the parser has all commands
    without their arguments, because importing all modules takes longer than most commands."""
    parser = Parser(
        prog=NAME,
        description="Conformance tests for the memory-region verbs of RDMA devices.",
        epilog=f"Environment variables: {PROGRAM} variables. Exit statuses and more: rdma-cts(1), README.md, docs/.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version with its commit and exit"
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    has_commands = bool(commands) and COMMANDS.keys() >= {*commands}
    for name in commands if has_commands else COMMANDS:
        command = subparsers.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        if has_commands:
            module = importlib.import_module(f"commands.{_MODULES.get(name, name)}")
            module.add_arguments(command)
            command.set_defaults(execute=module.execute)
    return parser


def main(
    argv: Sequence[str] | None = None,
    parsed: Namespace | None = None,
    **known: object,
) -> int:
    """Runs the command that `argv` names and returns its exit status. `parsed` are arguments that the caller has
    parsed. `known` are attributes that are added to the arguments, such as cases that the caller has already chosen."""
    if argv is None:
        words = sys.argv[1:]
    else:
        words = list(argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    out: Path | None = None
    arguments = parsed or Namespace()
    try:
        if words[:1] and words[0].startswith("-") and words[0] not in _ALONE:
            raise UserError("a command comes first, then its options", hint=_meant(words))
        if not parsed:
            parser_of(words[:1]).parse_args(words, arguments)
        vars(arguments).update(known, argv=words[1:])
        try:
            return int(arguments.execute(arguments))
        finally:
            out = getattr(arguments, "out", None)
    except UserError as error:
        return _report_error(error, words)
    except KeyboardInterrupt as end:
        if isinstance(end, Terminated):
            number = end.number
        else:
            number = 0
        if number:
            by = f"ended by {signal.Signals(number).name}"
        else:
            by = "interrupted"
        print(one_line(": ".join((NAME, by, *end.args))), file=sys.stderr)
        return SIGNALLED + (number or signal.SIGINT)
    except Exception as error:
        if isinstance(error, OSError) and (said := unusable_path(error, words)):
            return _report_error(said, words)
        return _report_error(crash_report(error, out if out and out.is_dir() else None), words)


def _meant(given: Sequence[str]) -> str:
    """Returns a hint for a command line without a command: the same options of `run` if `run` has the first of them."""
    name = given[0].partition("=")[0]
    if name in parser_of(["run"]).options("run"):
        return f"did you mean {command('run', *given)}?"
    return f"see {PROGRAM} --help"


def _report_error(error: UserError, given: Sequence[str]) -> int:
    """Prints an error and returns its exit status; for git bisect 128, because less is a verdict on the commit."""
    for line in error.lines:
        print(f"{NAME}: {one_line(line)}", file=sys.stderr)
    show(error.screen, sys.stderr)
    if given[:1] == ["bisect-step"]:
        return SIGNALLED
    return error.status


def keep_derived_files(given: Sequence[str]) -> None:
    """Lets this process and its children store parsed tables in the cache, if the command may write to the cache."""
    if keeps_files(given):
        os.environ.setdefault(cache.DIRECTORY, str(cache_directory() / "derived" / "host"))


def run_as_program() -> int:
    """Runs the command of this process and returns its exit status. If output was lost, the status is 3, except for
    `run`."""
    gc.set_threshold(_ALLOCATED, 20, 20)
    output = Output()
    heed_signals()
    words = sys.argv[1:]
    try:
        keep_derived_files(words)
    except UserError as error:
        return _report_error(error, words)
    status = main()
    gc.freeze()  # Python collects no garbage while the process exits
    if (lost := output.lost()) and words[:1] != ["run"]:
        return _report_error(UserError(f"standard output: {lost}", status=3), words)
    return status


if __name__ == "__main__":
    if os.getpid() == 1:
        from fixtures.system.init import continue_in_child

        continue_in_child()
    sys.exit(run_as_program())
