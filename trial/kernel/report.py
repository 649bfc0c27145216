"""Writes the report of a trial of mutants of a driver: kernel.json with each mutant's latest outcome, and kernel.md
with tables. trying.py determines the outcomes."""

from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.regular_file import read_regular
from trial.kernel.outcome import (
    ACCEPTED,
    BROKEN,
    BY_ITS_RULE,
    ELSEWHERE,
    EQUIVALENT,
    FALSE_ALARM,
    HANG,
    NO_FIT,
    NOT_COMPILED,
    NOT_LOADED,
    SURVIVED,
    UNCHECKED,
    UNDECIDED,
    Finding,
)
from trial.report import table as markdown
from trial.report import write_files

SCHEMA = "rdma-cts-kernel-trial/1"
_NAME = "kernel"
# The fields of a finding for the tests of other projects, and the names of these tests.
PEERS = {"peer": "rdma-core's tests", "unit_test": "rdma-unit-test"}
KILLED = (BY_ITS_RULE, ELSEWHERE)
# The summary counts the mutants with these outcomes: cases were run, or should have been run, on these mutants.
COUNTED = (*KILLED, SURVIVED, UNDECIDED, BROKEN, HANG)
_NOT_RUN = (NOT_LOADED, NOT_COMPILED, NO_FIT)
_COLUMNS = (*COUNTED, *_NOT_RUN, EQUIVALENT, ACCEPTED, FALSE_ALARM, UNCHECKED)

History = dict[str, dict[str, Any]]


def read_history(folder: Path | None) -> History:
    """Returns the findings of an earlier trial by mutant, without those that an interruption left unchecked. Raises
    UserError (status 2) if its file cannot be read."""
    if folder is None:
        return {}
    file = folder / f"{_NAME}.json"
    try:
        data = json.loads(read_regular(file))
        if data["schema"] != SCHEMA:
            raise ValueError("it has a different schema")
        return {entry["name"]: entry for entry in data["findings"] if entry["outcome"] != UNCHECKED}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="--before is the --out of an earlier trial",
        ) from error


def write(folder: Path, findings: Iterable[Finding], before: History) -> None:
    """Writes kernel.md and kernel.json, with the outcomes of `before` for mutants that were not tried now."""
    entries = list((before | {finding.name: asdict(finding) for finding in findings}).values())
    write_files(folder, _NAME, {"schema": SCHEMA, "findings": entries}, table(entries))


def regressions(findings: Iterable[Finding], before: History) -> list[Finding]:
    """Returns the mutants that were killed before and are not killed now: regressions of the suite."""
    return [
        finding
        for finding in findings
        if finding.outcome in COUNTED[2:] and before.get(finding.name, {}).get("outcome") in KILLED
    ]


def line(finding: Finding) -> str:
    if finding.outcome == ELSEWHERE and finding.violated:
        by = f" · {', '.join(finding.violated)} by {finding.by[0]}: {finding.reason}"
    elif finding.by:
        by = f" · {finding.by[0]}: {finding.reason}"
    elif finding.reason:
        by = f" · {finding.reason}"
    else:
        by = ""
    return f"{finding.outcome:<18} {','.join(finding.rules):<16} {finding.file}/{finding.name}: {finding.about}{by}"


def summary(findings: Sequence[Finding], lost: Sequence[Finding], seconds: float) -> str:
    """Returns the last lines of the output."""
    counts = collections.Counter(finding.outcome for finding in findings)
    counted = sum(counts[outcome] for outcome in COUNTED)
    killed = sum(counts[outcome] for outcome in KILLED)
    lines = [f"no longer killed: {line(finding)}" for finding in lost]
    lines.append(
        f"{killed} of {counted} mutants killed, {counts[BY_ITS_RULE]} by their own rule, in {seconds:.0f} s",
    )
    lines.append(
        ", ".join(f"{counts[outcome]} {outcome}" for outcome in _COLUMNS if counts[outcome]),
    )
    return "\n".join(lines)


def table(findings: Sequence[Mapping[str, Any]]) -> str:
    """Returns tables in Markdown: outcomes by kind of mistake, and the mutants that were not killed."""
    kinds = sorted({finding["kind"] for finding in findings})
    outcomes = {finding["outcome"] for finding in findings}
    used = [outcome for outcome in _COLUMNS if outcome in outcomes]
    rows = []
    for kind in (*kinds, "all"):
        of = collections.Counter(
            finding["outcome"] for finding in findings if kind in (finding["kind"], "all")
        )
        rows.append((kind, *map(of.__getitem__, used)))
    alive = [
        (
            f"{finding['file']}/{finding['name']}",
            ", ".join(finding["rules"]),
            finding["about"],
            ": ".join(filter(None, (finding["outcome"], finding["reason"]))),
        )
        for finding in findings
        if finding["outcome"] not in (*KILLED, EQUIVALENT, ACCEPTED)
    ]
    lines = [*markdown(("kind", *used), rows, range(1, len(used) + 1)), *_by_peers(findings, kinds)]
    return (
        "\n".join(
            [*lines, "", *markdown(("not killed", "rules", "what it does", "outcome"), alive)],
        )
        + "\n"
    )


def _by_peers(findings: Sequence[Mapping[str, Any]], kinds: Sequence[str]) -> list[str]:
    """Returns a table for each peer: how many mutants its tests and the cases detect, by kind of mistake."""
    lines: list[str] = []
    for peer, tests in PEERS.items():
        tried = [finding for finding in findings if finding.get(peer) is not None]
        rows = []
        for kind in (*kinds, "all"):
            of = [
                (finding["outcome"] in KILLED, bool(finding[peer]))
                for finding in tried
                if kind in (finding["kind"], "all")
            ]
            if of:
                counts = (
                    of.count(which)
                    for which in ((True, True), (True, False), (False, True), (False, False))
                )
                rows.append((kind, len(of), *counts))
        head = ("kind", "tried", "by both", "only by the cases", f"only by {tests}", "by neither")
        lines += ["", *markdown(head, rows, range(1, 6))] if tried else []
    return lines
