"""The parser of the command line: a mistake is one printable line that names the command's help, not the usage of all
options. What was typed is repeated there, and cannot control the terminal.
"""

from __future__ import annotations

import argparse
import re
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
