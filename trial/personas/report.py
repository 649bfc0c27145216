"""The report of personas as text and JSON: a table of personas and verdicts, and what is to be mended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from conformance.model.verdict import Verdict
from conformance.results.files import make_directory, write_through
from trial import report
from trial.personas.persona import Persona
from trial.personas.trying import Outcome
from trial.trying import KILLED

_COLUMNS = (Verdict.PASS, Verdict.FAIL, Verdict.UNSUPPORTED, Verdict.UNREACHABLE, Verdict.BROKEN)


def table(outcomes: Sequence[Outcome]) -> str:
    """A table in Markdown; violations are those that are offered on the persona."""
    named = [str(each) for each in _COLUMNS]
    lines = [f"| persona | {' | '.join(named)} | rules that fail | processor, s | violations | killed | vacuous |"]
    lines.append("|---" * (len(named) + 6) + "|")
    for each in outcomes:
        counts = " | ".join(str(each.verdicts.get(name, 0)) for name in named)
        rules = ", ".join(sorted(each.violates))
        tried = f"{len(each.findings)} | {each.count(KILLED)} | {len(each.vacuous) if each.findings else ''}"
        lines.append(f"| {each.persona} | {counts} | {rules} | {each.processor_s:.1f} | {tried} |")
    return "\n".join(lines)


def behaviours(persona: Persona) -> str:
    """What a persona does and lacks, one line for each behaviour, with where its driver shows it."""
    lines = [persona.name]
    lines += [f"  {(kind.__doc__ or '').strip()} ({where})" for kind, where in persona.behaves.items()]
    lines += [f"  declares {name} and lacks it ({where})" for name, where in persona.claims.items()]
    lines += [f"  has {name} and does not declare it ({where})" for name, where in persona.hides.items()]
    lines += [f"  lacks {name} ({where})" for name, where in persona.lacks.items() if name not in persona.claims]
    return "\n".join(lines)


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    """A line for each case that should not fail, and for each violation that was not killed."""
    lines = []
    for each in outcomes:
        lines += [f"{each.persona}: {wrong}" for wrong in each.wrong]
        lines += [f"{each.persona}: {report.line(finding)}" for finding in each.findings if finding.outcome != KILLED]
    return lines


def write(outcomes: Sequence[Outcome], out: Path) -> None:
    """Writes personas.json and personas.md into a directory. Raises UserError."""
    data = {"schema": "rdma-cts-personas/1", "personas": [each.as_data() for each in outcomes]}
    make_directory(out)
    write_through(out / "personas.json", (json.dumps(data, indent=1) + "\n").encode())
    write_through(out / "personas.md", (table(outcomes) + "\n").encode())
