"""Collects the records of a run: the header, and a result for each finished case. Although workers run at the same time,
only one thread at a time may use a Recording (supervisor.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import cast

from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.model.bounds import cut
from conformance.model.case import Case
from conformance.model.observation import KernelEvidence
from conformance.model.record import (
    SCHEMA,
    ConfirmationRecord,
    DerivedFiles,
    FooterRecord,
    HeaderRecord,
    OfferedRecord,
    OtherRecord,
    ProgressRecord,
    ResultRecord,
    StartRecord,
    WorkerRecord,
)
from conformance.model.record_shape import completed, mistake_in
from conformance.model.verdict import Verdict
from conformance.older_python import UTC
from conformance.results.combined import with_command
from conformance.results.consistency import wrong_header
from conformance.results.new_records import account_of, footer_record, plan_facts, result_record
from conformance.results.prior_sessions import PriorSessions, stack_change
from conformance.results.records import Recorded, encode
from conformance.results.waivers import with_effective
from conformance.results.writer import ResultsFile
from conformance.supervision.examiner import Examiner, bounded_log, loss_of
from conformance.supervision.run import Run
from conformance.supervision.slow_cases import SlowCases
from conformance.supervision.violations import Violation, drawn, violations
from conformance.supervision.worker import Listener, WorkerEnd
from conformance.tables.suite import VERSION

NO_WORKER = 0
_MOST_HEADER_BYTES = 1 << 20  # the limit for the parts of a worker's header that a run uses
# The keys of a run's header whose values are copied from a worker's header, unless the plan has a value.
_FROM_WORKERS = ("stack", "env", "device", "under_test", "seed", "argv", "tier")


class Recording:
    """The records of one run. The workers of all sessions are numbered from 1, in the order in which they started."""

    def __init__(
        self,
        run: Run,
        file: ResultsFile,
        listener: Listener,
        prior: PriorSessions | None = None,
    ) -> None:
        """Records are written to `file`; `prior` are the records of earlier sessions of a resumed run."""
        self.run = run
        self.listener = listener
        self.slow = SlowCases(listener.say)
        self.cases = {case.id: case for case in run.cases}
        self.header: HeaderRecord | None = prior.header if prior else None
        self.header_received = False
        self.done: dict[str, ResultRecord] = dict(prior.done) if prior else {}
        self.took: dict[
            str,
            float,
        ] = {}  # the duration of each case in seconds, for the schedule of the next run
        self.external_ends: Counter[str] = (
            Counter()
        )  # for each case, how often its worker was killed externally
        self._started = datetime.now(UTC).isoformat(timespec="seconds")
        self.doubts: list[str] = []
        self.not_repeated = ""  # the reason why some violations could not be repeated
        self._registry = run.suite.registry
        self._file = file
        self._prior = prior
        self._confirmations: list[ConfirmationRecord] | None = (
            list(prior.confirmations) or None if prior else None
        )
        self._workers = prior.boots if prior else 0
        self._uncounted: list[DerivedFiles | None] = []
        self._device_of: dict[
            int,
            str,
        ] = {}  # the device of each worker, if several devices share the cases
        self._footer: FooterRecord | None = None

    @property
    def boot_id(self) -> str:
        """The id of the current boot if the kernel of a host is under test; else empty."""
        return self.run.target.boot_id()

    @property
    def recorded(self) -> Recorded | None:
        """The records of the run, which are also in the file; None if no worker has sent a header."""
        if not self.header:
            return None
        other_records: list[OtherRecord] = list(self._confirmations or ())
        return Recorded(self.header, list(self.done.values()), self._footer, others=other_records)

    @property
    def remaining(self) -> list[Case]:
        """The cases without a result."""
        return [case for id_, case in self.cases.items() if id_ not in self.done]

    def contradiction(self) -> str:
        """Judges the results of earlier sessions again. Returns the first whose verdict its observation does not
        support, as a clause; empty if there is none."""
        if not self._prior or not self.recorded:
            return ""
        # Imported late: only resumed runs need it.
        from conformance.results.rejudge import unfounded

        folder = self._file.path.parent
        lines = unfounded(
            self.run.suite,
            self.recorded,
            folder,
            self._prior.done,
            self.run.profile,
        )
        return next(lines, "")

    def carry_on(self) -> None:
        """Begins a further session of a resumed run. Raises UserError if the run's header differs from the plan."""
        prior = self._prior
        if not prior:
            return
        prior.check_plan(
            {**self.run.facts, **plan_facts(self.run.suite, list(self.cases))},
            self.run.suite.tables_sha256,
        )
        self._file.append(prior.resumed_record())
        self.listener.run_started(prior.header, len(self.cases))
        if prior.in_flight in self.cases and self.boot_id and prior.boot_id != self.boot_id:
            end = WorkerEnd("the host went down while the case ran")
            self.record_loss(self.cases[prior.in_flight], end, None, [], NO_WORKER)

    def worker_started(self, derived: DerivedFiles | None = None) -> int:
        """Counts a worker that was given these derived files; returns the worker's number."""
        self._workers += 1
        if self.header_received:
            self._append_worker(derived)
        else:
            self._uncounted.append(derived)
        return self._workers

    def _begin(self, worker_header: HeaderRecord, derived: DerivedFiles | None) -> None:
        """Handles the first worker header of this session."""
        header = self._completed(worker_header)
        if derived:
            header["derived"] = derived
        self.header_received = True
        if not self._prior:
            self.header = header
            self._file.append(header)
            self.listener.run_started(header, len(self.cases))
        for item in self._uncounted:
            self._append_worker(item)

    def heard_from(
        self,
        worker: int,
        worker_header: HeaderRecord,
        derived: DerivedFiles | None,
    ) -> Examiner:
        """Handles the header of a worker that was given these derived files. Returns the examiner for the worker's
        lines. Raises UserError if the worker runs on a different stack than the run."""
        examiner = self.examiner(worker_header, None)
        if not self.header_received:
            self._begin(worker_header, derived)
        if self.run.facts.get("devices"):
            self._device_of[worker] = worker_header["device"].get("name", "")
        return examiner

    def examiner(self, worker_header: HeaderRecord, offered: OfferedRecord | None) -> Examiner:
        """Returns the examiner for a worker that sent this header. Raises UserError if the run was begun on a different
        stack or device, or if the header is too large."""
        size = len(encode({key: worker_header.get(key) for key in _FROM_WORKERS}))
        if size > _MOST_HEADER_BYTES:
            raise UserError(f"a worker's header has {size:,} bytes", status=3)
        device, devices = worker_header["device"].get("name", ""), self.run.devices
        if devices and device not in devices:
            raise UserError(
                f"a worker has the device {device}, not {' or '.join(devices)}", status=3
            )
        header = self._completed(worker_header)
        if wrong := mistake_in(header) or wrong_header(completed(header)):
            raise UserError(f"a worker's header is malformed: {wrong}", status=3)
        tables = self.run.suite.tables_sha256
        if (worker_header.get("suite") or {}).get("tables_sha256", tables) != tables:
            raise UserError("a worker has other tables than this process", status=3)
        if self._prior:
            self._prior.check(header)
        elif self.header and (change := stack_change(self.header, header)):
            raise UserError(
                f"a worker has a different stack than the first worker: {change}",
                status=3,
            )
        return Examiner.of(self._registry, self.run.profile, worker_header, offered)

    def _completed(self, worker_header: HeaderRecord) -> HeaderRecord:
        """Returns the header of the run. If this process knows a value itself, the value of the worker is not used."""
        from_worker = {key: value for key, value in worker_header.items() if key in _FROM_WORKERS}
        suite = self.run.suite
        header = cast(
            HeaderRecord,
            {
                "type": "header",
                "schema": SCHEMA,
                "suite": {"version": VERSION, "tables_sha256": suite.tables_sha256},
                **from_worker,
                "started": self._started,
                **self.run.facts,
                **plan_facts(suite, list(self.cases)),
            },
        )
        header["under_test"] = {
            **worker_header.get("under_test", {}),
            **self.run.facts.get("under_test", {}),
        }
        return header

    def _append_worker(self, derived: DerivedFiles | None) -> None:
        record: WorkerRecord = {"type": "worker", "boot_id": self.boot_id}
        self._file.append({**record, "derived": derived} if derived else record)

    def suspect(self, reason: str) -> None:
        """Notes a reason why the results of finished cases are in doubt."""
        self.doubts.append(reason)

    def case_started(self, record: StartRecord) -> None:
        """Records that a case is in flight, if a crash of the kernel under test can also kill this process."""
        if self.boot_id:
            self._file.append(record)

    def record_loss(
        self,
        case: Case,
        end: WorkerEnd,
        at: ProgressRecord | None,
        log: Sequence[str],
        worker: int,
    ) -> None:
        """Records the case in flight of a worker that died or hung. `at` is the last progress, `log` the output."""
        judgement = Judgement.of_fault(loss_of(case, end, log, at["point"] if at else ""))
        record = self._result(case.id, replace(judgement, reason=cut(judgement.reason)), log)
        self.append(self.prepared(record, worker))

    def record(self, case: str, verdict: Verdict, reason: str, worker: int = NO_WORKER) -> None:
        """Records a verdict that does not come from a result line of the worker."""
        self.append(self.prepared(self._result(case, Judgement(verdict, reason), []), worker))

    def _result(self, case: str, judgement: Judgement, log: Sequence[str]) -> ResultRecord:
        kernel: KernelEvidence = {"log": bounded_log(log)} if log else {}
        return result_record(self.cases[case], self._registry, judgement, {}, kernel=kernel)

    def expects(self, case: str) -> bool:
        return self.header_received and case in self.cases and case not in self.done

    def prepared(self, record: ResultRecord, worker: int) -> ResultRecord:
        """Returns the stored form of the result of an expected case. Unlike the other methods, several threads may call
        this method at the same time, because finding the formulas of a sweep's deviations takes long."""
        case = self.cases[record["case"]]
        device = self._device_of.get(worker, "")
        record = with_command(record, self.run.reproduction(case, device))
        if worker:
            record["worker"] = worker
        if device:
            record["device"] = device
        return self._file.prepared(record, case)

    def append(self, record: ResultRecord) -> None:
        later = len(self.cases) - len(self.done) - 1
        if reason := self._file.lacks_room(record, later):
            record = {
                **self._result(record["case"], Judgement(Verdict.BROKEN, reason), []),
                "repro": record["repro"],
            }
        if self.header:
            record = with_effective(record, self.header, self.run.waivers)
        self.done[record["case"]] = record
        self.done[record["case"]] = cast(ResultRecord, self._file.append(record))
        self.listener.result_recorded(record, len(self.done), len(self.cases))

    def unconfirmed(self) -> list[Violation]:
        """Returns the violations for which the file has no confirmation yet."""
        return self._without_confirmation(violations(self.done, self.cases))

    def _without_confirmation(self, seen: Iterable[Violation]) -> list[Violation]:
        self._confirmations = self._confirmations or []
        confirmed = {(record["case"], record.get("point", "")) for record in self._confirmations}
        return [
            violation for violation in seen if (violation.case, violation.point) not in confirmed
        ]

    def to_repeat(self) -> list[Violation]:
        """Returns the violations that are repeated first: all, or those that are drawn by the time of the run's start.
        Those that the file already confirms are left out, so that a resumed run draws the same ones."""
        if self.run.options.confirm == "all":
            return self.unconfirmed()
        seed = str(self.header["started"]) if self.header else ""
        return self._without_confirmation(drawn(violations(self.done, self.cases), seed))

    def append_confirmation(self, record: ConfirmationRecord) -> None:
        assert self._confirmations is not None
        self._confirmations.append(record)
        self._file.append(record)

    def finish(self, duration_s: float) -> FooterRecord:
        """Records the footer; this session took `duration_s` seconds."""
        footer = footer_record(
            list(self.cases),
            self.done.values(),
            self._registry,
            duration_s=duration_s + (self._prior.seconds if self._prior else 0.0),
            boots=self._workers,
            resumed=self._prior.resumed + 1 if self._prior else 0,
        )
        if self._confirmations is not None:
            footer["confirmation"] = account_of(self._confirmations, len(self.unconfirmed()))
        if self.not_repeated:
            footer["not_repeated"] = self.not_repeated
        if self.run.waivers and self.header:
            results = [self.done[case] for case in self.cases if case in self.done]
            footer["waivers"] = self.run.waivers.account(results, self.header)
        self._footer = footer
        self._file.append(footer)
        if self.run.target.durations:
            self.run.target.durations.update(self.took)
        return footer
