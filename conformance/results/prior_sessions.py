"""Collects the results of a run's earlier sessions, for the session that resumes the run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from conformance.errors import UserError
from conformance.model.record import ConfirmationRecord, HeaderRecord, ResultRecord, ResumedRecord
from conformance.model.verdict import Verdict
from conformance.older_python import UTC
from conformance.results.checked_json import parse
from conformance.results.records import Recorded, encode

# The keys of a header that name files of the user.
_GIVEN = ("waivers", "profile")
# The parts of the environment that must not change during a run. (The taint mask may change.)
_STACK = ("kernel", "rdma_core", "pyverbs", "python")


@dataclass(frozen=True)
class PriorSessions:
    """The earlier sessions of a run. `done` has their results by case, `boots` is the number of their workers, and
    `seconds` their duration. `in_flight` is the case that was running when the last session ended; `boot_id` identifies
    the boot of the host's kernel at the end of the last session."""

    header: HeaderRecord
    done: Mapping[str, ResultRecord]
    boots: int
    resumed: int
    seconds: float
    in_flight: str = ""
    boot_id: str = ""
    confirmations: Sequence[ConfirmationRecord] = ()

    @classmethod
    def of(cls, recorded: Recorded, ended: float) -> "PriorSessions":
        """Returns the sessions in `recorded`. `ended` is the time of the last record, in seconds since the epoch.
        Raises UserError if the start time of the last session is invalid."""
        resumed = [record for record in recorded.others if record["type"] == "resumed"]
        workers = [record for record in recorded.others if record["type"] == "worker"]
        starts = [record["case"] for record in recorded.others if record["type"] == "start"]
        done = {
            record["case"]: record
            for record in recorded.results
            if record["verdict"] != Verdict.MISSED
        }
        if starts and starts[-1] not in done:
            in_flight = starts[-1]
        else:
            in_flight = ""
        if recorded.footer:
            seconds = recorded.footer.get("duration_s") or 0.0
        else:
            if resumed:
                began = resumed[-1]["started"]
            else:
                began = recorded.header["started"]
            if resumed:
                seconds = resumed[-1]["earlier_s"]
            else:
                seconds = 0.0
            seconds += max(0.0, ended - _seconds(began))
        if workers:
            boot_id = workers[-1]["boot_id"]
        else:
            boot_id = ""
        counts = len(workers), len(resumed)
        return cls(
            recorded.header,
            done,
            *counts,
            float(seconds),
            in_flight,
            boot_id,
            recorded.confirmations,
        )

    def resumed_record(self) -> ResumedRecord:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"type": "resumed", "started": now, "earlier_s": round(self.seconds, 3)}

    def check_plan(self, planned: Mapping[str, object], tables_sha256: str) -> None:
        """Raises UserError if the run's header differs from `planned`, the values that a new run of the plan would
        have. `argv` and `under_test` are not compared. A key that the header of an older version lacks is compared only
        if it is `devices` or `isolated`. If the tables have changed, nothing is compared."""
        if tables_sha256 != (self.header.get("suite") or {}).get("tables_sha256"):
            return
        always = ("devices", "isolated")
        for key in (
            "rules",
            "controls",
            "planned",
            "left_out",
            "stack",
            "subject",
            "tier",
            "seed",
            *always,
            *_GIVEN,
        ):
            said, current = self.header.get(key), parse(encode({key: planned.get(key)}))[key]
            if said != current and (key in always or (key in planned and key in self.header)):
                raise UserError(
                    f"the run cannot be resumed, because `{key}` of its header differs from that of its plan",
                    hint="start a new run",
                )

    def check(self, header: HeaderRecord) -> None:
        """Raises UserError if the stack in the header of a worker differs from the stack in the header of the run."""
        changed = stack_change(self.header, header)
        if not changed and (self.header.get("under_test") or {}) != (
            header.get("under_test") or {}
        ):
            changed = "the software under test has changed"
        if changed:
            raise UserError(f"the run cannot be resumed, because {changed}", hint="start a new run")


def stack_change(before: HeaderRecord, now: HeaderRecord) -> str:
    """Returns the difference between the stacks in two headers, as a clause; empty if there is none. If several devices
    share the cases of a run, the names of the devices may differ."""
    shared = before.get("devices", ())
    for what, first, current in (
        ("the suite", before.get("suite"), now.get("suite")),
        ("the device", _device(before, shared), _device(now, shared)),
        *((name, before["env"].get(name), now["env"].get(name)) for name in _STACK),
    ):
        if first != current:
            if isinstance(first, str) and isinstance(current, str):
                change = f": it was {first}, it is {current}"
            else:
                change = ""
            return f"{what.replace('_', '-')} has changed{change}"
    return ""


def _device(header: HeaderRecord, shared: Sequence[str]) -> dict[str, object]:
    """Returns the facts of a device without the results of preflight, which may differ between workers."""
    facts = {name: fact for name, fact in header["device"].items() if name != "preflight"}
    if facts.get("name") in shared:
        return {**facts, "name": ""}
    return facts


def _seconds(started: str) -> float:
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError as error:
        raise UserError(
            f"the run cannot be resumed, because its start time {started!r} is invalid",
        ) from error
