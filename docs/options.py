"""All commands and options as Markdown for docs/commands.md. As in the manual page, the texts are those of --help."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from commands.__main__ import whole_parser  # noqa: E402
from commands.cli.arguments import Parser  # noqa: E402


def text() -> str:
    """Returns a section for each command."""
    os.environ["COLUMNS"] = "10000"  # keeps the usage on one line
    lines: list[str] = []
    for name, parser in whole_parser().commands().items():
        lines += [f"## {name}", "", str(parser.description), "", *_arguments(parser), ""]
    return "\n".join(lines).rstrip() + "\n"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    usage = " ".join(parser.format_usage().removeprefix("usage: ").split())
    yield from (f"    {usage}", "")
    for group in parser._action_groups:
        if group._group_actions and group.title not in ("positional arguments", "options"):
            yield from ("", f"{str(group.title).capitalize()}:", "")
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from _trials(action)
            elif not isinstance(action, argparse._HelpAction):
                yield _entry(parser, action)


def _trials(action: argparse._SubParsersAction[Parser]) -> Iterator[str]:
    for name, parser in action.choices.items():
        yield from (
            "",
            f"### {parser.prog.removeprefix('rdma-cts ')}",
            "",
            f"{parser.description or name}:",
            "",
        )
        yield from _arguments(parser)


def _entry(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    formatter = argparse.HelpFormatter(parser.prog, width=10_000)
    if action.help:
        text = formatter._expand_help(action)
    else:
        text = ""
    return f"- `{formatter._format_action_invocation(action)}`: {' '.join(text.split()).replace('<', '&lt;')}"
