"""`rdma-cts trial mended`: runs cases on the mended stack, whole and without each change in turn; compares them."""

import argparse
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from conformance.errors import PROGRAM, UserError
from conformance.model.record import ResultRecord
from conformance.results.files import make_directory, write_atomically
from conformance.results.records import read_results
from conformance.tables.suite import ROOT, Suite
from conformance.yamldoc.reader import suggestion
from fixtures.guest.changes import Change, read_changes
from fixtures.guest.image import ensure_image
from fixtures.guest.mending import ensure_each
from fixtures.guest.recipe import MENDED_STACKS, recipe_for
from fixtures.system.cache import cache_directory
from runs import process
from trial.mended import LeftOut, left_out, selected, table

Say = Callable[[str], None]
STACK = next(iter(MENDED_STACKS))
_WHOLE = "whole"


def execute(arguments: argparse.Namespace, suite: Suite, say: Say) -> int:
    """Leaves out each chosen change; exit status 0 if each brings back something, and nothing of other rules."""
    known = read_changes()
    names = [change.name for change in known]
    for name in arguments.change:
        if name not in names:
            raise UserError(f"unknown change {name!r}{suggestion(name, names)}")
    chosen = [each for each in known if not arguments.change or each.name in arguments.change]
    if arguments.list:
        print("\n".join(f"{each.name}: {each.about}" for each in chosen))
        return 0
    shipped = _results(arguments.run)
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-mended"
    recipe = recipe_for(STACK)
    image = ensure_image(recipe, cache_directory(), say)
    sets = [known, *([each for each in known if each is not change] for change in chosen)]
    for _ in ensure_each(sets, recipe, image, cache_directory(), say):
        pass  # all in one workshop; the runs take them from the cache
    picked = {change.name: selected(change.rules, suite.cases, shipped) for change in chosen}
    every = [case.id for case in suite.cases if any(case.id in ids for ids in picked.values())]
    make_directory(out)
    whole = _run(every, (), out / _WHOLE, arguments.yes, say)
    findings = []
    for change in chosen:
        findings.append(_without(change, picked[change.name], whole, out, arguments.yes, say))
        print(_line(findings[-1]), flush=True)
    data = {"schema": "rdma-cts-mended/1", "findings": [asdict(each) for each in findings]}
    write_atomically(out / "mended.json", json.dumps(data, indent=1).encode() + b"\n")
    write_atomically(out / "mended.md", table(findings).encode())
    print(table(findings), end="")
    return 0 if all(each.outcome == "its own alone" for each in findings) else 1


def _line(found: LeftOut) -> str:
    return (
        f"{found.change}: {found.outcome}: {len(found.violated)} violated again, "
        f"{len(found.not_verified)} not verified any more, of {found.tried}"
    )


def _without(
    change: Change, cases: Sequence[str], whole: dict[str, ResultRecord], out: Path, yes: bool, say: Say
) -> LeftOut:
    found = _run(cases, ("--without", change.name), out / change.name, yes, say)
    return left_out(change.name, change.rules, change.defects, whole, list(found.values()))


def _run(cases: Sequence[str], more: Sequence[str], out: Path, yes: bool, say: Say) -> dict[str, ResultRecord]:
    """The results of a run of these cases on the mended stack, by case; those of an earlier trial if it is complete."""
    if (out / "results.jsonl").exists() and (recorded := read_results(out)).footer and recorded.footer["complete"]:
        return {record["case"]: record for record in recorded.results}
    say(f"{len(cases)} cases on {STACK} {' '.join(more)}")
    command = [*process.COMMAND, "--guest", "--stack", STACK, *more, "--no-confirm"]
    command += ["--out", str(out.absolute()), *(word for case in cases for word in ("--only", case)), *["--yes"] * yes]
    done = subprocess.run(command, cwd=ROOT, env=process.environment(), capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise UserError(
            f"the run in {out} failed: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}",
            hint=f"{PROGRAM} trial mended … --out {out.parent} goes on there",
            status=3,
        )
    return _results(out)


def _results(folder: Path) -> dict[str, ResultRecord]:
    return {record["case"]: record for record in read_results(folder).results}
