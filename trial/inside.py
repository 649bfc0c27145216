"""The part of a trial that runs in the guest, in one process, on the real device.

    python3 -m trial.inside DEVICE PORT alterations VIOLATION…      which cases detect altered real calls
    python3 -m trial.inside DEVICE PORT shuffled ROUNDS SEED        every row several times, in shuffled orders

The findings are written to the port as JSON lines. An alteration counts as detected only if the case passes with
unaltered calls in the same guest, because the device may violate rules itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

from conformance.bench.interface import Bench
from conformance.device.device import Device
from conformance.execution.runner import RunContext, Watch
from conformance.judging import Judgement
from conformance.kernel.log import KernelWatch
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.model.verdict import VIOLATIONS
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier, ordered
from fixtures.bench import DeviceBench
from fixtures.limits import obey_locked_memory_limit
from trial.alterations import ALTERATIONS
from trial.altering import Alteration, AlteredBench
from trial.running import judgement_on, run_context
from trial.trying import KILLED, MISATTRIBUTED, SURVIVED, Finding, finding
from trial.violation import Violation

Message = dict[str, Any]

# Stop after this many cases have detected an alteration: an emulated guest is slow.
_ENOUGH = 3
# Unaltered calls; no case may report a violation.
CONTROL = Violation("control", "REG-20", "Nothing is altered.", Alteration)


def rows(cases: Sequence[Case]) -> list[Case]:
    """The rows that cannot crash the kernel; no sweeps, because each takes as long as all rows together."""
    moderate = of_tier(cases, DEFAULT)
    return [case for case in moderate if case.kind is Kind.ROW and not case.hazardous]


class RealTrial:
    """Runs cases on a real bench, with and without an alteration."""

    def __init__(self, bench: Bench, capabilities: Capabilities, watch: Watch, cases: Sequence[Case]) -> None:
        """Only the rows among `cases` are run, see `rows`."""
        self.bench, self.capabilities, self.watch = bench, capabilities, watch
        self.cases = rows(cases)
        self._unaltered: dict[str, Judgement] = {}

    def unaltered(self, case: Case) -> Judgement:
        """The judgement on a case with unaltered calls; computed once."""
        if case.id not in self._unaltered:
            self._unaltered[case.id] = judgement_on(case, run_context(self.bench, self.capabilities, self.watch))
        return self._unaltered[case.id]

    def detections(self, violation: Violation, cases: Iterable[Case]) -> dict[str, str]:
        """The cases that fail with the alteration and not without it, with their reasons."""
        alteration: Alteration = violation.kind()
        altered = run_context(cast(Bench, AlteredBench(self.bench, alteration)), self.capabilities, self.watch)
        detected = {}
        for case in cases:
            if self.unaltered(case).verdict in VIOLATIONS:
                continue
            judgement = judgement_on(case, altered)
            if judgement.verdict in VIOLATIONS:
                detected[case.id] = judgement.reason
            if len(detected) >= _ENOUGH:
                break
        for release in reversed(alteration.unreleased):
            with suppress(Exception):  # the case has released its PD by now; the rest is released when the process ends
                release()
        return detected

    def try_alteration(self, violation: Violation) -> Finding:
        """Runs the cases of the violated rule and, if none of them detects the alteration, all others."""
        own = [case for case in self.cases if violation.rule in case.rules]
        detected = self.detections(violation, own)
        if detected:
            return finding(violation, KILLED, detected, len(own))
        detected = self.detections(violation, [case for case in self.cases if violation.rule not in case.rules])
        return finding(violation, MISATTRIBUTED if detected else SURVIVED, detected, len(self.cases))


def try_alterations(bench: Bench, capabilities: Capabilities, watch: Watch, chosen: Sequence[str]) -> Iterator[Message]:
    """A message for each chosen alteration."""
    trial = RealTrial(bench, capabilities, watch, load_suite().cases)
    for violation in (*ALTERATIONS, CONTROL):
        if violation.name in chosen:
            yield {"type": "finding", **trial.try_alteration(violation).as_data()}


def try_shuffled(run: RunContext, rounds: int, seed: int) -> Iterator[Message]:
    """A message for each round: the verdict and reason of every row. Each round runs the rows in another order."""
    cases = rows(load_suite().cases)
    for number in range(seed, seed + rounds):
        started = time.monotonic()
        verdicts = {}
        for case in ordered(cases, number):
            judgement = judgement_on(case, run)
            verdicts[case.id] = [judgement.verdict, judgement.reason]
        yield {"type": "round", "seed": number, "seconds": time.monotonic() - started, "verdicts": verdicts}


def main(name: str, port: str, what: str, arguments: Sequence[str]) -> int:
    """Runs one of the two parts and writes its messages to the port."""
    obey_locked_memory_limit()
    out = os.open(port, os.O_WRONLY)

    def send(message: Message) -> None:
        data = memoryview(json.dumps(message).encode() + b"\n")
        while data:  # a port may accept only a part of a long line at once
            data = data[os.write(out, data) :]

    # Never closed: objects that altered calls left behind keep the PD busy, and the end of the process releases all.
    bench = DeviceBench(Device(name))
    capabilities, watch = bench.capabilities(), KernelWatch()
    if what == "alterations":
        messages = try_alterations(bench, capabilities, watch, arguments)
    else:
        messages = try_shuffled(run_context(bench, capabilities, watch), int(arguments[0]), int(arguments[1]))
    for message in messages:
        send(message)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
