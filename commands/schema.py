"""`rdma-cts schema`: the table language and the project's other file formats as JSON Schema, for editors and tools."""

import argparse
import json
from typing import Any

from conformance.results.waiver_file import waivers_schema
from conformance.tables.schema import rules_schema, table_schema
from reports import summary

LINE = 120  # maximum line length in characters, as in the rest of the project

SCHEMAS = {"table": table_schema, "rules": rules_schema, "waivers": waivers_schema, "summary": summary.schema}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "format", nargs="?", choices=tuple(SCHEMAS), default="table", help="which files (default: table)"
    )


def execute(arguments: argparse.Namespace) -> int:
    print(text(arguments.format))
    return 0


def text(of: str) -> str:
    """The schema as published in docs/, without the final newline."""
    return _formatted(SCHEMAS[of](), 0)


def _formatted(value: Any, indent: int, room: int = LINE) -> str:
    """JSON in which a value stays on one line if it fits into `room`, the characters left on that line."""
    flat = json.dumps(value)
    if len(flat) <= room or not isinstance(value, dict | list):
        return flat
    inner = indent + 1
    if isinstance(value, list):
        lines = [_formatted(each, inner, LINE - inner - 1) for each in value]
    else:
        keys = {key: f"{json.dumps(key)}: " for key in value}
        lines = [f"{keys[key]}{_formatted(value[key], inner, LINE - inner - 1 - len(keys[key]))}" for key in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    separator = ",\n" + " " * inner
    return f"{first}\n{' ' * inner}{separator.join(lines)}\n{' ' * indent}{last}"
