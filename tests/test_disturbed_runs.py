"""Tests that really disturb runs: the supervisor is stopped, its disk fills, a second run wants its directory, /proc is
missing. test_stopped_supervisor.py, test_resume.py and test_user_environment.py have the same events without a guest;
test_host_device.py sets the clock of a host."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.results.records import read_written
from conformance.tables.suite import ROOT
from fixtures.guest import privileges
from kinds import Folders
from launched import ended, launched, prepare, script
from patience import PATIENCE_S, await_true, command_lines
from samples import footer_of

ENVIRONMENT = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
SAME = ("complete", "verdicts", "rules", "rule_totals", "points")
# The first case is long, so that something can happen in it.
CASES = (
    "bind_mw/rights_space/rights-of-type-2",
    *(f"dealloc_mw/deallocation/bound-type-{number}" for number in "12"),
)
DEADLINE_S = 30.0  # longer than any case takes, even on a slow machine
IN_GUEST = [
    *("run", "--guest", "--yes", "-q", "--no-confirm", "--guests", "1"),
    *("--deadline", f"{DEADLINE_S:g}"),
]
CHOSEN = [*IN_GUEST, *(word for case in CASES for word in ("--only", case))]


def figures(out: Path) -> dict[str, object]:
    recorded = read_written(out)
    footer = footer_of(recorded)
    verdicts = {line["case"]: (line["verdict"], line["reason"]) for line in recorded.results}
    return {**{key: footer[key] for key in SAME}, "by case": verdicts}  # type: ignore[literal-required]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: Folders) -> dict[str, object]:
    prepare()
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    launched(*CHOSEN, "--out", out)
    assert figures(out)["complete"] is True
    return figures(out)


def guest_of(out: Path) -> int:
    for pid, words in command_lines().items():
        if "qemu" in words[0] and str(out) in " ".join(words):
            return pid
    return 0


def in_private_mounts() -> tuple[str, ...]:
    """Returns the words before a command whose mounts are its own."""
    return privileges.prefix() or ("unshare", "--mount", "--propagation", "unchanged")


@contextmanager
def begun(out: Path) -> Iterator[subprocess.Popen[str]]:
    """Starts the run; the block begins in the first case, and the run ends after it."""
    command = ["./rdma-cts", *CHOSEN, "--out", str(out)]
    results = out / "results.jsonl"
    with subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        await_true(lambda: results.exists() and results.stat().st_size)
        assert process.poll() is None
        yield process
        process.communicate(timeout=PATIENCE_S)


@pytest.mark.guest
@pytest.mark.nightly
@pytest.mark.parametrize("with_guest", [False, True])
def test_a_stop_that_is_longer_than_the_deadline_changes_no_verdict(
    undisturbed, tmp_path, with_guest
):
    """As by Ctrl-Z, a debugger or a machine that sleeps: the supervisor alone, or with its guest."""
    out = tmp_path / "out"
    with begun(out) as process:
        stopped = [process.pid, *([guest_of(out)] if with_guest else [])]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        until = time.monotonic() + DEADLINE_S + 1
        await_true(lambda: time.monotonic() > until)  # the stop itself
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert figures(out) == undisturbed


@pytest.mark.guest
def test_a_second_run_into_the_directory_of_a_run_is_refused(undisturbed, tmp_path):
    out = tmp_path / "out"
    with begun(out) as process:
        os.kill(process.pid, signal.SIGSTOP)  # so that the run does not end before the others begin
        second = launched(*CHOSEN, "--out", out)
        resumed = launched("run", "--resume", out)
        os.kill(process.pid, signal.SIGCONT)
    for done in (second, resumed):
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert f"a run is in progress in {out}" in line
    assert figures(out) == undisturbed


# Leaves room on the disk of a run for a part of its results, and makes room again before the run is resumed. The run is
# held meanwhile, so that it does not end before the disk is full.
MANY = ("-k", "reg_mr/unknown_bits")
ROOM_KIB = 48  # 40 % of the results, and the log of the console
FULL = """
set -e
mount -t tmpfs -o size=64m none "$1"
cd "$2"
shift 2
place=$PLACE
"$@" --out "$place/run" 2>"$SAID" &
run=$!
until grep -q '"type":"header"' "$place/run/results.jsonl" 2>/dev/null; do
    kill -0 $run
    sleep 0.01
done
kill -STOP $run
free=$(df --output=avail -k "$place" | tail -n 1)
head -c $(((free - ROOM) * 1024)) /dev/zero >"$place/filler"
kill -CONT $run
status=0
wait $run || status=$?
echo "status $status" >>"$SAID"
cp "$place/run/results.jsonl" "$KEPT/cut.jsonl"
rm "$place/filler"
"$1" run --resume "$place/run" -q || true
cp -r "$place/run" "$KEPT/run"
"""


@pytest.mark.guest
def test_a_disk_that_fills_during_a_run_loses_at_most_the_case_in_flight(tmp_path):
    prepare()
    launched(*IN_GUEST, *MANY, "--out", tmp_path / "undisturbed")
    place, kept, said = tmp_path / "disk", tmp_path / "kept", tmp_path / "said"
    place.mkdir()
    kept.mkdir()
    paths = {"PLACE": str(place), "KEPT": str(kept), "SAID": str(said)}
    environment = {**ENVIRONMENT, **paths, "ROOM": str(ROOM_KIB)}
    shell = ("sh", "-c", FULL, "sh", place, ROOT, "./rdma-cts", *IN_GUEST, *MANY)
    done = ended(*in_private_mounts(), *shell, env=environment)
    assert done.returncode == 0, done.stderr
    *message, status = said.read_text().splitlines()
    assert status == "status 3"
    assert any("No space left on device" in line for line in message)
    assert "Traceback" not in said.read_text()
    cut = (kept / "cut.jsonl").read_bytes().splitlines(keepends=True)
    results = [line for line in cut if b'"type":"result"' in line and line.endswith(b"\n")]
    assert results
    assert set(results) < set((kept / "run/results.jsonl").read_bytes().splitlines(keepends=True))
    assert figures(kept / "run") == figures(tmp_path / "undisturbed")


# Builds an image on a disk that has become small. In place of mmdebstrap a program makes the disk small, and fills it.
BUILDER = """
for word; do
    case $word in "$PLACE"/*) root=$word ;; esac
done
mount -o remount,size=16m none "$PLACE"
mkdir -p "$root"
cat /dev/zero >"$root/file"
"""


def test_a_disk_that_fills_while_an_image_is_built_is_reported_and_nothing_is_left(tmp_path):
    place = tmp_path / "cache"
    place.mkdir(mode=0o700)
    script(tmp_path / "bin/mmdebstrap", BUILDER)
    environment = {**ENVIRONMENT, "PLACE": str(place), "RDMA_CTS_CACHE": str(place)}
    environment["PATH"] = f"{tmp_path}/bin:{os.environ['PATH']}"
    commands = f"mount -t tmpfs -o size=1100m,mode=700 none {place} || exit\n"
    commands += f"{ROOT}/rdma-cts prepare --yes\necho status $?\nls {place}/images\ndf -m {place}"
    done = ended(*in_private_mounts(), "sh", "-c", commands, env=environment)
    first, *images, _, disk = done.stdout.partition("status ")[2].splitlines()
    assert first == "3"
    assert not images
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("rdma-cts: "))
    assert f"not enough disk space to build the guest image in {place}: 1024 MiB are needed" in line
    assert int(disk.split()[3]) > 0, "what was built is removed"


def test_a_run_in_a_system_without_proc_is_refused_in_one_line(tmp_path):
    hidden = ("sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
    run = (sys.executable, "-m", "commands", *CHOSEN, "--out", tmp_path / "out")
    done = ended(*in_private_mounts(), *hidden, *run, cwd=ROOT)
    assert done.returncode == 3
    assert done.stderr == (
        "rdma-cts: a run needs /proc, which is not mounted; mount -t proc proc /proc\n"
    )
    assert not (tmp_path / "out").exists()
