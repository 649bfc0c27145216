"""What an earlier session of a run left, for the session that carries it on.

Not for reading or cutting the file (records.py, writer.py) and not for running (supervision.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from conformance.errors import UserError
from conformance.model.verdict import Verdict
from conformance.results.records import Record, Recorded

# What of the software around a device makes another stack when it differs; being tainted does not.
_STACK = ("kernel", "rdma_core", "pyverbs", "python")


@dataclass(frozen=True)
class PriorSessions:
    """The sessions of a run so far.

    `boots` counts their workers and `seconds` how long they took. `in_flight` is the case that was
    begun and had no end when this host's kernel, started under another `boot_id` than now, went down.
    """

    header: Record
    done: Mapping[str, Record]
    boots: int
    resumed: int
    seconds: float
    in_flight: str = ""
    boot_id: str = ""

    @classmethod
    def of(cls, recorded: Recorded, ended: float) -> PriorSessions:
        """What `recorded` tells; `ended` is when its last line was written, in seconds since the epoch."""
        resumed = [line for line in recorded.others if line["type"] == "resumed"]
        workers = [line for line in recorded.others if line["type"] == "worker"]
        starts = [line["case"] for line in recorded.others if line["type"] == "start"]
        done = {line["case"]: line for line in recorded.results if line["verdict"] != Verdict.MISSED}
        in_flight = starts[-1] if starts and starts[-1] not in done else ""
        if recorded.footer:
            seconds = float(recorded.footer["duration_s"])
        else:
            session = resumed[-1] if resumed else {**recorded.header, "earlier_s": 0.0}
            began = datetime.fromisoformat(session["started"]).timestamp()
            seconds = float(session["earlier_s"]) + max(0.0, ended - began)
        boot_id = workers[-1]["boot_id"] if workers else ""
        return cls(recorded.header, done, len(workers), len(resumed), seconds, in_flight, boot_id)

    def line(self) -> Record:
        """The line that says that the run is carried on from here."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return {"type": "resumed", "started": now, "earlier_s": round(self.seconds, 3)}

    def check(self, header: Mapping[str, Any]) -> None:
        """Raises UserError if a worker's header tells of another stack than the run began on."""
        for what, first, now in (
            ("the suite", self.header["suite"], header["suite"]),
            ("the device", self.header["device"], header["device"]),
            *((name, self.header["env"].get(name), header["env"].get(name)) for name in _STACK),
            ("what is under test", self.header.get("under_test") or {}, header.get("under_test") or {}),
        ):
            if first != now:
                told = f": it was {first}, it is {now}" if isinstance(first, str) and isinstance(now, str) else ""
                raise UserError(
                    f"the run cannot be carried on, because {what.replace('_', '-')} has changed{told}",
                    hint="start a new one",
                )
