"""`rdma-cts trial`: tests the suite itself, against references and altered real calls that break one rule at a time."""

from __future__ import annotations

import argparse
import collections
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from commands.written import out_directory
from conformance.errors import PROGRAM, UserError
from conformance.model.kind import Kind
from conformance.run_options import given_path
from conformance.tables.suite import Suite, load_suite
from conformance.tables.tiers import DEFAULT, EXHAUSTIVE, of_tier
from conformance.yamldoc.reader import suggestion
from fixtures.guest.recipe import DEFAULT_STACK, STACKS
from reference.bench import ReferenceBench
from reference.device import Device
from targets.programs import messages_from_guest
from trial import mended_runs as mended_trial
from trial import report, reproduction
from trial.alterations import ALTERATIONS
from trial.blind import BLIND_PERMITTED_VARIANTS, BLIND_VIOLATIONS
from trial.data_path import DATA_PATH_ALTERATIONS, DATA_PATH_PERMITTED
from trial.permitted_variants import PERMITTED_VARIANTS
from trial.personas import PERSONAS
from trial.personas import report as personas_report
from trial.personas.trying import try_personas
from trial.searching import FIRST_SEED, divergences, for_seconds, subject_of
from trial.trying import OWN, Finding, check_baseline, try_all
from trial.violation import Violation
from trial.violations import UNTRIABLE, VIOLATIONS

NAME = "trial"
HELP = "Test the suite itself: does a case fail for every rule that a driver violates?"


# What --mended goes with.
_OF_MENDED = ("mended", "violation", "yes", "out", "list", "verbose")
_PERMITTED = (*PERMITTED_VARIANTS, *BLIND_PERMITTED_VARIANTS, *DATA_PATH_PERMITTED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("--rule", action="append", default=[], metavar="ID", help="only violations of this rule")
    parser.add_argument("--violation", action="append", default=[], metavar="NAME", help="only this violation")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes (default: one for each processor)")
    parser.add_argument("--whole", action="store_true", help="run all cases, even if cases of the violated rule failed")
    parser.add_argument(
        "--blind", action="store_true", help="the violations that were written without sight of the cases instead"
    )
    parser.add_argument(
        "--data-path", action="store_true", help="those of requests and completions instead, on the reference"
    )
    parser.add_argument("--permitted", action="store_true", help="only the permitted variants, which no case may fail")
    parser.add_argument(
        "--personas",
        nargs="*",
        metavar="NAME",
        help="references that behave as the drivers of known devices (default: all of them), each "
        "without and with every violation; with --permitted only without",
    )
    parser.add_argument("--guest", action="store_true", help="alter real calls on Soft-RoCE in the guest instead")
    parser.add_argument("--own", action="store_true", help="with --guest: only the cases of the violated rule")
    parser.add_argument(
        "--sequences",
        type=float,
        metavar="SECONDS",
        help="random sequences on a reference (those on a device are part of a run)",
    )
    parser.add_argument(
        "--reproducers",
        action="store_true",
        help="C programs of the violations of a run instead, in the guest (--whole: of its passes too)",
    )
    parser.add_argument(
        "--results", type=given_path, metavar="DIR", help="with --reproducers: the run (default: the latest)"
    )
    parser.add_argument(
        "--mended",
        type=given_path,
        metavar="DIR",
        help="leave out each change of the mended stack in turn (--violation: this one), and run what "
        "may come back; DIR: a run on the stack as shipped",
    )
    parser.add_argument("--shuffled", type=int, metavar="N", help="with --guest: every row N times, in shuffled orders")
    parser.add_argument(
        "--seed",
        type=int,
        default=FIRST_SEED,
        metavar="N",
        help=f"the first seed of sequences and shuffled orders (default {FIRST_SEED})",
    )
    parser.add_argument("--stack", choices=tuple(STACKS), default=DEFAULT_STACK, help="the guest's Debian release")
    parser.add_argument("--yes", action="store_true", help="install what is needed without asking")
    parser.add_argument("--out", type=out_directory, metavar="DIR", help="write trial.json and trial.md there")
    parser.add_argument("--list", action="store_true", help="only list the violations")
    parser.add_argument("-v", "--verbose", action="store_true", help="print a line for each violation")


def execute(arguments: argparse.Namespace) -> int:
    """Tries the violations and reports; exit status 0 if none survives and few are misattributed, else 1."""
    if arguments.jobs < 0:
        raise UserError(f"--jobs {arguments.jobs}: give a number of processes, or 0 for one on each processor")
    suite = load_suite()
    if arguments.mended is not None:
        _refuse_beside_mended(arguments)
        return mended_trial.execute(arguments, suite, _say)
    if arguments.reproducers:
        return reproduction.execute(arguments, suite, _say)
    if arguments.sequences is not None:
        return _sequences(arguments, suite)
    if arguments.shuffled is not None:
        return _shuffled(arguments)
    if arguments.personas is not None:
        return _personas(arguments, suite)
    if arguments.blind and arguments.guest:
        raise UserError("--blind and --guest exclude each other: blind violations are tried on the reference")
    if arguments.permitted:
        return _permitted(arguments, suite)
    altering = (*ALTERATIONS, *DATA_PATH_ALTERATIONS)
    on_reference = DATA_PATH_ALTERATIONS if arguments.data_path else BLIND_VIOLATIONS if arguments.blind else VIOLATIONS
    known: Sequence[Violation] = altering if arguments.guest else on_reference
    chosen = _chosen(known, suite, arguments.rule, arguments.violation)
    if arguments.list:
        print("\n".join(f"{each.rule:<9} {each.name}: {each.about}" for each in chosen))
        return 0
    started = time.monotonic()
    findings: list[Finding] = []
    for finding in (_in_guest if arguments.guest else _on_reference)(arguments, suite, chosen):
        findings.append(finding)
        if arguments.verbose:
            print(report.line(finding), flush=True)
        elif sys.stderr.isatty():
            print(f"\r{len(findings)} of {len(chosen)}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty() and not arguments.verbose:
        print("\r", end="", file=sys.stderr)
    if len(findings) != len(chosen):
        raise UserError(f"only {len(findings)} of {len(chosen)} violations were tried", status=3)
    untriable = UNTRIABLE if known is VIOLATIONS and len(chosen) == len(known) else {}
    where = "Soft-RoCE in the guest" if arguments.guest else "the reference"
    permitted_variants: list[Finding] = []
    if not arguments.guest and not arguments.data_path and len(chosen) == len(known):
        variants = BLIND_PERMITTED_VARIANTS if arguments.blind else PERMITTED_VARIANTS
        permitted_variants = list(try_all(variants, of_tier(suite.cases, DEFAULT), arguments.jobs, whole=True))
    trial = report.Trial(findings, untriable, time.monotonic() - started, where, permitted_variants)
    if arguments.out:
        report.write(trial, arguments.out)
    print(report.summary(trial))
    return 0 if trial.passed else 1


def _refuse_beside_mended(arguments: argparse.Namespace) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for name, default in vars(parser.parse_args([])).items():
        if name not in _OF_MENDED and getattr(arguments, name) != default:
            raise UserError(f"--mended and --{name.replace('_', '-')} exclude each other")


def _on_reference(arguments: argparse.Namespace, suite: Suite, chosen: Sequence[Violation]) -> Iterator[Finding]:
    # A row that takes long on a device can be of the exhaustive tier; here it takes no longer than another.
    cases = [case for case in suite.cases if case.kind is Kind.ROW or case.tier != EXHAUSTIVE]
    check_baseline(cases)
    yield from try_all(chosen, cases, arguments.jobs, arguments.whole)


def _in_guest(arguments: argparse.Namespace, suite: Suite, chosen: Sequence[Violation]) -> Iterator[Finding]:
    names = [each.name for each in chosen] + [OWN] * arguments.own
    for message in _messages(arguments, ["alterations", *names]):
        if message.pop("type", "") == "finding":
            yield Finding(**{**message, "by": tuple(message["by"]), "broken": tuple(message["broken"])})


def _messages(arguments: argparse.Namespace, inside: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The messages of trial/inside.py, started in the guest with the arguments `inside`; keeps the guest's console."""
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-trial"
    return messages_from_guest("trial.inside", inside, arguments.stack, out / "console.log", _say, arguments.yes)


def _permitted(arguments: argparse.Namespace, suite: Suite) -> int:
    """Runs all cases of the default tier on the permitted variants; exit status 1 if a case fails one."""
    known = DATA_PATH_PERMITTED if arguments.guest else _PERMITTED
    chosen = _chosen(known, suite, arguments.rule, arguments.violation)
    if arguments.list:
        print("\n".join(f"{each.rule:<9} {each.name}: {each.about}" for each in chosen))
        return 0
    started = time.monotonic()
    findings = []
    for finding in (_in_guest if arguments.guest else _permitted_on_reference)(arguments, suite, chosen):
        findings.append(finding)
        if arguments.verbose:
            print(
                f"{finding.rule:<9} {finding.name}: {len(finding.by)} failed, {len(finding.broken)} broken", flush=True
            )
    where = "Soft-RoCE in the guest" if arguments.guest else "the reference"
    trial = report.Trial([], {}, time.monotonic() - started, where, findings)
    if arguments.out:
        report.write(trial, arguments.out)
    print(report.summary(trial))
    return 0 if trial.passed else 1


def _personas(arguments: argparse.Namespace, suite: Suite) -> int:
    """Runs the default tier's cases on personas, without and with violations; exit status 1 if one does not pass."""
    if arguments.guest:
        raise UserError("--personas and --guest exclude each other: personas are references")
    known = {each.name: each for each in PERSONAS}
    for name in arguments.personas:
        if name not in known:
            raise UserError(f"unknown persona {name!r}{suggestion(name, list(known))}")
    personas = [each for each in PERSONAS if each.name in arguments.personas or not arguments.personas]
    if arguments.list:
        print("\n".join(personas_report.behaviours(each) for each in personas))
        return 0
    violations = BLIND_VIOLATIONS if arguments.blind else VIOLATIONS
    chosen = [] if arguments.permitted else _chosen(violations, suite, arguments.rule, arguments.violation)
    started, outcomes = time.monotonic(), []
    for outcome in try_personas(personas, chosen, of_tier(suite.cases, DEFAULT), arguments.jobs):
        outcomes.append(outcome)
        if arguments.verbose:
            _say("\n".join([f"{outcome.persona}: {outcome.processor_s:.1f} s", *personas_report.faults([outcome])]))
    if arguments.out:
        personas_report.write(outcomes, arguments.out)
    print("\n".join([personas_report.table(outcomes), *personas_report.faults(outcomes)]))
    print(
        f"{len(outcomes)} personas in {time.monotonic() - started:.1f} s: "
        f"{sum(each.passed for each in outcomes)} as they should be"
    )
    return 0 if all(each.passed for each in outcomes) else 1


def _permitted_on_reference(
    arguments: argparse.Namespace, suite: Suite, chosen: Sequence[Violation]
) -> Iterator[Finding]:
    cases = of_tier(suite.cases, DEFAULT)
    check_baseline(cases)
    yield from try_all(chosen, cases, arguments.jobs, whole=True)


def _sequences(arguments: argparse.Namespace, suite: Suite) -> int:
    """Random sequences against a reference with at most one violation; exit status 1 if they find a divergence."""
    if not arguments.sequences > 0:
        raise UserError(f"--sequences {arguments.sequences:g}: give a number of seconds")
    if arguments.guest:
        hint = f"{PROGRAM} run --guest --tier exhaustive --verb sequences --sequences SECONDS"
        raise UserError("random sequences on a device are cases of a run", hint=hint)
    chosen = _chosen(VIOLATIONS, suite, arguments.rule, arguments.violation)
    kind = chosen[0].kind if arguments.rule or arguments.violation else Device
    over = for_seconds(arguments.sequences)
    bench, found = ReferenceBench(kind()), 0
    subject = subject_of(bench, ReferenceBench().capabilities(), "libibverbs")
    for divergence in divergences(subject, arguments.seed, over):
        found += 1
        print(f"{divergence.fault}\n\n{divergence.row}", flush=True)
    print(
        f"{subject.sequences} sequences, {subject.steps} steps in total, from seed {arguments.seed}: "
        f"{found} divergences"
    )
    return 1 if found else 0


def _shuffled(arguments: argparse.Namespace) -> int:
    """Runs every row several times in one guest, in shuffled orders; exit status 1 if a case's verdict differs."""
    if not arguments.guest or arguments.shuffled < 2:
        raise UserError("--shuffled takes --guest and at least 2 rounds")
    rounds: list[dict[str, Any]] = []
    for message in _messages(arguments, ["shuffled", str(arguments.shuffled), str(arguments.seed)]):
        if message.get("type") == "round":
            rounds.append(message)
            verdicts = collections.Counter(verdict for verdict, _ in message["verdicts"].values())
            counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
            differing = report.differing([each["verdicts"] for each in rounds])
            print(
                f"seed {message['seed']}: {counted} in {message['seconds']:.0f} s, "
                f"{len(differing)} cases differ so far",
                flush=True,
            )
    if len(rounds) != arguments.shuffled:
        raise UserError(f"only {len(rounds)} of {arguments.shuffled} rounds were completed", status=3)
    differing = report.differing([each["verdicts"] for each in rounds])
    print("\n".join(f"{case}: {' / '.join(answers)}" for case, answers in differing.items()))
    print(f"{len(rounds[0]['verdicts'])} cases in {len(rounds)} shuffled rounds: {len(differing)} of them differ")
    return 1 if differing else 0


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _chosen(known: Sequence[Violation], suite: Suite, rules: Sequence[str], names: Sequence[str]) -> list[Violation]:
    """The violations that the options select. Raises UserError."""
    for rule in rules:
        if rule not in suite.registry:
            raise UserError(f"unknown rule {rule!r}{suggestion(rule, list(suite.registry))}")
        if rule in UNTRIABLE:
            raise UserError(f"{rule} cannot be tried: {UNTRIABLE[rule]}")
    for name in names:
        if name not in {each.name for each in known}:
            raise UserError(f"unknown violation {name!r}{suggestion(name, [each.name for each in known])}")
    chosen = [each for each in known if not (rules or names) or each.rule in rules or each.name in names]
    if not chosen:
        raise UserError(f"no violation of {' or '.join(rules)}")
    return chosen
