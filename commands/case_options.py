"""The arguments by which `list`, `run` and `coverage` choose among the cases."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.model.vocabulary import TIERS
from conformance.tables.selection import Selection
from conformance.tables.suite import Suite, load_suite


def add_arguments(parser: argparse.ArgumentParser, tier: str) -> None:
    """Adds --verb, --rule, -k, --only, --tier (which is `tier` if nothing is said) and --cases."""
    group = parser.add_argument_group("which cases")
    group.add_argument("--verb", action="append", default=[], metavar="VERB", help="only this verb, e.g. reg_mr")
    group.add_argument("--rule", action="append", default=[], metavar="ID", help="only what proves this rule")
    group.add_argument("-k", action="append", default=[], metavar="WORD", help="only ids with this word in them")
    group.add_argument("--only", action="append", default=[], metavar="CASE", help="only the case of this id,"
                       " or one point of a sweep: CASE#axis=value,axis=value")  # fmt: skip
    group.add_argument("--tier", choices=tuple(TIERS), default=tier, help=f"how much to take on (default {tier})")
    add_cases_argument(group)


def add_cases_argument(parser: argparse._ActionsContainer) -> None:
    """Adds --cases, for tables kept outside of the project."""
    parser.add_argument(
        "--cases", action="append", default=[], type=Path, metavar="DIR", help="also the tables in DIR/<verb>/"
    )


def suite_from(arguments: argparse.Namespace) -> Suite:
    """The suite with the folders that --cases names."""
    return load_suite(arguments.cases)


def selection_from(arguments: argparse.Namespace) -> Selection:
    """What the arguments select."""
    return Selection(arguments.verb, arguments.rule, arguments.k, arguments.only, arguments.tier)
