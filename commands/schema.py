"""`rdma-cts list schema`: prints the table language or another file format of the project as JSON Schema, for editors and
tools."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conformance.tables.schema import rules_schema, table_schema
from conformance.tables.suite import ROOT

LINE = 120  # the maximum line length in characters, as in all files of the project

# For each file format, a function that returns its schema, or the file with its schema.
SCHEMAS: Mapping[str, Callable[[], Any] | Path] = {
    "table": table_schema,
    "rules": rules_schema,
    "waivers": ROOT / "conformance/results/waivers.schema.json",
    "summary": ROOT / "reports/summary.schema.json",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "format",
        nargs="?",
        choices=tuple(SCHEMAS),
        default="table",
        help="the file format (default: table)",
    )


def execute(arguments: argparse.Namespace) -> int:
    print(text(arguments.format))
    return 0


def text(of: str) -> str:
    """Returns the schema as published in docs/, without the final newline."""
    source = SCHEMAS[of]
    if isinstance(source, Path):
        return source.read_text().rstrip()
    return _formatted(source(), 0)


def _formatted(value: Any, indent: int, room: int = LINE) -> str:
    """Returns JSON in which a value is on one line if it fits into the `room` characters left on the line."""
    flat = json.dumps(value)
    if len(flat) <= room or not isinstance(value, (dict, list)):
        return flat
    inner = indent + 1
    if isinstance(value, list):
        lines = [_formatted(value, inner, LINE - inner - 1) for value in value]
    else:
        keys = {key: f"{json.dumps(key)}: " for key in value}
        lines = [
            f"{keys[key]}{_formatted(value[key], inner, LINE - inner - 1 - len(keys[key]))}"
            for key in value
        ]
    first, last = "{}" if isinstance(value, dict) else "[]"
    separator = ",\n" + " " * inner
    return f"{first}\n{' ' * inner}{separator.join(lines)}\n{' ' * indent}{last}"
