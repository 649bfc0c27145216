"""Stores the result of a sweep: all points are written to a side file, and the record has formulas of the deviating
points. The process that writes the results file stores the points; therefore no formula is minimised in a guest."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.judging.circumstances import located
from conformance.model.bounds import MOST_DEVIATIONS
from conformance.model.case import Case
from conformance.model.fault import Fault
from conformance.model.record import Deviation, ResultRecord
from conformance.model.record_shape import printable
from conformance.model.set_up import set_up_of
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.regular_file import read_regular
from conformance.results.checked_json import parse
from conformance.results.conclusions import BY_CHANCE, format_more, format_points
from conformance.results.files import write_atomically
from conformance.sweeps.outcome import Points

FOLDER = "points"
_LONGEST_NAME = 200


def store_points(record: ResultRecord, folder: Path, case: Case | None = None) -> ResultRecord:
    """Writes the side file to `folder`. Returns the record with `deviations` in place of `points_data`. If `case` is
    given, each deviation has the calls of its smallest point. Raises UserError if the side file cannot be written."""
    data = record["points_data"]
    name = f"{FOLDER}/{_file_name(record['case'])}"
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    write_atomically(folder / name, text.encode() + b"\n", within=folder)
    points = Points.of_data(data)
    deviations_here = deviations(
        points,
        record["repro"],
        by_chance=bool(record.get("space", {}).get("tries")),
    )
    if case:
        deviations_here = [_with_procedure(deviation, case) for deviation in deviations_here]
    stored = record.copy()
    del stored["points_data"]
    more = len(_deviating(points)) - len(deviations_here)
    if deviations_here:
        first = f"{deviations_here[0]['observed']} ({format_points(deviations_here[0])})"
        stored["reason"] = (
            f"{record['reason']}; {first}{format_more(len(deviations_here) - 1 + more)}"
        )
    if more:
        stored["deviations_left_out"] = more
    return {**stored, "deviations": deviations_here, "points_file": name}


def _file_name(case: str) -> str:
    name = case.replace("/", ".")
    if len(name) > _LONGEST_NAME:  # a file's name has at most 255 bytes
        name = f"{name[:_LONGEST_NAME]}-{zlib.crc32(case.encode()):08x}"
    return f"{name}.json"


def deviations(points: Points, repro: str, *, by_chance: bool = False) -> list[Deviation]:
    """Returns the deviations, one for each outcome that deviates: the most frequent first, at most MOST_DEVIATIONS.
    `repro` is the command that runs only the sweep. If points deviate `by_chance`, a deviation has no formula, and one try
    shows little: its command runs the sweep, too."""
    from conformance.sweeps.formula import Effort, explain  # imported late: readers need none
    from conformance.sweeps.inseparable import inseparable

    counts = points.counts()
    deviations: list[Deviation] = []
    effort = Effort()
    for number in sorted(_deviating(points), key=lambda number: -counts[number])[:MOST_DEVIATIONS]:
        outcome = points.outcomes[number]
        explained = explain(points, number, effort, BY_CHANCE if by_chance else "")
        text = points.space.text(explained.smallest)
        together = inseparable(points.space, points.inside, [outcome.clause, explained.when])
        deviations.append(
            {
                "when": explained.when,
                "clause": outcome.clause,
                "minimal": explained.minimal,
                **({"together": together} if together else {}),  # type: ignore[typeddict-item]
                "verdict": Verdict(outcome.verdict),
                "expected": outcome.expected,
                "observed": outcome.observed,
                **({"fault": outcome.fault.as_data()} if outcome.fault else {}),  # type: ignore[typeddict-item]
                "count": counts[number],
                "of": explained.of,
                "smallest": points.space.labels(explained.smallest),
                "rules": list(outcome.rules),
                "repro": repro if by_chance else f"{repro}#{text}",
            },
        )
    return deviations


def _deviating(points: Points) -> list[int]:
    bad = (*VIOLATIONS, Verdict.BROKEN)
    return [number for number, outcome in enumerate(points.outcomes) if outcome.verdict in bad]


def _with_procedure(deviation: Deviation, case: Case) -> Deviation:
    assert case.sweep is not None
    labels = ",".join(f"{axis}={label}" for axis, label in deviation["smallest"].items())
    point = case.sweep.point_case(case, labels)
    if "fault" in deviation:
        fault = Fault.of_data(deviation["fault"])
        faults = located(fault, point, fault.step)
        if not (fault.call):
            faults = replace(faults, call="", verb=fault.verb)
        deviation = {**deviation, "fault": faults.as_data()}
    return {
        **deviation,
        "set_up": set_up_of(point),
        "call": str(point.when),
        "afterwards": [str(step) for step in point.afterwards],
    }


def points_path(folder: Path, record: ResultRecord) -> Path:
    """Returns the path of a record's side file. Raises UserError for a path that is outside of `folder` or that no file
    can have."""
    try:
        path = (folder / record["points_file"]).resolve()
        with suppress(FileNotFoundError):
            os.lstat(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"case {record['case']}: its points_file {printable(record['points_file'])} is no name of a file",
        ) from error
    if not path.is_relative_to(folder.resolve()):
        raise UserError(
            f"case {record['case']}: its points_file {record['points_file']} is outside of {folder}",
        )
    return path


def read_points(
    folder: Path,
    record: ResultRecord,
    shown: Callable[[Any], Any] = lambda data: data,
) -> Points:
    """Reads the points of a record that `store_points` has returned; `folder` has the results. `shown` converts the
    JSON of the side file. Raises UserError if the file cannot be read or the points are invalid."""
    path = points_path(folder, record)
    try:
        data = shown(parse(read_regular(path)))
        points = Points.of_data(data)
    except OSError as error:
        if path.exists():
            missing_text = ""
        else:
            missing_text = f"the points of sweeps are in {FOLDER}/ next to the results"
        raise UserError(f"{path} cannot be read: {error.strerror}", hint=missing_text) from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: not the points of a sweep ({printable(str(error))})") from error
    if data["case"] != record["case"]:
        raise UserError(
            f"{path}: the points of {printable(data['case'])}, and not of {printable(record['case'])}",
        )
    return points
