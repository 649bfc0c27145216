"""Confirms the violations of a run: repeats them in a fresh worker, unless their case was the first in its worker.

The violations to repeat are all hangs, and three violations of each cause. If one of these does not occur again, all
violations of its cause are repeated. Every violation that killed its worker is repeated in isolation. The other
violations are repeated together in one worker, in the reverse order of the run: one that an earlier case of the run has
caused does not occur before this case. If a violation does not occur in this worker, it is then repeated in isolation.
If a violation kills the worker, the violations after it are repeated together in the next worker. For a violation that
does not occur in isolation, the suite searches, by halving, for a short list of the earlier cases of its worker after
which it occurs; without a list, it is repeated twice more. Chance decides about a race, so a race is not searched but
repeated more often. Verdicts do not change.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf

from conformance.defects import Cause
from conformance.errors import UserError
from conformance.judging.steps import was_in_flight
from conformance.model.record import ConfirmationRecord, ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.new_records import occurrence
from conformance.supervision.recording import NO_WORKER, Recording
from conformance.supervision.session import Repetition, Session
from conformance.supervision.violations import Violation
from conformance.supervision.worker import TRIES, Crew, Start
from conformance.sweeps.outcome import Points

# The maximum number of violations whose preceding cases are searched, and of workers for each of these searches.
MOST_SEARCHED = 5
MOST_WORKERS = 16
# The time after which a search ends, and after which a race is no longer repeated, in seconds.
MOST_S = 40.0
# How often a violation is repeated in isolation before it counts as not confirmed; how often a race is.
REPETITIONS = 3
REPETITIONS_OF_A_RACE = 8
# The maximum number of violations that are repeated together in one worker.
MOST_TOGETHER = 100
_REPORT_EVERY = 25


class Confirmation:
    def __init__(
        self,
        violations: Sequence[Violation],
        recording: Recording,
        repeats_losses: bool,
    ) -> None:
        """`violations` are the violations to repeat first, and those from which they were drawn are `recording`'s. The
        confirmations are added to `recording`. If `repeats_losses`, violations with CRASH or HANG are repeated, too."""
        self._drawn = violations
        self._lost: set[Cause] = set()  # the causes of violations that did not occur again
        self._waiting: list[Sequence[Violation]] = []  # each list is repeated in one worker
        self._recording = recording
        self._repeats_losses = repeats_losses
        self._crew = Crew()  # the lock of `changed` guards the data
        self._searched = 0
        self._tried = 0

    def run(self, *starts: Start) -> None:
        """Repeats the drawn violations, and then the other violations of each cause that has not occurred again; each
        of `starts` starts one worker at a time. Stops if a start fails."""
        self._repeat(self._drawn, starts)
        others = [
            violation
            for violation in self._recording.unconfirmed()
            if violation.cause in self._lost and violation not in self._drawn
        ]
        if others and not self._crew.stopped:
            self._repeat(others, starts)

    def _repeat(self, violations: Sequence[Violation], starts: Sequence[Start]) -> None:
        alone, like = _divided(violations)
        hung = [violation for violation in alone if violation.seen["verdict"] == Verdict.HANG]
        # A hang takes the time of many violations, and other workers need the processor meanwhile.
        batches = _batches(like, len(starts) + bool(hung and starts[1:]))
        others = [violation for violation in alone if violation not in hung]
        self._waiting = [*_singly(hung), *batches, *_singly(others)]
        self._crew.run(self._serve, starts)

    def _serve(self, start: Start) -> None:
        while violations := self._next():
            try:
                if len(violations) > 1:
                    self._repeat_together(violations, start)
                else:
                    self._record_alone(violations[0], start)
            except UserError as error:
                self._recording.not_repeated = error.message
                self._recording.listener.say(f"not all violations are repeated: {error.message}")
                return self._crew.stop()
        return None

    def _next(self) -> Sequence[Violation]:
        with self._crew.changed:
            if self._waiting and not self._crew.stopped:
                return self._waiting.pop(0)
            return ()

    def _record_alone(self, violation: Violation, start: Start) -> None:
        record = self._confirmed(violation, start)
        if record and not record["confirmed"]:
            with self._crew.changed:
                self._lost.add(violation.cause)
        self._record(record)

    def _record(self, record: ConfirmationRecord | None) -> None:
        with self._crew.changed:
            if not record or self._crew.stopped:
                return
            self._recording.append_confirmation(record)
            self._tried += 1
            if self._tried % _REPORT_EVERY == 0 and self._waiting:
                waiting_count = sum(map(len, self._waiting))
                self._recording.listener.say(f"  {self._tried} repeated, {waiting_count} left")

    def _repeat_together(self, violations: Sequence[Violation], start: Start) -> None:
        """Repeats violations in one worker. Violations that do not occur in this worker with the same verdict are then
        repeated in isolation. Violations after a case that killed the worker are repeated in the next worker."""
        again = self._repeated(start, [violation.name for violation in violations])
        for violation in violations:
            if (
                violation.name in again
                and again[violation.name]["verdict"] == violation.seen["verdict"]
            ):
                self._record(self._about(violation, True, "company"))
            elif violation.name in again or not again:
                self._wait(violation)
        behind = [violation for violation in violations if violation.name not in again]
        if again and behind:
            self._wait(*behind)

    def _wait(self, *violations: Violation) -> None:
        """Adds violations to be repeated in one worker. Batches come before single violations: a batch takes longer."""
        with self._crew.changed:
            self._waiting.insert(0 if len(violations) > 1 else len(self._waiting), violations)

    def _confirmed(self, violation: Violation, start: Start) -> ConfirmationRecord | None:
        """Returns the record about a violation; None if the violation could not be repeated."""
        if violation.first:
            return self._about(violation, True, "run")
        if (
            violation.seen["verdict"] != Verdict.FAIL
            and "observed" not in violation.seen
            and not self._repeats_losses
        ):
            return None
        alone = self._last_repeated(start, [violation.name])
        if alone is None:
            return None
        about = self._about(violation, alone["verdict"] in VIOLATIONS, "repetition")
        if alone["verdict"] != violation.seen["verdict"]:
            about |= {"in_run": violation.seen, "alone": occurrence(alone)}
        if not about["confirmed"]:
            until = time.monotonic() + MOST_S
            is_race = self._is_race(violation)
            if not is_race and self._may_search(violation):
                about["after"], untried = self._preceding_cases(violation, start, until)
                if untried and not about["after"]:
                    about["untried"] = untried
            if not about.get("after"):
                self._repeat_more(about, violation, start, until if is_race else -inf)
        return about

    def _is_race(self, violation: Violation) -> bool:
        case = self._recording.run.suite.find(violation.case)
        is_tried_often = case is not None and case.sweep is not None and case.sweep.tries
        return is_tried_often or was_in_flight(violation.seen.get("observed", {}))

    def _repeat_more(
        self, about: ConfirmationRecord, violation: Violation, start: Start, until: float
    ) -> None:
        """Repeats a violation more often in isolation: up to REPETITIONS times, and before the time `until`, which is
        that of a race, also until it occurs. If it occurs, it counts as confirmed."""
        repeated = 1
        seen: list[ResultRecord] = []
        while repeated < REPETITIONS or (
            repeated < REPETITIONS_OF_A_RACE and not seen and time.monotonic() < until
        ):
            confirmation = self._last_repeated(start, [violation.name])
            if confirmation is None:
                break
            repeated += 1
            if confirmation["verdict"] in VIOLATIONS:
                seen.append(confirmation)
        about["repetitions"] = {"seen": len(seen), "of": repeated}
        if seen:
            about |= {"confirmed": True, "alone": occurrence(seen[0])}

    @staticmethod
    def _about(violation: Violation, confirmed: bool, by: str) -> ConfirmationRecord:
        about: ConfirmationRecord = {
            "type": "confirmation",
            "case": violation.case,
            "confirmed": confirmed,
            "by": by,
        }
        if violation.point:
            return {**about, "point": violation.point}
        return about

    def _may_search(self, violation: Violation) -> bool:
        """Returns whether earlier cases are searched. The points of a model alone take longer than all other cases of a
        worker, and a hang its deadline, so that a search would take minutes."""
        case = self._recording.run.suite.find(violation.case)
        if case is not None and case.array is not None:
            return False
        if violation.seen["verdict"] == Verdict.HANG and self._recording.run.deadline > MOST_S:
            return False
        with self._crew.changed:
            self._searched += 1
            return self._searched <= MOST_SEARCHED

    def _preceding_cases(
        self, violation: Violation, start: Start, until: float
    ) -> tuple[list[str], int]:
        """Returns a short list of cases after which the violation occurs again, empty if no such list was found by the
        time `until`; and how many of the earlier cases were not tried because of the time."""
        workers = MOST_WORKERS

        def occurs(before: Sequence[str]) -> bool | None:
            """Returns None if the time was over before the violation could occur."""
            nonlocal workers
            workers -= 1
            again = self._last_repeated(start, [*before, violation.case], until)
            if again is None:
                return None if time.monotonic() >= until else False
            return _verdict_at(again, violation.point) == violation.seen["verdict"]

        if violation.point and occurs(()):
            return [violation.case], 0  # the sweep's points before this point
        # The halves take as long again as all of the cases.
        needed = list(self._latest(violation.before, (until - time.monotonic()) / 2))[::-1]
        untried = len(violation.before) - len(needed)
        if not needed:
            return [], untried
        if not (found := occurs(needed)):
            return [], untried if found is False else len(violation.before)
        while len(needed) > 1 and workers > 1:
            middle = len(needed) // 2
            half = next((half for half in (needed[middle:], needed[:middle]) if occurs(half)), None)
            if half is None:
                break  # the violation needs cases of both halves
            needed = half
        return needed, untried

    def _latest(self, cases: Sequence[str], seconds: float) -> Iterator[str]:
        """Yields the last of these cases, in reverse order, as many as take this time together."""
        for case in reversed(cases):
            seconds -= self._recording.took.get(case, 0.0)
            if seconds < 0:
                return
            yield case

    def _last_repeated(
        self, start: Start, names: Sequence[str], until: float = inf
    ) -> ResultRecord | None:
        """Runs these cases in one worker. Returns the result of the last case, or None if the worker did not run it, or
        not before the time `until`."""
        return self._repeated(start, names, until).get(names[-1])

    def _repeated(
        self, start: Start, names: Sequence[str], until: float = inf
    ) -> dict[str, ResultRecord]:
        """Returns the results of these cases in one worker, or of those that it had run at the time `until`. If no case
        finishes, starts up to TRIES workers."""
        suite = self._recording.run.suite
        cases = {name: case for name in names if (case := suite.find(name))}
        repetition = Repetition(cases, self._recording)
        for _ in range(TRIES):
            if self._crew.stopped or time.monotonic() >= until:
                return {}
            worker = start(names)
            with self._crew.employing(worker):
                session = Session(worker, NO_WORKER, names, repetition, self._crew)
                session.listen(
                    until=lambda: repetition.is_complete() or time.monotonic() >= until,
                )
            if reason := worker.stuck_reason():
                raise UserError(f"the device is suspect: {reason}", status=3)
            if repetition.done:
                break
        else:
            self._recording.not_repeated = session.end_reason
        return repetition.done


def _divided(violations: Sequence[Violation]) -> tuple[list[Violation], list[Violation]]:
    """Returns the violations to repeat in isolation, and those to repeat together."""
    alone: list[Violation] = []
    like: list[Violation] = []
    for violation in violations:
        # A violation in a worker's first case has already occurred in isolation.
        if violation.first or violation.seen["verdict"] != Verdict.FAIL:
            alone.append(violation)
        else:
            like.append(violation)
    return alone, like


def _singly(violations: Sequence[Violation]) -> list[Sequence[Violation]]:
    return [(violation,) for violation in violations]


def _batches(like: Sequence[Violation], workers: int) -> list[Sequence[Violation]]:
    """Returns the violations in reverse order, divided into batches of similar size for the workers."""
    count = max(workers, -(-len(like) // MOST_TOGETHER))
    backwards = like[::-1]
    return [part for number in range(count) if (part := backwards[number::count])]


def _verdict_at(record: ResultRecord, point: str) -> str:
    if not point or "points_data" not in record:
        return record["verdict"]
    points = Points.of_data(record["points_data"])
    return points.outcomes[points.index[points.space.parse(point)]].verdict
