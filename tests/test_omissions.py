"""Tests of changes that are left out in one guest: which cases run, a guest or a process that ends, and the defects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.fault import Fault, FaultKind
from conformance.model.verdict import Verdict
from fixtures.guest.changes import Change, Edit, read_changes
from samples import numbered, result
from trial.kernel.guest import Answer, Lost, MutantGuest, NoSession
from trial.left_out import causes, left_out, line
from trial.omissions import (
    EACH,
    Omissions,
    again,
    certain,
    cured,
    is_exchangeable,
    picked,
    violated_by,
)

CASES = numbered(12).cases
NAMES = [case.id for case in CASES]


class Guest:
    """A guest in which the cases of `ends` end the guest or, without a verdict, their process."""

    def __init__(self, ends: dict[str, Exception | None]) -> None:
        self.ends, self.closed = ends, False

    def load(self, module: Path) -> str:
        return "no such symbol" if module.stem == "bad" else ""

    def run(self, cases: Sequence[str], all_of_them: bool, watched: bool) -> Iterator[Answer]:
        assert all_of_them
        assert not watched
        for case in cases:
            if case not in self.ends:
                yield Answer(case, Verdict.PASS, (), "", 0.1)
            elif ending := self.ends[case]:
                raise ending
            else:
                yield Answer(case, Verdict.CRASH, (), "status -11", 0.1)
                return

    def close(self) -> None:
        self.closed = True


class Guests:
    def __init__(self, **ends: Exception | None) -> None:
        self.ends, self.started = {NAMES[int(name[1:])]: end for name, end in ends.items()}, 0

    def start(self, cases: Sequence[Case]) -> MutantGuest:
        self.started += 1
        return cast(MutantGuest, Guest(self.ends))


def omissions(guests: Guests, stage: Path) -> Omissions:
    return Omissions(guests, CASES, stage)


def test_a_case_that_ends_its_guest_or_its_process_is_a_crash_and_the_others_run(tmp_path):
    guests = Guests(_2=Lost(Verdict.CRASH, "in a case", NAMES[2]), _5=None)
    answers = omissions(guests, tmp_path).answers(tmp_path / "good.ko", NAMES)
    assert list(answers) == NAMES
    bad = {name for name, answer in answers.items() if answer.verdict != Verdict.PASS}
    assert bad == {NAMES[2], NAMES[5]}
    assert guests.started == 2
    assert cured(answers) == [name for name in NAMES if name not in bad]


@pytest.mark.parametrize(
    "module, ends, reason",
    [
        ("bad", {}, "bad: the module does not load: no such symbol"),
        ("good", {"_0": NoSession("no port")}, "good: no session begins: no port"),
        ("good", {"_0": Lost(Verdict.BROKEN, "hangs")}, "good: the guest runs no case"),
    ],
)
def test_a_guest_that_runs_no_case_ends_the_trial(module, ends, reason, tmp_path):
    with pytest.raises(UserError, match=reason):
        omissions(Guests(**ends), tmp_path).answers(tmp_path / f"{module}.ko", NAMES)


def test_the_cases_are_those_of_the_changes_rules_and_some_rows_of_each_defect():
    shipped = {case.id: result(case, "FAIL") for case in CASES[1:]} | {NAMES[0]: result(CASES[0])}
    violated = violated_by(CASES, shipped)
    assert {case.id for case in violated} == set(NAMES[1:])
    assert len(picked(["BIND-10"], violated, shipped)) == EACH
    assert len(picked(["REG-01"], violated, shipped)) == len(violated)


def test_a_change_of_libibverbs_cannot_be_exchanged_in_a_running_guest():
    changes = {change.name: is_exchangeable(change) for change in read_changes()}
    assert changes["window-bounds"]
    assert changes["early-posting"]
    assert not changes["fork-after-refusal"]
    edit = Edit("libibverbs/verbs.c", "", "after", "x", "y\n")
    assert not is_exchangeable(Change("a", "why", ("REG-01",), (), (edit,), "1" * 64))


def test_the_defects_of_each_change_are_compared():
    shipped = {case.id: result(case, "FAIL") for case in CASES[:3]}
    whole = {case.id: result(case) for case in CASES[:3]}
    other = Fault(FaultKind.REFUSED, call="ibv_reg_mr()", verb="ibv_reg_mr", errno="ENOMEM")
    faults = [None, other.as_data(), None]
    answers = {
        name: Answer(name, Verdict.FAIL, ("REG-01",), "", 0.1, fault)
        for name, fault in zip(shipped, faults, strict=True)
    }
    first = left_out("first", ["REG-01"], [], whole, again(shipped, answers))
    second = left_out(
        "second", ["REG-01"], [], whole, again(shipped, {NAMES[0]: answers[NAMES[0]]})
    )
    assert (len(first.defects), len(second.defects)) == (2, 1)
    assert line(second).endswith(f"defects: {next(iter(second.defects))}")
    lines = causes([first, second]).splitlines()
    assert lines[0].startswith("one change, several defects: first: ")
    assert lines[1] == f"one defect, several changes: {next(iter(second.defects))}: first, second"
    assert causes([second]) == ""


def test_a_sweep_that_shows_several_defects_does_not_tell_which_of_them_a_change_cures():
    deviations = [
        {
            "when": "always",
            "rules": ["REG-01"],
            "fault": Fault(kind, call="ibv_reg_mr()", verb="ibv_reg_mr", errno=errno).as_data(),
            "smallest": {"length": "1"},
        }
        for kind, errno in ((FaultKind.REFUSED, "ENOMEM"), (FaultKind.ACCEPTED, ""))
    ]
    both: Any = {**result(CASES[0], "FAIL"), "deviations": deviations}
    first: Any = {**both, "deviations": deviations[:1]}
    second: Any = {**both, "deviations": deviations[1:]}
    assert len(certain([first])) == 1
    assert len(certain([first, second])) == 2
    assert certain([both, first]) == certain([first])
    assert certain([both]) == set()
