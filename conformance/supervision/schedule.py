"""Chooses the cases of the next worker: the longest first, in order that all workers finish at about the same time."""

from collections.abc import Iterable, Mapping, Sequence

from conformance.model.case import Case
from conformance.tables.tiers import EXHAUSTIVE, OTHER_S, shipped_durations

# The time to start a worker, in seconds. A batch of cases should take longer than the start.
START_S = 3.0
# The duration of one call under software emulation, in seconds, for cases of which no run is known.
_CALL_S = 0.01
# If at least this share of the durations is known, the first batches, one for each worker, contain all ordinary cases.
_WELL_KNOWN = 0.9
# If fewer durations are known, the first batches take this share of the estimated time, and later batches are smaller.
_FIRST_SHARE = 0.5


def expected_s(case: Case, durations: Mapping[str, float]) -> float:
    """Returns the duration of a case in seconds: the known duration, else that of the recorded run, else an estimate from
    the case's cost."""
    if case.id in durations:
        return durations[case.id]
    if case.tier == EXHAUSTIVE:
        return _CALL_S * case.cost
    return shipped_durations().get(case.id) or OTHER_S


def needs_its_own_worker(case: Case, durations: Mapping[str, float]) -> bool:
    """Whether a case shares its worker with no other case. A case that can crash the kernel or its process has a
    duration if it ended in an earlier run without a crash."""
    return case.alone and case.id not in durations


class Schedule:
    def __init__(
        self,
        cases: Sequence[Case],
        workers: int,
        durations: Mapping[str, float],
        takes_over: bool = False,
    ) -> None:
        """`cases` are in the order of the run. `durations` are the known durations in seconds, by case id. `takes_over`
        is whether a free worker can take cases from another."""
        self._order = {case.id: number for number, case in enumerate(cases)}
        self._cases = {case.id: case for case in cases}
        self._seconds = {case.id: expected_s(case, durations) for case in cases}
        self._alone = {case.id for case in cases if case.alone}
        single = {case.id for case in cases if needs_its_own_worker(case, durations)}
        self._survived = {case.id for case in cases if case.hazardous} - single
        self._enders = self._alone - self._survived - single
        self._share = -(-len(self._survived) // workers)
        self._kept_memory = {case.id for case in cases if case.needs_kept_memory} - self._alone
        self._waiting = set(self._order)
        self._workers = workers
        self._first_batches = workers
        ordinary = self._ordinary()
        timed_cases = sum(case in durations for case in ordinary)
        is_known = timed_cases >= _WELL_KNOWN * len(ordinary)
        self._well_known = workers == 1 or takes_over or is_known
        if self._well_known:
            share = 1.0
        else:
            share = _FIRST_SHARE
        self._first_s = (share * self.total(ordinary) + self.total(self._kept_memory)) / workers

    def take(self) -> list[str]:
        """Returns the cases for a free worker, in the order of the run; empty if no case is waiting. The first batch
        has all cases that need fork protection by libibverbs, because these cases take long. The next batches have the
        other cases that may share a worker. Then follow the cases that can crash the kernel, but have not done so. At the
        end of each of these batches is a case that can end its process, but has not done so: it can leave the process in
        a state in which other cases fail. The last batches have one case each, which needs its own worker."""
        waiting = [case for case in self._order if case in self._waiting]
        holding = [case for case in waiting if case in self._kept_memory]
        batch = (
            holding
            or self._batch(self._ordinary())
            or [case for case in waiting if case in self._survived][: self._share]
        )
        if batch:
            batch = [*batch, *self._ender(with_kept_memory=bool(holding))]
        else:
            batch = self._longest_first(waiting)[:1]
        self._waiting.difference_update(batch)
        return sorted(batch, key=self._order.__getitem__)

    def _ender(self, with_kept_memory: bool) -> list[str]:
        waiting = self._waiting & self._enders
        like = {name for name in waiting if self._cases[name].needs_kept_memory == with_kept_memory}
        return sorted(like, key=self._order.__getitem__)[:1]

    def give_back(self, cases: Iterable[str]) -> None:
        """Puts back cases that an ended worker has not run."""
        self._waiting.update(cases)

    def second_half(self, waiting: Iterable[str], pace: float) -> list[str]:
        """Returns those of the `waiting` cases of a guest that a free worker should run in its place: the guest would
        run them last, and they take about half of the time. Empty if a guest that starts would save no time. `pace` is
        how long this guest takes for an expected second."""
        guest_order = sorted(waiting, key=self._place_in_guest)
        total_s = self.total(guest_order)
        if len(guest_order) < 2 or pace * total_s < 2 * START_S:
            return []
        half = guest_order[-1:]
        spent_s = self._seconds[half[0]]
        for case in guest_order[-2:0:-1]:
            spent_s += self._seconds[case]
            if spent_s > total_s / 2:
                break
            half.append(case)
        return sorted(half, key=self._order.__getitem__)

    def _place_in_guest(self, name: str) -> tuple[bool, bool, int, int]:
        """A guest first runs the cases of the kernel."""
        case = self._cases[name]
        return not case.is_of_the_kernel, *case.place, self._order[name]

    def _ordinary(self) -> list[str]:
        apart = self._alone | self._kept_memory
        return [case for case in self._order if case in self._waiting and case not in apart]

    def _batch(self, cases: list[str]) -> list[str]:
        """Returns the longest of these cases, as many as one worker should run."""
        total = self.total(cases)
        first, last = self._first_batches > 0, self._first_batches == 1
        self._first_batches -= 1
        share_s = max(START_S, self._first_s if first else total / self._workers)
        if total - share_s < START_S or (last and self._well_known):
            return cases
        batch: list[str] = []
        spent_s = 0.0
        for case in self._longest_first(cases):
            if not batch or spent_s + self._seconds[case] <= share_s:
                batch.append(case)
                spent_s += self._seconds[case]
        return batch

    def _longest_first(self, cases: Iterable[str]) -> list[str]:
        return sorted(cases, key=lambda case: -self._seconds[case])

    def total(self, cases: Iterable[str]) -> float:
        """Returns the expected duration of these cases together, in seconds."""
        return sum(self._seconds[case] for case in cases)
