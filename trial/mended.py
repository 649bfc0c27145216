"""`rdma-cts trial mended`: leaves out one change of the mended stack at a time, and compares the verdicts. Without a
change, a case must violate a rule or be no longer testable, and all new violations must be of the change's rules."""

import argparse
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from conformance.errors import PROGRAM, UserError, format_count
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.record import ResultRecord
from conformance.model.verdict import VIOLATIONS
from conformance.older_python import zip
from conformance.results.files import make_directory
from conformance.results.records import read_results
from conformance.tables.suite import ROOT, Suite
from conformance.tables.tiers import EXHAUSTIVE
from conformance.yamldoc.reader import suggestion
from fixtures.guest.changes import read_changes
from fixtures.guest.driver import DEFAULT_DRIVER, driver_for
from fixtures.guest.image import ensure_image
from fixtures.guest.mending import ensure_each
from fixtures.guest.recipe import MENDED_STACKS, recipe_for
from fixtures.guest.under_test import Builds, UnderTest
from fixtures.system import run_process
from fixtures.system.cache import cache_directory
from trial import report
from trial.kernel.guest import Guests
from trial.kernel_runs import driver_module
from trial.left_out import LeftOut, causes, left_out, line, table
from trial.omissions import WHOLE, in_one_guest, is_exchangeable

Say = Callable[[str], None]
STACK = next(iter(MENDED_STACKS))
# One in so many of the cases that are related neither to a defect nor to the change is run.
SAMPLE = 40


def selected(
    change_rules: Sequence[str],
    cases: Sequence[Case],
    shipped: Mapping[str, ResultRecord],
) -> list[str]:
    """Returns the ids of the cases to run without a change: all cases of the change's rules, except sweeps of the
    exhaustive tier. Of the rows of other rules (only rows of the default tier that need no separate worker), returns
    those that fail in `shipped` (the results on the stack as shipped, by case), and a sample of the rest."""
    rest = 0
    chosen = []
    for case in cases:
        is_of_change = bool(set(case.rules) & set(change_rules))
        row = case.kind is Kind.ROW
        # Such cases need a separate guest, or take long.
        if not is_of_change and (case.alone or not row):
            continue
        if case.tier == EXHAUSTIVE and not (is_of_change and row):
            continue
        record = shipped.get(case.id)
        if is_of_change or (record is not None and record["verdict"] in VIOLATIONS):
            chosen.append(case.id)
            continue
        rest += 1
        if rest % SAMPLE == 0:
            chosen.append(case.id)
    return chosen


def execute(arguments: argparse.Namespace, suite: Suite, say: Say) -> int:
    """Leaves out each chosen change. The exit status is 0 if each change has the outcome "only its own"."""
    changes_read = read_changes()
    names = [change.name for change in changes_read]
    for name in arguments.change:
        if name not in names:
            near = suggestion(name, names) or "; --list shows all changes"
            raise UserError(f"unknown change {name!r}{near}")
    chosen = [
        change for change in changes_read if not arguments.change or change.name in arguments.change
    ]
    if arguments.list:
        print("\n".join(f"{change.name}: {change.about}" for change in chosen))
        return 0
    shipped = _results(arguments.run)
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-mended"
    recipe = recipe_for(STACK)
    image = ensure_image(recipe, cache_directory(), say)
    if arguments.violated:
        chosen = [change for change in chosen if not change.feature and is_exchangeable(change)]
    sets = {WHOLE: changes_read}
    for change in chosen:
        sets[change.name] = tuple(other for other in changes_read if other is not change)
    # All modules are compiled in one workshop, and the runs use the cached modules.
    compiled = ensure_each([*sets.values()], recipe, image, cache_directory(), say)
    builds = dict(zip(sets, compiled, strict=True))
    make_directory(out)
    if arguments.violated:
        driver = driver_for(DEFAULT_DRIVER)
        module = driver_module(driver, recipe, image, say)
        guests = Guests(UnderTest(Builds(), image, recipe, module), driver, out, say)
        return _end(out, in_one_guest(suite, shipped, builds, chosen, guests, out))
    picked = {change.name: selected(change.rules, suite.cases, shipped) for change in chosen}
    ids = set().union(*picked.values())
    every = [case.id for case in suite.cases if case.id in ids]
    results_with_all = _run(every, (), out / WHOLE, arguments.yes, say)
    findings = []
    for change in chosen:
        without = ("--without", change.name)
        result = _run(picked[change.name], without, out / change.name, arguments.yes, say)
        findings.append(
            left_out(
                change.name, change.rules, change.defects, results_with_all, list(result.values())
            ),
        )
        print(line(findings[-1]), flush=True)
    return _end(out, findings)


def _end(out: Path, findings: Sequence[LeftOut]) -> int:
    """Writes and prints the findings; returns the exit status."""
    data = {"schema": "rdma-cts-mended/1", "findings": list(map(asdict, findings))}
    text = "\n".join(filter(None, (table(findings), causes(findings))))
    report.write_files(out, "mended", data, text)
    print(text)
    if all(finding.outcome == "only its own" for finding in findings):
        return 0
    return 1


def _run(
    cases: Sequence[str],
    more: Sequence[str],
    out: Path,
    yes: bool,
    say: Say,
) -> dict[str, ResultRecord]:
    """Returns the results of the cases on the mended stack. If `out` has a complete run of an earlier trial, returns
    the results of that run."""
    if (
        (out / "results.jsonl").exists()
        and (recorded := read_results(out)).footer
        and recorded.footer["complete"]
    ):
        return {record["case"]: record for record in recorded.results}
    say(f"{format_count(len(cases), 'case')} on {STACK} {' '.join(more)}")
    command = [*run_process.COMMAND, "--guest", "--stack", STACK, *more, "--no-confirm"]
    command += ["--out", str(out.absolute())]
    for case in cases:
        command += ["--only", case]
    command += ["--yes"] * yes
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=run_process.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise UserError(
            f"the run in {out} failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}",
            hint=f"{PROGRAM} trial mended … --out {out.parent} continues the trial",
            status=3,
        )
    return _results(out)


def _results(folder: Path) -> dict[str, ResultRecord]:
    return {record["case"]: record for record in read_results(folder).results}
