"""`rdma-cts schema`: the table language, and what else we define, as JSON Schema, for editors and other tools."""

from __future__ import annotations

import argparse
import json

from conformance.results.waiver_file import waivers_schema
from conformance.tables.schema import rules_schema, table_schema
from reports import summary

NAME = "schema"
HELP = "Print the JSON Schema of tables or of another kind of file; docs/ holds a copy of each."

SCHEMAS = {"table": table_schema, "rules": rules_schema, "waivers": waivers_schema,
           "summary": summary.schema}  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("of", nargs="?", choices=tuple(SCHEMAS), default="table", help="which files (default: table)")


def execute(arguments: argparse.Namespace) -> int:
    """Prints the schema; exit status 0."""
    print(text(arguments.of))
    return 0


def text(of: str) -> str:
    """The schema as it is published, without a final line feed."""
    return json.dumps(SCHEMAS[of](), indent=1)
