"""Runs a few cases in a worker of their own, to see one of them once more. Records nothing.

Not for deciding what to repeat (confirmation.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import Verdict
from conformance.results.records import decode
from conformance.supervision.worker import START_DEADLINE_S, Worker

_EVIDENCE_LINES = 30


def repeat(
    worker: Worker, cases: Sequence[str], deadline_s: float, check: Callable[[HeaderRecord], None]
) -> ResultRecord | None:
    """The result of the last of these cases, which the worker was started with; None if it did not come to it.

    A worker that dies or is silent for `deadline_s` seconds in that case gives CRASH or HANG. `check` raises UserError
    for the header of another stack. Closes the worker.
    """
    wanted = cases[-1]
    in_flight = ""
    until = time.monotonic() + START_DEADLINE_S
    try:
        while raw := worker.next_line(max(0.0, until - time.monotonic())):
            try:
                record = decode(raw)
            except ValueError:
                continue  # cut off by the worker's end, or noise on the port
            if record["type"] == "header":
                check(record)
            elif record["type"] == "start" and record["case"] in cases:
                in_flight = record["case"]
            elif record["type"] == "result" and record["case"] == wanted:
                return record
            elif record["type"] not in ("progress", "result"):
                continue
            until = time.monotonic() + deadline_s
        if in_flight != wanted:
            return None
        if raw is None:
            return _lost(wanted, Verdict.HANG, "no answer within its deadline", worker)
        end = worker.end()
        return None if end.external else _lost(wanted, Verdict.CRASH, end.what, worker)
    finally:
        worker.close()


def _lost(case: str, verdict: Verdict, reason: str, worker: Worker) -> ResultRecord:
    return {
        "type": "result", "case": case, "rules": [], "level": "", "entry": "", "layer": "", "verdict": verdict,
        "effective": verdict, "waiver": None, "reason": reason, "call": "", "expected": {}, "observed": {},
        "source": {}, "kernel": {"log": worker.console_tail(_EVIDENCE_LINES)}, "duration_us": None, "repro": "",
    }  # fmt: skip
