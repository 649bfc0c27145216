"""`rdma-cts test`: runs the project's own tests, which include a run in the Soft-RoCE guest."""

import argparse
import os
import re
import shlex
import subprocess
from collections.abc import Sequence

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from fixtures.system import packages

# Four test files at a time on two processors: a test with a guest often waits, and each guest takes much memory.
ALL = ("-n", "4", "--dist", "loadfile", "tests")
# Only --nightly runs tests with the mark `nightly`; it also runs other tests with more examples (docs/testing.md).
LEFT = ("-m", "not nightly")
# The quick tests for a developer: no guest, and no test file that takes more than a few seconds.
FAST = ("-m", "not guest and not nightly and not slow")
QUICK = ("-n", "2", "--dist", "loadfile", *FAST, "tests")
# pytest's statuses for mistakes in its arguments. The suite's statuses 4 and 5 mean something else.
_MISTAKES = {4: "pytest refuses these arguments", 5: "no test matches these arguments"}
_FLAGS = re.compile(r"-[hlqsvx]+|--.+=.*|--")  # pytest's options without a value in the next word
MORE = {"RDMA_CTS_FUZZED": "400", "RDMA_CTS_MOMENTS": "2"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="install what is needed without asking")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--nightly",
        action="store_true",
        help="also run the tests that only nightly jobs run",
    )
    which.add_argument(
        "--quick",
        action="store_true",
        help="run only the tests that are fast and need no guest",
    )
    parser.add_argument("pytest", nargs="*", metavar="ARG", help="arguments for pytest, after --")


def execute(arguments: argparse.Namespace) -> int:
    """Installs what is needed, runs pytest, and returns its exit status."""
    if not (ROOT / "tests").is_dir():
        raise UserError(
            "an installed package has no tests of the project",
            hint="run them in a checkout",
        )
    _check_files(arguments.pytest)
    # Arguments for pytest can select any test.
    uses: Sequence[str]
    if arguments.nightly or (arguments.pytest and not arguments.quick):
        uses = packages.NIGHTLY_TEST
    else:
        uses = packages.TEST
    python = packages.ensure_tools(uses, assume_yes=arguments.yes, say=print)
    selection: Sequence[str]
    if arguments.pytest and arguments.quick:
        selection = (*FAST, *arguments.pytest)
    elif arguments.pytest:
        selection = arguments.pytest
    elif arguments.quick:
        selection = QUICK
    elif arguments.nightly:
        selection = ALL
    else:
        selection = (*ALL, *LEFT)
    command = [python, "-m", "pytest", *selection]
    # Hints in the expected output name ./rdma-cts, however this command was started.
    inherited = {name: value for name, value in os.environ.items() if name != "RDMA_CTS_PROGRAM"}
    environment = {**(MORE if arguments.nightly else {}), **inherited}
    status = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if status in _MISTAKES:
        raise UserError(
            f"{_MISTAKES[status]}: {shlex.join(command[3:])}",
            hint="pytest's message is above; the test files are in tests/",
        )
    return status


def _check_files(words: Sequence[str]) -> None:
    """Raises UserError if a word is the path of a test file that does not exist, before anything is installed."""
    for before, word in zip(("", *words), words):
        path, _, _ = word.partition("::")
        is_value = before.startswith("-") and not _FLAGS.fullmatch(before)
        is_named = path.endswith(".py") or not is_value
        if is_named and not word.startswith("-") and not (ROOT / path).exists():
            raise UserError(f"there is no test file {path}", hint="the test files are in tests/")
