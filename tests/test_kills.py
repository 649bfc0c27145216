"""Tests that kill the process of a run, QEMU, or pytest in the guest, at random moments and in each state of a run, and
then use --resume. RDMA_CTS_MOMENTS is the number of kills of each kind at random moments; the moments are computed from a
seed, and are printed."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.results.records import read_written
from conformance.tables.suite import ROOT
from fixtures.guest.image import image_folder
from fixtures.guest.recipe import recipe_for
from fixtures.system.cache import cache_directory
from kinds import Folders
from launched import launched, prepare
from patience import PATIENCE_S, await_true, command_lines
from samples import footer_of, laid

pytestmark = pytest.mark.guest
MOMENTS = int(os.environ.get("RDMA_CTS_MOMENTS", "1"))
SEED = 7
SAME = ("complete", "verdicts", "rules", "rule_totals", "points", "confirmation")
ENVIRONMENT = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
# Runs by name: a run of few cases, and a run that keeps two guests busy and has violations and a hazardous case. Each
# verdict must be the same whenever the run is repeated: `-k type` leaves out the cases that race with traffic.
RUNS = {
    "one guest": (
        "--guest",
        "--yes",
        "--guests",
        "1",
        "--verb",
        "dealloc_mw",
        "--verb",
        "alloc_mw",
        "-q",
    ),
    "two guests": (
        "--guest",
        "--yes",
        "--guests",
        "2",
        "--rule",
        "BIND-15",
        "--rule",
        "BIND-17",
        "-k",
        "type",
        "-q",
    ),
}
# To kill pytest, guests must be booted instead of resumed. With two guests, kills of pytest therefore take as long as
# all other kills, and are made only if RDMA_CTS_MOMENTS is more than 1.
VICTIMS = {
    "one guest": ("supervisor", "qemu", "pytest"),
    "two guests": ("supervisor", "qemu", *(["pytest"] if MOMENTS > 1 else [])),
}
# By day, the supervisor and QEMU are killed, with one guest.
BY_DAY = (("one guest", "supervisor"), ("one guest", "qemu"))
KILLS = [
    pytest.param(name, victim, marks=() if (name, victim) in BY_DAY else pytest.mark.nightly)
    for name, victims in VICTIMS.items()
    for victim in victims
]
# Each Python process of the guest loads this module. In pytest it kills the process at the time KILL_AT, by the clock
# that host and guest share; if that time has passed, it does nothing.
KILLER = """
import os, signal, sys, threading, time
if any("rdma-stream" in word for word in sys.orig_argv):
    left = float(os.environ.get("KILL_AT", "0")) - time.time()
    if left > 0:
        timer = threading.Timer(left, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
"""


def footer(out: Path) -> dict[str, object]:
    """Returns the part of the footer that must be the same with and without a kill; empty if there is no footer."""
    if b'"type":"footer"' not in (out / "results.jsonl").read_bytes():
        return {}
    return {key: value for key, value in footer_of(read_written(out)).items() if key in SAME}


def guests_of(out: Path) -> list[int]:
    return [
        pid
        for pid, words in command_lines().items()
        if "qemu" in words[0] and str(out) in "\0".join(words)
    ]


@dataclass(frozen=True)
class Unbroken:
    """A run without a kill: its arguments, the part of its footer, and its duration."""

    arguments: tuple[str, ...]
    footer: dict[str, object]
    took_s: float


@pytest.fixture(scope="module")
def unbroken(request: pytest.FixtureRequest, tmp_path_factory: Folders) -> Unbroken:
    arguments = RUNS[request.param]
    out = tmp_path_factory.mktemp("kills") / "unbroken"
    # Some files are made only once. If this run made them, it would take longer than the later runs, and some
    # moments of kills would be after the end of those runs.
    prepare()
    began = time.monotonic()
    done = launched("run", *arguments, "--out", out)
    took = time.monotonic() - began
    footers = footer(out)
    assert footers.get("complete") is True, done.stdout + done.stderr
    return Unbroken(arguments, footers, took)


@pytest.mark.parametrize("number", range(MOMENTS))
@pytest.mark.parametrize("unbroken, victim", KILLS, indirect=["unbroken"])
def test_a_kill_at_any_moment_loses_nothing(unbroken, tmp_path, victim, number):
    out = tmp_path / "out"
    chosen = unbroken.arguments
    moment = random.Random(f"{SEED} {victim} {number}").uniform(0.0, unbroken.took_s)
    print(f"{victim} killed after {moment:.2f} s of {unbroken.took_s:.2f} s")
    more: list[str] = []
    expected = unbroken.footer
    environment = dict(ENVIRONMENT)
    if victim == "pytest":
        more = ["--no-confirm"]  # only guests from a template can repeat violations
        expected = {key: value for key, value in expected.items() if key != "confirmation"}
        laid(tmp_path, {"overlay/usr/local/lib/killer/sitecustomize.py": KILLER})
        settings = ("PYTHONPATH=/usr/local/lib/killer", f"KILL_AT={time.time() + moment}")
        more += [
            "--overlay",
            str(tmp_path / "overlay"),
            *(word for setting in settings for word in ("--guest-env", setting)),
        ]
        # In a guest from a template, pytest runs in a process that was started long before.
        environment["RDMA_CTS_TEMPLATES"] = "off"
    command = ["./rdma-cts", "run", *chosen, *more, "--out", str(out)]
    streams: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, env=environment, **streams) as process:
        if victim != "pytest":
            time.sleep(moment)  # not a wait for an event: this is the moment of the kill
        print(f"the run {'was still going on' if process.poll() is None else 'had ended'}")
        if victim == "supervisor":
            process.kill()
        elif victim == "qemu":
            await_true(lambda: guests_of(out) or process.poll() is not None)
            for pid in guests_of(out):
                os.kill(pid, 9)
        _, said = process.communicate(timeout=PATIENCE_S)
    await_true(lambda: not guests_of(out))
    for _ in range(3):
        if (out / "results.jsonl").exists() and footer(out).get("complete"):
            break
        if (out / "plan.json").exists():
            again = ["--resume", str(out), "-q"]
        else:
            again = [*chosen, *more, "--out", str(out)]
        said = launched("run", *again).stderr
    assert footer(out) == expected, said
    assert not list(out.glob("work-*"))


# Kills in each state of a run: one long case with a violation, shorter ones, and a hazardous case with a violation, which
# runs last in a guest of its own.

CASES = (
    "bind_mw/completions/completion-events",
    "bind_mw/bound_anew/type-2-rights-and-range",
    "dealloc_mw/deallocation/bound-type-1",
    "advise_mr/codes/prefetch-of-a-plain-region-without-flush",
)
CHOSEN = (
    *("--guest", "--yes", "-q", "--guests"),
    *("1", *(word for case in CASES for word in ("--only", case))),
)


def recorded(out: Path) -> list[bytes]:
    """Returns the complete lines of the results file."""
    with suppress(FileNotFoundError):
        return (out / "results.jsonl").read_bytes().splitlines(keepends=True)
    return []


def results(out: Path) -> list[bytes]:
    return [line for line in recorded(out) if b'"type":"result"' in line]


def guests_with(*parts: str) -> list[int]:
    guests = []
    for pid, words in command_lines().items():
        line = " ".join(words)
        if "qemu" in words[0] and all(part in line for part in parts):
            guests.append(pid)
    return guests


def booted(cache: Path) -> bool:
    """Whether the guest that becomes a template has begun to boot."""
    return any(path.stat().st_size for path in cache.glob("templates/*-*/console"))


def ended(out: Path) -> bool:
    return any(b'"type":"footer"' in line for line in recorded(out)[-1:])


# The guests that show the state, by the directories of the run and of its cache.
STATES: dict[str, Callable[[Path, Path], Sequence[int]]] = {
    "the first case": lambda out, _: guests_of(out) if recorded(out) else [],
    "the hazardous case": lambda out, _: guests_of(out) if len(results(out)) == 3 else [],
    # only the console of a guest that repeats violations is not kept
    "the confirmation": lambda out, _: guests_with(f"path={out}/work-", "/console.log,"),
    "the template": lambda _, cache: guests_with(f"{cache}/templates/") if booted(cache) else [],
    # the footer is the last record, and the reports are not yet written
    "the end": lambda out, _: [0] if ended(out) and not (out / "report.html").exists() else [],
}
KILLED = [
    (state, victim)
    for state in STATES
    for victim in ("SIGKILL", "SIGTERM", "QEMU")
    if (state, victim) != ("the end", "QEMU")  # there is no guest any more
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: Folders) -> Path:
    prepare()
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    launched("run", *CHOSEN, "--out", out)
    assert footer(out)["complete"] is True
    return out


@pytest.fixture
def cache(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The cache of the run: the usual one, or one that has the usual image, but no template."""
    usual = cache_directory()
    if request.node.callspec.params["state"] != "the template":
        return usual
    own = tmp_path / "cache"
    own.mkdir(mode=0o700)
    shutil.copytree(image_folder(recipe_for(), usual), image_folder(recipe_for(), own))
    return own


def verdicts(out: Path) -> dict[str, object]:
    return {line["case"]: line["verdict"] for line in read_written(out).results}


@pytest.mark.nightly
@pytest.mark.parametrize("state, victim", KILLED)
def test_a_kill_in_any_state_loses_at_most_the_case_in_flight(
    undisturbed, tmp_path, cache, state, victim
):
    out = tmp_path / "out"
    environment = {**ENVIRONMENT, "RDMA_CTS_CACHE": str(cache)}
    again = {"RDMA_CTS_CACHE": str(cache)}
    command = ["./rdma-cts", "run", *CHOSEN, "--out", str(out)]
    shows = STATES[state]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        await_true(lambda: shows(out, cache) or process.poll() is not None)
        guests = shows(out, cache)
        assert process.poll() is None, f"the run ended before {state}"
        if victim == "QEMU":
            for pid in guests:
                os.kill(pid, signal.SIGKILL)
        else:
            process.send_signal(signal.Signals[victim])
        process.wait(PATIENCE_S)
    await_true(lambda: not guests_with(str(tmp_path)))
    lines = results(out)
    said = ""
    if not (out / "plan.json").exists():
        said = launched("run", *CHOSEN, "--out", out, **again).stderr
    elif victim != "QEMU":
        said = launched("run", "--resume", out, "-q", **again).stderr
    print(f"{victim} during {state}: {len(lines)} of {len(CASES)} results were recorded")
    assert results(out)[: len(lines)] == lines
    assert verdicts(out) == verdicts(undisturbed), said
    assert footer(out) == footer(undisturbed), said
    assert not list(out.glob("work-*"))
    if cache != cache_directory():  # other runs may make templates there
        assert not list(cache.glob("templates/*-*"))
