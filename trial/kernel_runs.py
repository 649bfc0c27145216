"""`rdma-cts trial kernel`: tries mutants of a driver in guests. Mutants of rxe run on the mended stack."""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from conformance.errors import PROGRAM, UserError, command
from conformance.model.case import Case
from conformance.model.verdict import Verdict
from conformance.results.files import make_directory
from conformance.tables.suite import Suite
from conformance.yamldoc.reader import suggestion
from fixtures.guest.build import ensure_tools
from fixtures.guest.driver import DEFAULT_DRIVER, Driver, driver_for
from fixtures.guest.driver_module import ensure_module
from fixtures.guest.image import Image, ensure_image
from fixtures.guest.mending import chosen_changes, ensure_mended
from fixtures.guest.recipe import Recipe, recipe_for
from fixtures.guest.under_test import Builds, DriverModule, UnderTest
from fixtures.system.cache import cache_directory
from trial.kernel import report
from trial.kernel.guest import Guests
from trial.kernel.modules import Modules, NotMade
from trial.kernel.mutant import FOLDER, Mutant, chosen_mutants, read_mutants
from trial.kernel.outcome import (
    ACCEPTED,
    BROKEN,
    EQUIVALENT,
    FALSE_ALARM,
    SURVIVED,
    UNCHECKED,
    UNDECIDED,
    Finding,
    suited,
)
from trial.kernel.peers import Peers, rdma_core, rdma_unit_test
from trial.kernel.trying import Trial

# with --night, a random 1/_SHARE of all mutants is tried, whatever their earlier outcome
_SHARE = 10
Say = Callable[[str], None]


def execute(arguments: argparse.Namespace, suite: Suite, say: Say) -> int:
    """Tries mutants. The exit status is 1 if a mutant is no longer killed, or if `_refused` returns a mutant."""
    before = report.read_history(arguments.before)
    chosen = _chosen(arguments, before, suite)
    if arguments.list:
        print(
            "\n".join(
                f"{','.join(mutant.rules):<16} {mutant.file}/{mutant.name}: {mutant.about}"
                for mutant in chosen
            ),
        )
        return 0
    cases = _cases(arguments, suite)
    tests = _tests_of_peers(arguments)
    ensure_tools(arguments.yes, say)
    recipe, driver = recipe_for(), driver_for(arguments.driver)
    image = ensure_image(recipe, cache_directory(), say)
    modules = Modules(recipe, image, cache_directory(), driver, say)
    if arguments.build:
        every = read_mutants(FOLDER / arguments.driver, suite.registry)
        return _build(chosen, every, modules, arguments.out)
    under_test = UnderTest(Builds(), image, recipe, driver_module(driver, recipe, image, say))
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-kernel"
    make_directory(out)
    began, findings = time.monotonic(), dict[str, Finding]()
    guests = Guests(under_test, driver, out, say, arguments.seed)
    trial = Trial(cases, modules, guests, say if arguments.verbose else lambda _: None)
    theirs = {peer: Peers(*given, trial, modules) for peer, given in tests.items()}
    if theirs:
        # mutants of the earlier trial keep its outcomes; only the peers' tests are run with them
        earlier = (mutant.name for mutant in chosen if mutant.name in before)
        findings |= {name: Finding(**before[name]) for name in earlier}
    try:
        untried = [mutant for mutant in chosen if mutant.name not in findings]
        for finding in _findings(trial, untried, arguments, before):
            findings[finding.name] = finding
            report.write(out, findings.values(), before)
            if finding.outcome == UNCHECKED and arguments.verbose:
                print(
                    f"{report.line(finding)} (the case is still to be run without the mutant)",
                    flush=True,
                )
            elif finding.outcome != UNCHECKED and (arguments.verbose or len(chosen) == 1):
                print(
                    f"{report.line(finding)} ({finding.tried} cases, {finding.seconds:.0f} s)",
                    flush=True,
                )
        for peer, peers in theirs.items():
            for name, test in peers.seen(_tried_by_peer(chosen, findings, peer)):
                findings[name] = Finding(**{**asdict(findings[name]), peer: test})
                report.write(out, findings.values(), before)
                if arguments.verbose:
                    print(f"{name}: {test or 'no test of the peer detects it'}", flush=True)
    finally:
        trial.close()
        modules.close()
    lost = report.regressions(findings.values(), before)
    print(report.summary(list(findings.values()), lost, time.monotonic() - began))
    if lost or _refused(chosen, findings.values()):
        return 1
    return 0


def _tests_of_peers(arguments: argparse.Namespace) -> dict[str, tuple[bytes, Sequence[str]]]:
    """Returns the programs and the parts of the tests that the arguments name, by the key of a finding."""
    tests = {}
    if arguments.rdma_core_tests:
        tests["peer"] = rdma_core(arguments.rdma_core_tests)
    if arguments.rdma_unit_test:
        tests["unit_test"] = rdma_unit_test(arguments.rdma_unit_test)
    return tests


def _cases(arguments: argparse.Namespace, suite: Suite) -> list[Case]:
    """Returns the cases that --only and --verb name; all cases that suit a trial without them."""
    names = {case.id for case in suite.cases}
    cases = suited(suite.cases, arguments.seed)
    for name in arguments.only:
        if name not in names:
            near = suggestion(name, [case.id for case in cases])
            raise UserError(f"unknown case {name!r}{near or f'; see {PROGRAM} list'}")
    verbs = {_verb(case) for case in cases}
    for verb in arguments.verb:
        if verb not in verbs:
            near = suggestion(verb, verbs)
            hint = "" if near else f"see {PROGRAM} list verbs"
            raise UserError(f"no case tests the verb {verb!r}{near}", hint=hint)
    if arguments.only:
        return [case for case in suite.cases if case.id in arguments.only]
    return [case for case in cases if not arguments.verb or _verb(case) in arguments.verb]


def _verb(case: Case) -> str:
    return case.verb.removeprefix("ibv_")


def _tried_by_peer(
    chosen: Iterable[Mutant],
    findings: Mapping[str, Finding],
    peer: str,
) -> list[Mutant]:
    """Returns the mutants whose outcome counts and that the peer's tests have not been run with. A mutant that hangs
    or kills the guest is not run again."""
    tried = []
    for mutant in chosen:
        finding = findings.get(mutant.name)
        if finding is None or finding.outcome not in report.COUNTED:
            continue
        if getattr(finding, peer) is None and finding.verdict not in (Verdict.HANG, Verdict.CRASH):
            tried.append(mutant)
    return tried


def _refused(chosen: Sequence[Mutant], findings: Iterable[Finding]) -> list[str]:
    """Returns the permitted mutants on which a case fails, may fail or is BROKEN, or on which no case can be run."""
    failed = {
        finding.name for finding in findings if finding.outcome in (FALSE_ALARM, UNDECIDED, BROKEN)
    }
    return [mutant.name for mutant in chosen if mutant.permitted and mutant.name in failed]


def driver_module(driver: Driver, recipe: Recipe, image: Image, say: Say) -> DriverModule:
    if driver.name != DEFAULT_DRIVER:
        return DriverModule(
            driver.module,
            lambda: ensure_module(driver, recipe, image, cache_directory(), say),
        )
    mended = ensure_mended(chosen_changes(()), recipe, image, cache_directory(), say)
    return DriverModule(driver.module, lambda: mended.module, mended.laid)


def _findings(
    trial: Trial,
    chosen: Sequence[Mutant],
    arguments: argparse.Namespace,
    before: report.History,
) -> Iterator[Finding]:
    # Mutants that depart from rules come last, so that failing cases of these rules do not hide other mutants.
    permitted = sorted(
        (mutant for mutant in chosen if mutant.permitted),
        key=lambda mutant: bool(mutant.departs_from),
    )
    # Mutants that may crash the kernel and mutants that leak come last, because both need a new guest afterwards.
    alone = [mutant for mutant in chosen if not mutant.permitted]
    alone.sort(key=lambda mutant: (mutant.leaks, mutant.kills, mutant.of_header))
    survivors = set()
    for finding in trial.try_each(alone, arguments.only, before):
        yield finding
        if finding.outcome == SURVIVED:
            survivors.add(finding.name)
    if not (arguments.own or arguments.only):
        yield from trial.try_together(
            [mutant for mutant in alone if mutant.name in survivors and not mutant.leaks],
        )
    for hides in (False, True) if not arguments.own else ():
        yield from trial.try_together([mutant for mutant in permitted if mutant.hides is hides])


def _chosen(
    arguments: argparse.Namespace,
    before: report.History,
    suite: Suite,
) -> list[Mutant]:
    chosen = chosen_mutants(
        read_mutants(FOLDER / arguments.driver, suite.registry),
        arguments.mutant,
        arguments.rule,
        arguments.file,
    )
    chosen = [mutant for mutant in chosen if mutant.permitted or not arguments.permitted]
    if arguments.night:
        tenth = random.Random(f"{datetime.now():%Y%m%d}").sample(chosen, -(-len(chosen) // _SHARE))
        done = {
            name
            for name, finding in before.items()
            if finding["outcome"] in (*report.KILLED, EQUIVALENT, ACCEPTED)
        }
        chosen = [mutant for mutant in chosen if mutant.name not in done or mutant in tenth]
    if arguments.shard:
        # by the hash of the name, so that each shard is a random sample, the same in every run
        chosen = arguments.shard.part(
            chosen,
            lambda mutant: hashlib.sha256(mutant.name.encode()).hexdigest(),
        )
    return chosen


def _with_the_same_sources(
    mutants: Iterable[Mutant],
    modules: Modules,
) -> Mapping[Path, Sequence[str]]:
    """Returns the names of mutants by the place of their module; the sources without mutants have a name, too."""
    names: dict[Path, list[str]] = {modules.path([]): ["no mutant at all"]}
    for mutant in mutants:
        with contextlib.suppress(NotMade):
            names.setdefault(modules.path([mutant]), []).append(mutant.name)
    return names


def _build(
    chosen: Sequence[Mutant],
    every: Sequence[Mutant],
    modules: Modules,
    out: Path | None,
) -> int:
    """Compiles the modules of chosen mutants, each of which must differ from `every` other mutant. If `out` is given, also
    writes for each mutant a patch of the sources that are compiled, and a directory with the module, for
    `run --modules`."""
    if out:
        make_directory(out)
    failed = 0
    same = _with_the_same_sources(every, modules)
    for mutant in sorted(chosen, key=lambda mutant: mutant.of_header):
        try:
            others = [name for name in same[modules.path([mutant])] if name != mutant.name]
            if others:
                raise NotMade(f"makes the same sources as {', '.join(others)}", fits=True)
            module = modules.of([mutant])
            if out:
                (out / f"{mutant.name}.patch").write_text(modules.patch(mutant))
                make_directory(out / mutant.name)
                shutil.copyfile(module, out / mutant.name / modules.file_name)
        except NotMade as error:
            failed += 1
            print(f"{mutant.file}/{mutant.name}: {error}", flush=True)
    took = modules.seconds
    print(
        f"modules ready: {len(chosen) - failed}; {len(took)} compiled in {sum(took):.0f} s, {failed} do not compile, or are there twice",
    )
    if out:
        print(f"{command('run', '--guest', '--modules', out)}/NAME runs the cases with a module")
    if failed:
        return 1
    return 0
