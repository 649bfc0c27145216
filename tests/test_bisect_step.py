"""Tests of `rdma-cts bisect-step`: the verdicts of a good and of a bad commit, and failures of the suite, which end the
bisection without a bad commit."""

import argparse
import sys
from html import unescape
from pathlib import Path

import pytest

from commands import run
from commands.__main__ import main
from commands.bisect_step import status_of
from conformance.errors import UserError
from conformance.judging.answering_layer import CORE
from conformance.model.verdict import Verdict
from conformance.tables.suite import ROOT
from kinds import rows
from launched import git
from reports import html
from reports.digest import read
from samples import header, laid, numbered, result, written_records

CASE = "reg_mr/access_flags/local-write-alone"
STEP = f"""
import sys
sys.path[:0] = {[str(ROOT), str(ROOT / "tests")]!r}
import test_bisect_step
sys.exit(test_bisect_step.step())
"""


def of_the_driver(arguments: argparse.Namespace) -> int:
    """Stands in for a run: the verdict is the content of the file `driver` in the current commit."""
    said = Path("driver").read_text().strip()
    if said == "a mistake of the suite":
        raise KeyError(said)
    if said == "does not boot":
        raise UserError("the guest did not start", status=3)
    records = [header(planned=[CASE]), {**result(numbered(1).cases[0], said), "case": CASE}]
    written_records(records, arguments.out)
    return 0


def step() -> int:
    """Runs `bisect-step` with the stand-in for a run, as `git bisect run` does."""
    run.execute = of_the_driver
    return main(["bisect-step", "--only", CASE])


def test_git_bisect_finds_the_commit_and_skips_a_commit_that_does_not_boot(tmp_path):
    tree, program = tmp_path / "tree", laid(tmp_path, {"step.py": STEP}) / "step.py"
    git(tmp_path, "init", "-q", "tree")
    for number, verdict in enumerate(
        ["PASS", "UNSUPPORTED", "does not boot", "PASS", "PASS", "FAIL", "CRASH", "FAIL"],
    ):
        laid(tree, {"driver": f"{verdict}\n", "number": f"{number}\n"})
        git(tree, "add", "driver", "number")
        git(tree, "commit", "-q", "-m", f"{number}: {verdict}")
    git(tree, "bisect", "start", "HEAD", "HEAD~7")
    said = git(tree, "bisect", "run", sys.executable, "-P", str(program))
    assert "is the first bad commit" in said
    bad = git(tree, "log", "-1", "--format=%s", "refs/bisect/bad")
    assert bad == "5: FAIL\n"
    assert "bisect-step: FAIL: 1" in said


def test_no_commit_is_blamed_for_a_mistake_of_the_suite(tmp_path, monkeypatch, cli):
    (tmp_path / "driver").write_text("a mistake of the suite\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "execute", of_the_driver)
    assert "KeyError" in cli(128, "bisect-step", "--only", CASE).err
    (tmp_path / "driver").write_text("does not boot\n")
    assert cli(125, "bisect-step", "--only", CASE).out == "bisect-step: no verdict: 125\n"


@pytest.mark.parametrize(
    "more",
    [
        "--waivers none.yaml",
        "--waivers .",
        "--waivers unknown.yaml",
        "--profile none.yaml",
        "--profile unknown.yaml",
        "--profile other.yaml",
        "--against none",
        "--failed none",
        "--guests 1000",
        "--stack bullseye --arch riscv64",
        "--out foreign",
        "--out recorded",
        "--overlay . --out new",
        "--resume recorded",
        "--lab unknown.yaml",
        "--shell",
    ],
)
def test_a_mistake_in_the_command_ends_the_bisection_before_a_run(tmp_path, monkeypatch, cli, more):
    waiver = (
        "{rules: [REG-99], reason: a, owner: me, issue: https://a.example/1, expires: 2999-01-01}"
    )
    laid(
        tmp_path,
        {
            "unknown.yaml": f"waivers:\n- {waiver}\n",
            "other.yaml": "device: mlx5_core\n",
            "foreign/mine": "1",
        },
    )
    records = [header(planned=[CASE]), result(numbered(1).cases[0], "PASS")]
    written_records(records, tmp_path / "recorded")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "execute", lambda _: pytest.fail("a run has begun"))
    assert cli(128, "bisect-step", "--guest", "--only", CASE, *more.split()).err
    assert not (tmp_path / "out").exists()
    assert [path.name for path in (tmp_path / "foreign").iterdir()] == ["mine"]


@pytest.mark.parametrize("verdicts, status", rows("verdicts_of_a_commit"))
def test_only_a_commit_that_conforms_is_good_and_only_a_commit_that_violates_a_rule_is_bad(
    verdicts, status
):
    assert status_of([Verdict(verdict) for verdict in verdicts.split()]) == int(status)


def given(tmp_path: Path, repro: str, layer: str = "") -> str:
    """Returns the page of a run with a violation that the command `repro` shows again, and `layer` has answered."""
    record = {
        **result(numbered(1).cases[0], "FAIL"),
        "case": CASE,
        "repro": f"{repro} --only {CASE}",
        "fault": {"kind": "refused", "verb": "ibv_reg_mr", "errno": "EINVAL", "layer": layer},
    }
    written_records([header(planned=[CASE]), record], tmp_path)
    return html.render([read(tmp_path)])


@pytest.mark.parametrize(
    "target, tried",
    [
        ("--guest", "--guest --linux TREE"),
        ("--guest --stack trixie", "--guest --stack trixie --linux TREE"),
        ("--guest --rdma-core mine", '--guest --rdma-core "$PWD"/mine'),
        ("--device mlx5_0", ""),
    ],
)
def test_the_page_of_a_run_has_the_command_that_finds_the_commit_of_a_defect(
    tmp_path, target, tried
):
    page = given(tmp_path, f"./rdma-cts run {target}")
    step = f'bisect run "$PWD"/rdma-cts bisect-step --yes {tried} --only {CASE}'
    assert (step in unescape(page)) is bool(tried)
    assert ("bisect" in page) is bool(tried)


def test_what_the_core_has_answered_is_not_bisected_with_the_driver_alone(tmp_path):
    assert "bisect" not in given(tmp_path, "./rdma-cts run --guest", CORE)
