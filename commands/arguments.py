"""The parser of the command line, and the environment variables that its help explains.

A mistake is one printable line that names the command's help, not the usage of all options. What was typed is repeated
there, and cannot control the terminal. Not for reading a variable: each is read where it is used.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from conformance.errors import PROGRAM, UserError
from conformance.yamldoc.reader import suggestion
from reports.text import one_line

NAME = "rdma-cts"  # before messages
_CHOICE = re.compile(r"argument (?P<of>.*): invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)", re.DOTALL)


class Parser(argparse.ArgumentParser):
    """argparse's parser, which raises UserError (status 2) for a mistake. No option can be abbreviated."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

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
