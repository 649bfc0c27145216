"""The lines in which `rdma-cts compare` prints a comparison. comparison.py compares the runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from conformance.defects import Defect
from conformance.errors import command, format_count
from conformance.model.verdict import VIOLATIONS, Verdict
from reports import bisection
from reports.absence import NOT_DECIDED
from reports.compared.case_pair import is_unlisted
from reports.compared.changes import (
    GONE,
    IN_BOTH,
    KINDS,
    NEW,
    NEW_KINDS,
    NO_LONGER_WAIVED,
    NOT_TRIED,
    REGRESSED,
    REQUIRED,
    UNCOVERED,
    WORSE,
    Change,
    amount,
)
from reports.compared.comparison import Comparison
from reports.compared.waivers import to_waive, unwaived
from reports.compared.words import (
    changed_stacks,
    compared_cases,
    conclusion,
    newly_waived,
    regressed_by_layer,
    shown_by,
)
from reports.races import RACE, is_race
from reports.upstream import titled


def text(comparison: Comparison, most: int | None) -> Iterator[str]:
    """Yields the lines of the text format, with at most `most` rules, and changes of each kind (None: all). The conclusion
    comes first, then what was under test, the defects, the rules, and the cases in the order of KINDS."""
    yield f"{conclusion(comparison)} (exit status {comparison.status})"
    counts = [f"{amount(comparison.of(kind))} {kind}" for kind in KINDS if comparison.of(kind)]
    yield f"{compared_cases(comparison)}: {', '.join(counts) or 'nothing has changed'}"
    old, new = comparison.old, comparison.new
    for label, run in (("old", old), ("new", new)):
        yield f"{label}: {run.shown_path} ({run.environment.name}, {run.environment.when}): {run.summary.short_sentence}"
    for heading, differences in changed_stacks(comparison).items():
        yield f"{heading}:"
        for name, before, after in differences:
            yield f"  {name}: {before or 'none'} -> {after or 'none'}"
    yield from _defects(comparison, most)
    if unwaived(comparison):
        yield ""
        yield f"{NO_LONGER_WAIVED}:"
        yield from (f"  {reason}" for reason in unwaived(comparison).values())
    yield from newly_waived(comparison)
    yield from _rules(comparison, most)
    yield from _other_rules(comparison, most)
    for kind in KINDS:
        yield from _of_kind(comparison, kind, most)
    if not comparison.has_news:
        return
    foremost = comparison.defects.foremost
    if foremost and foremost not in comparison.defects.by_kind[REQUIRED]:
        which = "worst defect of the newly wrong cases"
        if foremost in comparison.defects.newly_found:
            which = "worst new defect"
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
    new = [defect for defect in defects if defect in comparison.defects.newly_found]
    not_new = len(defects) - len(new)
    parts = []
    if new:
        parts.append("all new defects")
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


def _defects(comparison: Comparison, most: int | None) -> Iterator[str]:
    defects_here = comparison.defects.by_kind
    if not any(defects_here.values()):
        return
    yield ""
    counts = [
        f"{len(defects)} {kind}"
        for kind, defects in defects_here.items()
        if defects or kind in (NEW, GONE, IN_BOTH)
    ]
    only_new = ""
    if len(comparison.defects.newly_found) > len(defects_here[NEW]):
        only_new = f"{len(comparison.defects.newly_found)} only in the new run: "
    yield f"defects: {only_new}{'; '.join(counts)}"
    for kind in (*NEW_KINDS, GONE):
        for defect in defects_here[kind]:
            yield f"  {kind:4}  {_line(defect)}"
    for defect in comparison.defects.uncovered:
        yield f"  {UNCOVERED}  {defect.severity.label:13}  {defect.fingerprint}  {titled(defect)}"
    for defect, news in comparison.defects.changed:
        yield f"  changed  {_line(defect)}: now also {news}"
    for kind in (NOT_DECIDED, NOT_TRIED):
        for defect in defects_here[kind][:most]:
            yield f"  {kind}  {_line(defect)}"
        yield from _rest(len(defects_here[kind][:most]), defects_here[kind])
    if comparison.of(REGRESSED):
        yield f"  {regressed_by_layer(comparison)}"


def _line(defect: Defect) -> str:
    answered = f"answered by {defect.answering.layer}"
    return f"{defect.severity.label:13}  {defect.fingerprint}  {answered}  {titled(defect)}"


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
    fewer: Mapping[str, str] = {}
    if most is not None:
        fewer = comparison.rules.by_fewer_cases
    listed = [rule for rule in listed if rule not in fewer]
    for rule in listed[:most]:
        labels = before.labels[rule], after.labels[rule]
        if set(labels).isdisjoint(VIOLATIONS):
            why = after.restrictions.get(rule) or before.restrictions.get(rule, "")
        elif set(labels) <= {*VIOLATIONS}:
            why = "at points of cases whose verdicts are the same in both runs"
        else:
            why = _why_no_change(comparison, rule)
        yield f"  {' -> '.join(labels)}  {rule}  {why}".rstrip()
    yield from _rest(len(listed[:most]), listed)
    for run, number in Counter(fewer.values()).items():
        rules = format_count(number, "rule")
        yield f"  {rules} decided by fewer cases in the {run} run; --all lists them"


def _why_no_change(comparison: Comparison, rule: str) -> str:
    """Returns why a rule that only one of the runs violates has neither regressed nor been fixed."""
    is_new = comparison.new.verdicts.labels[rule] in VIOLATIONS
    cases = comparison.rules.of_one_run(rule)
    which, change = ("old", "no regression") if is_new else ("new", "not fixed")
    if not cases:
        return "by cases that only one of the runs tried"
    count = format_count(len(cases), "case")
    return f"by {count} that the {which} run did not try, such as {cases[0]}: {change}"


def _rest(shown: int, listed: Sequence[object]) -> Iterator[str]:
    """Yields a line about the items of a list that are left out, if any."""
    if len(listed) > shown:
        yield f"  and {len(listed) - shown} more (--all shows them)"


def _format_change(change: Change, comparison: Comparison) -> Iterator[str]:
    arrow = change.arrow
    if change.points:
        points = f"{format_count(change.points, 'point')} of {change.case}"
        points += f", such as {'; '.join(change.examples)}"
        if change.rule:
            points = f"{change.rule}  {points}{shown_by(change, comparison)}"
        yield f"  {arrow}  {points}"
        if change.rule and change.kind in WORSE:
            yield f"      {change.record['reason']}"
            yield f"      {change.record['repro']}"
        return
    rules = " ".join(change.rules)
    yield f"  {arrow}  {rules}  {change.case}{shown_by(change, comparison)}"
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
