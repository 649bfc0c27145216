"""The C programs of all rows, and of the violations of a recorded run, for the tests of what contains them."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from commands.__main__ import main
from conformance.defects.symptom import Symptom
from conformance.model.kind import Kind
from conformance.tables.suite import load_suite
from reports.digest import Digest, read
from reports.reproducers.mail import mail
from reports.reproducers.of_runs import (
    basis_of,
    reproducer,
    unknown_device,
)
from reports.reproducers.program import Program
from reports.reproducers.writer import Inexpressible

SUITE = load_suite()
RECORDED = Path(__file__).with_name("recorded_violations")
ROWS = [case for case in SUITE.cases if case.kind is Kind.ROW]
ADVICE = "advise_mr/codes/invalid-pd@libibverbs"
DEFECT = "6c8e18b350a5"  # bind_mw/invalidation/local-inv-twice has it
FORKY = RECORDED / "forky.jsonl"
WRITE = "reg_mr/on_demand/rdma-write-at-buf-+-100"


@cache
def programs() -> tuple[dict[str, Program], Counter[str]]:
    """Returns the programs by the ids of their rows, and counts the reasons why the other rows have no program."""
    programs_made, reasons = {}, Counter[str]()
    for case in ROWS:
        try:
            programs_made[case.id] = reproducer(case.id, SUITE, unknown_device())
        except Inexpressible as reason:
            reasons[str(reason)] += 1
    return programs_made, reasons


@cache
def forky() -> Digest:
    return read(FORKY)


def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in FORKY.read_text().splitlines()]


def symptom_named(name: str) -> Symptom:
    return next(
        symptom
        for defect in forky().violations.defects
        for symptom in defect.symptoms
        if symptom.name == name
    )


def text_of(id_: str) -> str:
    return programs()[0][id_].text


def mail_of(symptom: Symptom, *others: Digest) -> str:
    return mail([symptom], forky(), SUITE, basis_of(FORKY), others).text


def spaced(text: str) -> str:
    return " ".join(text.split())


def page_of(folder: Path, *arguments: object) -> str:
    assert main(["findings", *map(str, arguments), "--out", str(folder)]) == 0
    return (folder / "findings.md").read_text()
