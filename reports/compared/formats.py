"""The formats of a comparison that other programs read: JSON, JUnit and Markdown. text.py has its lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from conformance.defects import Defect
from conformance.errors import format_count
from conformance.model.verdict import Verdict
from conformance.older_python import zip
from reports.compared.changes import (
    GONE,
    HIT,
    KINDS,
    NEW,
    NEW_KINDS,
    NO_LONGER_WAIVED,
    REGRESSED,
    UNDECIDED,
    UNKNOWN,
    Change,
    amount,
)
from reports.compared.comparison import Comparison, stacks
from reports.compared.waivers import unwaived
from reports.compared.words import (
    changed_stacks,
    compared_cases,
    conclusion,
    fingerprints,
    newly_waived,
    regressed_by_layer,
    shown_by,
)
from reports.junit import clean
from reports.markdown import code, escaped
from reports.upstream import titled, upstream

SCHEMA = "rdma-cts-comparison/1"
_MOST_IN_MARKDOWN = 50  # the most changes of each kind


def _defect_data(defect: Defect) -> dict[str, Any]:
    return {
        "fingerprint": defect.fingerprint,
        "severity": defect.severity.label,
        "title": defect.title,
        "answered_by": defect.answering.layer,
        "upstream": upstream(defect),
        "rules": list(defect.rules),
        "cases": list(defect.cases),
    }


def as_json(comparison: Comparison) -> str:
    """Returns the comparison as JSON; docs/reports.md describes its keys. The key `new` has the new defects of every
    kind, as in earlier versions."""
    defects = {**comparison.defects.by_kind, NEW: comparison.defects.newly_found}
    data = {
        "schema": SCHEMA,
        "old": str(comparison.old.path),
        "new": str(comparison.new.path),
        "exit_status": comparison.status,
        "conclusion": conclusion(comparison),
        "cases_compared": comparison.compared,
        "cases_untried": {"old only": comparison.untried[0], "new only": comparison.untried[1]},
        "sweeps_without_points": comparison.pointless,
        "newly_waived": [defect.fingerprint for defect in comparison.defects.newly_waived],
        "stack": {
            name: [before, after] for name, before, after in stacks(comparison.old, comparison.new)
        },
        "defects": {
            kind: list(map(_defect_data, defects_here)) for kind, defects_here in defects.items()
        },
        "regressed_by_layer": comparison.defects.regressed_by_layer,
        "changed_defects": {
            defect.fingerprint: news for defect, news in comparison.defects.changed
        },
        "rules": [
            {
                "rule": rule,
                "kind": comparison.rules.kind(rule),
                **dict(zip(("old", "new"), comparison.rules.verdicts_of(rule), strict=True)),
                "failing_points": sorted(comparison.rules.failing_points.get(rule, ())),
                "statement": comparison.new.verdicts.rules[rule].statement,
            }
            for rule in comparison.rules.changed
        ],
        "changes": [_change_data(change, comparison) for change in comparison.changes],
    }
    return json.dumps(data, indent=1) + "\n"


def _change_data(change: Change, comparison: Comparison) -> dict[str, Any]:
    data = {**vars(change), "defects": fingerprints(change, comparison)}
    record = data.pop("record")
    del data["rule"]  # the only one of `rules`
    return {
        **data,
        "rules": list(change.rules),
        **{key: record[key] for key in ("reason", "repro")},
    }


def as_markdown(comparison: Comparison) -> str:
    return "\n\n".join(_sections(comparison)) + "\n"


def _sections(comparison: Comparison) -> Iterator[str]:
    sign = {0: "✅", 1: "❌"}.get(comparison.status, "⚠️")
    yield f"## {sign} rdma-cts compare: {escaped(conclusion(comparison))}"
    runs = (("old", comparison.old), ("new", comparison.new))
    lines = [
        f"- {name}: {escaped(run.environment.name)}: {escaped(run.summary.short_sentence)}"
        for name, run in runs
    ]
    for heading, lines_here in changed_stacks(comparison).items():
        lines.append(f"- {heading}:")
        lines += [
            f"  - {escaped(n)}: {escaped(old or 'none')} → {escaped(new or 'none')}"
            for n, old, new in lines_here
        ]
    yield "\n".join(lines)
    rows = [
        f"| {kind} | {defect.severity.label} | {code(defect.fingerprint)} | {defect.answering.layer} "
        f"| {escaped(titled(defect))} |"
        for kind in (*NEW_KINDS, GONE)
        for defect in comparison.defects.by_kind[kind]
    ]
    rows += [
        f"| changed | {defect.severity.label} | {code(defect.fingerprint)} | {defect.answering.layer} "
        f"| {escaped(titled(defect))}: now also {escaped(news)} |"
        for defect, news in comparison.defects.changed
    ]
    if rows:
        head = "| | severity | defect | answered by | what is wrong |"
        yield "\n".join([head, "|---|---|---|---|---|", *rows])
    if comparison.of(REGRESSED):
        yield regressed_by_layer(comparison)
    if unwaived(comparison):
        reasons = (f"- {escaped(reason)}" for reason in unwaived(comparison).values())
        yield "\n".join([f"{NO_LONGER_WAIVED}:\n", *reasons])
    if waived := [*newly_waived(comparison)]:
        _, heading, *lines = waived
        yield "\n".join([f"{heading}:\n", *(f"- {escaped(line.strip())}" for line in lines)])
    if comparison.rules.changed:
        yield "\n".join(
            ["| | rule | old | new |", "|---|---|---|---|", *_rule_rows(comparison)],
        )
    for kind, meaning in KINDS.items():
        if changes := comparison.of(kind):
            yield f"### {kind}: {amount(changes)}"
            yield escaped(meaning)
            items = [_item(change, comparison) for change in changes[:_MOST_IN_MARKDOWN]]
            if len(changes) > _MOST_IN_MARKDOWN:
                items.append(f"- and {len(changes) - _MOST_IN_MARKDOWN} more")
            yield "\n".join(items)
    yield escaped(compared_cases(comparison))


def _rule_rows(comparison: Comparison) -> Iterator[str]:
    for rule in comparison.rules.changed:
        verdicts = " | ".join(comparison.rules.verdicts_of(rule)) + comparison.rules.hidden(rule)
        yield f"| {comparison.rules.kind(rule)} | {rule} | {verdicts} |"


def _item(change: Change, comparison: Comparison) -> str:
    points = ""
    if change.points:
        points = f" ({format_count(change.points, 'point')})"
    verdicts = f"{change.old or 'none'} → {change.new or 'none'}{change.hidden}"
    names = [*change.rules, *map(code, fingerprints(change, comparison))]
    return f"- {verdicts}: {code(change.case)}{points} ({', '.join(names)})"


_ELEMENTS = {UNDECIDED: "error", UNKNOWN: "error", HIT: "error"}


def _element_of(change: Change, comparison: Comparison) -> str:
    """Returns the name of the element of JUnit that says what a change means."""
    if change.kind in comparison.fail_on:
        return "failure"
    if change.kind in _ELEMENTS:
        return _ELEMENTS[change.kind]
    if change.new == Verdict.PASS:
        return "system-out"
    return "skipped"


def as_junit(comparison: Comparison) -> str:
    """Returns the comparison as JUnit XML, with a testcase for each change. A change of a kind of `fail_on` is a failure,
    an undecided verdict or race is an error, and what passes now is a success."""
    import xml.etree.ElementTree as ET  # imported late: the other formats need none

    elements = [_element_of(change, comparison) for change in comparison.changes]
    document = ET.Element("testsuites")
    suite = ET.SubElement(
        document,
        "testsuite",
        name="rdma-cts compare",
        tests=str(max(1, len(elements))),
        failures=str(elements.count("failure")),
        errors=str(elements.count("error")),
        skipped=str(elements.count("skipped")),
        time="0.000",
        timestamp=clean(comparison.new.header["started"]),
        hostname=clean(comparison.new.environment.device),
    )
    for change, kind in zip(comparison.changes, elements, strict=True):
        folder, _, name = change.case.partition("/")
        if change.points:
            examples = "; ".join(change.examples)
            name += f" ({format_count(change.points, 'point')}, such as {examples})"
        testcase = ET.SubElement(
            suite,
            "testcase",
            classname=f"rdma-cts.{clean(folder)}",
            name=clean(name),
            time="0.000",
        )
        verdicts = f"{change.old or 'none'} -> {change.new or 'none'}{change.hidden}"
        rules = " ".join(change.rules) + shown_by(change, comparison)
        message = f"{change.kind}: {verdicts}: {rules}: {change.record['reason']}"
        if kind == "system-out":
            ET.SubElement(testcase, kind).text = clean(message)
            continue
        child = ET.SubElement(testcase, kind, type=change.kind, message=clean(message))
        if kind != "skipped":
            child.text = clean(f"reproduce: {change.record['repro']}")
    if not elements:
        ET.SubElement(
            suite,
            "testcase",
            classname="rdma-cts",
            name="nothing has changed",
            time="0.000",
        )
    ET.indent(document)
    data: bytes = ET.tostring(document, encoding="us-ascii", xml_declaration=True)
    return data.decode() + "\n"


FORMATS: Mapping[str, Callable[[Comparison], str]] = {
    "markdown": as_markdown,
    "json": as_json,
    "junit": as_junit,
}
