"""Markdown (GitHub's dialect) for the summary of a CI job: the conclusion, the stack, the violated rules.

Every text of a results file goes through `escaped` or, if it is code, `code`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from conformance.model.verdict import VERDICTS
from conformance.results.conclusions import headline
from reports import confirmation
from reports.digest import Digest, RuleFacts

_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:@$^=/\"'])")
_MOST = 50  # violated rules shown, because the size of a job's summary is limited


def render(runs: Sequence[Digest]) -> str:
    """The summaries of these runs, one after the other."""
    return "\n".join(line for run in runs for line in _run(run)) + "\n"


def _run(run: Digest) -> Iterator[str]:
    sign = {0: "✅", 1: "❌"}.get(run.status, "⚠️")
    yield f"## {sign} rdma-cts: {escaped(run.conclusion)}"
    yield ""
    yield f"{escaped(run.name)}, rdma-core {escaped(str(run.header['env'].get('rdma_core', '?')))}"
    yield ""
    yield escaped(run.sentence)
    yield ""
    yield "| verdict | rules | cases |"
    yield "|---|---:|---:|"
    rules = list(run.verdicts.values())
    for verdict in reversed(VERDICTS):
        if run.counts.get(verdict):
            yield f"| {verdict} | {rules.count(verdict)} | {run.counts[verdict]} |"
    for line in confirmation.summary(run):
        yield ""
        yield escaped(line)
    problems = run.waivers.get("problems", ())
    if problems:
        yield ""
        yield from (f"- waiver: {escaped(str(problem))}" for problem in problems)
    violations = run.violations()
    if violations:
        yield ""
        yield "| rule | its document | verdict | first violation | cases | table | reproduce |"
        yield "|---|---|---|---|---:|---|---|"
    for rule, records in list(violations.items())[:_MOST]:
        record = records[0]
        reason, repro = headline(rule, record)
        facts = run.rules.get(rule) or RuleFacts(rule)
        location = f"{record['source'].get('file', '')}:{record['source'].get('line', '')}"
        yield (
            f"| {escaped(rule)} | {escaped(facts.documented)} | {record['effective']} | {escaped(reason)} "
            f"| {len(records)} | {code(location)} | {code(repro)} |"
        )
    if len(violations) > _MOST:
        yield ""
        yield f"and {len(violations) - _MOST} more violated rules"
    yield ""


def escaped(text: str) -> str:
    """The text escaped for Markdown: shown as it is, without becoming markup, link, mention, table cell or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split(" ")))


def code(text: str) -> str:
    """The text as code inside a table cell."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if longest or text != text.strip(" ") or not text else ""
    return f"{fence}{pad}{text}{pad}{fence}".replace("|", "\\|")
