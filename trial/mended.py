"""`rdma-cts trial mended`: leaves out one change of the mended stack at a time, and compares the verdicts. Without a
change, a case must violate a rule or be no longer testable, and all new violations must be of the change's rules."""

import argparse
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path

from conformance.defects import defects_of
from conformance.errors import PROGRAM, UserError
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.record import ResultRecord
from conformance.model.verdict import NOT_TESTABLE, VIOLATIONS, Verdict
from conformance.results.files import make_directory
from conformance.results.records import read_results
from conformance.tables.suite import ROOT, Suite
from conformance.tables.tiers import EXHAUSTIVE
from conformance.yamldoc.reader import suggestion
from fixtures.guest.changes import read_changes
from fixtures.guest.image import ensure_image
from fixtures.guest.mending import ensure_each
from fixtures.guest.recipe import MENDED_STACKS, recipe_for
from fixtures.system import run_process
from fixtures.system.cache import cache_directory
from trial import report

Say = Callable[[str], None]
STACK = next(iter(MENDED_STACKS))
_WHOLE = "whole"
SAMPLE = (
    40  # of the cases that are related neither to a defect nor to the change, only 1/SAMPLE are run
)


@dataclass(frozen=True)
class LeftOut:
    """The cases whose verdict without one change differs from the verdict on the whole mended stack.

    `violated` has the cases that violate a rule only without the change, and `not_verified` the cases that are not
    testable without the change. `of_other_rules` has the violating cases that test none of the change's rules.
    `defects` has the titles of the violated defects by fingerprint, and `declared` the defects that the change fixes
    according to its description."""

    change: str
    rules: tuple[str, ...]
    declared: tuple[str, ...]
    violated: tuple[str, ...]
    not_verified: tuple[str, ...]
    defects: Mapping[str, str]
    of_other_rules: tuple[str, ...]
    tried: int

    @property
    def outcome(self) -> str:
        """Whether any case detects that the change is missing, and whether all violations are of the change's rules."""
        if not self.violated and not self.not_verified:
            return "none: no case detects it"
        if self.of_other_rules:
            return "others as well"
        return "only its own"


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
        if not is_of_change and (
            case.alone or not row
        ):  # such cases need a separate guest, or take long
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


def left_out(
    change: str,
    rules: Sequence[str],
    declared: Sequence[str],
    whole: Mapping[str, ResultRecord],
    without: Sequence[ResultRecord],
) -> LeftOut:
    """Compares the results without a change with the results of the whole mended stack, by case."""
    last = {record["case"]: record for record in without}
    before = {case: whole[case]["verdict"] for case in last if case in whole}
    violated = [
        r
        for case, r in last.items()
        if r["verdict"] in VIOLATIONS and before.get(case) not in VIOLATIONS
    ]
    lost = [
        case
        for case, r in last.items()
        if before.get(case) == Verdict.PASS and r["verdict"] in NOT_TESTABLE
    ]
    cases = tuple(record["case"] for record in violated)
    other_cases = tuple(
        record["case"] for record in violated if not set(record["rules"]) & set(rules)
    )
    defects = {defect.fingerprint: defect.title for defect in defects_of(violated)}
    return LeftOut(
        change,
        tuple(rules),
        tuple(declared),
        cases,
        tuple(lost),
        defects,
        other_cases,
        len(last),
    )


def table(findings: Sequence[LeftOut]) -> str:
    rows = []
    for finding in findings:
        defects = ", ".join(f"`{fingerprint}`" for fingerprint in finding.defects) or "none"
        figures = (len(finding.violated), len(finding.not_verified))
        rows.append((finding.change, ", ".join(finding.rules), *figures, defects, finding.outcome))
    head = (
        "left out",
        "rules",
        "violated again",
        "no longer verified",
        "defects",
        "violations that occur again",
    )
    return "\n".join(report.table(head, rows, (2, 3))) + "\n"


def execute(arguments: argparse.Namespace, suite: Suite, say: Say) -> int:
    """Leaves out each chosen change. The exit status is 0 if each change has the outcome "only its own"."""
    changes_read = read_changes()
    names = [change.name for change in changes_read]
    for name in arguments.change:
        if name not in names:
            raise UserError(f"unknown change {name!r}{suggestion(name, names)}")
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
    sets = [changes_read]
    for change in chosen:
        sets.append(tuple(other for other in changes_read if other is not change))
    for _ in ensure_each(sets, recipe, image, cache_directory(), say):
        pass  # all modules are compiled in one workshop, and the runs use the cached modules
    picked = {change.name: selected(change.rules, suite.cases, shipped) for change in chosen}
    ids = set().union(*picked.values())
    every = [case.id for case in suite.cases if case.id in ids]
    make_directory(out)
    results_with_all = _run(every, (), out / _WHOLE, arguments.yes, say)
    findings = []
    for change in chosen:
        without = ("--without", change.name)
        result = _run(picked[change.name], without, out / change.name, arguments.yes, say)
        findings.append(
            left_out(
                change.name, change.rules, change.defects, results_with_all, list(result.values())
            ),
        )
        print(
            f"{change.name}: {findings[-1].outcome}: {len(findings[-1].violated)} violated again, "
            f"{len(findings[-1].not_verified)} no longer verified, of {findings[-1].tried} cases",
            flush=True,
        )
    data = {"schema": "rdma-cts-mended/1", "findings": list(map(asdict, findings))}
    report.write_files(out, "mended", data, table(findings))
    print(table(findings), end="")
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
    say(f"{len(cases)} cases on {STACK} {' '.join(more)}")
    command = [*run_process.COMMAND, "--guest", "--stack", STACK, *more, "--no-confirm"]
    command += [
        "--out",
        str(out.absolute()),
        *(word for case in cases for word in ("--only", case)),
        *["--yes"] * yes,
    ]
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
