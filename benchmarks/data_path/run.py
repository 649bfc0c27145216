"""Compares data-path probes of the suite with the same in C: `python3 benchmarks/data_path/run.py [--rounds N]`.

Boots the Soft-RoCE guest, compiles floor.c there, and makes the same probes with both in turn: an RDMA WRITE that is
allowed, and one that is refused. Both prepare and inspect all memory, and reset the queue pairs after a refusal. Prints
the medians in probes per second; exit status 1 if a probe of the suite takes more than 3 times as long as in C.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fixtures.guest.guest import boot  # noqa: E402
from fixtures.guest.image import ensure_image  # noqa: E402
from fixtures.guest.job import Job  # noqa: E402
from fixtures.guest.recipe import Recipe  # noqa: E402
from fixtures.system.cache import cache_directory  # noqa: E402
from targets.guests import SUITE_PARTS  # noqa: E402

GOAL = 3.0
HERE = Path(__file__).parent


def measure(probes: int, rounds: int) -> dict[tuple[str, str], list[float]]:
    """Probes per second by (implementation, kind of probe), one figure for each round."""
    image = ensure_image(Recipe(), cache_directory(), print)
    tree = [(ROOT / part, part) for part in SUITE_PARTS] + [(HERE / name, name) for name in ("inside.py", "floor.c")]
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="rdma-cts-benchmark-") as name:
        console = Path(name) / "console.log"
        with boot(image, Job(tuple(tree), f"python3 inside.py rxe0 {probes} {rounds}"), console=console) as guest:
            while guest.next_line(900.0):
                pass
        text = console.read_text(errors="replace")
    for line in text.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[1] in ("floor", "suite") and fields[0].isdigit():
            found[fields[1], fields[2]].append(float(fields[3]))
    if len(found) != 4:
        sys.exit(f"the guest did not print all figures; the end of its console:\n{text[-2000:]}")
    return found


def main() -> int:
    """Measures and prints; exit status 1 if the goal is missed."""
    parser = argparse.ArgumentParser(
        description="Compares data-path probes of the suite with the same in C.", allow_abbrev=False
    )
    parser.add_argument("--probes", type=int, default=300, metavar="N", help="the number of probes in a round")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="the number of measurements of each")
    arguments = parser.parse_args()
    found = measure(arguments.probes, arguments.rounds)
    worst = 0.0
    for kind in ("allowed", "refused"):
        floor, suite = (statistics.median(found[side, kind]) for side in ("floor", "suite"))
        worst = max(worst, floor / suite)
        print(f"{kind}: C {floor:7.1f} probes/s   suite {suite:7.1f} probes/s   {floor / suite:.2f} times its time")
    print(f"goal: at most {GOAL:g} times")
    return 0 if worst <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
