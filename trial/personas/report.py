"""The report of personas as text and JSON: a table of personas and verdicts, and the failures to mend."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from conformance.model.verdict import Verdict
from trial import report
from trial.personas.persona import BEHAVIOURS, Persona
from trial.personas.trying import Outcome
from trial.trying import KILLED

_HEAD = ("persona", "right", "wrong", "vacuous", "BROKEN", "UNSUPPORTED", "UNREACHABLE", "rules that fail rightly")
_TIMES = ("violations", "killed", "processor, s")


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns a table in Markdown with the violations offered on each persona; without any, none counts as vacuous."""
    rows = []
    for each in outcomes:
        vacuous = len(each.vacuous) if each.findings else ""
        absent = (each.verdicts.get(verdict, 0) for verdict in (Verdict.UNSUPPORTED, Verdict.UNREACHABLE))
        cells = (each.persona, each.right, len(each.wrong), vacuous, len(each.broken), *absent)
        tried = (", ".join(sorted(each.violates)), len(each.findings), each.count(KILLED), f"{each.processor_s:.1f}")
        rows.append((*cells, *tried))
    return "\n".join(report.table((*_HEAD, *_TIMES), rows))


def behaviours(persona: Persona) -> str:
    """Returns a persona's behaviours and missing capabilities, one a line, with the place in its driver's source."""
    lines = [persona.name]
    lines += [f"  {BEHAVIOURS[name].__doc__} ({where})" for name, where in persona.behaves.items()]
    lines += [f"  declares {name} and lacks it ({where})" for name, where in persona.claims.items()]
    lines += [f"  has {name} and does not declare it ({where})" for name, where in persona.hides.items()]
    lines += [f"  lacks {name} ({where})" for name, where in persona.lacks.items() if name not in persona.claims]
    return "\n".join(lines)


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns a line for each case that fails wrongly or is BROKEN, and for each violation that was not killed."""
    lines = []
    for each in outcomes:
        lines += [f"{each.persona}: {wrong}" for wrong in (*each.wrong, *(f"BROKEN {id_}" for id_ in each.broken))]
        lines += [f"{each.persona}: {report.line(finding)}" for finding in each.findings if finding.outcome != KILLED]
    return lines


def write(outcomes: Sequence[Outcome], out: Path) -> None:
    """Writes personas.json and personas.md into a directory. Raises UserError."""
    data = {"schema": "rdma-cts-personas/1", "personas": list(map(asdict, outcomes))}
    report.write_files(out, "personas", data, table(outcomes) + "\n")
