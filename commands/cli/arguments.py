"""The parser of the command line. A mistake is reported in one line, which refers to the command's help and omits
the usage. Arguments in this line are escaped, so that they cannot control the terminal."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from conformance.errors import PROGRAM, UserError, command, format_list
from conformance.model.printable import one_line
from conformance.older_python import pairwise
from reports.text import wrapped

NAME = "rdma-cts"  # the prefix of messages
_CHOICE = re.compile(
    r"argument (?P<of>.*): invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)",
    re.DOTALL,
)
_VALUE = re.compile(r"argument (\S+): ignored explicit argument .*", re.DOTALL)
_DASH = re.compile(r"argument (\S+): expected one argument")

_SURROGATE = re.compile("[\ud800-\udfff]")  # an undecodable byte of the command line
_MOST_NAMES = 4  # of commands in a hint


class _Formatter(argparse.HelpFormatter):
    """argparse's formatter, except that it does not break a path or a name at a hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(wrapped(indent + " ".join(text.split()), width, indent))


class Parser(argparse.ArgumentParser):
    """argparse's parser, except that a mistake raises UserError (status 2) and that options cannot be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Formatter, **settings)

    # argparse has overloads for namespaces of other types; this override has none.
    def parse_args(  # type: ignore[override]
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> argparse.Namespace:
        """Parses the arguments. An unknown argument is reported as a mistake in the arguments of its command."""
        namespace_read, unknown = self.parse_known_args(args, namespace)
        if unknown:
            parser = self._of_command(getattr(namespace_read, "command", ""))._of_command(
                getattr(namespace_read, "trial", None)
                or getattr(namespace_read, "form", None)
                or "",
            )
            parser.error(f"unrecognized arguments: {' '.join(unknown)}{parser._meant(unknown[0])}")
        return namespace_read

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        values = super()._get_values(action, arg_strings)
        if action.option_strings and "" in arg_strings:
            raise argparse.ArgumentError(action, "its value is empty, as of an unset variable")
        if action.nargs in (argparse.PARSER, argparse.REMAINDER):
            return values
        # a path may have any bytes
        if any(isinstance(value, str) and _SURROGATE.search(value) for value in _each(values)):
            raise argparse.ArgumentError(action, "its bytes are not text in UTF-8")
        return values

    def options(self, command: str = "") -> list[str]:
        return [
            name for action in self._of_command(command)._actions for name in action.option_strings
        ]

    def commands(self) -> dict[str, Parser]:
        for action in self._subparsers_actions():
            return dict(action.choices)
        return {}

    def entries(self) -> list[argparse.Action]:
        """Returns an action for each command, which has the command's help text."""
        return [entry for action in self._subparsers_actions() for entry in action._choices_actions]

    def _subparsers_actions(self) -> list[argparse._SubParsersAction[Any]]:
        return [
            action for action in self._actions if isinstance(action, argparse._SubParsersAction)
        ]

    def _of_command(self, command: str) -> Parser:
        return self.commands().get(command, self)

    def _meant(self, word: str) -> str:
        """Returns a hint that names a similar option, or an option whose value the word can be; else an empty text."""
        from conformance.yamldoc.reader import (
            suggestion,
        )  # imported late: help texts do not need it

        options = self.options()
        command = self.prog.removeprefix(NAME).strip()
        if instead := _INSTEAD.get((command, word)) or self._format_named(word.lstrip("-")):
            return f" (did you mean {instead}?)"
        if "--tier" in options and word.lstrip("-") in _tiers():
            return f" (did you mean --tier {word.lstrip('-')}?)"
        if word == "--json":  # similar to --only
            return ""
        if word.startswith("-"):
            return self._instead_of(word, suggestion(word.partition("=")[0], options))
        if self.prog == f"{NAME} judge" and os.path.exists(word):
            return " (judge takes one run)"
        for option in _options_with(word):
            if option in options:
                return f" (did you mean {option} {_value(option, word)}?)"
        from commands.cli.catalogue import FORMS  # imported late: help texts do not need it

        of = f"{self.prog.removeprefix(NAME)[1:]} "
        near = suggestion(word, [form.removeprefix(of) for form in FORMS if form.startswith(of)])
        if "did you mean" in near:
            return near.replace("you mean ", f"you mean {of}")
        return f" (did you mean --{word}?)" if f"--{word}" in options else ""

    def _format_named(self, word: str) -> str:
        """Returns the option for a format, such as `json`, if this command has the format; else an empty text."""
        for action in self._actions:
            if "--format" in action.option_strings and action.choices:
                if word in action.choices:
                    return f"--format {word}"
                if word == "json" and "summary" in action.choices:
                    return "--format summary"
        return ""

    def _instead_of(self, word: str, near: str) -> str:
        """Returns a hint for an unknown option: the commands that have it, else a similar option, `near`, of this one."""
        if self.prog == f"{NAME} test" and "did you mean" not in near:  # an option of pytest
            return f" (did you mean -- {word}?)"
        name = word.partition("=")[0]
        if self.prog != NAME and (elsewhere := commands_with(name)):
            from conformance.run_options import OPTIONS  # imported late: help texts do not need it

            is_of_run = any(option.flag == name for option in OPTIONS.values())
            is_night = self.prog == f"{NAME} nightly"
            more = "; a night runs in the guest" if is_night and is_of_run else ""
            return f" ({name} is an option of {elsewhere}{more})"
        return near if len(self.options()) > 2 else ""

    def _below(self) -> Iterator[Parser]:
        """Yields the parsers of the commands below this parser."""
        for parser in self.commands().values():
            yield parser
            yield from parser._below()

    def error(self, message: str) -> NoReturn:
        """Raises UserError with argparse's message; for an unknown choice, the message suggests a similar choice."""
        if match := _CHOICE.fullmatch(message):
            # Imported late: help texts do not need it.
            from conformance.yamldoc.reader import suggestion

            near = suggestion(match["given"], re.findall(r"[^', ]+", match["known"]))
            if match["of"] == "--stack":
                near = driver_named(match["given"]) or near
            if match["of"] == "COMMAND" and "did you mean" not in near:
                near = _command_with(match["given"])
            message = f"{match['of']} {match['given']!r} does not exist{near}"
        if match := _VALUE.fullmatch(message):
            message = f"argument {match[1]} takes no value"
        elif match := _DASH.fullmatch(message):
            for option, value in pairwise(self._given):
                is_value = value.startswith("-") and value not in self.options()
                if is_value and option in match[1].split("/"):
                    message += f"; write {option}={value} for a value that begins with -"
        name = self.prog.removeprefix(NAME).strip()
        if message.endswith("required: --history"):
            message += " DIR"
        said = one_line(f"{name}: {message}" if name else message)
        raise UserError(said, hint=f"see {PROGRAM} {name} --help".replace("  ", " "))


def _tiers() -> Sequence[str]:
    from conformance.model.vocabulary import TIERS  # imported late: help texts do not need it

    return [*TIERS]


def _each(values: Any) -> Sequence[Any]:
    return values if isinstance(values, (list, tuple)) else [values]


def commands_with(option: str) -> str:
    """Returns the first commands that have an option, as words; empty if no command has it."""
    from commands.__main__ import whole_parser  # imported late: imports all commands
    from conformance.run_options import OPTIONS

    sources = (path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("*.py"))
    if all(spec.flag != option for spec in OPTIONS.values()) and not any(
        option in source for source in sources
    ):
        return ""
    every = [parser for parser in whole_parser()._below() if option in parser.options()]
    names = [parser.prog.removeprefix(f"{NAME} ") for parser in every]
    if "run" in names:
        names.remove("bisect-step")  # its options are those of run
    if len(names) > _MOST_NAMES:
        return f"{', '.join(names[:_MOST_NAMES])} and others"
    return format_list(names)


def driver_named(word: str) -> str:
    """Returns a hint if a word that should be a stack is a driver; else an empty text."""
    from fixtures.guest.driver import DRIVERS  # imported late: help texts do not need it

    return f" (did you mean --driver {word}?)" if word in DRIVERS else ""


def _options_with(word: str) -> list[str]:
    """Returns the options of commands whose value the word can be."""
    from conformance.model.rules import RULE_ID  # imported late: help texts do not need it
    from conformance.verbs import VERBS
    from fixtures.guest.recipe import STACKS

    is_there = os.path.exists(word)
    kinds = {
        "--rule": RULE_ID.fullmatch(word),
        "--verb": f"ibv_{_value('--verb', word)}" in VERBS,
        "--failed": is_there,
        "--only": "/" in word and not is_there,
        "--stack": word in STACKS,
        "--device": re.fullmatch(r"[a-z]\w*[0-9]", word),
    }
    return [option for option, fits in kinds.items() if fits]


def _value(option: str, word: str) -> str:
    if option == "--verb":
        return word.removeprefix("ibv_").strip("/")
    return word


# What a user means by a word that a command does not have.
_INSTEAD = {
    ("list", "cases"): "list, without a word",
    ("compare", "--old"): "compare OLD NEW",
    ("compare", "--new"): "compare OLD NEW",
}
# Words that a user takes for a command, with the command that does it.
_COMMANDS = {
    "lab": "run --lab FILE",
    "history": "report --history DIR",
    "resume": "run --resume RUN",
    "version": "--version",
    "diff": "compare OLD NEW",
    "show": "report RUN",
    "dispute": "explain ID --dispute",
}


def _command_with(word: str) -> str:
    """Returns a hint that names a command of which the word can be an argument, or an empty text."""
    if (of := _COMMANDS.get(word)) or os.path.exists(word):
        return f" (did you mean {PROGRAM} {of or f'report {word}'}?)"
    for option in _options_with(word):
        if option in ("--rule", "--only"):
            return f" (did you mean {command('explain', word)}?)"
        return f" (did you mean {command('run', option, _value(option, word))}?)"
    return ""
