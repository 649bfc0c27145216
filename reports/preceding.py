"""Puts the earlier cases that a violation needs into the command that repeats it: if a violation occurred again only
after other cases of its worker, its case alone does not show it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from conformance.model.record import ConfirmationRecord, Deviation, ResultRecord

_ONLY = " --only "


def with_preceding(record: ResultRecord, confirmation: ConfirmationRecord) -> ResultRecord:
    """Returns the result with the command that shows the violation of this repetition. What needs earlier points of its
    own sweep is shown by the whole case."""
    needed = confirmation.get("after")
    if not needed:
        return record
    repro = _after([case for case in needed if case != record["case"]], record["repro"])
    point = confirmation.get("point")
    if not point:
        return {**record, "repro": repro}
    deviations: list[Deviation] = []
    for deviation in record["deviations"]:
        if _point_of(deviation) == point:
            deviation = {**deviation, "repro": repro}
        deviations.append(deviation)
    return {**record, "deviations": deviations}


def needs_others(repro: str) -> bool:
    """Whether the command runs other cases before the one that it repeats."""
    return repro.count(_ONLY) > 1


def _after(cases: Sequence[str], repro: str) -> str:
    """Returns the command with these cases before its own, in one worker: cases run in the order of the recorded run."""
    run, only, case = repro.rpartition(_ONLY)
    if not cases or not only:
        return repro
    if "--guest" in run.split():
        run += " --guests 1"
    return _ONLY.join([run, *map(shlex.quote, cases), case])


def _point_of(deviation: Deviation) -> str:
    return ",".join(f"{axis}={label}" for axis, label in (deviation["smallest"] or {}).items())
