"""Whether the deviations that a run explains are really there: each smallest reproducer is run again, alone, and one
neighbour of it that the formula excludes.

    python3 benchmarks/check_deviations.py DIR [-- ARG …]

DIR is the directory of a run; ARG … are handed to `rdma-cts run`, `--guest` if nothing is given. A reproducer has to
fail with what the deviation says was observed; its neighbour, which differs in one flag or value, expects the same and
must not fail like that. Ends with status 1 where one does otherwise.
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
    """One deviation: ids of its smallest point and of a neighbour (empty if it has none), and what was observed."""

    reproducer: str
    neighbour: str
    observed: str
    when: str


def checks(folder: Path) -> Iterator[Check]:
    """What there is to check in a run."""
    for record in read_results(folder).results:
        for deviation in record.get("deviations", ()):
            points = read_points(folder, record)
            smallest = points.space.parse(",".join(f"{k}={v}" for k, v in deviation["smallest"].items()))
            near = _neighbour(points, smallest, deviation)
            yield Check(
                f"{record['case']}#{points.space.text(smallest)}",
                f"{record['case']}#{points.space.text(near)}" if near is not None else "",
                deviation["observed"], deviation["when"],
            )  # fmt: skip


def _neighbour(points: Points, smallest: int, deviation: Deviation) -> int | None:
    """A point that the formula excludes and that expects the same, one step from `smallest` if there is one."""
    if deviation["when"] == ALWAYS:
        return None
    own = points.outcomes[points.index[smallest]]
    inside = points.space.bytes_of(_column(deviation["when"], points.space))
    candidates = [
        point for point, number in enumerate(points.index)
        if number != OUTSIDE and not inside[point]
        and (points.outcomes[number].clause, points.outcomes[number].rule) == (own.clause, own.rule)
        and points.outcomes[number].verdict not in (Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
    ]  # fmt: skip
    return min(candidates, key=lambda point: (_distance(points.space, smallest, point), point), default=None)


def _column(when: str, space: Space) -> int:
    return predicate.column(predicate.parse(when, space, {}), space, lambda name: False)


def _distance(space: Space, one: int, other: int) -> int:
    """In how many flags and values two points differ."""
    values, others = space.values(one), space.values(other)
    return sum(
        (values[axis.name] ^ others[axis.name]).bit_count() if axis.flags else values[axis.name] != others[axis.name]
        for axis in space.axes
    )


def main() -> int:
    """Runs all points of all checks in one run and compares."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
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
        only = [word for each in ids for word in ("--only", each)]
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
        beside = f"{near['verdict']} at {check.neighbour.partition('#')[2]}" if near else "no neighbour is excluded"
        print(f"{'ok   ' if good else 'WRONG'} {check.reproducer}\n      {check.observed}\n      when {check.when};"
              f" again: {again['verdict']}; {beside}")  # fmt: skip
    print(f"{len(found) - wrong} of {len(found)} deviations are there again, and not beside")
    return 1 if wrong else 0


def _shows(record: ResultRecord, observed: str) -> bool:
    """Whether a case failed with what a deviation tells; the calls are told with their arguments here."""
    if record["verdict"] not in VIOLATIONS:
        return False
    call = record["call"].partition("(")[0]
    reason = record["reason"].replace(record["call"], call)
    return reason == observed


if __name__ == "__main__":
    sys.exit(main())
