"""Simulates the schedule of a default run on machines with more cores: `python3 ci/benchmarks/scaling.py [--run RUN] [N …]`.

The supervisor's own Schedule distributes the cases of a recorded run to N guests, each of which has a core. The time of a
case is its expected duration, and each guest needs START_S to start; both are scaled so that two guests take the time of
the recorded run. Prints for each N the simulated time of the cases and of the repetitions, and the floor: the longest
chain, which is a guest's start and the longest case, once in the run and once in the repetitions. The simulation leaves
out what guests share, such as the bandwidth of the memory."""

from __future__ import annotations

import argparse
import heapq
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from conformance.model.case import Case  # noqa: E402
from conformance.results.records import read_results  # noqa: E402
from conformance.supervision.schedule import START_S, Schedule, expected_s  # noqa: E402
from conformance.tables.suite import load_suite  # noqa: E402
from conformance.tables.tiers import OTHER_S  # noqa: E402

RUN = ROOT / "docs/runs/rxe.jsonl.xz"
GUESTS = (1, 2, 4, 8, 16)
RECORDED_GUESTS = 2  # of the recorded run


@dataclass
class Guest:
    """A guest: when its last case ends, in seconds, and the cases that it has not begun, with their ends."""

    until_s: float = 0.0
    waiting: list[tuple[str, float]] = field(default_factory=list)

    def begin(self, now_s: float, cases: Iterable[str], seconds: Mapping[str, float]) -> None:
        self.until_s, self.waiting = now_s + START_S, []
        for case in cases:
            self.until_s += seconds[case]
            self.waiting.append((case, self.until_s))

    def left(self, now_s: float, seconds: Mapping[str, float]) -> list[str]:
        """Returns the cases that have not begun."""
        return [case for case, end_s in self.waiting if end_s - seconds[case] > now_s]

    def give_up(self, cases: Iterable[str], now_s: float, seconds: Mapping[str, float]) -> None:
        lost = set(cases)
        self.waiting = [(case, end_s) for case, end_s in self.waiting if case not in lost]
        self.until_s = max([now_s, *(end_s for _, end_s in self.waiting)])


def simulated_s(
    cases: Sequence[Case], seconds: Mapping[str, float], survived: Container[str], count: int
) -> float:
    """Returns the seconds that `count` guests need for these cases. A case that is not in `survived` needs its own guest
    if it can crash the kernel."""
    known = {case: spent_s for case, spent_s in seconds.items() if case in survived}
    schedule = Schedule(cases, count, known, takes_over=True)
    guests = [Guest() for _ in range(count)]
    free = [(0.0, number) for number in range(count)]
    last_s = 0.0
    while free:
        now_s, number = heapq.heappop(free)
        if guests[number].until_s > now_s:
            continue
        last_s = now_s
        batch = schedule.take()
        if not batch:
            batch, given_up = _taken_over(schedule, guests, now_s, seconds)
            free.extend((guests[other].until_s, other) for other in given_up)
            heapq.heapify(free)
        if batch:
            guests[number].begin(now_s, batch, seconds)
            heapq.heappush(free, (guests[number].until_s, number))
    return last_s


def _taken_over(
    schedule: Schedule, guests: Sequence[Guest], now_s: float, seconds: Mapping[str, float]
) -> tuple[list[str], list[int]]:
    """Returns the cases that a free guest takes over, and the number of the guest that had them."""
    for number, guest in enumerate(guests):
        if cases := schedule.second_half(guest.left(now_s, seconds), pace=1.0):
            guest.give_up(cases, now_s, seconds)
            return cases, [number]
    return [], []


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Simulates a default run on more cores.")
    parser.add_argument("guests", nargs="*", type=int, default=GUESTS, metavar="N")
    parser.add_argument("--run", type=Path, default=RUN, help="a recorded run (default: rxe)")
    options = parser.parse_args(argv)
    run = read_results(options.run)
    verdicts = {result["case"]: result["verdict"] for result in run.results}
    cases = [case for case in load_suite().cases if case.id in verdicts]
    seconds = {case.id: expected_s(case, {}) for case in cases}
    survived = {name for name, verdict in verdicts.items() if verdict not in ("CRASH", "HANG")}
    names = {record["case"] for record in run.confirmations}
    again = [case for case in cases if case.id in names]
    # Of a model, only points are repeated.
    seconds_again = {case.id: OTHER_S if case.array else seconds[case.id] for case in again}
    parts = (
        (cases, seconds, survived),
        (again, seconds_again, {case.id for case in again if not case.alone}),
    )
    floor_s = sum(START_S + max(spent_s.values()) for _, spent_s, _ in parts)
    times: dict[int, list[float]] = {}
    for count in (RECORDED_GUESTS, *options.guests):
        times[count] = [simulated_s(*part, count) for part in parts]
    assert run.footer is not None
    pace = run.footer["duration_s"] / sum(times[RECORDED_GUESTS])
    print("| guests | cases | repetitions | both | floor | ratio |\n|---|---|---|---|---|---|")
    for count in options.guests:
        both_s = sum(times[count])
        cells = " | ".join(
            f"{pace * spent_s:.0f} s" for spent_s in (*times[count], both_s, floor_s)
        )
        print(f"| {count} | {cells} | {both_s / floor_s:.1f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
