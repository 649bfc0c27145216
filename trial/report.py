"""Reports a trial as text, Markdown and JSON: a table by rule, and the outcome of each violation."""

import json
import os
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from conformance.errors import format_count
from conformance.regular_file import open_below
from conformance.results.files import make_directory, write_together, writing
from trial.trying import KILLED, MISATTRIBUTED, SURVIVED, Finding

# At most this share of the violations may be detected only by cases of other rules.
MISATTRIBUTED_AT_MOST = 0.05


@dataclass(frozen=True)
class Trial:
    """The findings of one trial. `untriable` has the rules whose violation no case can detect, with the reasons.
    `permitted_variants` has the findings on permitted variants, on which no case may fail. `undetected` has the
    violations that are tried but must survive, by name, with the reasons."""

    findings: Sequence[Finding]
    untriable: dict[str, str]
    duration_s: float
    where: str
    permitted_variants: Sequence[Finding] = ()
    undetected: Mapping[str, str] = field(default_factory=dict)

    def of(self, outcome: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.outcome == outcome]

    @property
    def passed(self) -> bool:
        """Whether exactly the violations of `undetected` survived, few were misattributed, and no alarm was false."""
        misattributed = len(self.of(MISATTRIBUTED))
        allowed = MISATTRIBUTED_AT_MOST * len(self.findings)
        missed = [finding for finding in self.of(SURVIVED) if finding.name not in self.undetected]
        return not (missed or self.unexpected or self.false_alarms) and misattributed <= allowed

    @property
    def unexpected(self) -> list[Finding]:
        """The violations of `undetected` that a case has detected. Either the case requires more than the documents, or
        the violation has become detectable."""
        return [
            finding
            for finding in self.findings
            if finding.name in self.undetected and finding.outcome != SURVIVED
        ]

    @property
    def false_alarms(self) -> list[Finding]:
        """The permitted variants on which a case failed or was BROKEN."""
        return [variant for variant in self.permitted_variants if variant.by or variant.broken]

    def by_rule(self) -> list[tuple[str, list[Finding]]]:
        """Returns the findings of each rule, in the order of the violations."""
        rules: dict[str, list[Finding]] = {}
        for finding in self.findings:
            rules.setdefault(finding.rule, []).append(finding)
        return list(rules.items())


def summary(trial: Trial) -> str:
    """Returns the last lines of the output: the violations that were not killed, and figures."""
    counted = ", ".join(
        f"{len(trial.of(outcome))} {outcome}" for outcome in (KILLED, MISATTRIBUTED, SURVIVED)
    )
    rules = trial.by_rule()
    fully_killed = 0
    for _, findings in rules:
        fully_killed += all(finding.outcome == KILLED for finding in findings)
    lines = [
        line(finding)
        + (
            f" · must survive: {trial.undetected[finding.name]}"
            if finding.name in trial.undetected
            else ""
        )
        for finding in trial.findings
        if finding.outcome != KILLED or finding in trial.unexpected
    ]
    lines.append(
        f"{format_count(len(trial.findings), 'violation')} in {trial.duration_s:.1f} s on {trial.where}: {counted}",
    )
    tried = format_count(len(rules), "rule")
    lines.append(f"{tried} tried, {fully_killed} of them with every violation killed")
    if trial.permitted_variants:
        for variant in trial.false_alarms:
            if variant.by:
                alarm = f"{variant.by[0]}: {variant.reason}"
            else:
                alarm = variant.broken[0]
            lines.append(f"false alarm: {variant.about} · {alarm}")
        variants = format_count(len(trial.permitted_variants), "permitted variant")
        alarms = format_count(len(trial.false_alarms), "false alarm")
        lines.append(f"{variants}: {alarms}")
    lines += [f"not tried: {rule}, because {reason}" for rule, reason in trial.untriable.items()]
    return "\n".join(lines)


def line(finding: Finding) -> str:
    if finding.by:
        detected = f"by {finding.by[0]}: {finding.reason}"
    else:
        detected = f"by none of {finding.tried} cases"
    return f"{finding.outcome:<13} {finding.rule:<9} {finding.name}: {finding.about} · detected {detected}"


def markdown(trial: Trial) -> str:
    """Returns a table by rule, then each violation with the first case that detected it."""
    rules: list[tuple[object, ...]] = []
    for rule, findings in [*trial.by_rule(), ("**all**", list(trial.findings))]:
        count = Counter(finding.outcome for finding in findings)
        ratio = f"{100 * count[KILLED] / max(1, len(findings)):.0f} %"
        counts = [count[outcome] for outcome in (KILLED, MISATTRIBUTED, SURVIVED)]
        rules.append((rule, len(findings), *counts, ratio))
    lines = table(
        ("rule", "violations", "killed", "misattributed", "survived", "kill ratio"),
        rules,
    )
    rows = [
        (
            finding.rule,
            finding.name,
            finding.about,
            finding.outcome,
            len(finding.by),
            f"`{finding.by[0]}`" if finding.by else "",
        )
        for finding in trial.findings
    ]
    head = ("rule", "violation", "what it does", "outcome", "cases", "first case that detected it")
    return "\n".join([*lines, "", *table(head, rows)]) + "\n"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Container[int] = (),
) -> list[str]:
    """Returns a table in Markdown. The columns with the indices `numbers` are aligned to the right."""
    first, *body = (f"| {' | '.join(map(str, row))} |" for row in (head, *rows))
    rule = "".join("|---:" if column in numbers else "|---" for column in range(len(head)))
    return [first, f"{rule}|", *body]


FINDINGS = "findings.jsonl"  # the findings so far, which also an interrupted trial leaves


def append(finding: Finding, out: Path) -> None:
    """Appends a finding to FINDINGS in a directory. Raises UserError."""
    make_directory(out)
    path = out / FINDINGS
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    with writing(path), os.fdopen(open_below(path, flags), "a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(finding)) + "\n")


def write(trial: Trial, out: Path) -> None:
    """Writes trial.json and trial.md into a directory. Raises UserError."""
    data = {
        "schema": "rdma-cts-trial/1",
        "where": trial.where,
        "duration_s": round(trial.duration_s, 3),
        "passed": trial.passed,
        "untriable": trial.untriable,
        "findings": list(map(asdict, trial.findings)),
        "permitted_variants": list(map(asdict, trial.permitted_variants)),
    }
    write_files(out, "trial", data, markdown(trial))


def write_files(out: Path, name: str, data: Any, table: str) -> None:
    """Writes NAME.json and NAME.md into a directory. Raises UserError."""
    listed = (json.dumps(data, indent=1) + "\n").encode()
    write_together(out, {f"{name}.json": listed, f"{name}.md": table.encode()})
