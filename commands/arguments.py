"""The parser of the command line. What was typed is repeated in messages, and cannot control the terminal there."""

from __future__ import annotations

import argparse
from typing import NoReturn

from reports.digest import one_line


class Parser(argparse.ArgumentParser):
    """argparse's parser, whose messages are one printable line."""

    def error(self, message: str) -> NoReturn:
        """Prints usage and message, and exits with status 2."""
        super().error(one_line(message))
