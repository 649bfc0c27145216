"""Measures what runs and other commands cost: `python3 ci/benchmarks/run_cost.py [--repetitions N] [--against COMMIT]
[MEASURE …]`.

Prints the time of each run, and a Markdown table with the medians of the times, of the processor seconds and of the
memory. The processor seconds are those of the command and its guests; they vary less than the times on a busy machine.
The memory is the peak of the largest process; for the lab, it is the proportional set size of all runs. The first
repetition of each measure fills caches and is not counted; `first` is measured once. The exit status is 1 if a goal is
missed or, with `--history FILE`, only if a figure is more than a fifth above the median of the last nights in FILE.

With `--against COMMIT`, each repetition measures that commit and then this tree, and the table has the ratios of these
pairs: a machine that other programs use changes its speed within minutes, but seldom within a pair."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "ci/benchmarks")]

from commits import TABLE, beside, cache_of_images, tree_of  # noqa: E402
from readers import SAMPLE, Cost, cost, repeated_run  # noqa: E402

from conformance.errors import UserError, reading  # noqa: E402
from conformance.older_python import UTC, zip  # noqa: E402
from conformance.option import positive_count  # noqa: E402
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
from fixtures.targets.guests import Guests  # noqa: E402

SPACES = "--tier exhaustive -k _space/"
CASE = "reg_mr/access_flags/local-write-alone"
MOST = 1.2  # a figure above this multiple of the median of the last NIGHTS nights (at least FEWEST) has regressed
NIGHTS, FEWEST = 14, 5

RESULTS, HOSTS = 100_000, 100
# A replacement for ssh: a host that replies to the requests until a worker is requested.
SSH = r"""#!/bin/sh
say() { printf '%s M {"event": "%s", %s}\n' "$secret" "$1" "$2"; }
read -r program
read -r secret size
head -c "$size" >/dev/null
say hello '"boot_id": "1", "machine": "x", "python": "3", "folder": "/"'
while read -r line; do
    case $line in
        *'"check"'*) say checked '"device": "rxe0", "same": {}' ;;
        *'"start"'*) echo >>"$STARTED" ;;
        *'"close"'*) say closed '"stuck": ""' ;;
    esac
done
"""


def guest_run(
    *arguments: str,
    new_build: bool = False,
    cache_of: Callable[[Path], Path] | None = None,
) -> Callable[[Path, Path], Cost]:
    """Returns a function that runs cases in the guest with the suite in the directory `tree`, and with files in the
    directory `work`. With `new_build`, no template exists for the software under test. `cache_of` makes a cache in a
    directory."""

    def run(work: Path, tree: Path) -> Cost:
        environment = {"PYTHONPATH": str(tree)}
        if cache_of:
            environment["RDMA_CTS_CACHE"] = str(cache_of(work / "cache"))
        if new_build:
            unseen = ["--guest-env", f"RDMA_CTS_BENCHMARK={time.time_ns()}"]
        else:
            unseen = []
        always = ["--guest", "--quiet", "--yes", "--out", str(work / "out")]
        return cost([str(tree / "rdma-cts"), "run", *always, *arguments, *unseen], environment)

    return run


def without_packets(work: Path, tree: Path) -> Cost:
    """Runs the default tier without the cases of packets and of the model, which earlier versions do not have."""
    command = [str(tree / "rdma-cts"), "list", "--tier", "default"]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    listed = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    cases = [line.split()[0] for line in listed.stdout.splitlines() if "/" in line]
    rows = [case for case in cases if not case.startswith(("wire/", "access/"))]
    only = [f"--only={case}" for case in rows if not case.endswith("@wire")]
    return guest_run(*only)(work, tree)


def reports(work: Path, tree: Path) -> Cost:
    large = repeated_run(SAMPLE, work / "many", RESULTS)
    code = f"from pathlib import Path; from commands.report import write_beside; write_beside(Path({str(large)!r}))"
    return cost([sys.executable, "-c", code], {"PYTHONPATH": str(tree)})


def parsing(work: Path) -> float:
    """Returns the seconds of parsing each line of the results as JSON."""
    began = time.perf_counter()
    with (work / "many/results.jsonl").open("rb") as lines:
        for line in lines:
            json.loads(line)
    return time.perf_counter() - began


def lab_start(work: Path, tree: Path) -> Cost:
    """Starts a lab; returns its cost until each run has requested a worker from its host."""
    ssh, started = work / "bin/ssh", work / "started"
    ssh.parent.mkdir()
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    (work / "lab.yaml").write_text(
        "hosts:\n" + "".join(f"- {{host: h{index}, device: rxe0}}\n" for index in range(HOSTS)),
    )
    path = os.pathsep.join([str(ssh.parent), os.environ["PATH"]])
    environment = {
        **os.environ,
        "RDMA_CTS_PYTHON": sys.executable,
        "PATH": path,
        "STARTED": str(started),
    }
    command = [
        str(tree / "rdma-cts"),
        "run",
        "--lab",
        str(work / "lab.yaml"),
        "--out",
        str(work / "out"),
    ]
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as lab:
        while not started.exists() or started.stat().st_size < HOSTS:
            if lab.poll() is not None:
                sys.exit(f"the lab ended with status {lab.returncode}")
            time.sleep(0.1)
        seconds, process = time.perf_counter() - began, Path(f"/proc/{lab.pid}")
        runs = [
            process,
            *(
                Path("/proc", task)
                for task in (process / f"task/{lab.pid}/children").read_text().split()
            ),
        ]
        ticks = sum(
            sum(map(int, (run / "stat").read_text().rpartition(")")[2].split()[11:15]))
            for run in runs
        )
        shares = [
            line.split()[1]
            for run in runs
            for line in (run / "smaps_rollup").open()
            if line.startswith("Pss:")
        ]
        lab.terminate()
    return Cost(seconds, ticks / os.sysconf("SC_CLK_TCK"), sum(map(int, shares)) / 1024)


@dataclass(frozen=True)
class Measure:
    """One line of the table. In a new directory, `run` measures the cost of the suite in a tree, and `floor` measures a
    lower bound of the time. `goal_s` is in seconds; with `goal_mib`, a goal for the memory, it is in processor seconds."""

    title: str
    run: Callable[[Path, Path], Cost]
    goal_s: float
    floor: Callable[[Path], float] | None = None
    goal_mib: float = 0.0
    once: bool = False

    def is_missed(self, cost: Cost) -> bool:
        if self.goal_mib:
            return cost.processor_s > self.goal_s or cost.memory_mib > self.goal_mib
        return cost.seconds > self.goal_s

    @property
    def goal(self) -> str:
        if self.goal_mib:
            both = f" of the processor, {self.goal_mib:.0f} MiB"
        else:
            both = ""
        return f"≤ {self.goal_s:g} s{both}"


def resume_and_end(work: Path) -> float:
    """Returns the seconds from the request for a guest until a resumed guest has received the request."""
    guests = Guests(RunOptions(guest=True), work / "resumed", lambda _: None)
    began = time.perf_counter()
    with guests.run([CASE]):
        return time.perf_counter() - began


def boot_and_power_off(work: Path) -> float:
    """Returns the seconds from the packing of an empty job until QEMU has exited."""
    image = ensure_image(Recipe(), cache_directory(), print)
    began = time.perf_counter()
    with boot(image, Job((), "true"), console=work / "booted" / "console.log") as guest:
        while line := guest.next_line(120.0):
            last = json.loads(line)
        if line is None or last.get("event") != "exit" or guest.wait() != 0:
            sys.exit(f"the guest did not end normally; its console: {guest.console_tail(5)}")
    return time.perf_counter() - began


def cases_only(work: Path) -> float:
    """Returns the seconds of the cases of the run, divided by the number of guests that ran at the same time."""
    results = read_results(work / "out").results
    return sum(result.get("duration_us") or 0 for result in results) / 1e6 / (os.cpu_count() or 1)


MEASURES = {
    "only": Measure(
        "`--only CASE` with a template",
        guest_run("--only", CASE),
        3.0,
        resume_and_end,
    ),
    "build": Measure(
        "`--only CASE` with a new build",
        guest_run("--only", CASE, new_build=True),
        18.0,
        boot_and_power_off,
    ),
    "commit": Measure(
        "`--only CASE` of a new commit",
        guest_run("--only", CASE, cache_of=cache_of_images),
        18.0,
        boot_and_power_off,
    ),
    "smoke": Measure("the smoke tier", guest_run("--tier", "smoke"), 12.0, cases_only),
    "default": Measure("the default tier, violations confirmed", guest_run(), 90.0, cases_only),
    "rows": Measure("the default tier without packets", without_packets, 90.0, cases_only),
    "spaces": Measure("the exhaustive tier's spaces", guest_run(*SPACES.split()), 70.0, cases_only),
    "first": Measure(
        "the first run ever",
        guest_run("--only", CASE, cache_of=lambda place: place),
        180.0,
        once=True,
    ),
    "reports": Measure(
        f"the reports of {RESULTS:,} results",
        reports,
        12.0,
        parsing,
        400e6 / (1 << 20),
    ),
    "lab": Measure(
        f"the start of a lab of {HOSTS} hosts",
        lab_start,
        30.0,
        goal_mib=1e9 / (1 << 20),
    ),
    "quick": Measure(
        "the quick tests",
        lambda _, tree: cost(
            [str(tree / "rdma-cts"), "test", "--quick", "--yes"], {"PYTHONPATH": str(tree)}
        ),
        45.0,
    ),
}


def repeat(name: str, measure: Measure, repetitions: int) -> tuple[Cost, float | None]:
    """Returns the medians of the cost of a measure, and of its floor in seconds."""
    costs, floors = [], []
    for repetition in range(1 if measure.once else repetitions + 1):
        with tempfile.TemporaryDirectory(prefix="rdma-cts-benchmark-") as folder:
            took = measure.run(Path(folder), ROOT)
            if measure.floor:
                floor = measure.floor(Path(folder))
            else:
                floor = None
        counts = repetition > 0 or measure.once
        if floor is None:
            of_floor = ""
        else:
            of_floor = f", floor {floor:.2f} s"
        print(
            f"{name}: {took.seconds:.2f} s, processors {took.processor_s:.2f} s, {took.memory_mib:.0f} MiB{of_floor}"
            f"{'' if counts else ' (warm-up)'}",
            flush=True,
        )
        if counts:
            costs.append(took)
            floors += [] if floor is None else [floor]
    medians = map(statistics.median, zip(*map(astuple, costs), strict=True))
    return Cost(*medians), statistics.median(floors) if floors else None


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
                if type(error) is ValueError:
                    why = str(error)
                else:
                    why = "no figures"
                raise UserError(f"{path}:{number}: not a night of run_cost.py: {why}") from error
            nights.append(figures)
    return nights


def compared(
    nights: Sequence[Mapping[str, float]],
    figures: Mapping[str, float],
) -> tuple[str, bool]:
    """Returns a line that compares figures with earlier nights, and whether any figure has regressed."""
    earlier: dict[str, list[float]] = {}
    for name in figures:
        values = [night[name] for night in nights if name in night][-NIGHTS:]
        if len(values) >= FEWEST:
            earlier[name] = values
    above = [
        f"{name} {figures[name]:.2f}, {figures[name] / middle - 1:.0%} above the median of {len(values)} nights, "
        f"{middle:.2f} ({min(values):.2f} to {max(values):.2f})"
        for name, values in earlier.items()
        if figures[name] > MOST * (middle := statistics.median(values))
    ]
    if above:
        return f"costs: {'; '.join(above)}", True
    if not earlier:
        return f"costs: not compared: {len(nights)} earlier nights, {FEWEST} are needed", False
    spread, name = max(
        ((max(seconds_now) - min(seconds_now)) / statistics.median(seconds_now), name)
        for name, seconds_now in earlier.items()
    )
    return (
        f"costs: nothing is more than a fifth above earlier nights; largest spread: {spread:.0%} ({name})",
        False,
    )


def main() -> int:
    """Measures, prints the results, and returns exit status 1 if a goal is missed."""
    parser = argparse.ArgumentParser(
        description="Measures what runs and other commands cost.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--repetitions",
        type=positive_count,
        default=5,
        metavar="N",
        help="how often each measure is repeated",
    )
    compare = parser.add_mutually_exclusive_group()
    of_history = "compare with earlier nights, and add this night"
    compare.add_argument("--history", type=Path, metavar="FILE", help=of_history)
    of_commit = "measure this commit too, in turn, and print the ratios"
    compare.add_argument("--against", metavar="COMMIT", help=of_commit)
    parser.add_argument(
        "measures",
        nargs="*",
        metavar="MEASURE",
        help=f"some of {', '.join(MEASURES)}; default: all",
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.measures) - set(MEASURES):
        parser.error(
            f"unknown measure {sorted(unknown)[0]!r}; the measures are {', '.join(MEASURES)}",
        )
    if arguments.against:
        with tree_of(ROOT, arguments.against) as before:
            lines = list(TABLE)
            for name in arguments.measures or MEASURES:
                measure = MEASURES[name]
                repetitions = 0 if measure.once else arguments.repetitions
                lines.append(beside(measure.title, measure.run, repetitions, (before, ROOT)))
        print("\n".join(lines))
        return 0
    nights = read_nights(arguments.history) if arguments.history else []
    figures: dict[str, float] = {}
    lines = [
        "| what | median | processors | memory | floor | ratio | goal |",
        "|---|---|---|---|---|---|---|",
    ]
    missed = False
    for name in arguments.measures or MEASURES:
        measure = MEASURES[name]
        took, floor = repeat(name, measure, arguments.repetitions)
        missed |= measure.is_missed(took)
        figures |= {f"{name} processor_s": took.processor_s, f"{name} MiB": took.memory_mib}
        figures |= {f"{name} / floor": took.seconds / floor} if floor else {}
        if floor:
            of_floor = f"{floor:.1f} s | {took.seconds / floor:.1f}"
        else:
            of_floor = "none | "
        used = f"{took.seconds:.1f} s | {took.processor_s:.1f} s | {took.memory_mib:.0f} MiB"
        lines.append(f"| {measure.title} | {used} | {of_floor} | {measure.goal} |")
    print("\n".join(lines))
    if arguments.history:
        line, missed = compared(nights, figures)
        print(line)
        with reading(arguments.history):
            if arguments.history.exists():
                old = arguments.history.read_bytes()
            else:
                old = b""
        night = {"night": f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", "figures": figures}
        write_atomically(arguments.history, old + json.dumps(night).encode() + b"\n")
    return int(missed)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as mistake:
        print(f"run_cost.py: {mistake}", file=sys.stderr)
        sys.exit(mistake.status)
