"""The formats in which `rdma-cts compare` prints a comparison. comparison.py compares the runs."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from conformance.defects import Defect
from conformance.errors import command, format_count
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.older_python import zip
from reports import bisection
from reports.case_pair import is_unlisted
from reports.changes import (
    FAILING,
    GONE,
    HIT,
    IN_BOTH,
    KINDS,
    NEW,
    NEW_KINDS,
    NEWLY_JUDGED,
    NEWLY_WAIVED,
    NEWLY_WRONG,
    NO_LONGER_WAIVED,
    REGRESSED,
    UNDECIDED,
    UNKNOWN,
    WORSE,
    Change,
    amount,
)
from reports.compared_waivers import to_waive, unwaived
from reports.comparison import Comparison, stacks
from reports.junit import clean
from reports.markdown import code, escaped
from reports.races import RACE, is_race
from reports.upstream import upstream, upstream_in_short

SCHEMA = "rdma-cts-comparison/1"
_OF_SUITE = ("tables", "tier", "seed")
_NOTHING = "nothing has regressed"
_CONCLUSIONS = {
    REGRESSED: "something has regressed",
    UNKNOWN: "something has regressed, or is newly supported and wrong",
    NEWLY_WRONG: "a newly supported feature is wrong",
    NEWLY_JUDGED: "a newly judged case is wrong",
}
_MOST_NAMED = 3  # the most of what is no longer waived, in the first line
_MOST_IN_MARKDOWN = 50  # the most changes of each kind


def text(comparison: Comparison, most: int | None) -> Iterator[str]:
    """Yields the lines of the text format, with at most `most` rules, and changes of each kind (None: all). The conclusion
    comes first, then what was under test, the defects, the rules, and the cases in the order of KINDS."""
    yield f"{conclusion(comparison)} (exit status {comparison.status})"
    counts = [f"{amount(comparison.of(kind))} {kind}" for kind in KINDS if comparison.of(kind)]
    yield f"{_compared(comparison)}: {', '.join(counts) or 'nothing has changed'}"
    old, new = comparison.old, comparison.new
    for label, run in (("old", old), ("new", new)):
        yield f"{label}: {run.shown_path} ({run.environment.name}, {run.environment.when}): {run.summary.short_sentence}"
    for heading, differences in _changed(comparison).items():
        yield f"{heading}:"
        for name, before, after in differences:
            yield f"  {name}: {before or 'none'} -> {after or 'none'}"
    yield from _defects(comparison)
    if unwaived(comparison):
        yield ""
        yield f"{NO_LONGER_WAIVED}:"
        yield from (f"  {reason}" for reason in unwaived(comparison).values())
    yield from _newly_waived(comparison)
    yield from _rules(comparison, most)
    yield from _other_rules(comparison, most)
    for kind in KINDS:
        yield from _of_kind(comparison, kind, most)
    if not comparison.has_news:
        return
    if foremost := comparison.defects.foremost:
        is_new = foremost in comparison.defects.newly_found
        which = "worst new defect" if is_new else "worst defect of the newly wrong cases"
        yield ""
        words = "--run", new.path, "--mail", "--others", old.path
        report = command("reproducer", comparison.defects.name_of(foremost), *words)
        yield f"report the {which}: {report}"
        if commands := comparison.defects.bisection(foremost):
            yield bisection.line_of(commands)
    yield from _to_waive(comparison)


def _to_waive(comparison: Comparison) -> Iterator[str]:
    defects = to_waive(comparison)
    if not defects:
        return
    not_new = len(defects) - len(comparison.defects.newly_found)
    parts = ["all new defects"] if comparison.defects.newly_found else []
    if not_new:
        parts.append(f"{format_count(not_new, 'known defect')} of newly wrong cases")
    what = ", and ".join(parts)
    words = [word for defect in defects for word in ("--defect", defect.fingerprint)]
    terms = "--owner", "NAME", "--issue", "ADDRESS", "--expires", "DATE"
    yield f"waive {what}: {command('waivers', '--run', comparison.new.path, *words, *terms)}"


def _of_kind(comparison: Comparison, kind: str, most: int | None) -> Iterator[str]:
    changes = comparison.of(kind)
    if not changes:
        return
    yield ""
    yield f"{kind}: {amount(changes)} ({KINDS[kind]})"
    for change in changes[:most]:
        yield from _format_change(change, comparison)
    yield from _rest(len(changes[:most]), changes)


def _changed(comparison: Comparison) -> Mapping[str, list[tuple[str, str, str]]]:
    changes: dict[str, list[tuple[str, str, str]]] = {}
    for stack in stacks(comparison.old, comparison.new):
        if stack[0] in _OF_SUITE:
            heading = "different settings of the suite"
        else:
            heading = "what was under test has changed"
        changes.setdefault(heading, []).append(stack)
    return changes


def conclusion(comparison: Comparison) -> str:
    """Returns the conclusion about the cases that both runs tried, with the numbers of new defects by kind."""
    other = "; the tables differ: only cases of both runs are compared"
    return _conclusion(comparison) + (other if comparison.has_other_tables else "")


def _conclusion(comparison: Comparison) -> str:
    parts = []
    for kind in NEW_KINDS:
        if new := comparison.defects.by_kind[kind]:
            count = format_count(len(new), "new defect")
            if kind != NEW:
                count = f"{len(new)} {kind}"
            parts.append(f"{count}, the worst: {new[0].severity.label}")
    parts += _unwaived(comparison)
    if newly_waived := comparison.defects.newly_waived:
        parts.append(f"{format_count(len(newly_waived), 'defect')} {NEWLY_WAIVED}")
    more = f": {'; '.join(parts)}" if parts else ""
    if comparison.failing:
        return f"{_CONCLUSIONS[comparison.failing]}{more}"
    if comparison.of(HIT):
        return f"a race was hit only in the new run, which does not show that it is new{more}"
    if not comparison.compared:
        return "nothing was compared: no case was tried by both runs"
    if comparison.status:
        return f"no decided case has regressed, but the new run is incomplete or undecided{more}"
    if comparison.pointless:
        return f"no case that both runs tried has regressed{more}"
    if parts or any(comparison.untried):
        return f"nothing that both runs tried has regressed{more}"
    return _NOTHING


def _unwaived(comparison: Comparison) -> Iterator[str]:
    """Yields how many defects, and how many cases or rules, are no longer waived, with the reasons of the first ones."""
    by_noun: dict[str, list[str]] = {}
    for target, reason in unwaived(comparison).items():
        is_defect = target.startswith("defect ")
        noun = "defect" if is_defect else "case" if "/" in target else "rule"
        _, _, why = reason.partition("the waiver of ")[2].partition(") ")
        by_noun.setdefault(noun, []).append(
            f"{target.removeprefix('defect ')}, {why or 'its waiver is not applied'}"
        )
    for noun, items in by_noun.items():
        rest = [f"and {len(items) - _MOST_NAMED} more"] if len(items) > _MOST_NAMED else []
        verb = "is" if len(items) == 1 else "are"
        named = "; ".join([*items[:_MOST_NAMED], *rest])
        yield f"{format_count(len(items), noun)} {verb} {NO_LONGER_WAIVED} ({named})"


def _compared(comparison: Comparison) -> str:
    """Returns the numbers of compared cases, of cases that only one run tried, and of sweeps without points."""
    both = f"{format_count(comparison.compared, 'case')} compared"
    old, new = comparison.untried
    untried = [
        f"{number:,} tried only by the {run} run"
        for run, number in (("old", old), ("new", new))
        if number
    ]
    if comparison.not_by_point:
        untried.append(comparison.not_by_point)
    if untried:
        return f"{both} ({', '.join(untried)})"
    return both


def _defects(comparison: Comparison) -> Iterator[str]:
    defects_here = comparison.defects.by_kind
    if not any(defects_here.values()):
        return
    yield ""
    counts = (
        f"{len(defects)} {kind}"
        for kind, defects in defects_here.items()
        if defects or kind in (NEW, GONE, IN_BOTH)
    )
    only_new = f"{len(comparison.defects.newly_found)} only in the new run: "
    yield f"defects: {only_new if len(comparison.defects.newly_found) > len(defects_here[NEW]) else ''}{'; '.join(counts)}"
    for kind in (*NEW_KINDS, GONE):
        for defect in defects_here[kind]:
            yield f"  {kind:4}  {defect.severity.label:13}  {defect.fingerprint}  {_titled(defect)}"
    for defect, news in comparison.defects.changed:
        yield f"  changed  {defect.severity.label:13}  {defect.fingerprint}  {_titled(defect)}: now also {news}"


def _titled(defect: Defect) -> str:
    """Returns the title of a defect, and what is known of it upstream."""
    upstream = upstream_in_short(defect)
    return f"{defect.title} ({upstream})" if upstream else defect.title


def _newly_waived(comparison: Comparison) -> Iterator[str]:
    if not (defects := comparison.defects.newly_waived):
        return
    yield ""
    waived = len(comparison.defects.waived)
    verb = "is" if len(defects) == 1 else "are"
    yield f"{NEWLY_WAIVED}: {len(defects)} of {waived} waived defects of the new run {verb} not in the old run"
    for defect in defects:
        waiver = defect.symptoms[0].record["waiver"] or {}
        terms = ", ".join(filter(None, (waiver.get("owner"), waiver.get("issue"))))
        yield f"  {defect.severity.label:13}  {defect.fingerprint}  {defect.title} ({terms})"


def _rules(comparison: Comparison, most: int | None) -> Iterator[str]:
    """Yields the rules whose verdicts differ, each with both verdicts and its words."""
    listed = comparison.rules.changed
    if not listed:
        return
    yield ""
    counts = Counter(map(comparison.rules.kind, listed))
    first = [
        rule
        for _, alike in itertools.groupby(listed, comparison.rules.kind)
        for rule in itertools.islice(alike, most)
    ]
    yield f"rules: {'; '.join(f'{number} {kind}' for kind, number in counts.items())}"
    for rule in first:
        words = comparison.new.verdicts.rules[rule].statement
        kind = comparison.rules.kind(rule)
        arrow = " -> ".join(comparison.rules.verdicts_of(rule)) + comparison.rules.hidden(rule)
        yield f"  {kind}  {arrow}  {rule}  {words}"
    yield from _rest(len(first), listed)


def _other_rules(comparison: Comparison, most: int | None) -> Iterator[str]:
    """Yields the rules whose verdicts differ though no case of them changed from or to a violation, with the reasons."""
    listed = comparison.rules.others
    if not listed:
        return
    before, after = comparison.old.verdicts, comparison.new.verdicts
    yield ""
    yield f"other rules with another verdict: {len(listed)}"
    fewer = {} if most is None else comparison.rules.by_fewer_cases
    listed = [rule for rule in listed if rule not in fewer]
    for rule in listed[:most]:
        labels = before.labels[rule], after.labels[rule]
        if set(labels).isdisjoint(VIOLATIONS):
            why = after.restrictions.get(rule) or before.restrictions.get(rule, "")
        elif set(labels) <= {*VIOLATIONS}:
            why = "at points of cases whose verdicts are the same in both runs"
        else:
            why = "by cases that only one of the runs tried"
        yield f"  {' -> '.join(labels)}  {rule}  {why}".rstrip()
    yield from _rest(len(listed[:most]), listed)
    for run, number in Counter(fewer.values()).items():
        rules = format_count(number, "rule")
        yield f"  {rules} decided by fewer cases in the {run} run; --all lists them"


def _rest(shown: int, listed: Sequence[object]) -> Iterator[str]:
    """Yields a line about the items of a list that are left out, if any."""
    if len(listed) > shown:
        yield f"  and {len(listed) - shown} more (--all shows them)"


def _format_change(change: Change, comparison: Comparison) -> Iterator[str]:
    arrow = change.arrow
    if change.points:
        points = f"{format_count(change.points, 'point')} of {change.case}"
        rule = f"{change.rule}  " if change.rule else ""
        shown = _shown_by(change, comparison) if change.rule else ""
        yield f"  {arrow}  {rule}{points}, such as {'; '.join(change.examples)}{shown}"
        if change.rule and change.kind in WORSE:
            yield f"      {change.record['reason']}"
            yield f"      {change.record['repro']}"
        return
    rules = " ".join(change.rules)
    yield f"  {arrow}  {rules}  {change.case}{_shown_by(change, comparison)}"
    if change.kind in WORSE or (change.kind == NEW and change.new == "FAIL"):
        if is_unlisted(change.record):
            waiver = (change.record["waiver"] or {}).get("for")
            yield f"      counts, because the waiver of {waiver} does not name this case"
        yield f"      {change.record['reason']}"
        yield f"      {change.record['repro']}"
        if confirmed := comparison.new.violations.repetitions.text_of(change.case):
            yield f"      {confirmed}"
    if race := comparison.races.get(change.case):
        yield from (f"      {line}" for line in race.lines())
    elif is_race(change.record) and Verdict.PASS in (change.old, change.new):
        yield f"      ({RACE})"


def _shown_by(change: Change, comparison: Comparison) -> str:
    defects = ", ".join(_fingerprints(change, comparison))
    return f" (defect {defects})" if defects else ""


def _fingerprints(change: Change, comparison: Comparison) -> list[str]:
    return [defect.fingerprint for defect in comparison.defects.of_change(change)]


def _defect_data(defect: Defect) -> dict[str, Any]:
    return {
        "fingerprint": defect.fingerprint,
        "severity": defect.severity.label,
        "title": defect.title,
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
    data = {**vars(change), "defects": _fingerprints(change, comparison)}
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
    for heading, lines_here in _changed(comparison).items():
        lines.append(f"- {heading}:")
        lines += [
            f"  - {escaped(n)}: {escaped(old or 'none')} → {escaped(new or 'none')}"
            for n, old, new in lines_here
        ]
    yield "\n".join(lines)
    rows = [
        f"| {kind} | {defect.severity.label} | {code(defect.fingerprint)} | {escaped(_titled(defect))} |"
        for kind in (*NEW_KINDS, GONE)
        for defect in comparison.defects.by_kind[kind]
    ]
    rows += [
        f"| changed | {defect.severity.label} | {code(defect.fingerprint)} "
        f"| {escaped(_titled(defect))}: now also {escaped(news)} |"
        for defect, news in comparison.defects.changed
    ]
    if rows:
        yield "\n".join(["| | severity | defect | what is wrong |", "|---|---|---|---|", *rows])
    if unwaived(comparison):
        reasons = (f"- {escaped(reason)}" for reason in unwaived(comparison).values())
        yield "\n".join([f"{NO_LONGER_WAIVED}:\n", *reasons])
    if newly_waived := [*_newly_waived(comparison)]:
        _, heading, *lines = newly_waived
        yield "\n".join([f"{heading}:\n", *(f"- {escaped(line.strip())}" for line in lines)])
    if comparison.rules.changed:
        yield "\n".join(
            ["| | rule | old | new |", "|---|---|---|---|", *_rule_rows(comparison)],
        )
    for kind, meaning in KINDS.items():
        if changes := comparison.of(kind):
            yield f"### {kind}: {amount(changes)}"
            yield escaped(meaning)
            if len(changes) > _MOST_IN_MARKDOWN:
                more = [f"- and {len(changes) - _MOST_IN_MARKDOWN} more"]
            else:
                more = []
            items = (_item(change, comparison) for change in changes[:_MOST_IN_MARKDOWN])
            yield "\n".join([*items, *more])
    yield escaped(_compared(comparison))


def _rule_rows(comparison: Comparison) -> Iterator[str]:
    for rule in comparison.rules.changed:
        verdicts = " | ".join(comparison.rules.verdicts_of(rule)) + comparison.rules.hidden(rule)
        yield f"| {comparison.rules.kind(rule)} | {rule} | {verdicts} |"


def _item(change: Change, comparison: Comparison) -> str:
    if change.points:
        points = f" ({format_count(change.points, 'point')})"
    else:
        points = ""
    verdicts = f"{change.old or 'none'} → {change.new or 'none'}{change.hidden}"
    names = [*change.rules, *map(code, _fingerprints(change, comparison))]
    return f"- {verdicts}: {code(change.case)}{points} ({', '.join(names)})"


def as_junit(comparison: Comparison) -> str:
    """Returns the comparison as JUnit XML, with a testcase for each change. A change in FAILING is a failure, an
    undecided verdict or race is an error, and what passes now is a success."""
    import xml.etree.ElementTree as ET  # imported late: the other formats need none

    kinds = {**dict.fromkeys(FAILING, "failure"), UNDECIDED: "error", HIT: "error"}
    elements = [
        kinds.get(change.kind, "system-out" if change.new == Verdict.PASS else "skipped")
        for change in comparison.changes
    ]
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
            points = (
                f" ({format_count(change.points, 'point')}, such as {'; '.join(change.examples)})"
            )
        else:
            points = ""
        testcase = ET.SubElement(
            suite,
            "testcase",
            classname=f"rdma-cts.{clean(folder)}",
            name=clean(name + points),
            time="0.000",
        )
        verdicts = f"{change.old or 'none'} -> {change.new or 'none'}{change.hidden}"
        rules = " ".join(change.rules) + _shown_by(change, comparison)
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
