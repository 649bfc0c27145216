"""The trial of reproducers: compiles and runs the C programs of a run in the guest, and compares their exit statuses
with the run. The programs use no code that runs or judges cases, so that they check this code. reports/reproducers/ makes the
programs from the descriptions of cases, and trial/reproduced.py runs them in the guest."""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.judging import Basis
from conformance.model.kind import Kind
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.files import write_atomically
from conformance.results.folder import OUT, latest
from conformance.tables.suite import Suite
from fixtures.targets.programs import messages_from_guest
from reports.digest import Digest, read
from reports.reproducers.of_runs import basis_of, programs_of, reproducer
from reports.reproducers.program import KEPT, NOT_SET_UP, NOT_SUPPORTED, VIOLATED, Program
from reports.reproducers.writer import Inexpressible
from trial.reproduced import compile_program

AT_LEAST = 0.95  # the share of the violations that must be reproduced
_FOLDER = "programs"
_DIED = "the guest died"

REPRODUCED, AGREED, DIFFERS, NOT_MADE = "reproduced", "agreed", "differs", "not made"
_WORDS = {
    KEPT: "reports no violation",
    VIOLATED: "reports a violation",
    NOT_SET_UP: "could not set up its objects",
    NOT_SUPPORTED: "reports that the device does not support its calls",
}


@dataclass(frozen=True)
class Trying:
    """One program of a run: the id of its row or point, the recorded verdict, and whether the program may kill the
    kernel."""

    id: str
    verdict: str
    program: Program | None
    hazardous: bool = False
    why_not: str = ""


@dataclass(frozen=True)
class Finding:
    """The result of a program. `outcome` compares the result with the recorded verdict. `why` explains the outcome."""

    id: str
    verdict: str
    outcome: str
    why: str = ""
    output: str = ""


def tried_of(run: Digest, suite: Suite, basis: Basis, passes: bool) -> Iterator[Trying]:
    """Yields the programs of the violations of a run and, with `passes`, of the run's rows that passed."""
    hazardous = {case.id for case in suite.cases if case.alone}
    for program in programs_of(run.results, suite, basis):
        symptom = program.symptom
        risky = symptom.case in hazardous or symptom.verdict != Verdict.FAIL
        yield Trying(symptom.name, symptom.verdict, program.program, risky, program.why_not)
    kinds = {case.id: case.kind for case in suite.cases}
    for record in run.results if passes else ():
        id_ = record["case"]
        if record["verdict"] != Verdict.PASS or kinds.get(id_) is not Kind.ROW:
            continue
        try:
            yield Trying(id_, record["verdict"], reproducer(id_, suite, basis), id_ in hazardous)
        except Inexpressible as reason:
            yield Trying(id_, record["verdict"], None, why_not=str(reason))


def execute(arguments: argparse.Namespace, suite: Suite, say: Callable[[str], None]) -> int:
    """Runs the programs of a run. Returns the exit status: 0 if at least 95 % of the violations are reproduced, else
    1."""
    path = arguments.run or latest(OUT)
    if path is None:
        raise UserError("there is no run from which programs could be made", hint="give --run RUN")
    run, began = read(path), time.monotonic()
    tried = list(tried_of(run, suite, basis_of(path), arguments.whole))
    say(
        f"{sum(trial_case.program is not None for trial_case in tried)} programs made in {time.monotonic() - began:.1f} s",
    )
    if run.header["suite"].get("tables_sha256") != suite.tables_sha256:
        say(
            "the run was made with other tables: if a case has changed, its program can differ from the run",
        )
    out = arguments.out or OUT / f"{datetime.now():%Y%m%dT%H%M%S}-reproducers"
    if run.header["stack"] in ("", None):
        stack = arguments.stack
    else:
        stack = run.header["stack"]
    began = time.monotonic()
    findings = list(compare(tried, stack, out, arguments.jobs or 1, say, arguments.yes))
    print("\n".join(summary(findings, time.monotonic() - began)))
    write_atomically(
        out / "reproducers.json",
        (json.dumps([asdict(finding) for finding in findings], indent=1) + "\n").encode(),
    )
    if passed(findings):
        return 0
    return 1


def passed(findings: Sequence[Finding]) -> bool:
    of = [finding for finding in findings if finding.verdict in VIOLATIONS]
    return sum(finding.outcome == REPRODUCED for finding in of) >= AT_LEAST * len(of)


def summary(findings: Sequence[Finding], seconds: float) -> Iterator[str]:
    """Yields the disagreements, the cases that could not be expressed, and the figures."""
    for item in findings:
        if item.outcome in (DIFFERS, NOT_MADE):
            yield f"{item.outcome:<9} {item.verdict} {item.id}: {item.why}"
    of = [finding for finding in findings if finding.verdict in VIOLATIONS]
    reproduced = sum(finding.outcome == REPRODUCED for finding in of)
    unexpressed = sum(finding.outcome == NOT_MADE for finding in of)
    if of:
        share = f" ({100 * reproduced / len(of):.1f} %)"
    else:
        share = ""
    counted = (
        f"{reproduced} of {len(of)} violations reproduced{share}, {unexpressed} not expressed as C"
    )
    yield f"{counted}, in {seconds:.0f} s"
    unreproduced = [
        finding
        for finding in findings
        if finding.verdict not in VIOLATIONS and finding.outcome != NOT_MADE
    ]
    if unreproduced:
        agreed = sum(finding.outcome == AGREED for finding in unreproduced)
        yield f"{agreed} of {len(unreproduced)} programs of rows that passed report no violation"


def compare(
    tried: Sequence[Trying],
    stack: str,
    out: Path,
    jobs: int,
    say: Callable[[str], None],
    assume_yes: bool = False,
) -> Iterator[Finding]:
    """Runs the programs in guests of a stack, `jobs` guests at a time, and compares each result with the recorded
    verdict. A program that may kill the kernel runs in a separate guest. All files are written below `out`."""
    folder = out / _FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = {
        f"p{number}": trial_case for number, trial_case in enumerate(tried) if trial_case.program
    }
    for name, item in names.items():
        assert item.program is not None
        (folder / f"{name}.c").write_text(item.program.text, encoding="utf-8")
        if item.program.script:
            (folder / f"{name}.py").write_text(item.program.script, encoding="utf-8")
    usual = [name for name, number in names.items() if not number.hazardous]
    groups = [usual[start::jobs] for start in range(jobs)] + [
        [name] for name, number in names.items() if number.hazardous
    ]
    _compile_here(folder, names)

    def run(number: int) -> dict[str, tuple[int | str, str]]:
        return dict(
            _in_guests(groups[number], folder, stack, out / f"guest-{number + 1}", say, assume_yes),
        )

    with ThreadPoolExecutor(jobs) as pool:
        ended = {
            name: end
            for results in pool.map(run, range(len(groups)))
            for name, end in results.items()
        }
    for item in (trial_case for trial_case in tried if trial_case.program is None):
        yield Finding(item.id, item.verdict, NOT_MADE, item.why_not)
    for name, item in names.items():
        yield _finding(item, *ended.get(name, ("it was not run", "")))


def _compile_here(folder: Path, names: Iterable[str]) -> None:
    """Compiles the programs on this host if possible, because the guest needs seconds for each program. A program that
    was compiled on the host runs with the guest's library."""
    if shutil.which("cc"):
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(compile_program, folder), names))


def _in_guests(
    names: Sequence[str],
    folder: Path,
    stack: str,
    out: Path,
    say: Callable[[str], None],
    assume_yes: bool,
) -> Iterator[tuple[str, tuple[int | str, str]]]:
    """Yields the name of each program with its end: the exit status, or the event that ended the program; and the
    output. If a program kills its guest, a new guest runs the remaining programs."""
    rest, guests = list(names), 0
    while rest:
        guests += 1
        current = ""
        with tempfile.TemporaryDirectory(prefix="programs-") as work:
            for name in rest:
                for path in folder.glob(f"{name}*"):
                    if path.stem == name:
                        shutil.copy(path, work)
            more = [(Path(work), _FOLDER)]
            console = out / f"console-{guests}.log"
            for message in messages_from_guest(
                "trial.reproduced",
                [_FOLDER, *rest],
                stack,
                console,
                say,
                assume_yes,
                more,
            ):
                name = str(message.get("name", ""))
                if message.get("type") == "compiled" and message["status"]:
                    rest.remove(name)
                    yield name, ("it does not compile", str(message["output"]))
                elif message.get("type") == "started":
                    current = name
                elif message.get("type") == "ended":
                    rest.remove(name)
                    current = ""
                    yield name, _ended(message)
        if not current:
            if rest:
                raise UserError(
                    "the guest exited before it had run all programs",
                    log=str(console),
                    status=3,
                )
            return
        rest.remove(current)
        yield current, (_DIED, "")


def _ended(message: Mapping[str, Any]) -> tuple[int, str]:
    """Returns exit status and output of a program. A kernel that reports an error of its own is a violation that the
    program cannot see."""
    status, output, alarm = int(message["status"]), str(message["output"]), message.get("alarm")
    if not alarm:
        return status, output
    if status == KEPT:
        status = VIOLATED
    return status, f"{output}\nthe kernel reported: {alarm}\n"


def _finding(trial_case: Trying, end: int | str, output: str) -> Finding:
    died = end == _DIED or (isinstance(end, int) and end < 0)
    violated = end == VIOLATED or died
    if trial_case.verdict in VIOLATIONS and violated:
        if isinstance(end, int):
            how = f"the program died of signal {-end}"
        else:
            how = str(end)
        return Finding(trial_case.id, trial_case.verdict, REPRODUCED, how if died else "", output)
    if trial_case.verdict not in VIOLATIONS and end == KEPT:
        return Finding(trial_case.id, trial_case.verdict, AGREED, "", output)
    if isinstance(end, int):
        reported = _WORDS.get(end, f"has exit status {end}")
    else:
        reported = f"has no exit status: {end}"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return Finding(
        trial_case.id, trial_case.verdict, DIFFERS, f"the program {reported}: {last}", output
    )
