"""Compares the time of a run with that of its guest: `python3 benchmarks/run_cost.py [--repetitions N] [-- ARG …]`.

Measures in turn (a) booting the Soft-RoCE guest with an empty command and powering it off, and (b) a whole
`./rdma-cts run --guest ARG …`, with an existing image. Prints each time, the medians and their ratio. Exit status 1 if
the ratio is above the goal of 4. The first repetition of each warms caches and does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from conformance.results.records import read_results  # noqa: E402
from fixtures.softroce.guest import boot  # noqa: E402
from fixtures.softroce.image import Image, cache_directory, ensure_image  # noqa: E402
from fixtures.softroce.job import Job  # noqa: E402
from fixtures.softroce.recipe import Recipe  # noqa: E402

GOAL = 4.0


def boot_and_power_off(image: Image, work: Path) -> float:
    """Seconds from packing the job and starting QEMU until QEMU's end."""
    began = time.perf_counter()
    with boot(image, Job((), "true"), console=work / "console.log") as guest:
        while line := guest.next_line(120.0):
            last = json.loads(line)
        if line is None or last.get("event") != "exit" or guest.wait() != 0:
            sys.exit(f"the guest did not end normally; its console: {guest.console_tail(5)}")
    return time.perf_counter() - began


def whole_run(work: Path, selection: list[str]) -> tuple[float, int]:
    """The seconds that `./rdma-cts run` took, and the number of cases that it ran."""
    out = work / "out"
    environment = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
    began = time.perf_counter()
    done = subprocess.run(
        [ROOT / "rdma-cts", "run", "--guest", "--quiet", "--out", out, *selection],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if done.returncode not in (0, 1):
        sys.exit(f"the run ended with status {done.returncode}: {done.stderr or done.stdout}")
    footer = read_results(out).footer
    assert footer is not None
    return seconds, footer["points"]


def main() -> int:
    """Measures and prints; exit status 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description="Compares the time of ./rdma-cts run with that of booting its guest.")
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="how often each is measured")
    parser.add_argument("selection", nargs="*", metavar="ARG", help="arguments for the run, after --")
    arguments = parser.parse_args()
    repetitions = arguments.repetitions
    image = ensure_image(Recipe(), cache_directory(), print)
    boots: list[float] = []
    runs: list[float] = []
    for repetition in range(repetitions + 1):
        with tempfile.TemporaryDirectory(prefix="rdma-cts-benchmark-") as name:
            booted = boot_and_power_off(image, Path(name))
            ran, cases = whole_run(Path(name), arguments.selection)
        note = "" if repetition else "  (warm-up, not counted)"
        print(f"boot and power off {booted:6.2f} s   run of {cases} cases {ran:6.2f} s{note}", flush=True)
        if repetition:
            boots.append(booted)
            runs.append(ran)
    ratio = statistics.median(runs) / statistics.median(boots)
    print(f"median             {statistics.median(boots):6.2f} s   median            {statistics.median(runs):6.2f} s")
    print(f"a run takes {ratio:.2f} times as long as its guest (goal: at most {GOAL:g})")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
