"""The parser of the command line, and the environment variables that its help explains.

A mistake is one printable line that names the command's help, not the usage of all options. What was typed is repeated
there, and cannot control the terminal. Not for reading a variable: each is read where it is used.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from conformance.errors import PROGRAM, UserError
from conformance.model.rules import RULE_ID
from conformance.verbs import VERBS
from conformance.yamldoc.reader import suggestion
from reports.text import one_line

NAME = "rdma-cts"  # before messages
_CHOICE = re.compile(r"argument (?P<of>.*): invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """argparse's parser, which raises UserError (status 2) for a mistake. No option can be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    # argparse returns the namespace that it is given, of any type; its overloads say so and need not be repeated here.
    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parses the arguments; one that is not known is a mistake of the command that was given it."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            self._of_command(getattr(found, "command", "")).error(
                f"unrecognized arguments: {' '.join(unknown)}{self._meant(unknown[0], found)}"
            )
        return found

    def options(self, command: str = "") -> list[str]:
        """The options of this parser, or of one of its commands."""
        return [name for action in self._of_command(command)._actions for name in action.option_strings]

    def commands(self) -> dict[str, Parser]:
        """The parsers of the commands, by name."""
        groups = [each for each in self._actions if isinstance(each, argparse._SubParsersAction)]
        return dict(groups[0].choices) if groups else {}

    def _of_command(self, command: str) -> Parser:
        return self.commands().get(command, self)

    def _meant(self, word: str, found: argparse.Namespace) -> str:
        """The option that a word is similar to, or that takes such a word; empty if there is none."""
        known = self.options(getattr(found, "command", ""))
        if word.startswith("-"):
            return suggestion(word.partition("=")[0], known) if len(known) > 1 else ""
        folder = word.removeprefix("ibv_").strip("/")
        kinds = {"--rule": RULE_ID.fullmatch(word), "--verb": f"ibv_{folder}" in VERBS, "--only": "/" in word}
        option = next((each for each, fits in kinds.items() if fits and each in known), "")
        return f" (did you mean {option} {folder if option == '--verb' else word}?)" if option else ""

    def error(self, message: str) -> NoReturn:
        """Raises UserError with argparse's message; an unknown choice is named with one that is similar."""
        if found := _CHOICE.fullmatch(message):
            near = suggestion(found["given"], re.findall(r"[^', ]+", found["known"]))
            message = f"{found['of']} {found['given']!r} does not exist{near or '; there are ' + found['known']}"
        command = self.prog.removeprefix(NAME).strip()
        said = one_line(f"{command}: {message}" if command else message)
        raise UserError(said, hint=f"see {PROGRAM} {command} --help".replace("  ", " "))


# What docs/variables.md explains at more length; a test compares both with what the code reads.
VARIABLES: Mapping[str, str] = {
    "RDMA_CTS_CACHE": "where images, templates and durations are kept (default: $XDG_CACHE_HOME/rdma-cts, else"
    " ~/.cache/rdma-cts)",
    "RDMA_CTS_MIRROR": "the Debian mirror that the guest is made from (default: that of this host's apt)",
    "RDMA_CTS_ACCEL": "how the guest's processor is made: auto, kvm or tcg (default: auto)",
    "RDMA_CTS_TEMPLATES": "auto: guests are resumed from a template; off: each is booted (default: auto)",
    "RDMA_CTS_PMEM": "a device DAX that cases of persistent memory may overwrite",
    "RDMA_CTS_PYTHON": "the Python that ./rdma-cts runs with",
    "RDMA_CTS_YES": "1: packages are installed without asking, as with --yes",
    "RDMA_CTS_CONTAINER": "1 or 0: whether this is a container, in which nobody is asked (default: found out)",
    "CI": "any text: nobody is asked about packages, as in a container",
    "RDMA_CTS_DERIVED": "where read tables and compiled C are kept (default: in the cache; nothing is kept by a run"
    " on a device of this host)",
    "CC": "the C compiler with which the installed header is checked (default: gcc or clang)",
    "NO_COLOR": "any text: no colours",
}
_WIDTH, _INDENT = 100, 22


def help_text() -> str:
    """The variables as a part of the help text."""
    return "\n".join(["environment variables:", *_lines(), "", "exit statuses and more: README.md, docs/"])


def _lines() -> Iterator[str]:
    for name, meaning in VARIABLES.items():
        yield from textwrap.wrap(
            meaning, _WIDTH, initial_indent=f"  {name}".ljust(_INDENT), subsequent_indent=" " * _INDENT
        )
