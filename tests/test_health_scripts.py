"""Tests of the scripts in ci/health, with programs in place of the suite and of Slurm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT
from launched import ended, script
from patience import await_true
from stand_in_hosts import StandInHost, StandInPort, dgx, infiniband

Call = Callable[..., tuple[str, int]]


@pytest.fixture
def call(tmp_path: Path) -> Call:
    """Returns a function that runs a script and returns its output and its exit status. In place of the suite, a program
    prints a line about its device, and exits with the status in the variable of the device's name, or 0. scontrol
    prints its arguments."""
    shutil.copytree(ROOT / "ci/health", tmp_path / "suite/ci/health")
    script(
        tmp_path / "suite/rdma-cts",
        'case "$*" in *"--hazardous"*) exit 2;; esac\n'
        'mkdir -p "$6"; eval status="\\${$(basename "$6"):-0}"\n'
        'echo "first line"; echo "$* (exit status $status)"; exit "$status"',
    )
    script(tmp_path / "bin/scontrol", 'echo "scontrol $*"')
    script(tmp_path / "bin/logger", 'cat >"$TMPDIR/logged"')
    (tmp_path / "tmp").mkdir()

    def run(
        name: str,
        *arguments: str,
        host: StandInHost | None = None,
        **more: str,
    ) -> tuple[str, int]:
        if host:
            host.laid(tmp_path)
        environment = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "RDMA_CTS_HEALTH_SYSFS": str(tmp_path / "ib"),
            "TMPDIR": str(tmp_path / "tmp"),
            **more,
        }
        path = tmp_path / "suite/ci/health" / name
        done = ended("sh", path, *arguments, cwd=tmp_path, env=environment)
        return done.stdout.strip(), done.returncode

    return run


def two_devices() -> StandInHost:
    """The first device has no cable at its first port; a third device has no cable at all."""
    ports = {
        "mlx5_0": (infiniband(0, "1: DOWN"), infiniband(1)),
        "mlx5_1": (StandInPort(),),
        "mlx5_2": (infiniband(2, "1: DOWN"),),
    }
    return StandInHost({}, ports)


def test_each_device_with_a_link_is_tested_on_its_first_active_port(call, tmp_path):
    said, status = call("node.sh", "--shared", host=two_devices())
    results = next((tmp_path / "tmp").iterdir(), None)
    assert results is None, "results of healthy devices remain"
    run = "run --tier health --quiet --out"
    lines = [
        line.split(": ", 1)[1].replace(line.split(" --out ")[1].split(" ")[0], "OUT")
        for line in said.split("\n")
    ]
    assert lines == [
        f"{run} OUT --device mlx5_0 --port 2 --shared (exit status 0)",
        f"{run} OUT --device mlx5_1 --port 1 --shared (exit status 0)",
    ]
    assert status == 0


@pytest.mark.parametrize(
    "first, second, status",
    [("0", "3", 3), ("1", "3", 1), ("3", "1", 1), ("3", "0", 3), ("0", "1", 1)],
)
def test_the_status_is_the_worst_and_its_results_are_kept(call, tmp_path, first, second, status):
    said, code = call("node.sh", host=two_devices(), mlx5_0=first, mlx5_1=second)
    assert code == status
    folder = Path(said.splitlines()[-1].removeprefix("results: "))
    kept = {name for name, of in (("mlx5_0", first), ("mlx5_1", second)) if of != "0"}
    assert {path.name for path in folder.iterdir()} == kept


def test_a_violation_that_was_seen_before_the_time_was_over_counts(call, tmp_path):
    """slurmd ends a health check after a minute, here when the first device has been tested."""
    two_devices().laid(tmp_path)
    suite = tmp_path / "suite"
    script(
        suite / "rdma-cts",
        'case "$*" in *mlx5_1*) exec sleep 600;; esac; echo violated; exit 1',
    )
    environment = {
        **os.environ,
        "RDMA_CTS_HEALTH_SYSFS": str(tmp_path / "ib"),
        "TMPDIR": str(tmp_path / "tmp"),
    }
    command: list[str | Path] = ["sh", suite / "ci/health/node.sh"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as node:
        for begun in (".mlx5_0.status", ".mlx5_1.said"):
            await_true(lambda begun=begun: any(tmp_path.glob(f"tmp/*/{begun}")))  # type: ignore[misc]
        node.terminate()
        said, _ = node.communicate()
    assert node.returncode == 1
    assert "mlx5_0: violated" in said
    assert "mlx5_1: the time was over before it was tested" in said


def test_a_node_without_devices_is_healthy(call):
    assert call("node.sh") == (
        "this node has no RDMA device with an active port: nothing was tested (exit status 0)",
        0,
    )


def test_a_health_check_of_slurm_drains_the_node_and_a_prolog_fails(call):
    said, status = call("slurm.sh", host=two_devices(), mlx5_1="1", SLURMD_NODENAME="n7")
    assert (
        "scontrol update NodeName=n7 State=DRAIN Reason=rdma-cts: mlx5_1: run --tier health" in said
    )
    assert status == 0
    said, status = call("slurm.sh", mlx5_1="1", SLURM_JOB_ID="5")
    assert "scontrol" not in said
    assert status == 1


def test_without_a_conclusion_a_node_stays_in_service(call, tmp_path):
    options = {"RDMA_CTS_HEALTH": "--port 1 --peer mlx5_1"}
    assert call("slurm.sh", host=two_devices(), mlx5_0="3", **options) == ("", 0)
    assert "--peer mlx5_1 (exit status 3)" in (tmp_path / "tmp/logged").read_text()


@pytest.mark.parametrize("of_suite, status", [("0", 0), ("1", 1), ("3", 2)])
def test_node_problem_detector_gets_one_line_and_its_own_statuses(call, of_suite, status):
    said, code = call("node-problem-detector.sh", host=two_devices(), mlx5_1=of_suite)
    assert code == status
    assert len(said.splitlines()) == 1
    assert ("every RDMA device protects memory" in said) is (of_suite == "0")


def test_node_problem_detector_says_that_no_device_was_tested(call):
    said, code = call("node-problem-detector.sh")
    assert (code, said.count("nothing was tested")) == (0, 1)


def test_the_monitor_names_a_script_of_the_suite():
    monitor = json.loads((ROOT / "ci/health/node-problem-detector.json").read_text())
    (rule,) = monitor["rules"]
    assert (ROOT / rule["path"].removeprefix("/rdma-cts/")).is_file()
    assert rule["condition"] == monitor["conditions"][0]["type"]
    assert monitor["plugin"] == "custom"


def test_a_dgx_has_eight_lines(call):
    said, _ = call("node.sh", host=dgx())
    assert len(said.splitlines()) == 8
