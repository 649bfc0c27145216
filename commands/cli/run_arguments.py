"""Functions that add arguments of commands to argparse parsers. The options of `rdma-cts run` become RunOptions; other
commands share the options that select cases. conformance/run_options.py defines the name and meaning of each option of
a run."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from commands.cli.arguments import NAME, Parser
from commands.cli.output import out_directory, out_path
from conformance.errors import UserError
from conformance.option import CASES, given_path
from conformance.run_options import OPTIONS, RunOptions
from conformance.tables.suite import Selection, Suite, load_suite
from conformance.tables.tiers import Shard

# The options that have choices from fixtures/. OPTIONS cannot have them, because conformance/ does not import fixtures/.
_WITH_CHOICES = ("stack", "arch", "driver")
# The placeholders whose values are paths of files and directories.
PATHS = ("DIR", "FILE", "KEY", "RUN")
# The types of values. A key is an option with its placeholder, or only a placeholder.
_TYPES: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(PATHS, given_path),
    "--out DIR": out_directory,
    "--site DIR": out_directory,
    "--out FILE": out_path,
    "K/N": Shard.parse,
}
_NARGS = {"_...": "+", "[_...]": "*", "[_]": "?"}


def add(parser: argparse._ActionsContainer, usage: str, help: str, **more: Any) -> None:
    """Adds an argument in the notation of a usage: `runs RUN...`, `--failed [RUN]`, `-v,--verbose`. The placeholder
    decides the type of the value. An option without placeholder and choices is a switch. `more` are further settings
    for argparse, which override the settings of the usage."""
    names, _, value = usage.partition(" ")
    if value:
        nargs = _NARGS.get(re.sub("[A-Z]+", "_", value))
        if nargs:
            value = value.strip("[.]")
        type_ = _TYPES.get(f"{names} {value}", _TYPES.get(value))
        more = {"nargs": nargs, "metavar": value, "type": type_, **more}
        if nargs == "+" and names.startswith("-"):
            more["action"] = "extend"  # `--run A --run B` is `--run A B`
    elif names.startswith("-") and not {"action", "choices", "default"} & more.keys():
        more["action"] = "store_true"
    parser.add_argument(*names.split(","), help=help, **more)


def add_options(parser: argparse.ArgumentParser, names: Iterable[str] = tuple(OPTIONS)) -> None:
    """Adds the options of these fields of RunOptions. The namespace has only the options that were given."""
    groups: dict[str, argparse._ActionsContainer] = {}
    for name in names:
        title = OPTIONS[name].group
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        add_argument(groups[title], name, argparse.SUPPRESS)


def add_argument(group: argparse._ActionsContainer, name: str, default: Any) -> None:
    """Adds the option of a field of RunOptions. With the default SUPPRESS the default of RunOptions applies."""
    option = OPTIONS[name]
    if default == argparse.SUPPRESS:
        shown = option.default
    else:
        shown = default
    if name in _WITH_CHOICES:
        choices, shown = _choices(name)
        # The list of all choices would be wider than a terminal.
        option = replace(
            option,
            choices=choices,
            metavar=name.upper(),
            help=f"{option.help}: {', '.join(choices)}",
        )
    group.add_argument(option.flag, dest=name, default=default, **option.settings(shown))


def _choices(name: str) -> tuple[tuple[str, ...], str]:
    """Returns the choices of an option, and the default."""
    # Imported late: only commands that run cases have these options.
    from fixtures.guest.driver import DEFAULT_DRIVER, DRIVERS
    from fixtures.guest.recipe import DEFAULT_STACK, OWN_STACKS, STACKS
    from fixtures.system.architecture import ARCHITECTURES, host_architecture

    if name == "stack":
        return (*STACKS, *OWN_STACKS), DEFAULT_STACK
    if name == "arch":
        return tuple(ARCHITECTURES), host_architecture().name
    return tuple(DRIVERS), DEFAULT_DRIVER


def options_from(arguments: argparse.Namespace) -> RunOptions:
    """Returns the RunOptions of a namespace that was parsed with `add_options`. Raises UserError."""
    options = _options_from(arguments)
    if options.confirm and options.no_confirm:
        raise UserError("--confirm and --no-confirm exclude each other")
    return options


def _options_from(arguments: argparse.Namespace) -> RunOptions:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(arguments).items()
        if name in OPTIONS
    }
    return RunOptions(**values)


def recorded_options(argv: Sequence[str], path: Path) -> RunOptions:
    """Returns the RunOptions of recorded arguments. Raises a UserError that names `path`, the file of the record."""
    parser = Parser(prog=NAME, add_help=False)
    add_options(parser)
    try:
        return _options_from(parser.parse_args(argv))
    except UserError as error:
        raise UserError(
            f"{path} has arguments that `run` does not have: {error.message}",
        ) from error


def add_selection(parser: argparse.ArgumentParser, tier: str) -> None:
    """Adds --verb, --rule, -k, --only, --tier (with the default `tier`) and --cases."""
    group = parser.add_argument_group(CASES)
    for name in ("verbs", "rules", "words", "only"):
        add_argument(group, name, [])
    add_argument(group, "tier", tier)
    add_cases_argument(group)


def add_cases_argument(parser: argparse._ActionsContainer) -> None:
    """Adds --cases, for tables outside of the project."""
    add_argument(parser, "cases", [])


def suite_from(arguments: argparse.Namespace | RunOptions) -> Suite:
    """Returns the suite, including the folders that --cases names."""
    return load_suite(arguments.cases)


def selection_from(arguments: argparse.Namespace) -> Selection:
    return Selection(
        arguments.verbs,
        arguments.rules,
        arguments.words,
        arguments.only,
        arguments.tier,
    )
