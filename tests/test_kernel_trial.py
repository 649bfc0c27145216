"""Tests of the trial of the driver's mutants: its files, runs and outcomes, without a guest or a compiler."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import pytest

from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.verdict import Verdict
from conformance.tables.suite import ROOT, load_suite
from fixtures.guest.changes import Change
from fixtures.guest.driver import DRIVERS
from trial import kernel_runs
from trial.kernel import inside, report, trying
from trial.kernel.guest import MORE, Answer, Guests, Lost, NoSession
from trial.kernel.modules import Modules, NotMade, patch
from trial.kernel.mutant import FOLDER, Mutant, read_mutants
from trial.kernel.outcome import (
    ACCEPTED,
    BROKEN,
    BY_ITS_RULE,
    ELSEWHERE,
    EQUIVALENT,
    FALSE_ALARM,
    HANG,
    NO_FIT,
    NOT_COMPILED,
    NOT_LOADED,
    SURVIVED,
    UNCHECKED,
    UNDECIDED,
    Finding,
    own_cases,
    suited,
)
from trial.kernel.trying import Trial

SUITE = load_suite()
OWN = next(case for case in SUITE.cases if case.rules == ("REG-20",))
OTHER = next(case for case in SUITE.cases if case.rules == ("REG-05",))
CASES = [OWN, OTHER]
EVERY = [case.id for case in CASES]
DOCUMENT = """\
name: {name}
about: The last byte is refused.
rules: [REG-20]
kind: range
edits:
  - file: linux/rxe_mr.c
    instead: a
    text: b
"""


def mutant(name: str = "last-byte-refused", **more: Any) -> Mutant:
    plain = Mutant(
        name,
        "The last byte is refused.",
        ("REG-20",),
        (),
        (),
        name,
        file="rxe_mr",
        kind="range",
    )
    return dataclasses.replace(plain, **more)


class Driver:
    """A stand-in for compiler and guests. `violated` has the rule that a case reports as violated, by the names of the
    mutant and of the case."""

    loads = 0

    def __init__(
        self,
        violated: Mapping[tuple[str, str], str] = MappingProxyType({}),
        unfit: Iterable[str] = (),
        not_compiled: Iterable[str] = (),
        refused: Iterable[str] = (),
        events: Mapping[tuple[str, str], Exception] = MappingProxyType({}),
    ) -> None:
        self.violated, self.events = violated, events
        self.unfit, self.not_compiled, self.refused = set(unfit), set(not_compiled), set(refused)
        self.started, self.module, self.made, self.loaded = 0, "", set[str](), list[str]()

    # The modules

    def check(self, changes: Sequence[Change]) -> None:
        if unfit := self.unfit & {change.name for change in changes}:
            raise NotMade(f"no anchor of {unfit}", fits=False)

    def begin(self, sets: Iterable[Sequence[Change]]) -> None:
        pass

    def of(self, changes: Sequence[Change]) -> str:
        self.check(changes)
        if self.not_compiled & {change.name for change in changes}:
            raise NotMade("rxe_mr.c:1:1: error: what", fits=True)
        self.made.add(joined := " ".join(change.name for change in changes))
        return joined

    # The guests

    def start(self, cases: Sequence[Case]) -> Driver:
        self.started, self.module = self.started + 1, ""
        return self

    def load(self, module: str) -> str:
        if module != self.module or not self.loaded:
            self.loaded.append(module)
        self.module = module
        if self.refused & set(module.split()):
            return "insmod: refused"
        return ""

    def run(
        self,
        cases: Sequence[str],
        all_of_them: bool = False,
        watched: bool = True,
    ) -> Iterator[Answer]:
        for case in cases:
            for name in [*self.module.split(), ""]:
                if event := self.events.get((name, case)) or self.events.get((name, "")):
                    raise event
            names = (*self.module.split(), self.module, "")
            rules = tuple(
                rule for (name, at), rule in self.violated.items() if at == case and name in names
            )
            if "BROKEN" in rules:
                verdict = "BROKEN"
            elif rules:
                verdict = "FAIL"
            else:
                verdict = "PASS"
            yield Answer(case, verdict, () if verdict == "BROKEN" else rules, "why", 0.1)
            if rules and verdict == "FAIL" and not all_of_them:
                return

    def close(self) -> None:
        pass

    def trial(self, *say: Callable[[str], None]) -> Trial:
        return Trial(CASES, cast(Modules, self), cast(Guests, self), *say)


def tried(driver: Driver, which: Mutant | None = None, only: Sequence[str] = ()) -> Finding:
    return driver.trial().try_alone(which or mutant(), only)


def outcomes(findings: Iterable[Finding]) -> dict[str, str]:
    return {finding.name: finding.outcome for finding in findings}


def permitted(*names: str) -> list[Mutant]:
    return [mutant(name, permitted=True) for name in names]


NAME = mutant().name


@pytest.mark.parametrize("driver", DRIVERS)
def test_every_mutant_has_a_case_of_its_rules(driver):
    mutants = read_mutants(FOLDER / driver)
    assert mutants
    assert all(mutant.rules or mutant.permitted for mutant in mutants)
    cases = suited(SUITE.cases)
    for item in mutants:
        if set(item.rules) & set(SUITE.registry):
            assert own_cases(item, cases) or item.equivalent, f"{item.name}: no case of its rules"


def test_a_mistake_is_named_by_file_and_line_in_any_document(tmp_path):
    text = (
        DOCUMENT.format(name="one") + "---\n" + DOCUMENT.format(name="two").replace("kind:", "kin:")
    )
    (tmp_path / "rxe_mr.yaml").write_text(text)
    with pytest.raises(UserError, match=r"rxe_mr.yaml:13:1: .*kin"):
        read_mutants(tmp_path)


def test_a_mutant_of_the_library_that_no_guest_exchanges_is_refused_with_its_place(tmp_path):
    text = DOCUMENT.format(name="one").replace("linux/rxe_mr.c", "libibverbs/verbs.c")
    (tmp_path / "library.yaml").write_text(text)
    with pytest.raises(UserError, match=r"library.yaml:6:5: 'libibverbs/verbs.c': a trial"):
        read_mutants(tmp_path)


def test_a_mutant_as_a_patch_changes_the_sources_when_git_applies_it(tmp_path):
    before = {"linux/rxe_mr.c": "int a;\nint b;\nint c;\n", "linux/rxe_mw.c": "int d;\n"}
    after = {**before, "linux/rxe_mr.c": "int a;\nint z;\nint b;\nint c;\n"}
    for file, text in before.items():
        path = tmp_path / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    subprocess.run(
        ["git", "apply"],
        cwd=tmp_path,
        input=patch("A variable is added.", before, after),
        text=True,
        check=True,
    )
    assert {file: (tmp_path / file).read_text() for file in before} == after


def test_own_cases_are_those_of_its_rules_rows_before_sweeps():
    cases = suited(SUITE.cases)
    kinds = [case.kind for case in cases if not case.hazardous]
    assert list(dict.fromkeys(kinds)) == [Kind.ROW, Kind.SWEEP, Kind.COMBINATIONS]
    assert len([*itertools.groupby(kinds)]) == 3
    assert own_cases(mutant(), CASES) == [OWN.id]
    assert own_cases(mutant(permitted=True), CASES) == [OWN.id, OTHER.id]
    part = dataclasses.replace(OTHER, rules=("REG-20a",))
    assert own_cases(mutant(), [OWN, part]) == [OWN.id, part.id]
    assert tried(Driver({(NAME, OTHER.id): "REG-20a"}), only=[OTHER.id]).outcome == BY_ITS_RULE


def seen(case: Case, rule: str) -> dict[str, Any]:
    return {"violated": {(NAME, case.id): rule}}


@pytest.mark.parametrize(
    "driver, which, only, outcome, reason",
    [
        (seen(OWN, "REG-20"), {}, (), BY_ITS_RULE, "why"),
        (seen(OTHER, "REG-05"), {}, (OTHER.id,), ELSEWHERE, "why"),
        (seen(OTHER, "REG-05"), {}, (), SURVIVED, ""),  # only the cases of its own rules are run
        ({"unfit": {NAME}}, {}, (), NO_FIT, f"no anchor of { {NAME} }"),
        ({"not_compiled": {NAME}}, {}, (), NOT_COMPILED, "rxe_mr.c:1:1: error: what"),
        ({"refused": {NAME}}, {}, (), NOT_LOADED, "insmod: refused"),
        ({}, {"equivalent": "nobody calls it"}, (), EQUIVALENT, ""),
        ({}, {"permitted": True}, (), ACCEPTED, ""),
        (seen(OTHER, "REG-05"), {"permitted": True}, (), FALSE_ALARM, "why"),
    ],
)
def test_a_mutant_has_the_outcome_of_its_cases_or_of_its_build(
    driver, which, only, outcome, reason
):
    finding = tried(Driver(**driver), mutant(**which), only)
    assert finding.outcome == outcome
    assert not reason or finding.reason == reason
    if outcome == BY_ITS_RULE:
        assert (finding.by, finding.tried) == ((OWN.id,), 1)


def test_violations_of_the_unmutated_driver_do_not_kill_a_mutant():
    trial = Driver({("", OWN.id): "REG-20"}).trial()
    assert [trial.try_alone(mutant(name)).tried for name in ("one", "two")] == [1, 0]
    assert trial.try_alone(mutant("two")).outcome == SURVIVED


def test_a_mutant_that_cases_of_another_rule_detect_names_this_rule():
    finding = tried(Driver(**seen(OTHER, "REG-05")), mutant(), [OTHER.id])
    assert (finding.outcome, finding.violated) == (ELSEWHERE, ("REG-05",))
    assert f" · REG-05 by {OTHER.id}: why" in report.line(finding)


class Sources:
    """Stands in for Modules: the source of a mutant is the part of its name before the last dash."""

    seconds = ()
    file_name = "rdma_rxe.ko"

    def path(self, changes: Sequence[Change]) -> Path:
        return Path(" ".join(change.name.rpartition("-")[0] for change in changes))

    def of(self, changes: Sequence[Change]) -> Path:
        return self.path(changes)


def test_a_mutant_that_makes_the_sources_of_a_mutant_of_another_file_is_not_built(capsys):
    new, other, different = mutant("range-1"), mutant("range-2"), mutant("key-1")
    modules: Any = Sources()
    assert kernel_runs._build([new, different], [new, other, different], modules, None) == 1
    said = capsys.readouterr().out
    assert "range-1: makes the same sources as range-2" in said
    assert "modules ready: 1;" in said
    assert kernel_runs._build([different], [new, other, different], modules, None) == 0


def test_cases_that_detect_several_mutants_are_run_together_without_a_mutant():
    driver = Driver({(name, OWN.id): "REG-20" for name in ("one", "two", "kills")})
    several = [
        mutant("one"),
        mutant("two"),
        mutant("same", equivalent="nobody calls it"),
        mutant("kills", kills=True),
    ]
    outcomes_seen = outcomes(driver.trial().try_each(several))
    assert outcomes_seen == {
        "one": BY_ITS_RULE,
        "two": BY_ITS_RULE,
        "same": EQUIVALENT,
        "kills": BY_ITS_RULE,
    }
    assert driver.loaded == ["one", "two", "", "kills"]
    driver = Driver(
        {("one", OWN.id): "REG-20", ("two", OTHER.id): "REG-05", ("", OWN.id): "REG-20"},
    )
    outcomes_seen = outcomes(driver.trial().try_each([mutant("one"), mutant("two")], EVERY))
    assert outcomes_seen == {"one": SURVIVED, "two": ELSEWHERE}, (
        "a case that also fails without a mutant has killed one"
    )


def test_the_case_that_detected_a_mutant_before_comes_first():
    trial = Driver({("one", OTHER.id): "REG-20"}).trial()
    *_, finding = trial.try_each([mutant("one")], EVERY, {"one": {"by": [OTHER.id]}})
    assert (finding.outcome, finding.tried) == (BY_ITS_RULE, 1)


def test_an_interrupted_trial_has_the_outcomes_that_are_not_checked_yet():
    driver = Driver({(name, OWN.id): "REG-20" for name in ("one", "three")})
    some = driver.trial().try_each([mutant("one"), mutant("two"), mutant("three")])
    seen = [(finding.name, finding.outcome) for finding in itertools.islice(some, 3)]
    assert seen == [("one", UNCHECKED), ("two", SURVIVED), ("three", UNCHECKED)]
    assert outcomes(some) == {"one": BY_ITS_RULE, "three": BY_ITS_RULE}


def test_a_kernel_crash_in_a_case_counts_as_detection():
    driver = Driver(events={(NAME, OWN.id): Lost(Verdict.CRASH, f"in {OWN.id}", OWN.id)})
    finding = tried(driver)
    assert (finding.outcome, finding.by, finding.verdict) == (BY_ITS_RULE, (OWN.id,), "CRASH")
    assert driver.started == 2, "the crashed guest was not replaced by one other guest"


@pytest.mark.parametrize(
    "event, outcome",
    [
        (Lost(Verdict.HANG, "while a module was exchanged"), HANG),
        (Lost(Verdict.CRASH, "while a module was exchanged"), NOT_LOADED),
        (NoSession("nobody answers"), BROKEN),
    ],
)
def test_a_lost_guest_ends_only_the_trial_of_one_mutant(event, outcome):
    trial = Driver({("other", OWN.id): "REG-20"}, events={(NAME, ""): event}).trial()
    assert trial.try_alone(mutant()).outcome == outcome
    assert trial.try_alone(mutant("other")).outcome == BY_ITS_RULE


def test_survivors_are_tried_together_and_distinguished_where_a_case_fails():
    driver = Driver({("two", OTHER.id): "REG-05"})
    findings = list(driver.trial().try_together([mutant(name) for name in ("one", "two", "three")]))
    assert outcomes(findings) == {"one": SURVIVED, "two": ELSEWHERE, "three": SURVIVED}
    assert [finding.by for finding in findings if finding.name == "two"] == [(OTHER.id,)]


def test_the_mutant_that_a_case_detects_is_found_by_halves_and_others_are_not_compiled_separately():
    names = [f"of-{n}" for n in range(8)]
    driver = Driver({("of-5", OTHER.id): "REG-05"})
    outcomes_seen = outcomes(driver.trial().try_together(permitted(*names)))
    assert outcomes_seen == {name: FALSE_ALARM if name == "of-5" else ACCEPTED for name in names}
    assert driver.made & set(names) == {"of-4", "of-5"}


def test_a_case_that_is_broken_or_fails_only_with_several_changes_is_an_outcome_of_its_changes():
    names = [f"of-{n}" for n in range(4)]
    driver = Driver({("of-2", OTHER.id): "BROKEN", ("", OWN.id): "BROKEN"})
    findings = list(driver.trial().try_together(permitted(*names)))
    assert outcomes(findings) == {name: BROKEN if name == "of-2" else ACCEPTED for name in names}
    (broken,) = [finding for finding in findings if finding.outcome == BROKEN]
    assert (broken.by, broken.reason) == ((OTHER.id,), f"{OTHER.id}: why")
    several = permitted(*names)
    undecided = list(Driver({(" ".join(names), OTHER.id): "REG-05"}).trial().try_together(several))
    assert {finding.outcome for finding in undecided} == {UNDECIDED}
    assert all(OTHER.id in finding.reason for finding in undecided)
    assert kernel_runs._refused(several, undecided) == names


def test_a_recommendation_that_a_change_does_not_follow_is_not_a_false_alarm():
    trial = Driver({("one", OTHER.id): "REG-05"}).trial()
    (finding,) = trial.try_together([mutant("one", permitted=True, departs_from=("REG-05",))])
    assert (finding.outcome, finding.reason) == (ACCEPTED, "")


def test_a_run_of_many_cases_reports_its_progress_and_each_case_that_fails_or_is_broken(
    monkeypatch,
):
    driver, said = Driver({("one", OWN.id): "REG-20", ("one", OTHER.id): "BROKEN"}), list[str]()
    monkeypatch.setattr(trying, "_PROGRESS_S", -1.0)
    assert outcomes(driver.trial(said.append).try_together(permitted("one"))) == {
        "one": FALSE_ALARM,
    }
    after = [f"{n} of 2 cases were run, {n} of them failed or were BROKEN" for n in (1, 2)]
    assert said == [f"{OWN.id}: FAIL: why", after[0], f"{OTHER.id}: BROKEN: why", after[1]]


def test_a_change_that_hides_others_is_not_combined_with_them(monkeypatch):
    tried_together = list[list[str]]()

    def try_together(mutants: Sequence[Mutant]) -> Iterator[Finding]:
        tried_together.append([mutant.name for mutant in mutants])
        return iter(())

    trial = Driver().trial()
    monkeypatch.setattr(trial, "try_together", try_together)
    chosen = [mutant("no-odp", permitted=True, hides=True), *permitted("one", "two")]
    assert (
        list(kernel_runs._findings(trial, chosen, argparse.Namespace(own=False, only=["a"]), {}))
        == []
    )
    assert tried_together == [["one", "two"], ["no-odp"]]


def test_permitted_mutants_that_do_not_load_together_or_do_not_fit_are_not_accepted():
    several = permitted("one", "two", "three")
    driver = Driver(refused={"two"}, unfit={"three"})
    outcomes_seen = outcomes(driver.trial().try_together(several))
    assert outcomes_seen == {"one": BROKEN, "two": BROKEN, "three": NO_FIT}
    refused = [finding(*outcome) for outcome in outcomes_seen.items()]
    assert kernel_runs._refused([*several, mutant("four", permitted=True)], refused) == [
        "one",
        "two",
    ]
    assert kernel_runs._refused([mutant("one")], refused) == []


def test_a_seed_shuffles_the_cases_but_hazardous_cases_stay_last():
    orders = [suited(SUITE.cases, seed) for seed in (1, 1, 2)]
    assert orders[0] == orders[1] != orders[2]
    assert {case.id for case in orders[0]} == {case.id for case in suited(SUITE.cases)}
    dangers = [case.hazardous for case in orders[0]]
    assert dangers == sorted(dangers)


def finding(name: str, outcome: str) -> Finding:
    return Finding(name, "rxe_mr", "range", ("REG-20",), "What.", outcome)


def test_objects_that_the_driver_keeps_are_counted_by_the_functions_that_allocated_them(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(inside, "_FENCED", tmp_path)
    allocated = "kfence-#1: 0x1-0x2, size=8, cache=kmalloc-8\n\nallocated by task 1 on cpu 0 at 1.0s (1.0s ago):\n"
    ours, other = (
        " rxe_reg+0x5f/0x2d0 [rdma_rxe]\n ib_reg+0x1/0x2 [ib_uverbs]\n",
        " ib_reg+0x1/0x2 [ib_uverbs]\n",
    )
    freed = "\nfreed by task 1 on cpu 0 at 2.0s (1.0s ago):\n rxe_dereg+0x1/0x2 [rdma_rxe]\n"
    for_later = " alloc_vmap_area+0x1/0x2\n" + ours
    objects = [allocated + leak for leak in (ours, ours + freed, other, for_later)] + [
        "kfence-#4 unused\n",
    ]
    (tmp_path / "objects").write_text("".join(object + "-" * 33 + "\n" for object in objects))
    assert inside._kept() == {"rxe_reg < ib_reg": 1}


def test_what_runs_in_a_guest_imports_only_what_the_guest_gets():
    shipped = {path.removesuffix(".py").replace("/", ".") for path in MORE}
    for path in MORE:
        text = (ROOT / path).read_text(encoding="utf-8")
        imported = re.findall(r"^\s*from (trial[\w.]*) import", text, re.MULTILINE)
        assert set(imported) <= shipped, path
