"""No step of docs/extending.md is missing in the tree, and each missing step is reported with the file to edit."""

import json
import lzma
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import extending
from conformance.bench.interface import Entry
from conformance.tables.suite import ROOT, Suite, load_suite
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
def test_no_step_of_extending_is_missing(check: Callable[[], Iterable[str]]) -> None:
    found = "\n".join(check())
    assert not found, found


def test_every_rule_has_a_case_and_a_violation(suite: Suite) -> None:
    found = "\n".join(extending.rules(suite, suite.registry))
    assert not found, found


# The case ids that runs of earlier versions had planned: an old run, and the run that the documentation quotes.
with lzma.open(ROOT / "docs" / "runs" / "rxe.jsonl.xz", "rt") as recorded:
    PLANNED = [
        *(Path(__file__).with_name("old_results") / "planned.txt").read_text().splitlines(),
        *json.loads(recorded.readline())["planned"],
    ]


def test_every_case_id_ever_planned_exists_or_is_retired(suite: Suite) -> None:
    assert len(PLANNED) > 2500
    found = "\n".join(extending.retired(suite, PLANNED))
    assert not found, found


def test_a_verb_without_a_hook_is_called_through_an_alteration() -> None:
    real = cast(Entry, SimpleNamespace(name="libibverbs", never_mr=lambda mr: mr))
    assert cast(Any, AlteredEntry(real, Alteration())).never_mr(7) == 7
