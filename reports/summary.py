"""summary.json: the outcome of a run for programs, small enough to keep one for every nightly run.

docs/summary.schema.json describes it; keys may be added, but never change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from conformance.model.verdict import VERDICTS
from conformance.results.conclusions import headline
from reports import confirmation
from reports.digest import STANDINGS, Digest

FILE_NAME = "summary.json"
SCHEMA = "rdma-cts-summary/1"


def render(runs: Sequence[Digest]) -> str:
    """The summary of a run; for several runs, a list of summaries."""
    data = [as_data(run) for run in runs]
    return json.dumps(data[0] if len(data) == 1 else data, indent=1) + "\n"


def as_data(run: Digest) -> dict[str, Any]:
    """The summary as plain data."""
    violations = run.violations()
    return {
        "schema": SCHEMA,
        "conclusion": run.conclusion,
        "words": run.sentence,
        "exit_status": run.status,
        "complete": bool(run.footer and run.footer["complete"]),
        "stack": {name: text for name, text in run.facts.items() if text},
        "started": run.header["started"],
        "duration_s": run.footer["duration_s"] if run.footer else None,
        "tables_sha256": str(run.header["suite"].get("tables_sha256", "")),
        "cases": dict(run.counts),
        "points": run.points,
        "rules": dict(run.verdicts),
        "not_offered": dict(run.restrictions),
        "standings": {part.standing: part.count for part in run.parts},
        "documented_rules": len(run.rules),
        "violations": [
            {
                "rule": rule, "verdict": records[0]["effective"], "cases": [record["case"] for record in records],
                **dict(zip(("reason", "repro"), headline(rule, records[0]), strict=True)),
                "table": f"{records[0]['source'].get('file', '')}:{records[0]['source'].get('line', '')}",
            }
            for rule, records in violations.items()
        ],
        "confirmation": confirmation.as_data(run),
        "waivers": dict(run.waivers),
    }  # fmt: skip


def schema() -> dict[str, Any]:
    """The JSON Schema of a summary."""
    count = {"type": "integer", "minimum": 0}
    text = {"type": "string"}
    verdict = {"enum": list(VERDICTS)}
    violation = {
        "rule": text, "verdict": verdict, "cases": {"type": "array", "items": text, "minItems": 1}, "reason": text,
        "repro": {**text, "description": "the command that reproduces it"}, "table": text,
    }  # fmt: skip
    properties = {
        "schema": {"const": SCHEMA},
        "conclusion": {**text, "description": "the conclusion about the device, in a few words"},
        "words": {**text, "description": "the standing of all rules in one sentence, with reasons"},
        "exit_status": {"enum": [0, 1, 3], "description": "the exit status of rdma-cts run"},
        "complete": {"type": "boolean"},
        "stack": {"type": "object", "additionalProperties": text, "required": ["device"]},
        "started": text,
        "duration_s": {"type": ["number", "null"]},
        "tables_sha256": text,
        "cases": _counts(VERDICTS, count),
        "points": {**count, "description": "calls and operations judged"},
        "rules": {"type": "object", "additionalProperties": verdict, "description": "the verdict on each rule"},
        "not_offered": {
            "type": "object",
            "additionalProperties": text,
            "description": "for each rule that is verified in part, what the device or the stack does not offer of it",
        },
        "standings": _counts(STANDINGS, count),
        "documented_rules": count,
        "violations": {"type": "array", "items": _object(violation)},
        "confirmation": {
            "type": "object",
            "description": "how many violations were confirmed, not confirmed and not tried again alone, and the names "
            "of those not confirmed; empty if none were to be confirmed",
        },
        "waivers": {"type": "object", "description": "as in the footer of results.jsonl; empty without --waivers"},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The summary of a run of rdma-cts",
        **_object(properties),
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _counts(names: Sequence[str], count: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict.fromkeys(names, count), "additionalProperties": False}
