"""The options that select cases: adds them to a command's arguments, and applies them.

`run` takes the same options, but adds them itself (run_arguments.py).
"""

from __future__ import annotations

import argparse

from commands.run_arguments import add_argument
from conformance.run_options import CASES, RunOptions
from conformance.tables.selection import Selection
from conformance.tables.suite import Suite, load_suite

Chosen = argparse.Namespace | RunOptions


def add_arguments(parser: argparse.ArgumentParser, tier: str) -> None:
    """Adds --verb, --rule, -k, --only, --tier (with the default `tier`) and --cases."""
    group = parser.add_argument_group(CASES)
    for name in ("verbs", "rules", "words", "only"):
        add_argument(group, name, [])
    add_argument(group, "tier", tier)
    add_cases_argument(group)


def add_cases_argument(parser: argparse._ActionsContainer) -> None:
    """Adds --cases, for tables kept outside the project."""
    add_argument(parser, "cases", [])


def suite_from(arguments: Chosen) -> Suite:
    """The suite, including the folders that --cases names."""
    return load_suite(arguments.cases)


def selection_from(arguments: Chosen) -> Selection:
    """The cases that the options select."""
    return Selection(arguments.verbs, arguments.rules, arguments.words, arguments.only, arguments.tier)
