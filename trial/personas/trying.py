"""Tries the suite on personas, without a violation and with each violation.

A violation is offered on a persona if a case that passes on the persona detects the violation on the persona, or twice
on the unmodified reference: with all capabilities, and with only the persona's. An offered violation must be killed on
the persona. A violation that a behaviour of the persona masks (`masks` in the tables) need not be killed."""

from __future__ import annotations

import collections
import gc
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from conformance.execution.preflight import preflight
from conformance.execution.runner import run_case
from conformance.judging import broken as of_harness
from conformance.model.case import Case
from conformance.model.preflight import Findings
from conformance.model.record import ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.results.case_record import case_record
from conformance.results.rule_conclusions import unproven
from conformance.results.writer import shown_in
from conformance.tables.suite import load_suite
from trial import report
from trial.mutant_table import Violation
from trial.personas.persona import BEHAVIOURS, Persona
from trial.personas.time_on_a_nic import on_a_nic
from trial.processes import in_processes
from trial.reference.bench import ReferenceBench
from trial.running import on_reference, on_the_reference
from trial.single_cases import violated_by
from trial.trying import KILLED, Finding, finding, try_violation

_HEAD = (
    "persona",
    "right",
    "wrong",
    "vacuous",
    "BROKEN",
    "UNSUPPORTED",
    "UNREACHABLE",
    "prove nothing",
)
_TIMES = ("rules that the driver violates", "violations", "killed", "processor, s", "on a NIC, s")


@dataclass(frozen=True)
class CleanRun:
    """The results of cases on a persona without a violation.

    - `passed`: the ids of the cases that pass
    - `failed`: the failing cases as (id, rules, reason); a sweep is listed for each rule that its points violate
    - `unproven`: the passing cases that prove nothing: nothing on the persona was granted what they refuse
    - `broken`: the BROKEN cases as `id: reason`
    - `findings`: the findings of preflight
    - `processor_s`: the processor time; `nic_s`: the time that preflight and the cases would take on a NIC, and
      `waited_s` the part of its waits"""

    persona: str
    verdicts: Mapping[str, int]
    passed: frozenset[str]
    failed: tuple[tuple[str, tuple[str, ...], str], ...]
    unproven: tuple[str, ...]
    broken: tuple[str, ...]
    findings: Findings
    processor_s: float
    nic_s: float
    waited_s: float


@dataclass(frozen=True)
class Outcome:
    """The outcome of one persona.

    - `findings`: the findings on the violations that are offered on the persona
    - `right`: the number of cases that pass and are not vacuous, or that fail for a rule that the driver violates
    - `wrong`: a line for each case that should not fail, and for each violated rule for which no case fails
    - `broken`: a line for each BROKEN case
    - `vacuous`: passing cases that detect offered violations on the unmodified reference, but none on the persona
    - `unproven`: as in CleanRun"""

    persona: str
    verdicts: Mapping[str, int]
    right: int
    processor_s: float
    nic_s: float
    violates: Mapping[str, str]
    wrong: tuple[str, ...]
    unproven: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    vacuous: tuple[str, ...] = ()

    def count(self, outcome: str) -> int:
        return sum(finding.outcome == outcome for finding in self.findings)

    @property
    def passed(self) -> bool:
        """Whether exactly the expected cases failed, no case was BROKEN, and every offered violation was killed."""
        return not self.wrong and not self.broken and self.count(KILLED) == len(self.findings)


def run_clean(persona: Persona, cases: Sequence[Case]) -> CleanRun:
    """Chooses the GID of a persona's port, runs preflight and then the cases, as on a device. Raises UserError."""
    started = time.process_time()
    persona.port.begin()
    registry = load_suite().registry
    passed, failed, broken = set(), [], []
    records = list[ResultRecord]()
    verdicts: collections.Counter[str] = collections.Counter()
    device = on_a_nic(persona.kind())(persona.stack)
    with closing(ReferenceBench(device)) as bench:
        findings = preflight(bench)
        run = on_the_reference(bench)
        for case in cases:
            try:
                done = run_case(case, run)
            except Exception as error:
                verdicts[Verdict.BROKEN] += 1
                broken.append(f"{case.id}: {of_harness(error).reason}")
                continue
            judgement, record = done.judgement, case_record(done, registry)
            record["evidence"] = shown_in(done.case, record)
            records.append(record)
            verdicts[judgement.verdict] += 1
            if judgement.verdict == Verdict.PASS:
                passed.add(case.id)
            elif judgement.verdict == Verdict.BROKEN:
                broken.append(f"{case.id}: {judgement.reason}")
            elif judgement.verdict in VIOLATIONS:
                # Each deviating point of a sweep violates one rule; a row that fails may violate any of its rules.
                rules = violated_by(done)
                about = [(rule,) for rule in sorted(rules)] if case.sweep else [case.rules]
                failed += [(case.id, item, judgement.reason) for item in about]
    took = time.process_time() - started
    return CleanRun(
        persona.name,
        dict(verdicts),
        frozenset(passed),
        tuple(failed),
        tuple(unproven(records, registry.needs)),
        tuple(broken),
        findings,
        took,
        device.spent_s,
        device.waited_s,
    )


def outcome(
    persona: Persona,
    clean: CleanRun,
    findings: Sequence[Finding] = (),
    killers: Collection[str] = (),
) -> Outcome:
    """Returns the outcome of a persona. On the unmodified reference, the cases `killers` detect offered violations."""
    violated = persona.violates
    failed = {
        case: f"{case}: {reason}"
        for case, rules, reason in clean.failed
        if violated.keys().isdisjoint(rules)
    }
    seen = {rule for _, rules, _ in clean.failed for rule in rules}
    silent = [
        f"no case fails for {rule}, which {where} violates"
        for rule, where in violated.items()
        if rule not in seen
    ]
    vacuous = clean.passed.intersection(killers).difference(*(finding.by for finding in findings))
    judged = sum(clean.verdicts.get(verdict, 0) for verdict in (Verdict.PASS, *VIOLATIONS))
    right, wrong = judged - len(failed) - len(vacuous), (*failed.values(), *silent)
    times = (clean.processor_s, clean.nic_s)
    about = (persona.name, clean.verdicts, right, *times, violated)
    return Outcome(
        *about, wrong, clean.unproven, clean.broken, tuple(findings), tuple(sorted(vacuous))
    )


def try_on(
    persona: Persona,
    clean: CleanRun,
    violation: Violation,
    killers: Collection[str],
    cases: Sequence[Case],
) -> Finding | None:
    """Tries a violation on a persona. Returns None if the violation is not offered or is masked. `killers` has the
    cases that detect the violation on the unmodified reference."""
    passing = [case for case in cases if case.id in clean.passed]
    suited = [case for case in passing if case.id in killers]
    if not suited:
        return None
    there = replace(violation, kind=persona.kind(violation.kind))
    judged = on_reference(suited, there.kind, persona.stack, clean.findings)
    detected = {
        case.id: judgement.reason for case, judgement in judged if judgement.verdict in VIOLATIONS
    }
    if detected:
        return finding(violation, KILLED, detected, len(suited))
    judgements = on_reference(suited, violation.kind, persona.stack)
    if (
        not any(judgement.verdict in VIOLATIONS for _, judgement in judgements)
        or violation.name in persona.masked
    ):
        return None
    rest = [case for case in passing if case.id not in killers]
    return try_violation(there, rest, only=persona.stack, findings=clean.findings)


def try_personas(
    personas: Sequence[Persona],
    violations: Sequence[Violation],
    cases: Sequence[Case],
    jobs: int = 0,
) -> Iterator[Outcome]:
    """Runs the cases on each persona, then tries the violations on the persona. Yields the outcomes in order."""
    named = [persona.name for persona in personas]
    gc.freeze()  # the child processes share the memory of the cases
    cleans = list(in_processes(lambda number: run_clean(personas[number], cases), named, jobs))
    if not violations:
        yield from map(outcome, personas, cleans)
        return
    names = [violation.name for violation in violations]
    plain = [
        frozenset(process.by) if process.outcome == KILLED else frozenset()
        for process in in_processes(
            lambda number: try_violation(violations[number], cases),
            names,
            jobs,
        )
    ]
    for persona, clean in zip(personas, cleans, strict=True):

        def tried(
            number: int,
            persona: Persona = persona,
            clean: CleanRun = clean,
        ) -> Finding | None:
            return try_on(persona, clean, violations[number], plain[number], cases)

        tries = in_processes(tried, [f"{name} on {persona.name}" for name in names], jobs)
        offered = [
            (trial_of_persona, killers)
            for trial_of_persona, killers in zip(tries, plain, strict=True)
            if trial_of_persona is not None
        ]
        personas_tried, killing = (
            [persona for persona, _ in offered],
            [killers for _, killers in offered],
        )
        yield outcome(persona, clean, personas_tried, frozenset().union(*killing))


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns a table in Markdown. Without an offered violation, the number of vacuous cases is left out."""
    rows = []
    for outcome in outcomes:
        vacuous = len(outcome.vacuous) if outcome.findings else ""
        absent = (
            outcome.verdicts.get(verdict, 0)
            for verdict in (Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
        )
        cells = (
            outcome.persona,
            outcome.right,
            len(outcome.wrong),
            vacuous,
            len(outcome.broken),
            *absent,
            len(outcome.unproven),
        )
        tried = (
            ", ".join(sorted(outcome.violates)),
            len(outcome.findings),
            outcome.count(KILLED),
            f"{outcome.processor_s:.1f}",
            f"{outcome.nic_s:.1f}",
        )
        rows.append((*cells, *tried))
    return "\n".join(report.table((*_HEAD, *_TIMES), rows))


def behaviours(persona: Persona) -> str:
    """Returns a persona's behaviours and missing capabilities, one on each line, with places in the driver's source."""
    lines = [persona.name]
    lines += [f"  {BEHAVIOURS[name].__doc__} ({where})" for name, where in persona.behaves.items()]
    lines += [f"  declares {name} and lacks it ({where})" for name, where in persona.claims.items()]
    lines += [
        f"  has {name} and does not declare it ({where})" for name, where in persona.hides.items()
    ]
    lines += [
        f"  lacks {name} ({where})"
        for name, where in persona.lacks.items()
        if name not in persona.claims
    ]
    return "\n".join(lines)


def faults(outcomes: Sequence[Outcome]) -> list[str]:
    """Returns a line for each wrong or BROKEN case, and for each offered violation that was not killed."""
    lines = []
    for outcome in outcomes:
        lines += [f"{outcome.persona}: {wrong}" for wrong in outcome.wrong]
        lines += [f"{outcome.persona}: BROKEN {id_}" for id_ in outcome.broken]
        lines += [
            f"{outcome.persona}: {report.line(finding)}"
            for finding in outcome.findings
            if finding.outcome != KILLED
        ]
    return lines


def write(outcomes: Sequence[Outcome], out: Path) -> None:
    """Writes personas.json and personas.md into a directory. Raises UserError."""
    data = {"schema": "rdma-cts-personas/1", "personas": list(map(asdict, outcomes))}
    report.write_files(out, "personas", data, table(outcomes) + "\n")
