"""Checks the deviations of a run: each smallest reproducer is run again, alone, with one neighbour that the formula
excludes.

    python3 benchmarks/check_deviations.py DIR [-- ARG …]

DIR is the directory of a run; ARG … are passed to `rdma-cts run` (default: `--guest`). A reproducer must fail with the
observation of the deviation. Its neighbour, which differs in one flag or value and expects the same, must not fail in
the same way. Exit status 1 if one of them does otherwise.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.model import predicate
from conformance.model.record import Deviation, ResultRecord
from conformance.model.space import Space
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.points import read_points
from conformance.results.records import read_results
from conformance.sweeps.formula import ALWAYS
from conformance.sweeps.outcome import OUTSIDE, Points

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Check:
    """One deviation: the ids of its smallest point and of a neighbour (empty if there is none), and the observation."""

    reproducer: str
    neighbour: str
    observed: str
    when: str


def checks(folder: Path) -> Iterator[Check]:
    """The checks of a run, one for each deviation."""
    for record in read_results(folder).results:
        for deviation in record.get("deviations", ()):
            points = read_points(folder, record)
            smallest = points.space.parse(",".join(f"{k}={v}" for k, v in deviation["smallest"].items()))
            near = _neighbour(points, smallest, deviation)
            yield Check(
                f"{record['case']}#{points.space.text(smallest)}",
                f"{record['case']}#{points.space.text(near)}" if near is not None else "",
                deviation["observed"],
                deviation["when"],
            )


def _neighbour(points: Points, smallest: int, deviation: Deviation) -> int | None:
    """The nearest point to `smallest` that the formula excludes and that expects the same; None if there is none."""
    if deviation["when"] == ALWAYS:
        return None
    own = points.outcomes[points.index[smallest]]
    inside = points.space.bytes_of(_column(deviation["when"], points.space))
    candidates = [
        point
        for point, number in enumerate(points.index)
        if number != OUTSIDE
        and not inside[point]
        and (points.outcomes[number].clause, points.outcomes[number].rule) == (own.clause, own.rule)
        and points.outcomes[number].verdict not in (Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
    ]
    return min(candidates, key=lambda point: (_distance(points.space, smallest, point), point), default=None)


def _column(when: str, space: Space) -> int:
    return predicate.column(predicate.parse(when, space, {}), space, lambda name: False)


def _distance(space: Space, one: int, other: int) -> int:
    """The number of flags and values in which two points differ."""
    values, others = space.values(one), space.values(other)
    return sum(
        (values[axis.name] ^ others[axis.name]).bit_count() if axis.flags else values[axis.name] != others[axis.name]
        for axis in space.axes
    )


def main() -> int:
    """Runs the points of all checks in one run, and compares the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("run", nargs="*", default=["--guest"], metavar="ARG")
    arguments = parser.parse_args()
    found = list(checks(arguments.folder))
    ids = list(dict.fromkeys(each for check in found for each in (check.reproducer, check.neighbour) if each))
    if not ids:
        print("no deviation to check")
        return 0
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "out"
        only = [argument for each in ids for argument in ("--only", each)]
        command = [str(ROOT / "rdma-cts"), "run", "-q", *arguments.run, "--out", str(out), *only]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode not in (0, 1):
            print(done.stdout)
            return done.returncode
        results = {record["case"]: record for record in read_results(out).results}
    wrong = 0
    for check in found:
        again, near = results[check.reproducer], results.get(check.neighbour)
        good = _shows(again, check.observed) and not (near and _shows(near, check.observed))
        wrong += not good
        neighbour = f"{near['verdict']} at {check.neighbour.partition('#')[2]}" if near else "no neighbour is excluded"
        print(
            f"{'ok   ' if good else 'WRONG'} {check.reproducer}\n      {check.observed}\n      when {check.when};"
            f" again: {again['verdict']}; {neighbour}"
        )
    print(f"{len(found) - wrong} of {len(found)} deviations were reproduced, and not at their neighbours")
    return 1 if wrong else 0


def _shows(record: ResultRecord, observed: str) -> bool:
    """Whether a case failed with the observation of a deviation, which names the call without its arguments."""
    if record["verdict"] not in VIOLATIONS:
        return False
    call = record["call"].partition("(")[0]
    reason = record["reason"].replace(record["call"], call)
    return reason == observed


if __name__ == "__main__":
    sys.exit(main())
