"""Writes summary.json, the outcome of a run for programs. The file is small, so that the files of all nightly runs can
be stored. summary.schema.json describes the file. New versions may add keys, but never change the meaning of a key."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from conformance.defects import Defect
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.conclusions import headline
from reports.absence import judged_in_part, not_judged, table_of
from reports.digest import Digest

FILE_NAME = "summary.json"
SCHEMA = "rdma-cts-summary/1"
# Facts that the summary has as numbers under other keys.
_NUMBERS = ("cases", "calls judged", "PASS that assert nothing", "seconds", "exit status", "seed")


def render(runs: Sequence[Digest]) -> str:
    """Returns the summary of a run; for several runs, a list of summaries."""
    data = [as_data(run) for run in runs]
    return json.dumps(data[0] if len(data) == 1 else data, indent=1) + "\n"


def as_data(run: Digest) -> dict[str, Any]:
    violations = run.violations.by_rule()
    return {
        "schema": SCHEMA,
        "conclusion": run.summary.conclusion,
        "words": run.summary.sentence,
        "exit_status": run.summary.status,
        "complete": bool(run.footer and run.footer["complete"]),
        "stack": {
            name: text for name, text in run.summary.facts.items() if text and name not in _NUMBERS
        },
        "under_test": dict(run.environment.under_test),
        "capabilities": dict(run.environment.capabilities),
        "started": run.header["started"],
        "duration_s": run.footer["duration_s"] if run.footer else None,
        "resumed": run.footer.get("resumed", 0) if run.footer else 0,
        "seed": run.header["seed"],
        "tables_sha256": run.environment.tables_sha256,
        "cases": dict(run.summary.counts),
        "tried": tried_by_table(run.results),
        "not_judged": list(not_judged(run.results)),
        "judged_in_part": judged_in_part(run.results),
        "points": run.summary.points,
        "empty": run.summary.empty,
        "rules": dict(run.verdicts.of_rules),
        "broken": broken_rules(run),
        "not_offered": dict(run.verdicts.restrictions),
        "standings": {part.standing: part.count for part in run.summary.parts},
        "documented_rules": len(run.verdicts.documented),
        "severities": {
            severity.label: number for severity, number in run.violations.severities.items()
        },
        "headline": run.summary.headline,
        "defects": [of_defect(defect) for defect in run.violations.defects],
        "violations": [_violation(rule, records) for rule, records in violations.items()],
        "confirmation": run.violations.repetitions.as_data(),
        "waivers": dict(run.summary.waivers),
    }


def broken_rules(run: Digest) -> dict[str, str]:
    """Returns for each rule that is BROKEN the first case that has failed, with the reason."""
    return {
        rule: text
        for rule, (_, text) in run.verdicts.undecided.items()
        if run.verdicts.of_rules[rule] == Verdict.BROKEN
    }


def tried_by_table(results: Sequence[ResultRecord]) -> dict[str, int]:
    """Returns the number of cases that were tried, by the id of their table."""
    tried = (record["case"] for record in results if record["verdict"] != Verdict.MISSED)
    return dict(Counter(map(table_of, tried)))


def _violation(rule: str, records: Sequence[ResultRecord]) -> dict[str, Any]:
    worst = records[0]
    reason, repro = headline(rule, worst)
    source = worst["source"]
    return {
        "rule": rule,
        "verdict": worst["effective"],
        "cases": [record["case"] for record in records],
        "reason": reason,
        "repro": repro,
        "table": f"{source.get('file', '')}:{source.get('line', '')}",
    }


def of_defect(defect: Defect) -> dict[str, Any]:
    return {
        "fingerprint": defect.fingerprint,
        "also": list(defect.fingerprints[1:]),
        "severity": defect.severity.label,
        "title": defect.title,
        "means": f"{defect.severity.meaning} {defect.severity.advice}".rstrip(),
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
