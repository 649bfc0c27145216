"""Converts findings to objects of KCIDB, the database of kernel tests, in its schema 5.3: issues, and tests that show
the issues. Each recorded run is a checkout with one build. Only a CI system with an account can send these objects."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.model.record import ResultRecord
from conformance.model.verdict import NOT_TESTABLE, Verdict
from reports.reproducers.findings import Finding, Run, stacks_of

ORIGIN = re.compile(r"[a-z0-9_]+\Z")
_VERSION = {"major": 5, "minor": 3}
_ISSUE_VERSION = 1  # increase this version when the description of a finding changes
_EXCERPT = 16384  # the most characters of a log
# The status of each verdict whose status is not FAIL.
_STATUS = {
    Verdict.PASS: "PASS",
    **dict.fromkeys(NOT_TESTABLE, "SKIP"),
    Verdict.BROKEN: "ERROR",
    Verdict.MISSED: "MISS",
}


def objects(findings: Sequence[Finding], runs: Sequence[Run], origin: str) -> dict[str, Any]:
    ids = {id(run): f"{origin}:{_digest(run)}" for run in runs}
    tests: dict[str, dict[str, Any]] = {}
    incidents = []
    for finding in findings:
        for run in runs:
            for record in (
                result for result in run.digest.results if result["case"] == finding.symptom.case
            ):
                test = _test(record, run, ids[id(run)], origin)
                tests[test["id"]] = test
                incidents.append(_incident(finding, test, run in finding.runs, origin))
    named = [(ids[id(run)], run.stack) for run in runs]
    return {
        "version": _VERSION,
        # The stack is a package of a distribution, so its commit is unknown.
        "checkouts": [
            {"id": id_, "origin": origin, "comment": stack, "valid": True} for id_, stack in named
        ],
        "builds": [
            {"id": id_, "checkout_id": id_, "origin": origin, "comment": stack}
            for id_, stack in named
        ],
        "issues": [_issue(finding, runs, origin) for finding in findings],
        "tests": list(tests.values()),
        "incidents": incidents,
    }


def _digest(run: Run) -> str:
    return hashlib.sha256(json.dumps(run.digest.header, sort_keys=True).encode()).hexdigest()[:16]


def _issue(finding: Finding, runs: Sequence[Run], origin: str) -> dict[str, Any]:
    defect = finding.defect
    rules = [
        finding.runs[0].digest.verdicts.rules[id_]
        for id_ in defect.rules
        if id_ in finding.runs[0].digest.verdicts.rules
    ]
    misc: dict[str, Any] = {
        "severity": defect.severity.label,
        "rules": {rule.id: rule.documented or rule.statement for rule in rules},
        "stacks": stacks_of(finding, runs),
        "case": finding.symptom.name,
    }
    if finding.program:
        misc["program"] = finding.program.text
    return {
        "id": f"{origin}:{defect.fingerprint}",
        "version": _ISSUE_VERSION,
        "origin": origin,
        "report_subject": defect.title,
        "culprit": {"code": True, "tool": False, "harness": False},
        "comment": finding.symptom.line,
        "misc": misc,
    }


def _test(record: ResultRecord, run: Run, build: str, origin: str) -> dict[str, Any]:
    path = [
        re.sub(r"[^A-Za-z0-9_-]+", "-", part).strip("-")
        for part in ("rdma_cts", *record["case"].split("/"))
    ]
    env = {key: value for key, value in run.digest.header["env"].items() if value is not None}
    test: dict[str, Any] = {
        "id": f"{build}:{record['case']}",
        "build_id": build,
        "origin": origin,
        "path": ".".join(filter(None, path)),
        "status": _STATUS.get(Verdict(record["verdict"]), "FAIL"),
        "comment": record["reason"] or record["verdict"],
        "environment": {"comment": run.stack, "misc": env},
    }
    if log := record["kernel"].get("log"):
        test["log_excerpt"] = "\n".join(log)[-_EXCERPT:]
    return test


def _incident(
    finding: Finding,
    test: Mapping[str, Any],
    present: bool,
    origin: str,
) -> dict[str, Any]:
    issue = f"{origin}:{finding.defect.fingerprint}"
    return {
        "id": f"{issue}:{test['id'].partition(':')[2]}",
        "origin": origin,
        "issue_id": issue,
        "issue_version": _ISSUE_VERSION,
        "test_id": test["id"],
        "present": present,
    }
