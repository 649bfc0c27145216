"""Leaves out changes of the mended stack one after the other in the same guest, in which the driver's module and its
provider are exchanged, and runs only the cases that some change cures. One change then takes less than a minute."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from conformance.defects import defects_of
from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.record import ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.tables.suite import Suite
from fixtures.guest.changes import LIBIBVERBS, Change
from fixtures.guest.mending import Mended
from trial.kernel.guest import Answer, Lost, MutantGuest, NoSession
from trial.kernel.outcome import suited
from trial.left_out import LeftOut, left_out, line

WHOLE = "whole"  # the build with all changes
EACH = 5


class Starter(Protocol):
    """Starts guests with the whole mended stack, such as trial.kernel.guest.Guests."""

    def start(self, cases: Sequence[Case]) -> MutantGuest: ...


def violated_by(cases: Sequence[Case], shipped: Mapping[str, ResultRecord]) -> list[Case]:
    """Returns the cases that violate a rule on the stack as shipped, as far as a guest of mutants can run them."""
    violated = []
    for case in suited(cases):
        record = shipped.get(case.id)
        if record is not None and record["verdict"] in VIOLATIONS:
            violated.append(case)
    return violated


def is_exchangeable(change: Change) -> bool:
    """Whether a running guest can exchange what the change edits: the guest has already loaded libibverbs."""
    return not any(file.startswith(LIBIBVERBS) for file in change.files)


class Omissions:
    """Runs cases with one build after the other. `stage` is a directory for the files that a guest receives."""

    def __init__(self, guests: Starter, cases: Sequence[Case], stage: Path) -> None:
        self._guests, self._cases, self._stage = guests, cases, stage
        self._guest: MutantGuest | None = None

    def staged(self, name: str, build: Mended) -> Path:
        """Returns the build's module, with the provider next to it under the same name."""
        module = self._stage / f"{name}.ko"
        shutil.copyfile(build.module, module)
        for path in build.laid.values():
            if path.name.startswith("librxe-"):
                shutil.copyfile(path, module.with_suffix(".so"))
        return module

    def answers(self, module: Path, names: Sequence[str]) -> dict[str, Answer]:
        """Returns the outcome of each case with this module. A case that kills the guest or its process is a CRASH, and
        the other cases run in another guest or process. Raises UserError (status 3) if no case can be run."""
        answers: dict[str, Answer] = {}
        while rest := [name for name in names if name not in answers]:
            before = len(answers)
            try:
                self._run(module, rest, answers)
            except Lost as lost:
                self.close()
                if lost.case:
                    answers[lost.case] = Answer(lost.case, lost.verdict, (), str(lost), 0.0)
            except NoSession as error:
                raise UserError(f"{module.stem}: no session begins: {error}", status=3) from error
            if len(answers) == before:
                raise UserError(f"{module.stem}: the guest runs no case", status=3)
        return answers

    def _run(self, module: Path, names: Sequence[str], answers: dict[str, Answer]) -> None:
        if self._guest is None:
            self._guest = self._guests.start(self._cases)
        if reason := self._guest.load(module):
            raise UserError(f"{module.stem}: the module does not load: {reason}", status=3)
        for answer in self._guest.run(names, all_of_them=True, watched=False):
            answers[answer.case] = answer

    def close(self) -> None:
        if self._guest is not None:
            self._guest.close()
        self._guest = None


def picked(
    change_rules: Sequence[str],
    cases: Sequence[Case],
    shipped: Mapping[str, ResultRecord],
) -> list[str]:
    """Returns the cases to run without a change: the cases of its rules, and of the rows of other rules EACH for each
    set of defects that a row shows in `shipped`."""
    rows: Counter[tuple[str, ...]] = Counter()
    chosen = []
    for case in cases:
        shown = tuple(defect.fingerprint for defect in defects_of([shipped[case.id]]))
        if set(case.rules) & set(change_rules):
            chosen.append(case.id)
        elif case.kind is Kind.ROW and rows[shown] < EACH:
            rows[shown] += 1
            chosen.append(case.id)
    return chosen


def cured(answers: Mapping[str, Answer]) -> list[str]:
    """Returns the cases that pass with all changes."""
    return [case for case, answer in answers.items() if answer.verdict == Verdict.PASS]


def again(shipped: Mapping[str, ResultRecord], answers: Mapping[str, Answer]) -> list[ResultRecord]:
    """Returns the results of the cases that violate a rule again without a change. A row has its present fault, a sweep
    or a case that ended its guest or process those of the stack as shipped."""
    records = []
    for case, answer in answers.items():
        if answer.verdict not in VIOLATIONS:
            continue
        record = shipped[case]
        if answer.fault and not record.get("deviations"):
            record = {**record, "verdict": Verdict(answer.verdict), "fault": dict(answer.fault)}
        records.append(record)
    return records


def certain(records: Sequence[ResultRecord]) -> set[str]:
    """Returns the fingerprints of the defects of results that show one defect each. A sweep has the points of the stack
    as shipped: if these show several defects, nothing tells which of them it shows without the change."""
    shown = (defects_of([record]) for record in records)
    return {defects[0].fingerprint for defects in shown if len(defects) == 1}


def passed(record: ResultRecord) -> ResultRecord:
    """Returns a result of the stack as shipped with the verdict of the mended stack."""
    return {**record, "verdict": Verdict.PASS}


def in_one_guest(
    suite: Suite,
    shipped: Mapping[str, ResultRecord],
    builds: Mapping[str, Mended],
    chosen: Sequence[Change],
    guests: Starter,
    out: Path,
) -> list[LeftOut]:
    """Leaves out each change in one guest, with the cases that violate a rule in `shipped` and that a change cures."""
    cases = violated_by(suite.cases, shipped)
    omissions = Omissions(guests, cases, out)
    findings = []
    try:
        with_all = omissions.answers(
            omissions.staged(WHOLE, builds[WHOLE]), [case.id for case in cases]
        )
        names = cured(with_all)
        print(f"{len(names)} of {len(cases)} cases pass with all changes", flush=True)
        passing = [case for case in cases if case.id in names]
        whole = {name: passed(shipped[name]) for name in names}
        for change in chosen:
            began = time.monotonic()
            module = omissions.staged(change.name, builds[change.name])
            without = omissions.answers(module, picked(change.rules, passing, shipped))
            violated = again(shipped, without)
            finding = left_out(change.name, change.rules, change.defects, whole, violated)
            sure = certain(violated)
            defects = {name: finding.defects[name] for name in finding.defects if name in sure}
            findings.append(replace(finding, tried=len(without), defects=defects))
            print(f"{line(findings[-1])}, {time.monotonic() - began:.0f} s", flush=True)
    finally:
        omissions.close()
    return findings
