"""Tests of ci/benchmarks/run_cost.py: which costs of a night count as a regression."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from launched import git
from samples import laid

SCRIPT = ROOT / "ci/benchmarks/run_cost.py"
sys.path.append(str(SCRIPT.parent))
import run_cost  # noqa: E402
from commits import beside, tree_of  # noqa: E402
from readers import Cost  # noqa: E402


def night(ratio: float) -> str:
    return json.dumps(
        {
            "night": "20261122T031700Z",
            "figures": {"smoke / floor": ratio, "smoke processor_s": 10.0},
        },
    )


@pytest.mark.parametrize(
    "before, seconds, part, status",
    [
        ([], 12.0, "not compared: 0 earlier nights, 5 are needed", 0),
        ([1.0] * 4, 60.0, "not compared: 4 earlier nights, 5 are needed", 0),
        ([5.0, 6.0, 5.5, 6.5, 6.0], 14.3, "a fifth above earlier nights; largest spread: 25%", 0),
        (
            [5.0, 6.0, 5.5, 6.5, 6.0],
            14.6,
            "smoke / floor 7.30, 22% above the median of 5 nights, 6.00 (5.00 to 6.50)",
            1,
        ),
        ([1.0] * 9 + [6.0] * 14, 14.3, "nothing is more than a fifth above earlier nights", 0),
    ],
)
def test_a_night_is_compared_with_the_median_of_earlier_nights(
    before, seconds, part, status, tmp_path, monkeypatch, capsys
):
    history = tmp_path / "costs"
    history.write_text("".join(f"{night(ratio)}\n" for ratio in before))
    monkeypatch.setattr(run_cost, "repeat", lambda *_: (Cost(seconds, 10.5, 50.0), 2.0))
    monkeypatch.setattr(sys, "argv", ["run_cost.py", "--history", str(history), "smoke"])
    assert run_cost.main() == status
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("costs: ")
    assert part in line
    *_, last = run_cost.read_nights(history)
    assert last == {"smoke / floor": seconds / 2.0, "smoke processor_s": 10.5, "smoke MiB": 50.0}
    assert len(history.read_text().splitlines()) == len(before) + 1


@pytest.mark.parametrize(
    "second, why",
    [
        ("{", "not JSON: "),
        ("[]", "no figures"),
        ('{"figures": 3}', "no figures"),
        (night(0), "a figure that is not a positive number"),
        (night(1).replace("10.0", "true"), "a figure that is not a positive number"),
    ],
)
def test_a_damaged_history_is_reported_before_anything_is_measured(
    second, why, tmp_path, monkeypatch, capsys
):
    history = tmp_path / "costs"
    history.write_text(f"{night(1)}\n{second}\n")
    monkeypatch.setattr(sys, "argv", ["run_cost.py", "--history", str(history)])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(SCRIPT), run_name="__main__")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"run_cost.py: {history}:2: not a night of run_cost.py: {why}")


def test_two_trees_are_measured_in_turn_and_the_ratios_are_of_pairs(tmp_path):
    order: list[str] = []
    seconds = iter((9.0, 9.0, 2.0, 1.0, 8.0, 6.0, 4.0, 4.0))  # the first pair fills caches

    def run(work: Path, tree: Path) -> Cost:
        assert not list(work.iterdir())
        order.append(tree.name)
        took = next(seconds)
        return Cost(took, took / 2, 1.0)

    line = beside("a run", run, 3, (tmp_path / "before", tmp_path / "now"))
    assert order == ["before", "now"] * 4
    ratio = "0.75 (0.50 to 1.00)"
    assert line == f"| a run | 3 | 4.00 s | 4.00 s | {ratio} | 2.00 s | 2.00 s | {ratio} |"
    seconds = iter((2.0, 1.0))
    assert "| 1 | 2.00 s | 1.00 s | 0.50 (" in beside("once", run, 0, (tmp_path, tmp_path))


def test_the_tree_of_a_commit_is_removed_and_an_unknown_commit_is_one_line(tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    git(project, "init", "--quiet")
    laid(project, {"file": "1"})
    git(project, "add", "file")
    git(project, "commit", "--quiet", "--message", "first")
    laid(project, {"file": "2"})
    with tree_of(project, "HEAD") as tree:
        assert (tree / "file").read_text() == "1"
    assert not tree.exists()
    assert len(git(project, "worktree", "list").splitlines()) == 1
    with pytest.raises(UserError, match=r"^nowhere: .*nowhere"), tree_of(project, "nowhere"):
        pass
