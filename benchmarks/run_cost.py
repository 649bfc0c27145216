"""Measures the time of runs in the Soft-RoCE guest: `python3 benchmarks/run_cost.py [--repetitions N] [MEASURE …]`.

| measure | what is measured | floor, the least possible time |
|---|---|---|
| only | `run --guest --only CASE`, with a template | resuming the template and ending the guest |
| build | the same for a build that has no template yet | booting a guest with an empty command, powering it off |
| smoke, default, spaces | a tier, or the spaces of the exhaustive tier | the time of its cases, divided by the guests |
| first | a run with an empty cache; measured once | none |

Prints the time of each run, and a Markdown table with the medians of the times and of the processor seconds. The
processor seconds are those of the command and its guests, and vary less on a busy machine. The first repetition of each
measure fills caches and does not count. The exit status is 1 if a goal is missed. Run it on an idle machine.

`--history FILE` appends the figures as a line of JSON to a file with the figures of earlier nights on the same machine.
The last line of the output names each figure that is more than a fifth above the median of earlier nights. If there is
such a figure, the exit status is 1, whatever the goals are.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from conformance.errors import UserError, reading  # noqa: E402
from conformance.regular_file import regular_lines  # noqa: E402
from conformance.results.checked_json import parse  # noqa: E402
from conformance.results.files import write_atomically  # noqa: E402
from conformance.results.records import read_results  # noqa: E402
from conformance.run_options import RunOptions  # noqa: E402
from fixtures.guest.guest import boot  # noqa: E402
from fixtures.guest.image import ensure_image  # noqa: E402
from fixtures.guest.job import Job  # noqa: E402
from fixtures.guest.recipe import Recipe  # noqa: E402
from fixtures.system.cache import cache_directory  # noqa: E402
from targets.guests import Guests  # noqa: E402

CASE = "reg_mr/access_flags/local-write-alone"
MOST = 1.2  # times the median of the last NIGHTS nights, of which at least FEWEST are needed
NIGHTS, FEWEST = 14, 5


@dataclass(frozen=True)
class Measure:
    """One line of the table: arguments for `run`, the goal in seconds, and what else is measured.

    `floor` is a function of the run's directory that returns seconds, or None. With `new_build` no template exists for
    the software under test.
    """

    title: str
    arguments: Sequence[str]
    goal_s: float
    floor: Callable[[Path], float] | None
    new_build: bool = False
    empty_cache: bool = False


def resume_and_end(work: Path) -> float:
    """Returns the seconds from the request for a guest until a resumed guest has received the request."""
    guests = Guests(RunOptions(guest=True), work / "resumed", lambda _: None)
    began = time.perf_counter()
    with guests.run([CASE]):
        return time.perf_counter() - began


def boot_and_power_off(work: Path) -> float:
    """Returns the seconds from packing an empty job and starting QEMU until the end of QEMU."""
    image = ensure_image(Recipe(), cache_directory(), print)
    began = time.perf_counter()
    with boot(image, Job((), "true"), console=work / "booted" / "console.log") as guest:
        while line := guest.next_line(120.0):
            last = json.loads(line)
        if line is None or last.get("event") != "exit" or guest.wait() != 0:
            sys.exit(f"the guest did not end normally; its console: {guest.console_tail(5)}")
    return time.perf_counter() - began


def cases_alone(work: Path) -> float:
    """Returns the seconds of the cases of the run, divided by the number of guests that ran at the same time."""
    results = read_results(work / "out").results
    return sum(each.get("duration_us") or 0 for each in results) / 1e6 / (os.cpu_count() or 1)


MEASURES = {
    "only": Measure("`--only CASE` with a template", ["--only", CASE], 3.0, resume_and_end),
    "build": Measure("`--only CASE` with a new build", ["--only", CASE], 18.0, boot_and_power_off, new_build=True),
    "smoke": Measure("the smoke tier", ["--tier", "smoke"], 12.0, cases_alone),
    "default": Measure("the default tier, violations confirmed", [], 90.0, cases_alone),
    "spaces": Measure(
        "the exhaustive tier's spaces", ["--tier", "exhaustive", "-k", "_space/", "--sequences", "0"], 70.0, cases_alone
    ),
    "first": Measure("the first run ever", ["--only", CASE], 180.0, None, empty_cache=True),
}


def processor_s() -> float:
    """Returns the processor seconds of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(measure: Measure, work: Path) -> tuple[float, float]:
    """Returns the seconds that `./rdma-cts run` takes, and the processor seconds of the command and its guests."""
    environment = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
    if measure.empty_cache:
        environment["RDMA_CTS_CACHE"] = str(work / "cache")
    unseen = ["--guest-env", f"RDMA_CTS_BENCHMARK={time.time_ns()}"] if measure.new_build else []
    began, used = time.perf_counter(), processor_s()
    done = subprocess.run(
        [ROOT / "rdma-cts", "run", "--guest", "--quiet", "--yes", "--out", work / "out", *measure.arguments, *unseen],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds, used = time.perf_counter() - began, processor_s() - used
    if done.returncode not in (0, 1):
        sys.exit(f"the run ended with status {done.returncode}: {done.stderr or done.stdout}")
    return seconds, used


def repeat(name: str, measure: Measure, repetitions: int) -> tuple[float, float, float | None]:
    """Returns the medians of the time, of the processor time and of the floor of a measure, in seconds."""
    runs, processors, floors = [], [], []
    for repetition in range(1 if measure.empty_cache else repetitions + 1):
        with tempfile.TemporaryDirectory(prefix="rdma-cts-benchmark-") as folder:
            seconds, used = run(measure, Path(folder))
            floor = measure.floor(Path(folder)) if measure.floor else None
        counts = repetition > 0 or measure.empty_cache
        beside = "" if floor is None else f", floor {floor:.2f} s"
        print(f"{name}: {seconds:.2f} s, processors {used:.2f} s{beside}{'' if counts else ' (warm-up)'}", flush=True)
        if counts:
            runs.append(seconds)
            processors.append(used)
            floors += [] if floor is None else [floor]
    return statistics.median(runs), statistics.median(processors), statistics.median(floors) if floors else None


def read_nights(path: Path) -> list[dict[str, float]]:
    """Returns the figures of each night in a history, the earliest first. Raises UserError."""
    nights = []
    with reading(path):
        for number, line in enumerate(regular_lines(path) if path.exists() else (), 1):
            try:
                figures = parse(line)["figures"]
                if not all(type(value) in (int, float) and value > 0 for value in figures.values()):
                    raise ValueError("a figure that is not a positive number")
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                why = str(error) if type(error) is ValueError else "no figures"
                raise UserError(f"{path}:{number}: not a night of run_cost.py: {why}") from error
            nights.append(figures)
    return nights


def compared(nights: Sequence[Mapping[str, float]], figures: Mapping[str, float]) -> tuple[str, bool]:
    """Returns a line that compares figures with earlier nights, and whether any figure has regressed."""
    known = {name: [night[name] for night in nights if name in night][-NIGHTS:] for name in figures}
    known = {name: values for name, values in known.items() if len(values) >= FEWEST}
    above = [
        f"{name} {figures[name]:.2f}, {figures[name] / middle - 1:.0%} above the median of {len(values)} nights, "
        f"{middle:.2f} ({min(values):.2f} to {max(values):.2f})"
        for name, values in known.items()
        if figures[name] > MOST * (middle := statistics.median(values))
    ]
    if above:
        return f"costs: {'; '.join(above)}", True
    if not known:
        return f"costs: compared from the night on that has {FEWEST} before it; there are {len(nights)}", False
    spread, name = max(((max(each) - min(each)) / statistics.median(each), name) for name, each in known.items())
    return f"costs: nothing is more than a fifth above earlier nights, which differ by {spread:.0%} ({name})", False


def main() -> int:
    """Measures, prints the results, and returns exit status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description="Measures the time of runs in the guest.", allow_abbrev=False)
    parser.add_argument("--repetitions", type=int, default=5, metavar="N", help="how often each measure is repeated")
    parser.add_argument("--history", type=Path, metavar="FILE", help="compare with earlier nights, and add this night")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"some of {', '.join(MEASURES)}; default: all")
    arguments = parser.parse_args()
    if unknown := set(arguments.measures) - set(MEASURES):
        parser.error(f"unknown measure {sorted(unknown)[0]!r}; the measures are {', '.join(MEASURES)}")
    nights = read_nights(arguments.history) if arguments.history else []
    figures: dict[str, float] = {}
    lines, missed = ["| what | median | processors | floor | ratio | goal |", "|---|---|---|---|---|---|"], False
    for name in arguments.measures or MEASURES:
        measure = MEASURES[name]
        seconds, used, floor = repeat(name, measure, arguments.repetitions)
        missed |= seconds > measure.goal_s
        figures |= {f"{name} processor_s": used, **({f"{name} / floor": seconds / floor} if floor else {})}
        beside = f"{floor:.1f} s | {seconds / floor:.1f}" if floor else "none | "
        lines.append(f"| {measure.title} | {seconds:.1f} s | {used:.1f} s | {beside} | ≤ {measure.goal_s:g} s |")
    print("\n".join(lines))
    if arguments.history:
        told, missed = compared(nights, figures)
        print(told)
        with reading(arguments.history):
            old = arguments.history.read_bytes() if arguments.history.exists() else b""
        night = {"night": f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", "figures": figures}
        write_atomically(arguments.history, old + json.dumps(night).encode() + b"\n")
    return int(missed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as mistake:
        print(f"run_cost.py: {mistake}", file=sys.stderr)
        sys.exit(mistake.status)
