"""The violations of a run, each with the cases that ran before it in its worker; and the repetition of a few cases in a
worker. confirmation.py decides what to repeat, and records the outcome."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from conformance.defects import Cause, cause_of, symptoms_of
from conformance.model.case import Case
from conformance.model.deadline import longest_case_s
from conformance.model.fault import verdict_of
from conformance.model.kind import Kind
from conformance.model.record import HeaderRecord, ObservedRecord, Occurrence, OfferedRecord, Record, ResultRecord
from conformance.model.record_shape import RESULT, mismatch_of
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.records import decode, occurrence
from conformance.supervision.examiner import SILENT, Examiner, loss_of
from conformance.supervision.worker import START_DEADLINE_S, Deadline, Worker, WorkerEnd
from conformance.tables.suite import POINT


@dataclass(frozen=True)
class Violation:
    """A violation of a run: of a case, or at a point of a sweep.

    `before` has the cases that ran earlier in the worker of `case`; `first` is true if `case` was the worker's first
    case. `cause` is the cause of the defect that the violation shows.
    """

    case: str
    point: str
    seen: Occurrence
    before: tuple[str, ...]
    first: bool
    cause: Cause

    @property
    def name(self) -> str:
        """The name of the case, or of the point, to run to see the violation alone."""
        return f"{self.case}{POINT}{self.point}" if self.point else self.case


def violations(results: Mapping[str, ResultRecord], cases: Mapping[str, Case]) -> Iterator[Violation]:
    """Yields the violations among results, in the order of completion.

    Violations that random sequences found are left out: each was already repeated when its sequence was shortened. If
    all points of a sweep repeat one experiment that involves chance, the sweep is one violation.
    """
    by_worker: dict[int, list[str]] = {}
    for case, record in results.items():
        number = record.get("worker", 0)
        before = tuple(by_worker.setdefault(number, []))
        by_worker[number].append(case)
        if record["verdict"] not in VIOLATIONS or cases[case].kind is Kind.SEQUENCES:
            continue
        first = bool(number) and not before
        causes = {each.name: cause_of(each) for each in symptoms_of(record)}
        other = next(iter(causes.values()))
        tries = record.get("space", {}).get("tries")
        points = [each for each in record.get("deviations", ()) if each.get("smallest") and not tries]
        for each in points:
            if each.get("verdict", Verdict.FAIL) in VIOLATIONS:
                text = ",".join(f"{axis}={label}" for axis, label in each["smallest"].items())
                seen: Occurrence = {"verdict": each["verdict"], "reason": each["observed"]}
                cause = causes.get(f"{case}{POINT}{text}", other)
                yield Violation(case, text, seen, before if number else (), False, cause)
        if not points:
            yield Violation(case, "", occurrence(record), before if number else (), first, other)


_EVIDENCE_LINES = 30
# Returns an examiner for the lines of a worker that has sent these records. Raises UserError if the worker's stack
# differs from the stack of the run.
NewExaminer = Callable[[HeaderRecord, OfferedRecord | None], Examiner]


def repeat(
    worker: Worker, cases: Mapping[str, Case], case_deadline_s: float, examiner: NewExaminer
) -> dict[str, ResultRecord]:
    """Returns the results of the cases that the worker reached, in the order of `cases`.

    The worker was started with `cases`. If it dies or is silent for `case_deadline_s` seconds during a case, this case
    gets CRASH or HANG, and later cases get no result. Raises UserError if the worker's header is of another stack.
    Closes the worker.
    """
    hearing = _Hearing(cases, examiner)
    found: dict[str, ResultRecord] = {}
    deadline = Deadline(worker, case_deadline_s)
    last = time.monotonic() + START_DEADLINE_S + longest_case_s(case_deadline_s) * len(cases)
    try:
        while (raw := worker.next_line(deadline.left_s)) != b"":
            before = hearing.changes
            answer = hearing.take(raw) if raw else None
            if answer:
                assert hearing.examiner is not None
                found[answer["case"]] = hearing.examiner.judged(cases[answer["case"]], answer)
                if len(found) == len(cases):
                    return found
            if hearing.changes != before:
                deadline.progressed(hearing.in_flight, last)
            elif deadline.is_over(hearing.in_flight, silent=raw is None):
                raw = None
                break
        if not hearing.in_flight or time.monotonic() >= last:
            return found
        held = raw is None and worker.held_up()
        end = WorkerEnd(held, external=True) if held else SILENT if raw is None else worker.end()
        if not end.external:
            found[hearing.in_flight] = _lost(cases[hearing.in_flight], end, worker)
        return found
    finally:
        worker.close()


class _Hearing:
    """The state of a worker's stream so far. `changes` grows with each new line."""

    def __init__(self, cases: Collection[str], new_examiner: NewExaminer) -> None:
        self.examiner: Examiner | None = None
        self.in_flight = ""
        self.changes = 0
        self._new_examiner = new_examiner
        self._waiting = set(cases)
        self._header: HeaderRecord | None = None
        self._progress: Record | None = None

    def take(self, raw: bytes) -> ResultRecord | ObservedRecord | None:
        """Handles a line; returns the result of the case in flight if the line has it."""
        record = _read(raw)
        if record is None:
            return None
        if record["type"] == "header" and not self._header:
            self._header, self.examiner = record, self._new_examiner(record, None)
        elif record["type"] == "offered" and self._header and not self.in_flight:
            self.examiner = self._new_examiner(self._header, record)
            return None
        elif record["type"] == "start" and record["case"] in self._waiting and self.examiner:
            self.in_flight = record["case"]
            self._waiting.discard(self.in_flight)
        elif record["type"] == "progress" and record["case"] == self.in_flight and record != self._progress:
            self._progress = record
        elif record["type"] in ("result", "observed") and record["case"] == self.in_flight:
            self.in_flight = ""
            self.changes += 1
            return record
        else:
            return None
        self.changes += 1
        return None


def _read(raw: bytes) -> Record | None:
    """Returns the record in a line, or None. The examiner checks the shape of results and observations."""
    try:
        record = decode(raw)
    except ValueError:
        return None
    return record if record["type"] in ("result", "observed") or not mismatch_of(record) else None


def _lost(case: Case, end: WorkerEnd, worker: Worker) -> ResultRecord:
    log = worker.console_tail(_EVIDENCE_LINES)
    fault = loss_of(case, end, log)
    verdict = verdict_of(fault.kind)
    return {
        **RESULT,
        "case": case.id,
        "verdict": verdict,
        "effective": verdict,
        "reason": end.what,
        "fault": fault.as_data(),
        "kernel": {"log": log},
    }
