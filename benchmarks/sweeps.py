"""Measures the time and memory of sweeps in the guest, by size, and compares them with a C program for the same calls.

    python3 benchmarks/sweeps.py [--repetitions N] [--rdma-core-tests DIR]

needs the guest's image (`./rdma-cts run` builds it). Everything is measured in one guest, in turn. The best of the
repetitions counts, because other work of the machine can only add time. The C program is sweep_floor.c. DIR is the
directory `tests` of rdma-core's source, in the release of the guest; some of its tests are measured too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.tables.suite import ROOT
from fixtures.guest.guest import boot
from fixtures.guest.image import ensure_image
from fixtures.guest.job import Job
from fixtures.guest.recipe import recipe_for
from fixtures.system.cache import cache_directory
from targets.guests import SUITE_PARTS

OWN = ("sweep_floor.c", "sweep_inside.py", "rdma_core_tests.py")
_SILENCE_S = 900.0


def main() -> int:
    """Runs the measurements in a guest and prints them as a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--repetitions", type=int, default=5, metavar="N")
    parser.add_argument("--rdma-core-tests", type=Path, metavar="DIR", help="rdma-core's own tests, for comparison")
    arguments = parser.parse_args()
    theirs = arguments.rdma_core_tests
    if theirs and not (theirs / "test_mr.py").is_file():
        parser.error(f"--rdma-core-tests {theirs}: there is no test_mr.py")
    image = ensure_image(recipe_for(), cache_directory(), print)
    here = Path(__file__).parent
    tree = (*((ROOT / part, part) for part in SUITE_PARTS), *((here / name, name) for name in OWN))
    if theirs:
        tree = (*tree, (theirs, "tests"))
    command = f"gcc -O2 -o floor sweep_floor.c -libverbs && python3 sweep_inside.py {arguments.repetitions}"
    with tempfile.TemporaryDirectory() as name:
        console = Path(name) / "console.log"
        with boot(image, Job(tree, command), console=console) as guest:
            while line := guest.next_line(_SILENCE_S):
                message = json.loads(line)
                if message.get("type") == "measured":
                    print(message["what"])
        if "Traceback" in console.read_text(errors="replace"):
            print(console.read_text(errors="replace")[-3000:])
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
