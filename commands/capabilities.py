"""`rdma-cts list capabilities`: prints the capabilities that a profile, or `needs` of a table, can name."""

import argparse
import sys

from conformance.model.capability import MEANING
from reports.text import columns_of, wrapped

_INDENT = max(map(len, MEANING)) + 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are no arguments."""


def execute(arguments: argparse.Namespace) -> int:
    del arguments
    width = min(columns_of(sys.stdout), 100)
    for name, meaning in MEANING.items():
        print(*wrapped(f"{name:<{_INDENT}}{meaning}", width, " " * _INDENT), sep="\n")
    return 0
