"""A run whose workers repeat violations: the verdict of a case depends on the cases before it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from actors import HEADER, SILENCE, Actor, Stage
from conformance.model.kind import Kind
from conformance.results.records import Recorded, encode
from conformance.run_options import RunOptions
from conformance.supervision.worker import Worker
from conformance.tables.suite import Suite
from samples import (
    footer_of,
    numbered,
    observed_result,
    observed_sweep,
)

COUNT = 12
SUITE = numbered(COUNT)
IDS = [case.id for case in SUITE.cases]
POINT = "access=LOCAL_WRITE"


# A function that returns the verdict of a case after these cases in the same worker.
Device = Callable[[str, Sequence[str]], str]


def lines(cases: Sequence[str], device: Device, suite: Suite = SUITE) -> Iterator[bytes | None]:
    """Yields a worker's records. CRASH and HANG end the worker. In a failing sweep, only POINT fails."""
    yield HEADER
    for number, id_ in enumerate(cases):
        yield encode({"type": "start", "case": id_})
        verdict, case = device(id_, cases[:number]), suite.find(id_)
        if verdict in ("CRASH", "HANG"):
            if verdict == "HANG":
                yield SILENCE
            return
        assert case is not None
        if case.kind is Kind.SWEEP:
            yield encode(observed_sweep(case, [POINT] if verdict == "FAIL" else []))
        else:
            yield encode(observed_result(case, verdict))


class Run(Stage):
    """Runs the suite on a device that misbehaves, and repeats the violations: all, or those that are drawn."""

    def __init__(
        self,
        folder: Path,
        device: Device,
        suite: Suite = SUITE,
        confirm: str = "all",
    ) -> None:
        folder.mkdir(exist_ok=True)
        super().__init__(folder)
        self.device = device
        self.suite = suite
        self.options = RunOptions(confirm=confirm)
        self.again: list[list[str]] = []

    def start(self, cases: Sequence[str]) -> Worker:
        return Actor(lines(cases, self.device, self.suite))

    def start_again(self, cases: Sequence[str]) -> Worker:
        self.again.append(list(cases))
        self.actors.append(Actor(lines(cases, self.device, self.suite)))
        return self.actors[-1]

    def __call__(
        self,
        again: Callable[[Sequence[str]], Worker] | None = None,
        carry_on: bool = False,
        boot_id: str = "",
    ) -> Recorded:
        again = again or self.start_again
        recorded = self.supervise(
            self.start,
            suite=self.suite,
            carry_on=carry_on,
            again=[again],
            boot_id=lambda: boot_id,
            options=self.options,
        )
        assert all(actor.closed for actor in self.actors)
        return recorded


def always(*cases: int) -> Device:
    """Makes these cases fail in every worker."""
    return lambda case, before: "FAIL" if case in [IDS[number] for number in cases] else "PASS"


def after(case: int, *needed: int) -> Device:
    """Makes a case fail if all of these other cases ran before it."""
    names = {IDS[number] for number in needed}
    return lambda id_, before: "FAIL" if id_ == IDS[case] and names <= set(before) else "PASS"


def counts(recorded: Recorded) -> tuple[int, int, int]:
    """Returns the numbers of violations that were confirmed, not confirmed and not tried."""
    figures = footer_of(recorded)["confirmation"]
    return figures["confirmed"], figures["not_confirmed"], figures["not_tried"]


def tried(recorded: Recorded) -> dict[int, str]:
    """Returns the kind of confirmation of each confirmed violation, by the number of its case."""
    return {
        IDS.index(confirmation["case"]): confirmation["by"]
        for confirmation in recorded.confirmations
        if confirmation["confirmed"]
    }
