"""The command line: `./rdma-cts COMMAND …`. Each command is a module of this package.

This module only finds and starts the command. A user's mistake becomes one line on standard error and an exit status,
never a traceback.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from argparse import Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from commands.arguments import NAME, Parser, help_text
from commands.endings import SIGNALLED, Terminated, crash_report, heed_signals
from commands.output import Output
from conformance import cache
from conformance.errors import UserError
from conformance.tables.suite import VERSION
from fixtures.system.bytecode import keeps_files
from fixtures.system.cache import cache_directory
from reports.text import one_line

# The commands in the order of the help text; _MODULES has the module names that differ from the command.
COMMANDS = (
    "run",
    "nightly",
    "test",
    "doctor",
    "prepare",
    "list",
    "report",
    "site",
    "compare",
    "judge",
    "bundle",
    "verify",
    "explain",
    "waivers",
    "reproducer",
    "findings",
    "patches",
    "bisect-step",
    "coverage",
    "describe",
    "trial",
    "schema",
    "completion",
)
_ALLOCATED = 50_000  # objects between two collections: a command makes many that stay, and little garbage
_MODULES = {"list": "listing", "bisect-step": "bisect_step"}
_WITH_VARIABLES = ("run", "prepare", "doctor")  # commands whose own help lists the environment variables, too


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"commands.{_MODULES.get(command, command)}")


def parser_of(commands: Sequence[str]) -> Parser:
    """The parser of these commands' arguments. Importing all commands would dominate the start-up time of one."""
    parser = Parser(
        prog=NAME,
        description="Conformance tests for the memory-region verbs of RDMA devices.",
        epilog=help_text(),
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rdma-cts {VERSION}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in map(_module, commands):
        command = subparsers.add_parser(
            module.NAME,
            help=module.HELP,
            description=module.HELP,
            formatter_class=RawDescriptionHelpFormatter,
            epilog=help_text() if module.NAME in _WITH_VARIABLES else None,
        )
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that `argv` names and returns its exit status."""
    given = sys.argv[1:] if argv is None else list(argv)
    out: Path | None = None
    arguments = Namespace()
    try:
        parser_of(given[:1] if given and given[0] in COMMANDS else COMMANDS).parse_args(given, arguments)
        arguments.argv = given[1:]
        try:
            return int(arguments.execute(arguments))
        finally:
            out = getattr(arguments, "out", None)
    except UserError as error:
        return _told(error)
    except KeyboardInterrupt as end:
        number = end.number if isinstance(end, Terminated) else 0
        by = f"ended by {signal.Signals(number).name}" if number else "interrupted"
        print(one_line(": ".join((NAME, by, *end.args))), file=sys.stderr)
        return SIGNALLED + (number or signal.SIGINT)
    except Exception as error:
        return _told(crash_report(error, out if out and out.is_dir() else None))


def _told(error: UserError) -> int:
    """Prints an error, each of its lines as one; returns its exit status."""
    for line in error.lines:
        print(f"{NAME}: {one_line(line)}", file=sys.stderr)
    return error.status


def keep_derived_files(given: Sequence[str]) -> None:
    """Lets this process and its children keep tables that they have read, in the cache.

    A run on a device of this host writes nothing outside of its output directory, so one keeps them only with --guest.
    """
    if keeps_files(given):
        os.environ.setdefault(cache.DIRECTORY, str(cache_directory() / "derived" / "host"))


def run_as_program() -> int:
    """Runs the command of this process; returns its exit status, 3 if the output of anything but a run was lost."""
    gc.set_threshold(_ALLOCATED, 20, 20)
    output = Output()
    heed_signals()
    given = sys.argv[1:]
    try:
        keep_derived_files(given)
    except UserError as error:
        return _told(error)
    status = main()
    if (lost := output.lost()) and given[:1] != ["run"]:
        return _told(UserError(f"standard output: {lost}", status=3))
    return status


if __name__ == "__main__":
    sys.exit(run_as_program())
