"""Measures the time of the commands that read results, for a run with very many cases.

    python3 ci/benchmarks/readers.py [--planned N | --results N [--own] | --nights N] [RUN]

The commands read a copy of RUN, a results.jsonl. With --planned, the copy has N more planned cases without results.
With --results, it has N results: those of the run, repeated with different case ids, and with --own also with
different observations and locations. With --nights, the page of a history of N nights on four stacks is made; one night
in ten lacks a defect, a different one each time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import chain, product
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
SAMPLE = ROOT / "tests/old_results/results.jsonl"
STACKS = ("bookworm", "trixie", "forky", "sid")
EACH = 10  # one night in so many lacks a defect
FORMATS = ("summary", "html", "junit", "ktap", "markdown", "tmt")


def planned_run(source: Path, folder: Path, number: int) -> Path:
    """Writes a copy of the run in `source` with `number` more planned cases to the new directory `folder`."""
    header, *rest = source.read_bytes().splitlines(keepends=True)
    data = json.loads(header)
    data["planned"] += [f"reg_mr/made/up-{index}" for index in range(number)]
    folder.mkdir()
    (folder / source.name).write_bytes(json.dumps(data).encode() + b"\n" + b"".join(rest))
    return folder


def repeated_run(source: Path, folder: Path, number: int, own: bool = False) -> Path:
    """Writes an incomplete run with `number` results, which repeat the results in `source`, to the new directory
    `folder`, and returns `folder`."""
    header, *results = (
        data
        for line in source.open("rb")
        if (data := json.loads(line))["type"] in ("header", "result")
    )

    def copy(at: int) -> dict[str, Any]:
        again = {**results[at % len(results)], "points_file": "", "duration_us": 1000 + at}
        if own:
            again |= {
                "observed": {**again["observed"], "n": at},
                "source": {**again["source"], "line": at},
            }
        case = f"{again['case']}-copy-{at // len(results)}"
        return {**again, "repro": again["repro"].replace(again["case"], case), "case": case}

    folder.mkdir()
    first = {**header, "planned": [copy(at)["case"] for at in range(number)]}
    # Written line by line, because the peak memory of a child process includes that of this process.
    with (folder / source.name).open("w") as file:
        for record in chain([first], map(copy, range(number))):
            file.write(f"{json.dumps(record, separators=(',', ':'))}\n")
    return folder


def nights(source: Path, folder: Path, number: int) -> Path:
    """Writes a history of the new directory `folder`, of which each cell has the summary of the run in `source`."""
    text = subprocess.run(
        [ROOT / "rdma-cts", "report", source, "--format", "summary", "--out", "-"],
        capture_output=True,
        check=True,
    ).stdout
    data = json.loads(text)
    outcome = json.dumps({"schema": "rdma-cts-cell/1", "outcome": "good"})
    first = datetime(2020, 1, 1, 3, 17, tzinfo=timezone.utc)
    for night, stack in product(range(number), STACKS):
        started = first + timedelta(days=night)
        head = {"started": started.isoformat(), "duration_s": 300 + night / 8}
        lacks = night % len(data["defects"])
        defects = [
            defect for place, defect in enumerate(data["defects"]) if night % EACH or place != lacks
        ]
        of_stack = {**data["stack"], "stack": stack, "started": head["started"]}
        cell = folder / f"{started:%Y%m%dT%H%M%SZ}" / stack
        cell.mkdir(parents=True)
        changed = {**data, **head, "stack": of_stack, "defects": defects}
        (cell / "summary.json").write_text(json.dumps(changed, indent=1) + "\n")
        (cell / "cell.json").write_text(outcome)
    return folder


@dataclass(frozen=True)
class Cost:
    """The cost of a command: seconds, processor seconds of the command and its child processes, and MiB of memory."""

    seconds: float
    processor_s: float
    memory_mib: float


def cost(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Returns the cost of a command, which must come to its end: with status 0, 1, or 3 because a run is incomplete."""
    began = time.perf_counter()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        environment = {
            **os.environ,
            "RDMA_CTS_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            **environment,
        }
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 1, 3):
            output.seek(0)
            sys.exit(f"{command} ended with status {process.returncode}: {output.read()}")
    return Cost(time.perf_counter() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0] if __doc__ else "",
        allow_abbrev=False,
    )
    parser.add_argument("--planned", type=int, default=300_000, metavar="N")
    parser.add_argument("--results", type=int, metavar="N")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--nights", type=int, metavar="N")
    parser.add_argument("run", nargs="?", type=Path, default=SAMPLE, metavar="RUN")
    arguments = parser.parse_args()
    if not arguments.run.is_file():
        parser.error(f"{arguments.run} is not a file; give a results.jsonl")
    with tempfile.TemporaryDirectory() as name:
        if arguments.nights:
            history = str(nights(arguments.run, Path(name) / "history", arguments.nights))
            took = cost([str(ROOT / "rdma-cts"), "report", "--history", history], {})
            size = (Path(history) / "history.html").stat().st_size
            print(
                f"{took.processor_s:6.2f} s {took.memory_mib:6.0f} MiB {size / 1e6:8.1f} MB  report --history"
            )
            return 0
        make_run, *more = (
            (repeated_run, arguments.results, arguments.own)
            if arguments.results
            else (planned_run, arguments.planned)
        )
        large, again = (
            str(make_run(arguments.run, Path(name) / item, *more)) for item in ("many", "again")
        )
        commands = [
            *(
                ["report", large, "--format", format, "--out", f"{name}/report"]
                for format in FORMATS
            ),
            ["compare", again, large],
            ["judge", large],
            ["explain", "REG-15", "--run", large],
            ["list", "coverage", "--run", large],
        ]
        for command in commands:
            took = cost([str(ROOT / "rdma-cts"), *command], {})
            report = Path(name) / "report"
            if "--out" in command:
                size = report.stat().st_size
            else:
                size = 0
            shown = " ".join(
                word for word in command if not word.startswith(name) and word != "--out"
            )
            print(
                f"{took.processor_s:6.2f} s {took.memory_mib:6.0f} MiB {size / 1e6:8.1f} MB  {shown}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
