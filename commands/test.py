"""`rdma-cts test`: the project's own tests, a run in the Soft-RoCE guest among them."""

from __future__ import annotations

import argparse
import subprocess

from conformance.tables.suite import ROOT
from fixtures import packages

NAME = "test"
HELP = "Run the project's own tests; what follows `--` goes to pytest."
# Two files side by side: most of the time goes into guests, which take one processor each, and memory.
ALL = ("-n", "2", "--dist", "loadfile", "tests")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("--yes", action="store_true", help="install what is needed without asking")
    parser.add_argument("pytest", nargs="*", metavar="ARG", help="arguments for pytest, after --")


def execute(arguments: argparse.Namespace) -> int:
    """Installs what is needed and runs pytest; gives pytest's exit status."""
    python = packages.ensure_tools(packages.TEST, assume_yes=arguments.yes, say=print)
    command = [python, "-m", "pytest", *(arguments.pytest or ALL)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode
