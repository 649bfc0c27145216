"""Tries alterations of real calls in the guest, in one process, on the real device.

    python3 -m trial.inside DEVICE PORT VIOLATION…

For each alteration, writes to the port a JSON line with the cases that detect it. The device itself may violate rules.
Therefore a case detects an alteration only if it reports a rule as violated with the alteration, and not with unaltered
calls in the same guest."""

import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, cast

from conformance.bench.interface import Bench
from conformance.device.bench import DeviceBench
from conformance.device.device import Device
from conformance.device.limits import obey_locked_memory_limit
from conformance.execution.offered import capabilities_of
from conformance.execution.runner import Watch
from conformance.kernel.log import KernelWatch
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.results.files import write_all
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from trial.altering import Alteration
from trial.data_path.alteration import DataPath
from trial.mutant_table import Violation
from trial.mutants.calls import ALTERATIONS
from trial.mutants.data_path import DATA_PATH_ALTERATIONS, DATA_PATH_PERMITTED
from trial.running import run_context, violations_by
from trial.trying import KILLED, MISATTRIBUTED, OWN, SURVIVED, Finding, finding

Message = dict[str, Any]

# The trial of an alteration stops after this number of detecting cases, because an emulated guest is slow.
_ENOUGH = 3
# Alterations that change no call: no case may detect them.
CONTROL = Violation("control", "REG-20", "Nothing is altered.", Alteration)
DATA_PATH_CONTROL = Violation(
    "data-path-control",
    "REG-20",
    "Requests and completions pass unchanged.",
    DataPath,
)


def rows(cases: Sequence[Case], kind: Kind = Kind.ROW) -> list[Case]:
    """Returns the cases of a kind in the default tier, without cases that can crash the kernel."""
    moderate = of_tier(cases, DEFAULT)
    return [case for case in moderate if case.kind is kind and not case.alone]


class RealTrial:
    """Runs cases on a real bench, with and without an alteration."""

    def __init__(
        self,
        bench: Bench,
        capabilities: Capabilities,
        watch: Watch,
        cases: Sequence[Case],
    ) -> None:
        """Of `cases`, the rows run first. The sweeps of a rule run only if no row of it detects the violation."""
        self.bench, self.capabilities, self.watch = bench, capabilities, watch
        self.cases, self.sweeps = rows(cases), rows(cases, Kind.SWEEP)
        self._unaltered: dict[str, frozenset[str]] = {}

    def unaltered(self, case: Case) -> frozenset[str]:
        """Returns the rules that a case reports as violated with unaltered calls. The case runs only once."""
        if case.id not in self._unaltered:
            self._unaltered[case.id], _ = violations_by(
                case,
                run_context(self.bench, self.capabilities, self.watch),
            )
        return self._unaltered[case.id]

    def detections(
        self,
        violation: Violation,
        cases: Iterable[Case],
        own: bool,
    ) -> tuple[dict[str, str], list[str]]:
        """Returns the cases that report a rule as violated only with the alteration, with their reasons, and the
        first exception of the alteration. With `own`, only reports of the violated rule count."""
        # The cases run with unaltered calls first, because the alteration may affect every call of this process.
        before = {case.id: self.unaltered(case) for case in cases}
        alteration: Alteration = violation.kind()
        altered = run_context(
            cast(Bench, alteration.bench(self.bench)),
            self.capabilities,
            self.watch,
        )
        detected: dict[str, str] = {}
        try:
            for case in cases:
                if own:
                    counted = {violation.rule}
                else:
                    counted = set(case.rules)
                if counted <= before[case.id]:
                    continue
                fault, judgement = violations_by(case, altered)
                if fault & counted - before[case.id]:
                    detected[case.id] = judgement.reason
                if len(detected) >= _ENOUGH:
                    break
        finally:
            alteration.restore()
        return detected, [f"{type(fault).__name__}: {fault}" for fault in alteration.faults[:1]]

    def try_alteration(self, violation: Violation, own_only: bool = False) -> Finding:
        """Runs the rows of the violated rule, then its sweeps, then all rows, until cases detect the
        violation."""
        of_rule = [case for case in self.cases if violation.rule in case.rules]
        sweeps_of_rule = [case for case in self.sweeps if violation.rule in case.rules]
        tried = 0
        broken: list[str] = []
        for cases, outcome in (
            (of_rule, KILLED),
            (sweeps_of_rule, KILLED),
            (self.cases, MISATTRIBUTED),
        )[: 2 if own_only else 3]:
            detected, faults = self.detections(violation, cases, outcome == KILLED)
            tried, broken = tried + len(cases), broken + faults
            if detected:
                return finding(violation, outcome, detected, tried, broken)
        return finding(violation, SURVIVED, {}, tried, broken)


def try_alterations(
    bench: Bench,
    capabilities: Capabilities,
    watch: Watch,
    chosen: Sequence[str],
) -> Iterator[Message]:
    """Yields a message for each chosen alteration. If OWN is among the names, only cases of the violated rule run."""
    trial = RealTrial(bench, capabilities, watch, load_suite().cases)
    for violation in (
        *ALTERATIONS,
        *DATA_PATH_ALTERATIONS,
        *DATA_PATH_PERMITTED,
        CONTROL,
        DATA_PATH_CONTROL,
    ):
        if violation.name in chosen:
            yield {"type": "finding", **asdict(trial.try_alteration(violation, OWN in chosen))}


def main(name: str, port: str, chosen: Sequence[str]) -> int:
    obey_locked_memory_limit()
    out = os.open(port, os.O_WRONLY)
    # The bench is never closed, because its PD is in use by objects that altered calls did not release. The kernel
    # releases all objects when the process exits.
    bench = DeviceBench(Device(name))
    for message in try_alterations(bench, capabilities_of(bench), KernelWatch(), chosen):
        write_all(out, json.dumps(message).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
