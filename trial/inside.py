"""The parts of a trial that run in the guest, in one process, on the real device.

    python3 -m trial.inside DEVICE PORT alterations VIOLATION…      what the cases say of altered real calls
    python3 -m trial.inside DEVICE PORT shuffled ROUNDS SEED        every case again and again, in other orders

What is found are lines of JSON to the port. Of alterations the difference to the verdicts of unaltered calls in the
same guest counts, since the device may break rules of its own accord.
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
from trial.trying import KILLED, MISATTRIBUTED, SURVIVED, Finding, found
from trial.violation import Violation

Line = dict[str, Any]

# So many cases are as good as all of them; an emulated guest is slow.
_ENOUGH = 3
# Calls as they are, which no case may see.
CONTROL = Violation("control", "REG-20", "Nothing is altered.", Alteration)


def rows(cases: Sequence[Case]) -> list[Case]:
    """The cases without sweeps, each of which costs as much as all rows, and without what takes the kernel down."""
    moderate = of_tier(cases, DEFAULT)
    return [case for case in moderate if case.kind is Kind.ROW and not case.hazardous]


class RealTrial:
    """A real bench, its unaltered verdicts as they are needed, and alterations on it."""

    def __init__(self, bench: Bench, capabilities: Capabilities, watch: Watch, cases: Sequence[Case]) -> None:
        """See `rows` for those of `cases` that are run."""
        self.bench, self.capabilities, self.watch = bench, capabilities, watch
        self.cases = rows(cases)
        self._sound: dict[str, Judgement] = {}

    def sound(self, case: Case) -> Judgement:
        """The judgement on a case with unaltered calls."""
        if case.id not in self._sound:
            self._sound[case.id] = judgement_on(case, run_context(self.bench, self.capabilities, self.watch))
        return self._sound[case.id]

    def seen(self, violation: Violation, cases: Iterable[Case]) -> dict[str, str]:
        """The cases that fail with the alteration and not without it, with their reasons."""
        alteration: Alteration = violation.kind()
        altered = run_context(cast(Bench, AlteredBench(self.bench, alteration)), self.capabilities, self.watch)
        seen = {}
        for case in cases:
            if self.sound(case).verdict in VIOLATIONS:
                continue
            judgement = judgement_on(case, altered)
            if judgement.verdict in VIOLATIONS:
                seen[case.id] = judgement.reason
            if len(seen) >= _ENOUGH:
                break
        for give_back in reversed(alteration.leftovers):
            with suppress(Exception):  # the case has given its domain up by then; the process's end takes the rest
                give_back()
        return seen

    def try_alteration(self, violation: Violation) -> Finding:
        """The cases of the violated rule, then the others where these saw nothing."""
        own = [case for case in self.cases if violation.rule in case.rules]
        seen = self.seen(violation, own)
        if seen:
            return found(violation, KILLED, seen, len(own))
        seen = self.seen(violation, [case for case in self.cases if violation.rule not in case.rules])
        return found(violation, MISATTRIBUTED if seen else SURVIVED, seen, len(self.cases))


def try_alterations(bench: Bench, capabilities: Capabilities, watch: Watch, chosen: Sequence[str]) -> Iterator[Line]:
    """A line for each alteration that is chosen."""
    trial = RealTrial(bench, capabilities, watch, load_suite().cases)
    for violation in (*ALTERATIONS, CONTROL):
        if violation.name in chosen:
            yield {"type": "finding", **trial.try_alteration(violation).as_data()}


def try_shuffled(run: RunContext, rounds: int, seed: int) -> Iterator[Line]:
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
    """Does one of the two and writes what is found."""
    obey_locked_memory_limit()
    out = os.open(port, os.O_WRONLY)

    def say(line: Line) -> None:
        data = memoryview(json.dumps(line).encode() + b"\n")
        while data:  # a port takes less than a long line at once
            data = data[os.write(out, data) :]

    # Never closed: what altered calls have left behind keeps its domain busy, and the process's end gives all back.
    bench = DeviceBench(Device(name))
    capabilities, watch = bench.capabilities(), KernelWatch()
    if what == "alterations":
        lines = try_alterations(bench, capabilities, watch, arguments)
    else:
        lines = try_shuffled(run_context(bench, capabilities, watch), int(arguments[0]), int(arguments[1]))
    for line in lines:
        say(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
