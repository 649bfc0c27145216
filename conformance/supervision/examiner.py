"""Judges the observations of a worker, and the worker's death or hang during a case. The code under test runs in the
worker's process; therefore the supervisor does not trust the worker's results. Rules, level, call and source are taken
from the plan, and the observation is judged as by `rdma-cts judge`. If the worker sent a different verdict, the case is
BROKEN."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from conformance.judging import Basis, Judgement, conclude
from conformance.judging.circumstances import located
from conformance.judging.kernel_alarms import crash_location, decisive_lines, first_alarm, site_in
from conformance.model.bounds import MOST_NOTES, cut
from conformance.model.case import Case
from conformance.model.declared import Capabilities
from conformance.model.fault import Fault, FaultKind
from conformance.model.kind import Kind
from conformance.model.observation import KernelEvidence, without_undeclared
from conformance.model.profile import Profile
from conformance.model.record import HeaderRecord, ObservedRecord, OfferedRecord, ResultRecord
from conformance.model.record_shape import mismatch_of
from conformance.model.rules import Registry
from conformance.model.verdict import Verdict
from conformance.results.new_records import result_record
from conformance.results.records import encode
from conformance.supervision.worker import WorkerEnd

# The limits for data from a worker. A longer log or list of alarms is cut, and the result records the cut; an
# observation that is too large gives BROKEN (docs/results.md).
MOST_LOG_LINES = 200
MOST_ALARMS = 100
MOST_OBSERVED_BYTES = 1 << 18
MOST_EXAMPLES_BYTES = 1 << 22  # the limit for all observations of a sweep together


@dataclass(frozen=True)
class Examiner:
    """Judges the lines of one worker, with the capabilities that the worker found at each entry."""

    registry: Registry
    basis: Basis

    @classmethod
    def of(
        cls,
        registry: Registry,
        profile: Profile,
        header: HeaderRecord,
        offered: OfferedRecord | None = None,
    ) -> Examiner:
        """Returns the examiner for a worker whose header and `offered` record have the shapes of their types."""
        caps = header["device"].get("caps", {})
        declared = {name: value for name, value in caps.items() if isinstance(value, bool)}
        capabilities = Capabilities(declared, {}, {})
        if offered:
            capabilities = replace(
                capabilities, offered=offered["offered"], absent=offered["absent"]
            )
        return cls(registry, Basis(capabilities, profile))

    def judged(self, case: Case, line: ResultRecord | ObservedRecord) -> ResultRecord:
        """Returns the supervisor's result of a planned case; for a sweep, with the points under `points_data`. The
        verdict is BROKEN if the line does not have the shape of its type, is too large, cannot be judged, or has a
        different verdict or different numbers of points."""
        wrong = mismatch_of(line)
        if wrong:
            return self.broken(case, f"the worker's line is malformed: {wrong}")
        size = len(encode(line["observed"]))
        if size > MOST_OBSERVED_BYTES:
            return self.broken(
                case,
                f"the worker's observation has {size:,} bytes, more than {MOST_OBSERVED_BYTES:,}",
            )
        if line["type"] == "result" and "points_data" in line:
            examples = line["points_data"]["examples"]
        else:
            examples = []
        size = len(encode({"examples": examples}))
        if size > MOST_EXAMPLES_BYTES:
            return self.broken(
                case,
                f"the worker's observations have {size:,} bytes, more than {MOST_EXAMPLES_BYTES:,}",
            )
        try:
            result = self._judged(case, line)
        except Exception as error:  # the line can have any values of the right types
            return self.broken(
                case,
                f"the worker's observation cannot be judged ({type(error).__name__}: {error})",
            )
        if line["type"] == "observed":
            return _bounded(result, line)
        claimed, judged = line["verdict"], result["verdict"]
        if judged != claimed:
            reason = f"the worker reports {claimed} ({line['reason']}), its observation gives {judged} ({result['reason']})"
        elif result.get("points") != line.get("points"):
            reason = f"the worker reports the points {_counts(line)}, but its observations give {_counts(result)}"
        else:
            return _bounded(result, line)
        return _bounded(self.broken(case, reason, line), line)

    def _judged(self, case: Case, line: ResultRecord | ObservedRecord) -> ResultRecord:
        if line["type"] == "result" and case.kind is Kind.SWEEP and "points_data" in line:
            return self._sweep(case, line)
        case = self.basis.resolved(case)  # a point of a sweep becomes a row
        if line["observed"]:
            judgement, observed = conclude(
                case,
                self.basis,
                without_undeclared(line["observed"]),
                line["kernel"],
            )
        elif line["type"] == "result" and line["verdict"] == Verdict.BROKEN:
            # BROKEN needs no observation, because it is not a verdict on the device.
            judgement, observed = Judgement(Verdict.BROKEN, line["reason"]), {}
        else:
            judgement, observed = Judgement(Verdict.BROKEN, "the worker sent no observation"), {}
        return result_record(
            case,
            self.registry,
            judgement,
            observed,
            kernel=line["kernel"],
            duration_us=_whole(line["duration_us"]),
        )

    def _sweep(self, case: Case, line: ResultRecord) -> ResultRecord:
        # Imported only when a sweep is judged, because the import is slow, and a run of one case seldom has a sweep.
        from conformance.results.sweep_record import sweep_record
        from conformance.sweeps.judging import rejudge_sweep
        from conformance.sweeps.outcome import Points

        points = Points.of_data(line["points_data"])
        result = rejudge_sweep(
            case,
            points,
            self.basis,
            line.get("alarms", []),
            line["kernel"].get("log", []),
        )
        return sweep_record(case, self.registry, result, _whole(line["duration_us"]) or 0)

    def broken(
        self,
        case: Case,
        reason: str,
        line: ResultRecord | None = None,
    ) -> ResultRecord:
        """Returns the result of a case that says nothing about the device, with the observation of the line, and the
        verdict of the line as `claimed`, which keeps the case BROKEN if it is judged again."""
        kernel, observed = (line["kernel"], line["observed"]) if line else ({}, {})
        judgement = Judgement(Verdict.BROKEN, cut(reason))
        record = result_record(
            self.basis.resolved(case),
            self.registry,
            judgement,
            observed,
            kernel=kernel,
        )
        if line:
            record["claimed"] = line["verdict"]
        return record


def _counts(record: ResultRecord) -> str:
    return (
        ", ".join(f"{count:,} {verdict}" for verdict, count in record.get("points", {}).items())
        or "none"
    )


def _whole(duration_us: float | None) -> int | None:
    if duration_us is None:
        return None
    return max(0, int(duration_us))


def _bounded(record: ResultRecord, line: ResultRecord | ObservedRecord) -> ResultRecord:
    """Cuts the texts and lists of a record to the limits of a result. The number of omitted entries is a
    line of a cut log; for a cut list of alarms or notes, it is one of the notes."""
    record["reason"] = cut(record["reason"])
    if "fault" in record:
        seen = record["fault"].get("seen", [])
        record["fault"] |= {"seen": [cut(note) for note in seen[:MOST_NOTES]]} if seen else {}
    if "log" in line["kernel"]:
        kernel = record["kernel"]
        log = bounded_log(kernel.get("log", []), decisive_lines(kernel))
        evidence: KernelEvidence = {**kernel, "log": log}
        record["kernel"] = evidence
    notes = record.get("notes", [])
    if notes:
        record["notes"] = [cut(note) for note in notes[:MOST_NOTES]]
        if len(notes) > MOST_NOTES:
            record["notes"].append(f"{len(notes) - MOST_NOTES:,} more remarks are left out")
    alarms = record.get("alarms", [])
    if len(alarms) > MOST_ALARMS:
        record["alarms"] = alarms[:MOST_ALARMS]
        record["notes"] = [
            *record.get("notes", []),
            f"{len(alarms) - MOST_ALARMS:,} more alarms are left out",
        ]
    return record


def bounded_log(lines: Sequence[str], decisive: Collection[int] = ()) -> list[str]:
    """Returns the first, the decisive and the last lines of a log. Replaces each gap with the number of its lines."""
    if len(lines) <= MOST_LOG_LINES:
        return [cut(line) for line in lines]
    half = MOST_LOG_LINES // 2
    bounded: list[str] = []
    end = 0  # the first line that is not yet handled
    for number in sorted({*range(half), *decisive, *range(len(lines) - half, len(lines))}):
        if number > end:
            bounded.append(f"({number - end:,} lines are left out)")
        bounded.append(cut(lines[number]))
        end = number + 1
    return bounded


SILENT = WorkerEnd("no answer within its deadline", kind=FaultKind.HUNG)


def loss_of(case: Case, end: WorkerEnd, log: Sequence[str], at: str = "") -> Fault:
    """Returns the fault of a case whose worker died or hung. `at` is the point or sequence of the last progress."""
    came = (end.what, end.by, at, first_alarm(log), crash_location(log))
    return located(Fault(end.kind, seen=tuple(cut(loss) for loss in came), site=site_in(log)), case)
