"""Nothing is forgotten of what docs/extending.md lists, and each forgotten step is reported with the file to edit."""

import dataclasses
import json
import lzma
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import extending
from conformance.bench.interface import Entry
from conformance.execution.steps import STEPS
from conformance.model import capability, vocabulary
from conformance.model.kind import Kind, Traits
from conformance.model.rules import Registry
from conformance.tables.loader import parse_table
from conformance.tables.suite import ROOT, Suite, load_suite
from conformance.verbs import ENUMS, VERBS, Linkage
from conformance.yamldoc.nodes import read_bytes
from fixtures.guest.recipe import STACKS, Recipe
from samples import registry
from trial.altering import Alteration, AlteredEntry

CHECKS: tuple[Callable[[], Iterable[str]], ...] = (
    extending.flags,
    extending.described,
    extending.entries,
    extending.capabilities,
    extending.preconditions,
    extending.formats,
    extending.stacks,
    extending.kinds,
)


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load_suite()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_nothing_is_forgotten(check: Callable[[], Iterable[str]]) -> None:
    found = "\n".join(check())
    assert not found, found


def test_every_rule_has_a_case_and_a_violation(suite: Suite) -> None:
    found = "\n".join(extending.rules(suite, suite.registry))
    assert not found, found


# The ids that runs of earlier versions had planned: an old one, and the one that the documentation quotes.
with lzma.open(ROOT / "docs" / "runs" / "rxe.jsonl.xz", "rt") as recorded:
    PLANNED = [
        *(Path(__file__).with_name("old_results") / "planned.txt").read_text().splitlines(),
        *json.loads(recorded.readline())["planned"],
    ]


def test_no_id_that_was_used_is_forgotten(suite: Suite) -> None:
    assert len(PLANNED) > 2500
    found = "\n".join(extending.retired(suite, PLANNED))
    assert not found, found


def test_a_case_that_is_gone_and_not_retired(suite: Suite) -> None:
    only(extending.retired(suite, ["reg_mr/unknown_bits/gone"]), "add gone", "cases/reg_mr/unknown_bits.yaml")


def only(messages: Iterable[str], *parts: str) -> None:
    (message,) = messages
    assert [part for part in parts if part not in message] == [], message


def test_a_flag_without_a_capability() -> None:
    names = (*ENUMS["ibv_access_flags"].short_names, "NEW")
    only(
        extending.flags(names),
        "flag NEW of conformance/verbs/enums.py",
        "FLAG_NEEDS in conformance/model/capability.py",
    )


def test_a_flag_without_a_capability_is_reported_when_a_sweep_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    needs = {name: need for name, need in capability.FLAG_NEEDS.items() if name != "HUGETLB"}
    monkeypatch.setattr(capability, "FLAG_NEEDS", needs)
    text = """verb: ibv_reg_mr
cases: 1
given: {memory: {buf: {kind: anonymous, size: 1 page}}}
rows:
  - id: all
    rules: [REG-01]
    sweep:
      axes: {access: {subsets of: ibv_access_flags}}
      points: subsets of ibv_access_flags
      expect: [{needs of: access}, {then: success, rule: REG-01}]
    when: {access: $access}
"""
    _, mistakes = parse_table(read_bytes(text.encode(), "t"), Path("reg_mr/t.yaml"), registry())
    only(map(str, mistakes), "t:10:27: the flag HUGETLB", "add it to FLAG_NEEDS in conformance/model/capability.py")


def test_a_flag_that_needs_what_is_no_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capability, "FLAG_NEEDS", {**capability.FLAG_NEEDS, "HUGETLB": "huge"})
    only(extending.flags(), "flag HUGETLB needs 'huge'", "MEANING in conformance/model/capability.py")


def test_rules_of_a_verb_that_tables_cannot_call() -> None:
    files = {"ibv_new": ROOT / "cases" / "new" / "rules.yaml"}
    only(
        extending.not_callable(files, vocabulary.CALLS),
        "cases/new/rules.yaml",
        "a Verb to a module of conformance/verbs/",
    )


def test_a_call_without_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extending, "STEPS", {call: step for call, step in STEPS.items() if call != "ibv_reg_mr"})
    only(extending.described(), "ibv_reg_mr", "STEPS in conformance/execution/steps.py")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"linkage": Linkage.INLINE}, ("ibv_never_mr has no symbol", "conformance/device/libibverbs.py")),
        ({"command": "NEVER_MR"}, ("the kernel's command NEVER_MR", "conformance/device/uverbs.py")),
        ({}, ("the reference lacks ibv_never_mr", "a class of reference/")),
    ],
)
def test_a_verb_that_an_entry_cannot_call(change: dict[str, Any], parts: tuple[str, ...]) -> None:
    verb = dataclasses.replace(VERBS["ibv_reg_mr"], name="ibv_never_mr", **{"command": "", **change})
    found = [each for each in extending.entries({verb.name: verb}) if not change or "reference" not in each]
    only(found, *parts)


def test_a_verb_without_a_hook_is_called_through_an_alteration() -> None:
    real = cast(Entry, SimpleNamespace(name="libibverbs", never_mr=lambda mr: mr))
    assert cast(Any, AlteredEntry(real, Alteration())).never_mr(7) == 7


def test_a_rule_without_a_case_and_without_a_violation(suite: Suite) -> None:
    rule = dataclasses.replace(suite.registry["REG-01"], id="REG-99")
    more = Registry([*suite.registry.values(), rule])
    without_case, without_violation = extending.rules(suite, more)
    assert "rule REG-99 has no case: add a row to a table of cases/reg_mr/" in without_case
    assert "`REG-99 METHOD: …`" in without_violation
    assert "trial/catalogue.py" in without_violation


def test_a_violation_of_no_rule(suite: Suite) -> None:
    fewer = Registry(rule for rule in suite.registry.values() if rule.id != "REG-15")
    only(extending.rules(suite, fewer), "a seeded violation names REG-15", "rules.yaml in cases/")


def test_a_capability_that_nothing_finds_out() -> None:
    only(extending.capabilities((*capability.MEANING, "new")), "capability new", "conformance/execution/offered.py")


def test_a_capability_without_a_meaning() -> None:
    only(extending.capabilities([each for each in capability.MEANING if each != "odp"]), "odp", "MEANING in")


def test_a_precondition_that_nothing_sets() -> None:
    unset, unmet = extending.preconditions((*capability.PRECONDITIONS, "new"))
    assert "reachable_on in conformance/execution/offered.py" in unset
    assert "STACKS in reference/stack.py" in unmet


def test_a_report_that_cannot_be_chosen(tmp_path: Path) -> None:
    (tmp_path / "csv.py").write_text("def render(digests):\n    return ''\n")
    only(extending.formats(tmp_path), "reports/csv.py", "FORMATS in commands/report.py")


def test_a_stack_with_another_name() -> None:
    only(extending.stacks({**STACKS, "duke": Recipe()}), "duke", "fixtures/guest/recipe.py")


def test_a_kind_of_case_without_its_parts() -> None:
    new = cast(Kind, SimpleNamespace(traits=Traits("new", folder="new", call="make_new")))
    runner, call, folder = extending.kinds([new])
    assert "conformance/sweeps/runners.py" in runner
    assert "conformance/model/vocabulary.py" in call
    assert "cases/new/" in folder


def test_the_page_names_files_that_exist() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    named = set(
        re.findall(r"`((?:conformance|cases|fixtures|reference|reports|commands|trial|tests|docs)/[\w./]+)`", page)
    )
    assert len(named) > 20
    assert sorted(name for name in named if "prob" not in name and not (ROOT / name).exists()) == []
