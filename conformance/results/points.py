"""A sweep's result as it is kept: all points in a side file, the deviating ones explained in the line.

Done by whoever writes the results file, so that nothing is minimised inside of a guest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.sweeps.formula import explain
from conformance.sweeps.outcome import Points

POINTS_DATA, POINTS_FILE = "points_data", "points_file"
FOLDER = "points"


def stored(line: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The line without `points_data`, which are on disk in `folder` by then, and with what explains them.

    Raises UserError (status 3) where the side file cannot be written.
    """
    data = line[POINTS_DATA]
    name = f"{FOLDER}/{str(line['case']).replace('/', '.')}.json"
    _write(folder / name, json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode() + b"\n")
    found = deviations(Points.of_data(data), str(line["repro"]))
    rest = {key: value for key, value in line.items() if key != POINTS_DATA}
    if found:
        rest["reason"] = f"{line['reason']}; {_told(found)}"
    return {**rest, "deviations": found, POINTS_FILE: name}


def deviations(points: Points, repro: str) -> list[dict[str, Any]]:
    """The deviating points by what was observed, the most frequent first; `repro` runs the whole sweep alone."""
    counts = points.counts()
    found = []
    for number, outcome in enumerate(points.outcomes):
        if outcome.verdict not in (*VIOLATIONS, Verdict.BROKEN):
            continue
        explained = explain(points, number)
        text = points.space.text(explained.smallest)
        found.append({
            "when": explained.when, "clause": outcome.clause, "minimal": explained.minimal, "verdict": outcome.verdict,
            "expected": outcome.expected, "observed": outcome.observed, "count": counts[number], "of": explained.of,
            "smallest": points.space.labels(explained.smallest), "rules": [outcome.rule],
            "repro": f"{repro}#{text}",
        })  # fmt: skip
    return sorted(found, key=lambda each: -each["count"])


def _told(found: list[dict[str, Any]]) -> str:
    first = found[0]
    more = f" (and {len(found) - 1} more ways)" if len(found) > 1 else ""
    return f"{first['observed']} when {first['when']} ({first['count']:,} of {first['of']:,}){more}"


def points_path(folder: Path, line: Mapping[str, Any]) -> Path:
    """Where the points of a stored line are. Raises UserError for a place outside of `folder`, which is not ours."""
    path = (folder / str(line[POINTS_FILE])).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise UserError(f"case {line['case']}: its {POINTS_FILE} {line[POINTS_FILE]} lies outside of {folder}")
    return path


def read_points(folder: Path, line: Mapping[str, Any]) -> Points:
    """The points of a stored line, from the results in `folder`. Raises UserError for what are none."""
    path = points_path(folder, line)
    try:
        return Points.of_data(json.loads(path.read_bytes()))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"{path}: not the points of a sweep ({type(error).__name__}: {error})") from error


def _write(path: Path, data: bytes) -> None:
    """The file whole or not at all, and on disk before this returns."""
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}", status=3) from error
