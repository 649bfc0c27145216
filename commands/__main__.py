"""The command line: `./rdma-cts COMMAND …`. Each command is a module of this package.

This module only finds and starts the command. A user's mistake becomes one line on standard error and an exit status,
never a traceback.
"""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Sequence
from types import ModuleType

from commands import signals, variables
from commands.parsing import PROGRAM, Parser
from conformance import derived
from conformance.errors import UserError
from conformance.tables.suite import VERSION
from fixtures.cache import cache_directory
from reports.digest import one_line

# The commands in the order of the help text; _MODULES has the module names that differ from the command.
COMMANDS = (
    "run", "test", "doctor", "prepare", "list", "report", "compare", "judge", "explain", "coverage", "describe",
    "trial", "schema",
)  # fmt: skip
_MODULES = {"list": "listing"}
_WITH_VARIABLES = ("run", "prepare", "doctor")  # commands whose own help lists the environment variables, too


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"commands.{_MODULES.get(command, command)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that `argv` names and returns its exit status."""
    try:
        status = _executed(sys.argv[1:] if argv is None else list(argv))
        sys.stdout.flush()
        return status
    except UserError as error:
        for line in str(error).splitlines():
            print(f"{PROGRAM}: {one_line(line)}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # the program that reads our output, such as head, has ended
        signals.abandon_output()
        return signals.SIGNALLED + signal.SIGPIPE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EIO) or error.filename:
            raise
        signals.abandon_output()
        print(f"{PROGRAM}: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 3
    except KeyboardInterrupt as end:
        number = end.number if isinstance(end, signals.Terminated) else 0
        by = f"ended by {signal.Signals(number).name}" if number else "interrupted"
        print(one_line(": ".join((PROGRAM, by, *end.args))), file=sys.stderr)
        return signals.SIGNALLED + number if number else 3


def _executed(given: list[str]) -> int:
    """The exit status of the command that these arguments name. Raises UserError."""
    parser = Parser(
        prog=PROGRAM, description="Conformance tests for the memory-region verbs of RDMA devices.",
        epilog=variables.help_text(), formatter_class=RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"rdma-cts {VERSION}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    # Importing all commands would dominate the start-up time, so only the named one is loaded.
    for module in map(_module, given[:1] if given and given[0] in COMMANDS else COMMANDS):
        command = subparsers.add_parser(
            module.NAME, help=module.HELP, description=module.HELP, formatter_class=RawDescriptionHelpFormatter,
            epilog=variables.help_text() if module.NAME in _WITH_VARIABLES else None,
        )  # fmt: skip
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    arguments = parser.parse_args(given)
    arguments.argv = given[1:]
    return int(arguments.execute(arguments))


def keep_derived_files(given: Sequence[str]) -> None:
    """Lets this process and its children keep tables that they have read, in the cache.

    A run on a device of this host writes nothing outside of its output directory, so one keeps them only with --guest.
    """
    if given[:1] != ["run"] or "--guest" in given:
        os.environ.setdefault(derived.DIRECTORY, str(cache_directory() / "derived" / "host"))


if __name__ == "__main__":
    keep_derived_files(sys.argv[1:])
    signals.complete_streams()
    signals.heed_signals()
    ended = main()
    try:
        sys.stdout.flush()
    except OSError:  # after an error that was told
        signals.abandon_output()
    sys.exit(ended)
