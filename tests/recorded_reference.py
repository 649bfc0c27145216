"""A recorded run of the suite's own tables on the reference; no test itself."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from conformance import judging
from conformance.judging import Judgement
from conformance.model.case import Case
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.records import FILE_NAME, footer_record, result_record
from conformance.results.sweep_record import sweep_record
from conformance.results.writer import ResultsFile
from conformance.sweeps.run import sweep
from conformance.tables.suite import Suite
from reference.bench import ReferenceBench
from reference.device import Device
from samples import header
from trial.running import observed_of


def record(directory: Path, suite: Suite, cases: Iterable[Case], device: Device | None = None, **head: Any) -> Path:
    """Runs the cases on the reference (of `device`) and records what came as a run does; gives the directory."""
    chosen = list(cases)
    with closing(ReferenceBench(device)) as bench, closing(ResultsFile(directory / FILE_NAME)) as file:
        capabilities = bench.capabilities()
        caps = {"name": "reference", "driver": "reference", "fw": "1.0", "caps": dict(capabilities.declared)}
        rules = {rule.id: rule.as_data() for rule in suite.registry.values()}
        suite_data = {"version": "0", "tables_sha256": suite.tables_sha256}
        file.append(header(planned=[case.id for case in chosen], device=caps, rules=rules, suite=suite_data, **head))
        lines: list[ResultRecord] = []
        for case in chosen:
            line = file.prepared(_line(suite, case, bench))
            lines.append(line)
            file.append(line)
        file.append(footer_record([case.id for case in chosen], lines, suite.registry, duration_s=1.0))
    return directory


def _line(suite: Suite, case: Case, bench: ReferenceBench) -> ResultRecord:
    capabilities = bench.capabilities()
    unreachable = capabilities.unreachable(case.needs, case.entry)
    if unreachable:
        return result_record(case, suite.registry, Judgement(Verdict.UNREACHABLE, unreachable), {})
    if case.sweep:
        return sweep_record(case, suite.registry, sweep(case, bench, capabilities), 1000)
    observed = observed_of(case, bench, capabilities)
    undeclared = capabilities.undeclared(case.needs, case.entry)
    judgement = judging.judge(case, undeclared, observed)
    if undeclared:
        observed["lacking"] = undeclared
    return result_record(case, suite.registry, judgement, observed, kernel={"taint": 0, "log": []}, duration_us=1000)
