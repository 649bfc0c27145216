"""The lines of a results file: one JSON object a line, appended and flushed as a run goes.

Schema rdma-cts/1: a header, results, a footer. A file without footer is a run cut short, and a torn
last line is a line that was being written. Reports read this file and nothing else. Not for writing it
(writer.py).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.model.case import Case
from conformance.model.rules import Registry
from conformance.model.verdict import INCOMPLETE, VERDICTS, VIOLATIONS, Verdict

SCHEMA = "rdma-cts/1"
FILE_NAME = "results.jsonl"

Record = dict[str, Any]

# What readers rest on, by the type of the line.
_REQUIRED: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "header": {"schema": str, "env": dict, "device": dict, "planned": list},
    "start": {"case": str},
    "worker": {"boot_id": str},
    "resumed": {"earlier_s": (int, float)},
    "progress": {"case": str, "point": str},
    "result": {"case": str, "rules": list, "verdict": str, "effective": str, "reason": str},
    "footer": {"complete": bool, "verdicts": dict, "rules": dict},
}


def encode(line: Record) -> bytes:
    """A line as bytes: ASCII only, so that no reader stumbles over an encoding."""
    return json.dumps(line, separators=(",", ":"), ensure_ascii=True, sort_keys=False).encode() + b"\n"


def decode(data: bytes) -> Record:
    """One line as it was encoded. Raises ValueError for what is none, or lacks what every reader needs."""
    try:
        line = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(line, dict) or not isinstance(line.get("type"), str):
        raise ValueError("no object with a type")
    missing = [key for key, type_ in _REQUIRED.get(line["type"], {}).items() if not isinstance(line.get(key), type_)]
    if missing:
        raise ValueError(f"a {line['type']} without {missing[0]}")
    if line["type"] == "result" and not {line["verdict"], line["effective"]} <= set(VERDICTS):
        raise ValueError("an unknown verdict")
    if line["type"] == "result" and line["verdict"] == Verdict.WAIVED:
        raise ValueError("a verdict that a waiver alone can give")
    return line


def result_record(
    case: Case,
    registry: Registry,
    judgement: Judgement,
    observed: Mapping[str, Any],
    *,
    kernel: Mapping[str, Any] | None = None,
    duration_us: int | None = None,
) -> Record:
    """The result of one case as the schema has it."""
    levels = {registry[rule].level for rule in case.rules}
    line: Record = {
        "type": "result",
        "case": case.id,
        "rules": list(case.rules),
        "level": next(level for level in ("must", "should", "may") if level in levels),
        "entry": case.entry,
        "layer": observed.get("layer", ""),
        "verdict": judgement.verdict,
        "effective": judgement.verdict,
        "waiver": None,
        "reason": judgement.reason,
        "call": str(case.when),
        "expected": expected(case),
        "observed": dict(observed),
        "source": {"file": case.location.file, "line": case.location.line},
        "kernel": dict(kernel or {}),
        "duration_us": duration_us,
        "repro": f"./rdma-cts run --only {case.id}",
    }
    if judgement.notes:
        line["notes"] = list(judgement.notes)
    return line | _by_rule(case, judgement, observed)


def _by_rule(case: Case, judgement: Judgement, observed: Mapping[str, Any]) -> Record:
    """What random sequences say of each rule; where the kernel itself complained, they say it of all."""
    found = observed.get("divergences")
    if not found:
        return {}
    line: Record = {"deviations": [
        {"when": each["when"], "rules": [each["rule"]], "observed": each["fault"], "row": each["row"]}
        for each in found
    ]}  # fmt: skip
    if all(each["fault"] in judgement.reason for each in found):
        broken = {each["rule"] for each in found}
        line["rule_verdicts"] = {rule: Verdict.FAIL if rule in broken else Verdict.PASS for rule in case.rules}
    return line


def expected(case: Case) -> dict[str, Any]:
    """What the documents say must come of the case."""
    data = case.when.then.as_data()
    if case.afterwards:
        data["afterwards"] = [{"call": str(step), **step.then.as_data()} for step in case.afterwards]
    return data


def footer_record(
    planned: Sequence[str],
    results: Iterable[Record],
    registry: Registry,
    *,
    duration_s: float,
    boots: int | None = None,
    resumed: int | None = None,
) -> Record:
    """The footer: complete only if every planned case has a result that says something of the device.

    `boots` counts the workers and `resumed` how often the run was carried on, where there was a supervisor.
    """
    by_case = {line["case"]: line for line in results}
    effective = [line["effective"] for line in by_case.values()]
    rules = rule_verdicts(by_case.values(), registry)
    line: Record = {
        "type": "footer",
        "complete": all(case in by_case and by_case[case]["verdict"] != Verdict.MISSED for case in planned),
        "verdicts": dict(Counter(effective)),
        "rules": rules,
        "rule_totals": {**dict(Counter(rules.values())), "without_case": len(registry) - len(rules)},
        "points": sum(sum(line["points"].values()) if "points" in line else 1 for line in by_case.values()),
        "duration_s": round(duration_s, 3),
    }
    if boots is not None:
        line["boots"] = boots
    if resumed is not None:
        line["resumed"] = resumed
    return line


def rule_verdicts(results: Iterable[Record], registry: Registry) -> dict[str, str]:
    """For each rule that has a result, the worst verdict of its cases, in the registry's order."""
    worst: dict[str, str] = {}
    for line in results:
        for rule in line["rules"]:
            both = (worst.get(rule, Verdict.PASS), verdict_on(rule, line))
            worst[rule] = min(both, key=VERDICTS.index)
    return {rule: worst[rule] for rule in registry if rule in worst}


def verdict_on(rule: str, line: Record) -> str:
    """What a result says of one of its rules: its effective verdict, or of a sweep that of the rule's points."""
    points = line.get("rule_verdicts", {}).get(rule, line["effective"])
    waived = line["effective"] != line["verdict"] and points in VIOLATIONS
    return str(line["effective"] if waived else points)


def headline_on(rule: str, line: Record) -> tuple[str, str]:
    """What a result has to tell of one of its rules, and the command that shows it.

    Of a sweep that is how the points of the rule deviate, most of them alike, and the smallest of these, by a formula
    that holds among the points which the table's clause is about; of random sequences what the first one found.
    """
    own = [each for each in line.get("deviations", ()) if rule in each.get("rules", ())]
    if not own:
        return str(line["reason"]), str(line["repro"])
    first = own[0]
    told = str(first.get("observed") or line["reason"])
    if first.get("count"):
        among = f" among {first['clause']}" if first.get("clause") else ""
        of = f" of {first['of']:,}" if first.get("of") else ""
        told += f": {first['when']}{among} ({first['count']:,}{of} points)"
    told += f" (and {len(own) - 1} more ways)" if len(own) > 1 else ""
    return told, str(first.get("repro") or line["repro"])


def exit_status(footer: Record) -> int:
    """The exit status of the contract: 0 conformant, 1 violated, 3 incomplete or broken.

    A waiver that has expired, is not needed or does not fit counts as a violation: somebody has to look.

    A violation that was seen stays one even if the run is incomplete.
    """
    verdicts = footer["verdicts"]
    if footer.get("waivers", {}).get("problems"):
        return 1
    if any(verdicts.get(verdict) for verdict in VIOLATIONS):
        return 1
    if not footer["complete"] or any(verdicts.get(verdict) for verdict in INCOMPLETE):
        return 3
    return 0


@dataclass
class Recorded:
    """A results file as read back. `footer` is None for a run cut short; `torn` says so of a line.

    `others` are the lines of other types, in their order.
    """

    header: Record
    results: list[Record] = field(default_factory=list)
    footer: Record | None = None
    torn: bool = False
    others: list[Record] = field(default_factory=list)


def read_results(path: Path) -> Recorded:
    """Reads a results file, or the one in a directory. Raises UserError for what is none."""
    file = path / FILE_NAME if path.is_dir() else path
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    recorded = Recorded({})
    *lines, torn = data.split(b"\n")
    recorded.torn = bool(torn)  # even if it could be read: it was not at its end
    for number, raw in enumerate(lines, 1):
        if not raw:
            continue
        try:
            line = decode(raw)
        except ValueError as error:
            raise UserError(f"{file}:{number}: not a line of {SCHEMA}") from error
        kind = line["type"]
        if kind == "header":
            recorded.header = line
        elif kind == "result":
            recorded.results.append(line)
        elif kind == "footer":
            recorded.footer = line
        else:
            recorded.others.append(line)
    if recorded.header.get("schema") != SCHEMA:
        raise UserError(f"{file}: no header of schema {SCHEMA}")
    return recorded
