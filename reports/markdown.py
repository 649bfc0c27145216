"""Writes GitHub Markdown for the summary of a CI job: the conclusion, the stack and the defects. Every text of a
results file is passed through `escaped` or, if the text is shown as code, through `code`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from conformance.defects import Defect
from conformance.model.verdict import OF_RULES, Verdict
from conformance.results.conclusions import Standing
from conformance.results.rule_conclusions import LEFT_OPEN, OFFERED
from reports import evidence
from reports.digest import Digest
from reports.text import format_rules
from reports.upstream import titled

if TYPE_CHECKING:
    from reports.novelty import Novelty

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:@$^=/\"'])")
_MOST_CASES = 12  # the most cases that are shown for a defect
_MOST = 50  # the most defects that are shown, because the size of a job's summary is limited


def render(runs: Sequence[Digest], news: Novelty | None = None) -> str:
    """Returns the text of the runs; with `news`, what is new in the only run against an earlier run comes first."""
    return "".join(f"{section}\n\n" for run in runs for section in _sections(run, news))


def _sections(run: Digest, news: Novelty | None) -> Iterator[str]:
    if run.summary.concluded.conforms:
        sign = "✅"
    elif run.summary.status == 1:
        sign = "❌"
    else:
        sign = "⚠️"
    yield f"## {sign} rdma-cts: {escaped(run.summary.conclusion)}"
    if news:
        yield from _news(news)
    if run.summary.headline:
        yield escaped(run.summary.headline)
    yield f"{escaped(run.environment.name)}, rdma-core {escaped(str(run.header['env'].get('rdma_core', '?')))}"
    yield escaped(run.summary.sentence)
    yield "\n".join(_verdicts(run))
    yield from map(escaped, run.violations.repetitions.summary())
    if problems := run.summary.waiver_lines:
        yield "\n".join(f"- waiver: {escaped(str(problem))}" for problem in problems)
    defects = run.violations.open_defects
    if news:
        new = [item.defect for item in news.new]
        defects = tuple(sorted(defects, key=lambda defect: defect not in new))
    if defects:
        yield "\n".join(_table(defects[:_MOST]))
        if evidence.has_points(run):
            yield escaped(evidence.POINT)
    if len(defects) > _MOST:
        yield f"and {len(defects) - _MOST} more defects"
    for defect in defects[:_MOST]:
        yield from _detail(run, defect)
    if of_stack := [defect for defect in run.violations.defects if defect.of_stack]:
        yield "Defects of the stack, which occur on every device:"
        yield "\n".join(
            f"- {escaped(section.title)} ({escaped(format_rules(section.rules))})"
            for section in of_stack
        )


def _news(news: Novelty) -> Iterator[str]:
    """Yields the comparison of the cases, then the defects by kind: what is new, and what is gone or not decided."""
    yield escaped(news.sentence)
    yield escaped(news.stack)
    if remarks := list(news.remarks()):
        yield "\n".join(f"- {escaped(remark)}" for remark in remarks)
    for kind, items in {**news.by_kind, **news.lost}.items():
        if items:
            yield f"### {escaped(kind)}"
            yield "\n".join(
                f"- {item.defect.severity.label}: {code(item.defect.fingerprint)} {escaped(titled(item.defect, item.title))}"
                for item in items
            )


def _verdicts(run: Digest) -> Iterator[str]:
    yield "| verdict | rules | cases |"
    yield "|---|---:|---:|"
    rules = [label for rule, label in run.verdicts.labels.items() if rule not in run.verdicts.apart]
    for label, standing in ((OFFERED, Standing.OFFERED), (LEFT_OPEN, Standing.LEFT_OPEN)):
        if number := rules.count(label):
            yield f"| {label}: {standing.phrase} | {number} | |"
    for verdict in reversed(OF_RULES):
        if verdict in rules or run.summary.counts.get(verdict):
            empty = run.summary.empty if verdict == Verdict.PASS else 0
            more = f", {empty} of them assert nothing" if empty else ""
            if at_points := run.summary.at_points.get(verdict):
                more = f" + {at_points} at points"
            yield f"| {verdict} | {rules.count(verdict)} | {run.summary.counts.get(verdict, 0)}{more} |"


def _table(defects: Sequence[Defect]) -> Iterator[str]:
    yield "| severity | defect | what is wrong | rules | cases | answered by | reproduce |"
    yield "|---|---|---|---|---:|---|---|"
    for defect in defects:
        yield (
            f"| {defect.severity.label} | {code(defect.fingerprint)} | {escaped(titled(defect))} "
            f"| {escaped(format_rules(defect.rules))} | {_cases(defect)} | {escaped(defect.answering.layer)} "
            f"| {code(defect.first.repro)} |"
        )


def _cases(defect: Defect) -> str:
    return f"{len(defect.cases)}{f': {defect.share}' if defect.share else ''}"


def _detail(run: Digest, defect: Defect) -> Iterator[str]:
    record = defect.first.record
    yield f"#### {defect.severity.label}: {escaped(defect.title)}"
    where = f"{code(defect.first.name)}, row {code(evidence.location(record))}"
    cases = [*(symptom.case for symptom in defect.examples(_MOST_CASES + 1)), *defect.cases]
    if other_cases := [case for case in dict.fromkeys(cases) if case != defect.first.case]:
        if len(other_cases) > _MOST_CASES:
            more = f" and {len(other_cases) - _MOST_CASES} more"
        else:
            more = ""
        where += f"\nalso {', '.join(map(code, other_cases[:_MOST_CASES]))}{more}"
    if again := run.violations.repetitions.share(defect):
        where += f"\n{again}"
    if defect.confirmed and not run.violations.repetitions.is_confirmed(defect.first):
        again = run.violations.repetitions.text_about(defect.confirmed[0])
        where += f"; {code(defect.confirmed[0].case)} {escaped(again)}"
    yield where
    shown = (line for line in evidence.lines(run, record) if not line.startswith("kernel: "))
    yield "\n".join(
        f"- {escaped(line)}" for line in (f"{record['effective']}: {record['reason']}", *shown)
    )


def escaped(text: str) -> str:
    """Returns the text, escaped so that no part becomes markup, a link, a mention, a table cell or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split(" ")))


def code(text: str) -> str:
    """Returns the text as code for a table cell."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    if longest or text != text.strip(" ") or not text:
        pad = " "
    else:
        pad = ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")
