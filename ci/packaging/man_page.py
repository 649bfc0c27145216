"""Prints the manual page rdma-cts(1) in roff, with the texts of --help about commands and options. Usage:
python3 ci/packaging/man_page.py; PYTHONPATH can name an installed suite."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from commands.__main__ import whole_parser
from commands.variables import VARIABLES
from conformance.older_python import UTC
from conformance.tables.suite import VERSION

EXIT_STATUSES = (
    ("0", "No rule was violated; in a comparison, nothing has regressed."),
    (
        "1",
        "A rule was violated, or a waiver does not apply; in a comparison, something has regressed.",
    ),
    ("2", "A mistake in the command or in a table."),
    ("3", "The run is incomplete, or the harness or environment is broken."),
    ("4", "The host that --host names has no RDMA device; of doctor: no way of running works yet."),
)


def page() -> str:
    """Returns the manual page. Its date is SOURCE_DATE_EPOCH (in seconds), or today."""
    return "\n".join(_lines(whole_parser())) + "\n"


def _lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    if epoch:
        date = datetime.fromtimestamp(int(epoch), UTC)
    else:
        date = datetime.now(UTC)
    yield f'.TH RDMA\\-CTS 1 {date:%Y\\-%m\\-%d} "rdma\\-cts {_escaped(VERSION)}" "User Commands"'
    yield ".SH NAME"
    yield f"rdma\\-cts \\- {_escaped(parser.description or '').rstrip('.')}"
    yield ".SH SYNOPSIS"
    yield from _synopsis(parser)
    commands = next(
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    yield from _options(parser, leave_out=commands)
    yield ".SH COMMANDS"
    for name, command in commands.choices.items():
        yield f".SS {_escaped(name)}"
        yield _text(command.description or "")
        yield ".PP"
        yield from _synopsis(command)
        yield from _groups(command)
    yield ".SH ENVIRONMENT"
    for name, meaning in VARIABLES.items():
        yield from (".TP", f".B {name}", _text(meaning))
    yield ".SH EXIT STATUS"
    for status, meaning in EXIT_STATUSES:
        yield from (".TP", f".B {status}", _text(meaning))
    yield ".SH FILES"
    for file, meaning in (
        ("out/<time>-<device>/", "The results and reports of a run, below the working directory."),
        (
            "~/.cache/rdma-cts/",
            "Images and templates of the guest; RDMA_CTS_CACHE names another directory.",
        ),
        ("/usr/share/rdma-cts/", "The suite; nothing is written there."),
    ):
        yield from (".TP", f".I {_escaped(file)}", _text(meaning))


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=10_000)
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups, prefix="")
    usage = formatter.format_help().strip().removeprefix(parser.prog)
    yield f".B {_escaped(parser.prog)}"
    yield _text(usage.strip())


def _options(parser: argparse.ArgumentParser, leave_out: argparse.Action) -> Iterator[str]:
    yield ".SH OPTIONS"
    for action in parser._actions:
        if action is not leave_out:
            yield from _action(parser, action)


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:
        actions = [
            action
            for action in group._group_actions
            if not isinstance(action, argparse._HelpAction)
        ]
        if actions and group.title not in ("positional arguments", "options"):
            yield from (".PP", f"{_text((group.title or '').capitalize())}:")
        for action in actions:
            yield from _action(parser, action)


def _action(parser: argparse.ArgumentParser, action: argparse.Action) -> Iterator[str]:
    formatter = argparse.HelpFormatter(parser.prog, width=10_000)
    yield ".TP"
    yield f".B {_escaped(formatter._format_action_invocation(action))}"
    yield _text(formatter._expand_help(action) if action.help else "")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def _text(text: str) -> str:
    """Returns a text as one line. If roff would parse the beginning as a request, it is escaped."""
    line = _escaped(" ".join(text.split()))
    if line.startswith((".", "'")):
        return f"\\&{line}"
    return line


if __name__ == "__main__":
    print(page(), end="")
