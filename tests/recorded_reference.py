"""Records runs of the suite's own tables on the reference, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.execution.runner import run_case
from conformance.model.case import Case
from conformance.model.observation import KernelEvidence
from conformance.model.record import ResultRecord
from conformance.results.case_record import case_record
from conformance.results.new_records import footer_record
from conformance.results.records import FILE_NAME
from conformance.results.writer import ResultsFile
from conformance.tables.suite import Suite
from samples import header
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.running import on_the_reference

# Each of these takes as long as hundreds of other cases, because it has many regions or pages.
_DEAR = (
    "keys/seventy-thousand-regions",
    "huge_lengths/pinned-of-2-gib",
    "huge_lengths/pinned-of-4-gib-+-1-page",
)


def is_dear(case: Case) -> bool:
    """Whether a case takes so long that most tests with the reference leave it out."""
    return case.id.removeprefix("reg_mr/") in _DEAR


class QuietKernel:
    """A kernel watch that reports nothing."""

    def since_last(self) -> KernelEvidence:
        return {"taint": 0, "log": []}


def record(
    directory: Path,
    suite: Suite,
    cases: Iterable[Case],
    device: Device | None = None,
    **head: Any,
) -> Path:
    """Runs the cases on a reference with this device, and records the results as a run does; returns the directory."""
    chosen = list(cases)
    with (
        closing(ReferenceBench(device)) as bench,
        closing(ResultsFile(directory / FILE_NAME)) as file,
    ):
        run = replace(on_the_reference(bench), watch=QuietKernel())
        declared = run.basis.capabilities.declared
        caps = {"name": "reference", "driver": "reference", "fw": "1.0", "caps": dict(declared)}
        ids = [case.id for case in chosen]
        facts = {
            "rules": suite.registry.as_data(),
            "controls": dict(suite.registry.needs.controls),
            "left_out": len(suite.left_out(ids)),
        }
        suite_data = {"version": "0", "tables_sha256": suite.tables_sha256}
        file.append(header(planned=ids, device=caps, suite=suite_data, **facts, **head))
        lines: list[ResultRecord] = []
        for case in chosen:
            line = file.prepared(case_record(run_case(case, run), suite.registry), case)
            lines.append(line)
            file.append(line)
        file.append(footer_record(ids, lines, suite.registry, duration_s=1.0))
    return directory
