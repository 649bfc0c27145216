"""Makes sweeps for tests, with their points on disk."""

import json
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.model.case import Case
from conformance.model.record import Axes, ResultRecord
from conformance.model.space import Space
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points, overall
from samples import result

FLAGS: Axes = {"access": {"subsets": ["LOCAL_WRITE", "REMOTE_WRITE", "MW_BIND"]}}
DATA_PATH: Axes = {
    "object": ["region", "window"],
    "op": ["RDMA_WRITE", "RDMA_READ"],
    "place": ["first", "last", "before"],
}
OUTCOMES = (
    Outcome("PASS", "success", "accepted", "REG-01"),
    Outcome("PASS", "refused", "refused with EINVAL", "REG-15"),
    Outcome("FAIL", "refused", "accepted", "REG-15"),
)


def sweep(
    directory: Path,
    of: Case,
    axes: Axes,
    outcome: Callable[[dict[str, str]], int],
    outcomes: Sequence[Outcome] = OUTCOMES,
) -> ResultRecord:
    """Makes a sweep over these axes: returns its record, and writes its side file to `directory`.

    `outcome` returns the number of a point's outcome for its labels, or -1 if the point is not in the space.
    """
    space = Space.of_data(axes)
    index = array("H", (outcome(space.labels(point)) % (OUTSIDE + 1) for point in range(space.size)))
    used = set(index)
    outcomes = [each for number, each in enumerate(outcomes) if number in used]
    renumbered = {number: at for at, number in enumerate(sorted(used - {OUTSIDE}))}
    points = Points(space, outcomes, array("H", (renumbered.get(number, OUTSIDE) for number in index)))
    verdicts = points.by_verdict()
    name = f"points/{of.id.replace('/', '.')}.json"
    (directory / "points").mkdir(parents=True, exist_ok=True)
    (directory / name).write_text(json.dumps(points.as_data(of.id)))
    deviations = [
        {
            "when": "MW_BIND",
            "expected": each.expected,
            "observed": each.observed,
            "count": points.counts()[number],
            "smallest": {"access": "MW_BIND"},
            "rules": [each.rule],
            "repro": f"./rdma-cts run --only '{of.id}#…'",
        }
        for number, each in enumerate(outcomes)
        if each.verdict == "FAIL" and points.counts()[number]
    ]
    return result(
        of,
        overall(set(verdicts)),
        f"{verdicts.get('FAIL', 0)} points depart",
        rules=["REG-01", "REG-15"],
        space={"axes": space.as_data(), "size": space.size},
        points=verdicts,
        rule_verdicts=points.by_rule(),
        deviations=deviations,
        points_file=name,
    )
