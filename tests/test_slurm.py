"""Tests of the scripts for Slurm, with programs in place of Slurm and of the suite."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT
from launched import ended, script


@pytest.fixture
def call(tmp_path: Path) -> Callable[..., tuple[str, int]]:
    """Returns a function that runs a script and returns the suite's command line and the exit status. In place of the
    suite, a program prints its arguments and exits with STATUS; `srun` runs the command on the node n7."""
    shutil.copytree(ROOT / "ci", tmp_path / "ci")
    script(tmp_path / "rdma-cts", 'echo "$@"\nexit "${STATUS:-0}"')
    script(
        tmp_path / "bin/srun",
        'while [ "${1#-}" != "$1" ]; do shift; done\nSLURMD_NODENAME=n7 exec "$@"',
    )

    def run(name: str, *arguments: str, **environment: str) -> tuple[str, int]:
        path = {
            "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
            "SLURM_SUBMIT_DIR": str(tmp_path),
        }
        done = ended(
            "sh",
            tmp_path / "ci/slurm" / name,
            *arguments,
            cwd=tmp_path,
            env={**path, **environment},
        )
        assert done.stderr == ""
        return done.stdout.strip(), done.returncode

    return run


RUN = "run --out out/n7 --yes --quiet --tier smoke"


@pytest.mark.parametrize(
    "status, begun, expected, exit_status",
    [
        ("0", False, RUN, 0),
        ("1", False, RUN, 0),
        ("3", False, RUN, 3),
        ("0", True, "run --resume out/n7 --yes --quiet", 0),
    ],
)
def test_each_node_of_an_acceptance_runs_what_is_missing(
    call, tmp_path, status, begun, expected, exit_status
):
    if begun:
        (tmp_path / "out/n7").mkdir(parents=True)
        (tmp_path / "out/n7/plan.json").touch()
    assert call("acceptance.sbatch", "out", "--tier", "smoke", STATUS=status) == (
        expected,
        exit_status,
    )


def test_a_job_creates_the_page_and_an_array_runs_shards(call, tmp_path):
    """RDMA_CTS_SUITE names the suite of a job that was submitted from another directory."""
    suite = {"RDMA_CTS_SUITE": str(tmp_path), "SLURM_SUBMIT_DIR": "/nowhere"}
    assert call("page.sbatch", "out", "page", **suite) == ("compare --nodes out --out page", 0)
    task = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "2", "SLURM_ARRAY_TASK_COUNT": "4"}
    expected = "run --out out/5/shard-2 --yes --quiet --shard 2/4 --guest"
    assert call("array.sbatch", "--guest", **suite, **task) == (expected, 0)
