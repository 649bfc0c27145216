"""Tests of the page of many nodes: exactly the real differences are reported, and an unreadable directory affects only
its own node."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bad_places import as_another_user
from browser import assert_fits, browser, window
from commands.compare_nodes import _node
from conformance.older_python import zip
from conformance.tables.suite import ROOT
from kinds import Cli
from launched import ended
from reports.summary import as_data
from test_recorded_run import recorded

__all__ = ["browser"]  # a fixture
Change = Callable[[dict[str, Any]], object]


@cache
def summary() -> str:
    return json.dumps(as_data(recorded()))


def changing(*keys: str, to: Any) -> Change:
    """Returns a function that changes one value of a summary."""

    def change(data: dict[str, Any]) -> None:
        for key in keys[:-1]:
            data = data[key]
        data[keys[-1]] = to

    return change


def another_kernel(data: dict[str, Any]) -> None:
    """Changes the version of a kernel, and what follows from it."""
    data["stack"]["kernel"] = "7.3.0"
    data["under_test"]["kernel.build_id"] = "1" * 12


# Differences of a node, and the reports about them.
DIFFERENCES: Mapping[str, tuple[Change, str]] = {
    "firmware": (
        changing("stack", "firmware", to="1.2.3"),
        "firmware: 1.2.3, most nodes of its group: none",
    ),
    "kernel": (another_kernel, "kernel: 7.3.0, most nodes of its group: "),
    "library": (
        changing("under_test", "libraries.librxe-rdmav65.so", to="0" * 12),
        "hash of librxe",
    ),
    "capability": (
        changing("capabilities", "odp", to="no"),
        "capability odp: no, most nodes of its group: yes",
    ),
    "limit": (
        changing("capabilities", "max_mw", to="7"),
        "capability max_mw: 7, most nodes of its group: ",
    ),
    "verdict": (changing("rules", "REG-01", to="FAIL"), "REG-01: FAIL, most nodes of its group: "),
    "better": (changing("rules", "IOVA-05", to="PASS"), "IOVA-05: PASS, most nodes of its group: "),
    "defect": (
        lambda data: data["defects"].pop(
            0,
        ),  # not the last: unconfirmed defects come last, and are not compared
        "defect 6c8e18b350a5 (remote: kernel crash; ",
    ),
    "case": (
        lambda data: data["violations"][0]["cases"].append("reg_mr/made/up"),
        "case reg_mr/made/up: violated, most nodes of its group: not tried",
    ),
    "slow": (changing("duration_s", to=9999.0), "duration: 9999 s, the median is "),
    "quick": (changing("duration_s", to=1.0), "duration: 1 s, the median is "),
}


def nodes(folder: Path, count: int, changes: Mapping[int, Change] | None = None) -> Path:
    """Writes the summaries of `count` nodes n0, n1, … that differ in their clocks, durations, and `changes`."""
    for number in range(count):
        data = json.loads(summary())
        data["started"] = data["stack"]["started"] = (
            f"2026-01-02T{number % 24:02}:{number % 60:02}:00+00:00"
        )
        data["duration_s"] = 300.0 + number % 17
        if change := (changes or {}).get(number):
            change(data)
        (folder / f"n{number}").mkdir(parents=True)
        (folder / f"n{number}" / "summary.json").write_text(json.dumps(data))
    return folder


def told(status: int, folder: Path, cli: Cli) -> tuple[dict[str, Any], str]:
    """Runs `compare --nodes` and checks its exit status; returns the data of the page, and the output."""
    said = cli(status, "compare", "--nodes", folder, "--out", folder.parent / "out").out
    return json.loads((folder.parent / "out" / "fleet.json").read_text()), said


def test_exactly_the_real_differences_are_found(tmp_path, cli):
    changes = {7 * number + 3: change for number, (change, _) in enumerate(DIFFERENCES.values())}
    data, said = told(1, nodes(tmp_path / "nodes", 100, changes), cli)
    (group,) = data["groups"]
    differences_by_node = {
        node: difference for difference in group["differences"] for node in difference["nodes"]
    }
    assert set(differences_by_node) == {f"n{number}" for number in changes}
    assert len(group["differences"]) == len(DIFFERENCES)
    for number, (_, line) in zip(changes, DIFFERENCES.values(), strict=True):
        assert f"n{number}: {line}" in said
    places = {
        kind: said.index(f"n{number}: {line}")
        for number, (kind, (_, line)) in zip(changes, DIFFERENCES.items(), strict=True)
    }
    order = sorted(places, key=places.__getitem__)
    assert {*order[:2]} == {"verdict", "case"}
    assert ({*order[-4:-2]}, {*order[-2:]}) == ({"slow", "quick"}, {"better", "defect"})
    differ = "11 differ from their group (2 only for the better)"
    assert f"100 nodes, 1 group, {differ}, 100 violate a rule (exit status 1)" in said
    script = (tmp_path / "out" / "drain.sh").read_text()
    drained = {
        node for line in script.splitlines() for node in line.split() if node in differences_by_node
    }
    better = {
        f"n{number}"
        for number, kind in zip(changes, DIFFERENCES, strict=True)
        if kind in ("better", "defect")
    }
    assert drained == {*differences_by_node} - better
    assert f"# not drained, because they lack defects of their group: {sorted(better)}" in script
    assert said.count(" (better than its group)") == len(better)
    page = (tmp_path / "out" / "fleet.html").read_text()
    assert page.count('<tr id="n') == 100
    first = page.partition("<h3>")[0]
    assert [first.count(f">n{number}</a>") for number in changes] == [1] * len(changes)


def test_a_defect_that_a_node_could_not_show_is_not_tried_there(tmp_path, cli):
    case, first = "", ""

    def without_odp(data: dict[str, Any]) -> None:
        nonlocal case, first
        defect = data["defects"].pop(0)
        case, *others = defect["cases"]
        first = defect["fingerprint"]
        data["not_judged"] = [case, *others]
        for violation in data["violations"]:
            violation["cases"] = [
                name for name in violation["cases"] if name not in defect["cases"]
            ]

    folder = nodes(tmp_path / "nodes", 4, {2: without_odp})
    for number in (1, 2):
        (folder / f"n{number}" / "report.html").touch()
    data, said = told(1, folder, cli)
    here = {
        difference["what"]: difference["here"] for difference in data["groups"][0]["differences"]
    }
    assert [text for what, text in here.items() if first in what] == ["not tried"]
    assert "not tried, most nodes of its group: seen" in said
    page = (tmp_path / "out" / "fleet.html").read_text()
    assert '<td><span class="v UNREACHABLE">not tried</span></td>' in page
    link = f"../nodes/n1/report.html#defect%3A{first}"  # n1 shows the defect, and has a report
    assert f'<td><a href="{link}">defect {first} (remote: kernel crash; ' in page


def test_a_node_with_many_differences_hides_no_other_node(tmp_path, cli):
    def many(data: dict[str, Any]) -> None:
        data["capabilities"] |= {f"max_{number}": "1" for number in range(30)}

    folder = nodes(tmp_path / "nodes", 5, {1: many, 3: DIFFERENCES["limit"][0]})
    for name in ("empty", "n5"):
        (folder / name).mkdir()
    _, said = told(1, folder, cli)
    *lines, headline, _ = said.splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["n3", "n1", "empty, n5"]
    assert headline.startswith("7 nodes, ")
    assert lines[1].endswith(", and 29 more differences")
    assert lines[2] == "empty, n5: no results"
    first = (tmp_path / "out" / "fleet.html").read_text().partition("<h3>")[0]
    assert [first.count(f">n{number}</a>") for number in range(5)] == [0, 1, 0, 1, 0]
    assert "and 29 more differences" in first


def test_many_nodes_of_another_firmware_are_a_separate_group(tmp_path, cli):
    other = changing("stack", "firmware", to="2")
    data, _ = told(1, nodes(tmp_path / "nodes", 40, dict.fromkeys(range(0, 40, 4), other)), cli)
    assert [len(group["nodes"]) for group in data["groups"]] == [30, 10]
    assert "firmware 2" in data["groups"][1]["name"]
    assert not any(group["differences"] for group in data["groups"])


@pytest.mark.parametrize("first", [0, 1])
def test_no_node_of_two_is_drained_for_a_difference_between_them(tmp_path, cli, first):
    """Neither is known to be the usual one, whichever comes first."""

    def other(data: dict[str, Any]) -> None:
        another_kernel(data)
        data["rules"]["REG-01"] = "FAIL"

    data, said = told(1, nodes(tmp_path / "nodes", 2, {first: other}), cli)
    usual = json.loads(summary())["stack"]["kernel"]
    kernels = [usual, usual]
    kernels[first] = "7.3.0"
    assert f"n0, n1: kernel: {kernels[0]} (n0); {kernels[1]} (n1): no majority" in said
    assert "2 nodes, 1 group, 2 differ without a majority" in said
    assert "most nodes" not in said
    (group,) = data["groups"]
    assert "kernel" not in group["name"]
    assert group["rules"]["REG-01"] == {"usual": "FAIL", "others": 1}
    tied = {difference["what"]: difference["tied"] for difference in group["differences"]}
    assert tied["kernel"] == [[kernels[0], ["n0"]], [kernels[1], ["n1"]]]
    assert (tmp_path / "out/drain.sh").read_text() == ""
    page = (tmp_path / "out/fleet.html").read_text()
    assert f"<td>no majority</td><td>{kernels[0]} (n0); {kernels[1]} (n1)</td>" in page


@pytest.mark.parametrize("values", ["1122", "11233", "123"])
def test_values_without_a_majority_are_reported_and_drain_no_node(tmp_path, cli, values):
    changes = {
        number: changing("capabilities", "max_mw", to=value) for number, value in enumerate(values)
    }
    data, said = told(1, nodes(tmp_path / "nodes", len(values), changes), cli)
    ((difference,),) = (group["differences"] for group in data["groups"])
    for value, names in difference["tied"]:
        assert names == [f"n{number}" for number in changes if values[number] == value]
    assert {value for value, _ in difference["tied"]} == {*values}
    assert "no majority" in said
    assert f"{len(values)} differ without a majority" in said
    assert (tmp_path / "out/drain.sh").read_text() == ""
    page = (tmp_path / "out/fleet.html").read_text().partition('id="nodes"')[2]
    assert page.count("<td>capability max_mw</td>") == len(values)


def test_a_node_is_drained_for_what_a_majority_has(tmp_path, cli):
    """Beside it, a value without a majority."""
    changes = {number: changing("capabilities", "max_mr", to=f"{number}") for number in range(3)}
    changes[3] = DIFFERENCES["firmware"][0]
    _, said = told(1, nodes(tmp_path / "nodes", 4, changes), cli)
    assert "1 differs from its group, 4 differ without a majority" in said
    (line,) = [
        line
        for line in (tmp_path / "out/drain.sh").read_text().splitlines()
        if line.startswith("drain '")
    ]
    assert line == "drain 'rdma-cts: firmware: 1.2.3, most nodes of its group: none' n3"


def fewer_cases(data: dict[str, Any]) -> None:
    """Changes a summary to that of a run of few cases: one rule is PARTIAL, and another rule has no verdict."""
    data["cases"] = {"PASS": 2}
    data["rules"]["REG-01"] = "PARTIAL"
    del data["rules"]["DEREG-01"]


def test_a_node_that_ran_other_cases_does_not_differ(tmp_path, cli):
    data, said = told(1, nodes(tmp_path / "nodes", 4, {3: fewer_cases}), cli)
    assert [group["nodes"] for group in data["groups"]] == [["n0", "n1", "n2"], ["n3"]]
    assert data["groups"][1]["name"].endswith(", 2 cases")
    assert "no node differs" in said
    assert (tmp_path / "out" / "drain.sh").read_text() == ""


def test_nodes_without_a_readable_run_have_no_verdict(tmp_path, cli):
    (tmp_path / "nodes" / "empty").mkdir(parents=True)
    _, said = told(3, tmp_path / "nodes", cli)
    assert (
        "1 node, 0 groups, nothing was compared, 1 without a complete run (exit status 3)" in said
    )


def test_a_phone_shows_the_names_of_nodes_unbroken(tmp_path, cli, browser):
    folder = nodes(tmp_path / "nodes", 3, {2: another_kernel})
    (folder / "n0").rename(folder / "mended")
    (folder / "n2").rename(folder / "forkyagain")
    told(1, folder, cli)
    browser.get((tmp_path / "out/fleet.html").as_uri())
    assert_fits(browser)
    with window(browser, 390):
        lines = browser.js(
            "[...document.querySelectorAll('tbody th a')].map(each => each.getClientRects().length)"
        )
    assert {*lines} == {1}


def test_compressed_results_are_read(tmp_path, cli):
    folder = nodes(tmp_path / "nodes", 2)
    run = (ROOT / "docs/runs/rxe.jsonl.xz").read_bytes()
    for name, content in (("n2", run), ("n3", run[:-100])):
        (folder / name).mkdir()
        (folder / name / "results.jsonl.xz").write_bytes(content)
    data, _ = told(1, folder, cli)
    assert [*data["missing"]] == ["n3"]
    assert "not one whole stream of xz" in data["missing"]["n3"]
    assert "n2" in [node for group in data["groups"] for node in group["nodes"]]
    data, _ = told(1, folder / "n2", cli)
    assert not data["missing"]


def test_an_unreadable_node_affects_only_its_row(tmp_path, cli):
    folder = nodes(tmp_path / "nodes", 6)
    (folder / "empty").mkdir()
    (folder / "n1" / "summary.json").write_text("{")
    newer = {**json.loads(summary()), "schema": "rdma-cts-summary/2"}
    (folder / "n5" / "summary.json").write_text(json.dumps(newer))
    (folder / "n2" / "summary.json").write_text(
        json.dumps({**json.loads(summary()), "complete": False, "rules": {}}),
    )
    data, said = told(1, folder, cli)
    # An incomplete run is not compared, because it would differ in all missing results.
    assert data["groups"][0]["nodes"] == ["n0", "n3", "n4"]
    assert data["groups"][0]["differences"] == []
    assert data["missing"] == {
        "empty": "no results",
        "n1": "summary.json is damaged, and there is no results.jsonl",
        "n2": "the run is incomplete",
        "n5": "summary.json has the schema rdma-cts-summary/2, and this version reads rdma-cts-summary/1; "
        "use the version of rdma-cts that wrote it",
    }
    assert "4 without a complete run" in said


def test_a_directory_of_another_user_is_reported_as_the_problem_of_its_node(tmp_path):
    folder = nodes(tmp_path, 1) / "n0"
    folder.chmod(0)
    with as_another_user():
        assert (
            _node("n0", folder, tmp_path).problem
            == f"{folder}/summary.json cannot be read: Permission denied"
        )
    folder.chmod(0o700)


def test_results_under_two_names_are_reported(tmp_path, cli):
    folder = nodes(tmp_path / "nodes", 5)
    (folder / "n4" / "summary.json").write_bytes((folder / "n2" / "summary.json").read_bytes())
    (folder / "n3" / "summary.json").write_bytes((folder / "n1" / "summary.json").read_bytes())
    _, said = told(1, folder, cli)
    for names, minute in (("n1, n3", 1), ("n2, n4", 2)):
        started = f"all started 2026-01-02T0{minute}:0{minute}:00+00:00, with the same duration"
        assert f"{names}: one run under several names ({started}): run these nodes again" in said
    assert "5 nodes, 1 group, 4 have one run under several names, " in said
    assert "without a majority" not in said
    assert "drain.sh" not in said
    # Nothing tells whose run it is.
    assert (tmp_path / "out/drain.sh").read_text() == ""


def test_the_commands_for_slurm_name_the_nodes_and_the_reason(tmp_path, cli):
    folder = nodes(tmp_path / "nodes", 9, dict.fromkeys((2, 5), DIFFERENCES["limit"][0]))
    # For Slurm, `all` means every node, in any case; `gpu` is the name of a set of nodes.
    for name in ("a b'$(touch x)", "ALL", "all", "aLL", "n[0-9]", "gpu", "-h", "n2,n3", "n"):
        (folder / name).mkdir()
    told(1, folder, cli)
    script = tmp_path / "out" / "drain.sh"
    shown = ended(
        "sh",
        "-c",
        'scontrol() { printf "%s|" "$@"; }; sinfo() { seq -f n%g 0 9; echo N8; }; . "$1"',
        "sh",
        str(script),
        check=True,
        cwd=tmp_path,
    )
    usual = recorded().environment.capabilities["max_mw"]
    reason = f"Reason=rdma-cts: capability max_mw: 7, most nodes of its group: {usual}"
    assert shown.stdout == f"update|NodeName=n2,n5|State=DRAIN|{reason}|"
    assert "Slurm does not accept" in script.read_text()
    for name in ("gpu", "-h", "n"):
        assert f"{name} is not a node of this cluster, and is not drained\n" in shown.stderr
    assert "all" not in shown.stdout.lower().partition("reason")[0]
    assert not (tmp_path / "x").exists()


def test_two_nodes_of_one_name_are_refused(tmp_path, cli):
    folders = [str(nodes(tmp_path / name, 2)) for name in ("a", "b")]
    assert (
        "two nodes are called n0: "
        in cli(2, "compare", "--nodes", *folders, "--out", tmp_path / "out").err
    )
