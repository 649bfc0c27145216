"""What a run costs beside the guest it needs: `python3 benchmarks/run_cost.py [--repetitions N] [-- ARG …]`.

Measures in turn (a) the Soft-RoCE guest booted with an empty command and powered off, and (b) the whole
of `./rdma-cts run --guest ARG …` with the image built. Prints each figure, the medians and their ratio. Exit
status 1 if the ratio is above the goal of 4. The first repetition of each warms caches and does not count.
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
    """Seconds from the start of QEMU, the packing of its job included, to its end."""
    began = time.perf_counter()
    with boot(image, Job((), "true"), console=work / "console.log") as guest:
        while line := guest.next_line(120.0):
            last = json.loads(line)
        if line is None or last.get("event") != "exit" or guest.wait() != 0:
            sys.exit(f"the guest did not end as it should; its console: {guest.console_tail(5)}")
    return time.perf_counter() - began


def whole_run(work: Path, selection: list[str]) -> tuple[float, int]:
    """Seconds of `./rdma-cts run`, from the command to its end, and how many cases it ran."""
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
    """Measures and prints; 1 if the goal is missed."""
    parser = argparse.ArgumentParser(description="What ./rdma-cts run costs beside booting its guest.")
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
        note = "" if repetition else "  (warming, not counted)"
        print(f"boot and power off {booted:6.2f} s   run of {cases} cases {ran:6.2f} s{note}", flush=True)
        if repetition:
            boots.append(booted)
            runs.append(ran)
    ratio = statistics.median(runs) / statistics.median(boots)
    print(f"median             {statistics.median(boots):6.2f} s   median            {statistics.median(runs):6.2f} s")
    print(f"a run costs {ratio:.2f} times its guest (goal: at most {GOAL:g})")
    return 0 if ratio <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
