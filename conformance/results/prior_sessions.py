"""What an earlier session of a run left, for the session that carries it on.

Not for reading or cutting the file (records.py, writer.py) and not for running (supervision.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from conformance.errors import UserError
from conformance.model.record import HeaderRecord, ResultRecord, ResumedRecord
from conformance.model.verdict import Verdict
from conformance.results.records import Recorded

# What of the software around a device makes another stack when it differs; being tainted does not.
_STACK = ("kernel", "rdma_core", "pyverbs", "python")


@dataclass(frozen=True)
class PriorSessions:
    """The sessions of a run so far.

    `boots` counts their workers and `seconds` how long they took. `in_flight` is the case that was
    begun and had no end when this host's kernel, started under another `boot_id` than now, went down.
    """

    header: HeaderRecord
    done: Mapping[str, ResultRecord]
    boots: int
    resumed: int
    seconds: float
    in_flight: str = ""
    boot_id: str = ""

    @classmethod
    def of(cls, recorded: Recorded, ended: float) -> PriorSessions:
        """What `recorded` shows; `ended` is when its last record was written, in seconds since the epoch.

        Raises UserError where it does not say when its last session began.
        """
        resumed = [record for record in recorded.others if record["type"] == "resumed"]
        workers = [record for record in recorded.others if record["type"] == "worker"]
        starts = [record["case"] for record in recorded.others if record["type"] == "start"]
        done = {record["case"]: record for record in recorded.results if record["verdict"] != Verdict.MISSED}
        in_flight = starts[-1] if starts and starts[-1] not in done else ""
        if recorded.footer:
            seconds = recorded.footer["duration_s"]
        else:
            began = resumed[-1]["started"] if resumed else recorded.header["started"]
            seconds = resumed[-1]["earlier_s"] if resumed else 0.0
            seconds += max(0.0, ended - _seconds(began))
        boot_id = workers[-1]["boot_id"] if workers else ""
        return cls(recorded.header, done, len(workers), len(resumed), float(seconds), in_flight, boot_id)

    def resumed_record(self) -> ResumedRecord:
        """The record that says that the run is carried on from here."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"type": "resumed", "started": now, "earlier_s": round(self.seconds, 3)}

    def check(self, header: HeaderRecord) -> None:
        """Raises UserError if a worker's header is of another stack than the run began on."""
        for what, first, now in (
            ("the suite", self.header["suite"], header["suite"]),
            ("the device", self.header["device"], header["device"]),
            *((name, self.header["env"].get(name), header["env"].get(name)) for name in _STACK),
            ("what is under test", self.header.get("under_test") or {}, header.get("under_test") or {}),
        ):
            if first != now:
                change = f": it was {first}, it is {now}" if isinstance(first, str) and isinstance(now, str) else ""
                raise UserError(
                    f"the run cannot be resumed, because {what.replace('_', '-')} has changed{change}",
                    hint="start a new one",
                )


def _seconds(started: str) -> float:
    """A time of a record as seconds since the epoch."""
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError as error:
        raise UserError(f"the run cannot be resumed, because {started!r} is no time at which it began") from error
