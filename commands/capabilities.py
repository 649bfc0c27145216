"""`rdma-cts list capabilities`: prints the capabilities that a profile, or `needs` of a table, can name."""

import argparse

from commands.cli.streams import show_meanings
from conformance.model.capability import MEANING

_INDENT = max(map(len, MEANING)) + 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are no arguments."""


def execute(arguments: argparse.Namespace) -> int:
    del arguments
    show_meanings(MEANING, _INDENT)
    return 0
