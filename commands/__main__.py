"""The command line: `./rdma-cts COMMAND …`. Each command is a module of this package. This module finds and starts the
command. A user's mistake becomes one line on standard error and an exit status, without a traceback."""

from __future__ import annotations

import argparse
import gc
import importlib
import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from commands.cli.arguments import NAME, Parser, commands_with
from commands.cli.catalogue import (
    COMMANDS,
    FORMS,
    GROUPS,
    check_installed,
    module_of,
    of_today,
    spelled,
)
from commands.cli.endings import (
    SIGNALLED,
    crash_report,
    heed_signals,
    report_signal,
    unusable_path,
)
from commands.cli.streams import Output, remark, show
from conformance import cache
from conformance.errors import PROGRAM, UserError, command
from conformance.model.printable import one_line
from conformance.regular_file import holding_folders
from fixtures.system.cache import cache_directory, keeps_files, unusable

# new objects between two garbage collections; few objects of a command become garbage
_ALLOCATED = 50_000
_ENVIRONMENT = 3  # the exit status
_ALONE = ("-h", "--help", "--version")  # options without a command


class _Version(argparse.Action):
    """The option --version, which reads the version only when it prints it."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from commands.cli.version import version_text

        print(f"{NAME} {version_text()}")
        parser.exit()


class _Program(Parser):
    """The parser of all commands. Its help text shows the commands by what a person wants."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self.description)
        entries = {action.dest: action for action in self.entries()}
        for title, commands in GROUPS.items():
            formatter.start_section(title)
            formatter.add_arguments([entries[name] for name in commands])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([action for action in self._actions if action.option_strings])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def parser_of(words: Sequence[str] = ()) -> Parser:
    """Returns a parser of the command that the words begin with, and of its form, such as `list coverage`. Without
    words, or with an unknown command, the parser has all commands without their arguments, because importing all modules
    takes longer than most commands."""
    name = " ".join(words[:1])
    if name not in COMMANDS:
        return _parser()
    form = " ".join(words[:2])
    return _parser([name], [form] if form in FORMS else [])


def whole_parser() -> Parser:
    """Returns a parser of all commands and forms with all arguments."""
    return _parser([*COMMANDS], [*FORMS])


def _parser(names: Sequence[str] = (), forms: Sequence[str] = ()) -> Parser:
    """Returns a parser of these commands and forms with their arguments. Without names, it has all commands without
    their arguments."""
    parser = _Program(
        prog=NAME,
        description="Conformance tests for the memory-region verbs of RDMA devices.",
        epilog=f"Environment variables: {PROGRAM} list variables. Exit statuses and more: rdma-cts(1), README.md, docs/.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="show the version with its commit and exit"
    )
    subparsers = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        required=True,
        parser_class=Parser,
    )
    for name in names or COMMANDS:
        command = subparsers.add_parser(name, help=COMMANDS[name], description=COMMANDS[name])
        if names:
            _add_command(command, name)
            _add_forms(command, [form for form in forms if form.startswith(f"{name} ")])
    return parser


def _add_command(parser: Parser, name: str) -> None:
    module = importlib.import_module(f"commands.{module_of(name)}")
    module.add_arguments(parser)
    parser.set_defaults(execute=module.execute)


def _add_forms(parser: Parser, forms: Sequence[str]) -> None:
    """Adds forms of a command. Their words are optional: without one, the command's own arguments apply."""
    if not forms:
        return
    subparsers = parser.add_subparsers(dest="form", metavar="FORM", parser_class=Parser)
    for form in forms:
        _, word = form.split(" ")
        below = subparsers.add_parser(word, help=FORMS[form], description=FORMS[form])
        _add_command(below, form)


@holding_folders()
def main(
    argv: Sequence[str] | None = None,
    parsed: Namespace | None = None,
    **known: object,
) -> int:
    """Runs the command that `argv` names and returns its exit status. `parsed` are arguments that the caller has
    parsed. `known` are attributes that are added to the arguments, such as cases that the caller has already chosen."""
    if argv is None:
        words = sys.argv[1:]
    else:
        words = list(argv)
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    words = _spelled_anew(words)
    out: Path | None = None
    arguments = parsed or Namespace()
    try:
        if words[:1] and words[0].startswith("-") and words[0] not in _ALONE:
            raise UserError("a command comes first, then its options", hint=_meant(words))
        check_installed(words)
        if not parsed:
            parser_of(words).parse_args(words, arguments)
        vars(arguments).update(known, argv=words[1:])
        try:
            return int(arguments.execute(arguments))
        finally:
            out = getattr(arguments, "out", None)
    except UserError as error:
        return _report_error(error, words)
    except KeyboardInterrupt as end:
        return report_signal(end)
    except Exception as error:
        if isinstance(error, OSError) and (said := unusable_path(error, words)):
            return _report_error(said, words)
        return _report_error(crash_report(error, out if out and out.is_dir() else None), words)


def _spelled_anew(words: list[str]) -> list[str]:
    """Returns the command line in today's spelling. A former spelling is told on standard error."""
    today = of_today(words)
    if today != words:
        print(
            f"{NAME}: `{words[0]}` is now `{spelled(words[0], today)}`; "
            "the former spelling works until version 2",
            file=sys.stderr,
        )
    return today


def _meant(given: Sequence[str]) -> str:
    """Returns a hint for a command line without a command: the same options of `run` if `run` has the first of them."""
    from conformance.yamldoc.reader import suggestion  # imported late: only mistakes need it

    name = given[0].partition("=")[0]
    place = next((place for place, word in enumerate(given) if word in COMMANDS), 0)
    if place:
        words = [given[place], *given[:place], *given[place + 1 :]]
        if name in parser_of(words).options(words[0]):
            return f"did you mean {command(*words)}?"
        if elsewhere := commands_with(name):
            return f"{words[0]} has no {name}; it is an option of {elsewhere}"
    elif name in parser_of(["run"]).options("run"):
        return f"did you mean {command('run', *given)}?"
    near = suggestion(name, _ALONE)
    return f"see {PROGRAM} --help{near if 'did you mean' in near else ''}"


def _report_error(error: UserError, given: Sequence[str]) -> int:
    """Prints an error and returns its exit status; for git bisect 128, because less is a verdict on the commit."""
    for line in error.lines:
        print(f"{NAME}: {one_line(line)}", file=sys.stderr)
    show(error.screen, sys.stderr)
    if given[:1] == ["bisect-step"]:
        return SIGNALLED
    return error.status


def keep_derived_files(given: Sequence[str]) -> None:
    """Lets this process and its children store parsed tables in the cache, if the command may write to the cache."""
    if keeps_files(given):
        os.environ.setdefault(cache.DIRECTORY, str(cache_directory() / "derived" / "host"))


def run_as_program() -> int:
    """Runs the command of this process and returns its exit status. If output was lost, the status is 3, except for
    `run`."""
    gc.set_threshold(_ALLOCATED, 20, 20)
    output = Output()
    heed_signals()
    words = sys.argv[1:]
    is_run = words[:1] == ["run"]
    try:
        keep_derived_files(words)
        status = main()
    except UserError as error:
        return _report_error(error, words)
    except SystemExit as end:  # after --help and --version
        status, is_run = int(end.code or 0), False
    except KeyboardInterrupt as end:  # before or after the command itself
        status = report_signal(end)
    if cache.failure and status != _ENVIRONMENT:  # of which the command has said what is wrong
        remark(f"{NAME}: {unusable(*cache.failure)}")
    gc.freeze()  # Python collects no garbage while the process exits
    if (lost := output.lost()) and not is_run:
        return _report_error(UserError(f"standard output: {lost}", status=3), words)
    return status


if __name__ == "__main__":
    if os.getpid() == 1:
        from fixtures.system.init import continue_in_child

        continue_in_child()
    sys.exit(run_as_program())
