"""Runs the trials of violations and permitted variants: on the reference and on personas."""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from conformance.errors import UserError, format_count
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.tables.suite import Suite
from conformance.tables.tiers import DEFAULT, EXHAUSTIVE, of_tier
from conformance.yamldoc.reader import suggestion
from trial import report
from trial.catalogue import (
    BLIND_VIOLATIONS,
    PERMITTED_VARIANTS,
    UNDETECTED,
    UNTRIABLE,
    VIOLATIONS,
    chosen_of,
)
from trial.mutant_table import BLIND, Violation
from trial.personas import trying as of_personas
from trial.personas.persona import PERSONAS
from trial.trying import SURVIVED, Extent, Finding, check_baseline, has_points, try_all

Say = Callable[[str], None]
_WHERE = "the reference"
_QUIET_S = 60.0  # between two lines of the progress, if standard error is no terminal


def reference(arguments: argparse.Namespace, suite: Suite, say: Say) -> int:
    """Tries violations of the reference. Returns the exit status: 0 if exactly the violations of UNDETECTED
    survive, few violations are misattributed, and there is no false alarm."""
    if arguments.permitted:
        return _permitted(arguments, suite, PERMITTED_VARIANTS)
    if arguments.blind:
        written = BLIND
    else:
        written = ""
    if arguments.blind:
        violations = BLIND_VIOLATIONS
    else:
        violations = VIOLATIONS
    return _violations(
        arguments,
        suite,
        violations,
        [variant for variant in PERMITTED_VARIANTS if variant.written == written],
        not arguments.blind,
    )


def personas(arguments: argparse.Namespace, suite: Suite, say: Say) -> int:
    """Runs the default tier's cases on personas and, without `--permitted`, tries violations on these personas. The
    exit status is 1 if a persona does not pass."""
    personas_by_name = {persona.name: persona for persona in PERSONAS}
    for name in arguments.personas:
        if name not in personas_by_name:
            near = suggestion(name, list(personas_by_name)) or "; --list shows all personas"
            raise UserError(f"unknown persona {name!r}{near}")
    tried = [
        persona
        for persona in PERSONAS
        if persona.name in arguments.personas or not arguments.personas
    ]
    if arguments.shard:
        tried = arguments.shard.part(tried, lambda persona: persona.name)
    if arguments.list:
        print("\n".join(of_personas.behaviours(persona) for persona in tried))
        return 0
    if arguments.blind:
        violations = BLIND_VIOLATIONS
    else:
        violations = VIOLATIONS
    if arguments.permitted:
        chosen = []
    else:
        chosen = chosen_of(violations, suite, arguments.rule, arguments.violation)
    started, outcomes = time.monotonic(), []
    for outcome in of_personas.try_personas(
        tried,
        chosen,
        of_tier(suite.cases, DEFAULT),
        arguments.jobs,
    ):
        outcomes.append(outcome)
        if arguments.verbose:
            say(
                "\n".join(
                    [
                        f"{outcome.persona}: {outcome.processor_s:.1f} s",
                        *of_personas.faults([outcome]),
                    ],
                ),
            )
    if arguments.out:
        of_personas.write(outcomes, arguments.out)
    print("\n".join([of_personas.table(outcomes), *of_personas.faults(outcomes)]))
    print(
        f"{format_count(len(outcomes), 'persona')} in {time.monotonic() - started:.1f} s: "
        f"{sum(outcome.passed for outcome in outcomes)} passed",
    )
    if all(outcome.passed for outcome in outcomes):
        return 0
    return 1


def listed(chosen: Sequence[Violation]) -> int:
    """Prints the chosen violations. Returns the exit status."""
    print(
        "\n".join(
            f"{violation.rule:<9} {violation.name}: {violation.about}" for violation in chosen
        )
    )
    return 0


def concluded(arguments: argparse.Namespace, trial: report.Trial) -> int:
    """Writes and prints a trial. Returns the exit status."""
    if arguments.out:
        report.write(trial, arguments.out)
    print(report.summary(trial))
    if trial.passed:
        return 0
    return 1


class Progress:
    """Shows on standard error how many of `of` violations have been tried, and for how long those that are being tried
    have run: a violation that survives needs minutes. On a terminal this is one line; else a line each minute."""

    def __init__(self, of: int) -> None:
        self._of = of
        self._count = 0
        self._since = self._shown = time.monotonic()

    def counted(self) -> None:
        self._count += 1
        self._since = self._shown = time.monotonic()
        if sys.stderr.isatty():
            self._line("")

    def waiting(self, names: Sequence[str]) -> None:
        """Shows the names of violations that have been tried since the latest finding."""
        now = time.monotonic()
        trying = f", trying {', '.join(names)} for {now - self._since:.0f} s"
        if sys.stderr.isatty():
            self._line(trying)
        elif now - self._shown > _QUIET_S:
            self._shown = now
            print(f"{self._count} of {self._of}{trying}", file=sys.stderr, flush=True)

    def _line(self, trying: str) -> None:
        if self._count < self._of:
            end = ""
        else:
            end = "\r"
        text = f"\r\x1b[K{self._count} of {self._of}{trying}"
        print(text, end=end, file=sys.stderr, flush=True)


def _shown(
    arguments: argparse.Namespace,
    findings_here: Iterable[Finding],
    of: int,
    counted: Callable[[], None] = lambda: None,
) -> list[Finding]:
    """Returns the findings, and writes and prints each when it is there. Raises UserError if there are not `of`
    findings."""
    findings: list[Finding] = []
    for finding in findings_here:
        findings.append(finding)
        if arguments.out:
            report.append(finding, arguments.out)
        if arguments.verbose:
            print(report.line(finding), flush=True)
        counted()
    if len(findings) != of:
        raise UserError(f"only {len(findings)} of {of} violations were tried", status=3)
    return findings


def _violations(
    arguments: argparse.Namespace,
    suite: Suite,
    violations: Sequence[Violation],
    variants: Sequence[Violation] = (),
    untriable: bool = False,
) -> int:
    """Tries the chosen violations. If all violations are chosen, also tries `variants` and lists `untriable` rules."""
    chosen = chosen_of(violations, suite, arguments.rule, arguments.violation)
    is_all = len(chosen) == len(violations)
    if not (is_all):
        variants = ()
    if arguments.shard:  # each shard has a part of all violations and variants
        chosen_here = {
            id(violation)
            for violation in arguments.shard.part(
                [*chosen, *variants], lambda violation: violation.name
            )
        }
        chosen = [violation for violation in chosen if id(violation) in chosen_here]
        variants = [violation for violation in variants if id(violation) in chosen_here]
        untriable = untriable and arguments.shard.number == 1
    if arguments.list:
        return listed(chosen)
    # A row of the exhaustive tier may take long on a device, but on the reference it is as fast as any other row.
    cases = [case for case in suite.cases if case.kind is Kind.ROW or case.tier != EXHAUSTIVE]
    started = time.monotonic()
    if arguments.whole:
        extent = Extent.WHOLE
    elif arguments.rule or arguments.violation:
        extent = Extent.OWN
    else:
        extent = Extent.UNTIL_DETECTED
    findings = _findings(arguments, chosen, cases, extent)
    if variants:
        permitted = _tried(arguments, variants, of_tier(suite.cases, DEFAULT), Extent.WHOLE)
    else:
        permitted = []
    if untriable and is_all:
        not_tried = UNTRIABLE
    else:
        not_tried = {}
    took = time.monotonic() - started
    status = concluded(
        arguments,
        report.Trial(findings, not_tried, took, _WHERE, permitted, UNDETECTED),
    )
    if extent is Extent.OWN and any(finding.outcome == SURVIVED for finding in findings):
        print(
            "Only the cases of the violated rule were run. The same command with --whole also tells whether one of all "
            f"{len(cases):,} cases detects it: two minutes of a processor for each violation"
        )
    return status


def _permitted(arguments: argparse.Namespace, suite: Suite, violations: Sequence[Violation]) -> int:
    chosen = chosen_of(violations, suite, arguments.rule, arguments.violation, arguments.shard)
    if arguments.list:
        return listed(chosen)
    started = time.monotonic()
    findings = _findings(arguments, chosen, of_tier(suite.cases, DEFAULT), Extent.WHOLE)
    return concluded(arguments, report.Trial([], {}, time.monotonic() - started, _WHERE, findings))


def _findings(
    arguments: argparse.Namespace,
    chosen: Sequence[Violation],
    cases: Sequence[Case],
    extent: Extent,
) -> list[Finding]:
    """Tries the chosen violations, and checks that the cases pass on the reference without a violation: before a trial of
    all violations all cases; in a trial of chosen ones only their rules' rows, and afterwards what has failed."""
    if not (arguments.rule or arguments.violation):
        check_baseline(cases)
        return _tried(arguments, chosen, cases, extent)
    rules = {violation.rule for violation in chosen}
    rows = [case for case in cases if not has_points(case) and rules.intersection(case.rules)]
    check_baseline(rows)
    findings = _tried(arguments, chosen, cases, extent)
    failed = {*chain.from_iterable(finding.by for finding in findings)}
    failed.difference_update(case.id for case in rows)
    check_baseline([case for case in cases if case.id in failed])
    return findings


def _tried(
    arguments: argparse.Namespace,
    chosen: Sequence[Violation],
    cases: Sequence[Case],
    extent: Extent,
) -> list[Finding]:
    progress = Progress(len(chosen))
    findings = try_all(chosen, cases, arguments.jobs, extent, progress.waiting)
    return _shown(arguments, findings, len(chosen), progress.counted)
