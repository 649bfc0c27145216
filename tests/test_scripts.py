"""Tests of the scripts in ci/, fixtures/ and trial/: without their arguments, or with empty ones, they do nothing."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bad_places import NOBODY
from conformance.tables.suite import ROOT
from launched import ended

# Scripts that need arguments, with arguments of which one is missing or empty.
WITHOUT_ARGUMENTS = """
ci/bare-root.sh --release
ci/bare-root.sh ''
ci/enter-root.sh
ci/enter-root.sh ''
ci/hooks/commit-msg
ci/hooks/commit-msg ''
ci/packaging/install.sh
ci/packaging/install.sh ''
ci/packaging/install.sh --help
ci/resumed.sh
ci/resumed.sh ''
ci/slurm/acceptance.sbatch ''
ci/slurm/node.sh
ci/slurm/node.sh ''
ci/slurm/page.sbatch
ci/slurm/page.sbatch out
ci/slurm/page.sbatch out ''
ci/stack.sh trixie
ci/stack.sh '' kept
fixtures/guest/private-root.sh
fixtures/guest/watch.sh
fixtures/guest/wire-losses.sh
fixtures/guest/wire-peer.sh ''
fixtures/system/install-packages.sh
fixtures/system/install-packages.sh ''
trial/kernel/build-rdma-unit-test.sh
trial/kernel/build-rdma-unit-test.sh tree
trial/kernel/build-rdma-unit-test.sh ''
"""
# Scripts that take only options of `run`, or nothing.
HELP = "ci/health/node.sh ci/kselftest.sh ci/lint.sh ci/shard.sh .ci/run .ci/nightly"


def test_the_pictures_need_their_programs_and_the_manual_page_only_the_suite(tmp_path):
    environment = {"PATH": str(tmp_path)}
    done = ended(sys.executable, "-I", ROOT / "docs/pictures.py", cwd="/", env=environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 3)
    assert done.stderr.startswith("Makes the pictures of the report")
    done = ended(sys.executable, ROOT / "ci/packaging/man_page.py", cwd="/", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(".TH")


@pytest.fixture(scope="module")
def checkout() -> Iterator[Path]:
    """A copy of the suite with its scripts, which every user can read; the checkout itself may be root's."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        for path in ("rdma-cts", ".ci", "ci", "commands", "conformance", "fixtures", "trial"):
            copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
            copy(ROOT / path, Path(name, path))
        yield Path(name)


def said_by(words: str, checkout: Path, folder: Path) -> str:
    """Returns the message of a script, which must exit with status 2 or 3 and write no file. Another user than root runs
    the script, so that one without its check destroys nothing."""
    name, *arguments = shlex.split(words)
    done = ended(
        *([] if name.startswith(".ci/") else ["sh"]),
        *(checkout / name, *arguments),
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "SLURMD_NODENAME": "n7"},
        stdin=subprocess.DEVNULL,
        user=NOBODY if os.geteuid() == 0 else None,
    )
    assert done.returncode in (2, 3), done
    assert list(folder.iterdir()) == []
    return done.stdout + done.stderr


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty directory in which every user may write."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


@pytest.mark.parametrize("words", WITHOUT_ARGUMENTS.strip().splitlines())
def test_a_script_without_its_arguments_says_what_it_needs(words, checkout, folder):
    said = said_by(words, checkout, folder)
    name = Path(words.split()[0]).name
    assert name in said
    assert "parameter not set" not in said


@pytest.mark.parametrize("name", ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"])
def test_a_shard_that_is_no_number_is_named(name):
    done = ended("sh", ROOT / "ci/shard.sh", env={"PATH": os.environ["PATH"], name: "x"})
    assert (done.returncode, done.stderr) == (2, f"ci/shard.sh: {name}=x is not a number\n")


def test_a_run_below_a_file_is_a_mistake_and_no_violation(tmp_path):
    (tmp_path / "file").touch()
    done = ended("sh", ROOT / "ci/resumed.sh", tmp_path / "file" / "x")
    assert done.returncode == 2


@pytest.mark.parametrize("name", HELP.split())
def test_a_script_that_needs_no_argument_explains_itself(name, checkout, folder):
    about = (ROOT / name).read_text().splitlines()[1].removeprefix("# ")
    assert said_by(f"{name} --help", checkout, folder).startswith(about)
