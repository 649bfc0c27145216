"""The scripts for Slurm: the command on a node, and an acceptance run on Slurm's real daemons, if they are
installed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT
from kinds import Patch
from launched import ended, script

NODES = ("n1", "n2", "n3", "n4")
DAEMONS = ("munged", "slurmctld", "slurmd")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A copy of the scripts with a program that only prints its arguments, and ends with STATUS."""
    folder = tmp_path / "suite"
    shutil.copytree(ROOT / "ci", folder / "ci")
    script(folder / "rdma-cts", 'echo "$@"\nexit "${STATUS:-0}"')
    return folder


@pytest.mark.parametrize(
    ("files", "status", "said", "ends"),
    [
        ([], 0, "run --out {out}/n7 --yes --quiet --tier smoke", 0),
        ([], 1, "run --out {out}/n7 --yes --quiet --tier smoke", 0),
        ([], 3, "run --out {out}/n7 --yes --quiet --tier smoke", 3),
        (["plan.json"], 0, "run --resume {out}/n7 --yes --quiet", 0),
    ],
)
def test_a_node_runs_what_is_missing(
    suite: Path, tmp_path: Path, files: list[str], status: int, said: str, ends: int
) -> None:
    out = tmp_path / "out"
    for name in files:
        (out / "n7").mkdir(parents=True, exist_ok=True)
        (out / "n7" / name).touch()
    environment = {**os.environ, "SLURMD_NODENAME": "n7", "STATUS": str(status)}
    done = ended("sh", suite / "ci/slurm/node.sh", out, "--tier", "smoke", env=environment)
    assert (done.stdout.strip(), done.returncode) == (said.format(out=out), ends), done.stderr


def until(told: str, *command: str, within_s: float = 300.0) -> None:
    """Waits until a command of Slurm prints `told`."""
    end = time.monotonic() + within_s
    while (found := ended(*command).stdout.strip()) != told:
        assert time.monotonic() < end, f"{' '.join(command)}: {found!r}, not {told!r}"
        time.sleep(0.5)


def node_daemon(node: str) -> subprocess.Popen[bytes]:
    """The slurmd process of a node; a signal can end it."""
    return subprocess.Popen(["slurmd", "-D", "-N", node], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextmanager
def running(folder: Path, nodes: Sequence[str]) -> Iterator[None]:
    """Runs a controller and nodes on the loopback address, with their files in the folder."""
    ports = []
    for _ in range(1 + len(nodes)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    for name in ("state", *(f"spool-{node}" for node in nodes)):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    (folder / "slurm.conf").write_text(
        f"""ClusterName=test
SlurmctldHost={socket.gethostname().partition(".")[0]}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
SlurmdTimeout=10
MessageTimeout=30
SchedulerParameters=batch_sched_delay=0,sched_interval=1
NodeName={",".join(nodes)} NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{",".join(map(str, ports[1:]))}] CPUs=1
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE
"""
    )
    munge = [f"--{name}={folder}/munge.{name}" for name in ("socket", "log-file", "seed-file")]
    munge += [f"--key-file={key}", f"--pid-file={folder}/munge.pid"]
    foreground = [
        subprocess.Popen(["munged", "--foreground", "--force", *munge]),
        subprocess.Popen(["slurmctld", "-D"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
        *map(node_daemon, nodes),
    ]
    try:
        until(str(len(nodes)), "sh", "-c", "sinfo -h -N -t idle | wc -l")
        yield
    finally:
        for daemon in reversed(foreground):
            daemon.kill()
            daemon.wait()


def submitted(*words: str) -> str:
    """Submits a job; returns its number."""
    return ended("sbatch", "--parsable", *words, check=True).stdout.strip()


needs_slurm = pytest.mark.skipif(
    not all(map(shutil.which, DAEMONS)), reason=f"optional: {', '.join(DAEMONS)} are not installed"
)


@needs_slurm
def test_each_script_runs_on_a_cluster_of_one_node(suite: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("SLURM_CONF", f"{tmp_path}/slurm.conf")
    monkeypatch.setenv("RDMA_CTS_SUITE", str(suite))
    scripts, out, page = suite / "ci/slurm", tmp_path / "out", tmp_path / "page"
    log = f"--output={tmp_path}/%x-%a"  # %x is the name of the job
    with running(tmp_path, NODES[:1]):
        submitted("--job-name=run", log, f"{scripts}/acceptance.sbatch", str(out), "--tier", "smoke")
        submitted("--job-name=page", log, f"{scripts}/page.sbatch", str(out), str(page))
        job = submitted("--array=0-2:2", f"--chdir={tmp_path}", log, f"{scripts}/array.sbatch", "--guest")
        until("", "squeue", "-h")
    said = sorted(line for each in tmp_path.glob("*-[0-9]*") for line in each.read_text().splitlines())
    assert said == [
        f"fleet {out} --out {page}",
        f"run --out {out}/n1 --yes --quiet --tier smoke",
        *(f"run --out out/{job}/shard-{each} --yes --quiet --shard {each}/2 --guest" for each in (1, 2)),
    ]
