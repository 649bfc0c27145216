"""The command line: `./rdma-cts COMMAND …`. Each command is a module of this package.

Wiring only. A person's mistake is one line on standard error and its exit status, never a traceback.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from types import ModuleType

from commands import compare, coverage, describe, doctor, explain, judge, listing, report, run, schema, test, trial
from conformance.errors import UserError
from conformance.tables.suite import VERSION
from reports.digest import one_line

COMMANDS: tuple[ModuleType, ...] = (
    run, test, doctor, listing, report, compare, judge, explain, coverage, describe, trial, schema,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that `argv` names and gives its exit status."""
    parser = argparse.ArgumentParser(
        prog="rdma-cts", description="Conformance tests for the memory-region verbs of RDMA devices."
    )
    parser.add_argument("--version", action="version", version=f"rdma-cts {VERSION}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        command = subparsers.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(execute=module.execute)
    given = sys.argv[1:] if argv is None else list(argv)
    arguments = parser.parse_args(given)
    arguments.argv = given[1:]
    try:
        return int(arguments.execute(arguments))
    except UserError as error:
        for line in str(error).splitlines():
            print(f"rdma-cts: {one_line(line)}", file=sys.stderr)
        return error.status
    except BrokenPipeError:  # the reader of our output, such as head, has gone
        sys.stderr.close()
        return 1
    except KeyboardInterrupt:
        print("rdma-cts: interrupted", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
