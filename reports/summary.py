"""summary.json: the outcome of a run for programs, small enough to keep one for every nightly run.

docs/summary.schema.json describes it; keys may be added, but never change.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from conformance.defects import Defect, Severity
from conformance.model.verdict import OF_RULES, VERDICTS
from conformance.results.conclusions import STANDINGS, headline
from reports import confirmation
from reports.digest import Digest

FILE_NAME = "summary.json"
SCHEMA = "rdma-cts-summary/1"
# Facts that the summary has as numbers.
_NUMBERS = ("cases", "calls judged", "seconds", "exit status", "seed")


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
        "stack": {name: text for name, text in run.facts.items() if text and name not in _NUMBERS},
        "under_test": dict(run.under_test),
        "capabilities": dict(run.capabilities),
        "started": run.header["started"],
        "duration_s": run.footer["duration_s"] if run.footer else None,
        "resumed": run.footer.get("resumed", 0) if run.footer else 0,
        "seed": run.header["seed"],
        "tables_sha256": str(run.header["suite"].get("tables_sha256", "")),
        "cases": dict(run.counts),
        "points": run.points,
        "rules": dict(run.verdicts),
        "not_offered": dict(run.restrictions),
        "standings": {part.standing: part.count for part in run.parts},
        "documented_rules": len(run.rules) - len(run.apart),
        "severities": {severity.label: number for severity, number in run.severities.items()},
        "headline": run.headline,
        "defects": [_defect(defect) for defect in run.defects],
        "violations": [
            {
                "rule": rule,
                "verdict": records[0]["effective"],
                "cases": [record["case"] for record in records],
                **dict(zip(("reason", "repro"), headline(rule, records[0]), strict=True)),
                "table": f"{records[0]['source'].get('file', '')}:{records[0]['source'].get('line', '')}",
            }
            for rule, records in violations.items()
        ],
        "confirmation": confirmation.as_data(run),
        "waivers": dict(run.waivers),
    }


def _defect(defect: Defect) -> dict[str, Any]:
    return {
        "fingerprint": defect.fingerprint,
        "also": list(defect.fingerprints[1:]),
        "severity": defect.severity.label,
        "title": defect.title,
        "means": defect.severity.meaning,
        "rules": list(defect.rules),
        "cases": list(defect.cases),
        "calls": defect.points,
        "answered_by": defect.answering.layer,
        "because": defect.answering.because,
        "waived": defect.waived,
        "of_stack": defect.of_stack,
        "unconfirmed": defect.unconfirmed,
        "first": {
            "case": defect.first.name,
            "verdict": defect.first.verdict,
            "reason": defect.first.line,
            "repro": defect.first.repro,
        },
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of a summary."""
    count = {"type": "integer", "minimum": 0}
    text = {"type": "string"}
    verdict = {"enum": list(VERDICTS)}
    violation = {
        "rule": text,
        "verdict": verdict,
        "cases": {"type": "array", "items": text, "minItems": 1},
        "reason": text,
        "repro": {**text, "description": "the command that reproduces it"},
        "table": text,
    }
    severity = {"enum": [each.label for each in Severity]}
    texts = {"type": "array", "items": text}
    defect = {
        "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{12}$", "description": "the same in every run"},
        "also": {**texts, "description": "further fingerprints, which a run of fewer cases may show alone"},
        "severity": severity,
        "title": text,
        "means": {**text, "description": "what the severity means to an application"},
        "rules": texts,
        "cases": {**texts, "minItems": 1},
        "calls": {**count, "description": "calls in which it shows, points of sweeps among them"},
        "answered_by": {**text, "description": "the layer that answered"},
        "because": {**text, "description": "the evidence for the layer"},
        "waived": {"type": "boolean", "description": "every result in which it shows is waived"},
        "unconfirmed": {"type": "boolean", "description": "not seen again when it was tried again"},
        "of_stack": {"type": "boolean", "description": "answered by the kernel's core or libibverbs on every device"},
        "first": _object({"case": text, "verdict": verdict, "reason": text, "repro": text}),
    }
    properties = {
        "schema": {"const": SCHEMA},
        "conclusion": {**text, "description": "the conclusion about the device, in a few words"},
        "words": {**text, "description": "the standing of all rules in one sentence, with reasons"},
        "exit_status": {"enum": [0, 1, 3], "description": "the exit status of rdma-cts run"},
        "complete": {"type": "boolean"},
        "stack": {"type": "object", "additionalProperties": text, "required": ["device"]},
        "under_test": {
            "type": "object",
            "additionalProperties": text,
            "description": "the first digits of hashes of its parts",
        },
        "capabilities": {
            "type": "object",
            "additionalProperties": text,
            "description": "what the device says of itself: its ids, capabilities and limits",
        },
        "started": text,
        "duration_s": {"type": ["number", "null"]},
        "resumed": {**count, "description": "the sessions after the first; duration_s is that of the last"},
        "seed": {"type": ["integer", "null"]},
        "tables_sha256": text,
        "cases": _counts(VERDICTS, count),
        "points": {**count, "description": "calls and operations judged"},
        "rules": {
            "type": "object",
            "additionalProperties": {"enum": list(OF_RULES)},
            "description": "the verdict on each rule; PASS only with all its evidence",
        },
        "not_offered": {
            "type": "object",
            "additionalProperties": text,
            "description": "for each rule that is verified in part, what the device or the stack does not offer of it",
        },
        "standings": _counts(STANDINGS, count),
        "documented_rules": {**count, "description": "without those apart"},
        "severities": {
            **_counts([each.label for each in Severity], count),
            "description": "violations by their worst severity, without those that are waived or of the stack",
        },
        "headline": {**text, "description": "changes of the stack, number of defects, severities; empty without any"},
        "defects": {"type": "array", "items": _object(defect), "description": "the most severe first"},
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
