"""Tests that the present code reads each recorded format as version 1.0.0 wrote it (docs/stability.md).

The files of `formats_1_0` are never written again. The run is one of the reference, which refuses REMOTE_WRITE; its header
has only the rules of its cases. If a test fails, the code needs a migration, or the suite a new major version."""

import json
import re
import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from commands.__main__ import main
from conformance.model.verdict import Verdict
from conformance.results.plan import LabPlan, Plan, read_lab_plan, read_plan
from conformance.results.points import read_points
from conformance.results.waiver_file import read_waivers
from conformance.supervision.durations import Durations
from conformance.tables.profile import read_profile
from conformance.tables.suite import ROOT, load_suite
from reports import summary
from reports.bundles.archive import unpack
from reports.compared.comparison import compare
from reports.compared.formats import as_json
from reports.digest import read
from reports.nights.history import read_history

OF_1_0 = Path(__file__).with_name("formats_1_0")
RUN = OF_1_0 / "run"
DEFECT = "924739db75e9"
CASE = "reg_mr/access_flags/local-write-alone"


@pytest.fixture
def private(tmp_path: Path) -> Path:
    """A directory with the plans, which only this user can write."""
    tmp_path.chmod(0o700)
    for name in ("plan.json", "lab.json"):
        shutil.copy(OF_1_0 / name, tmp_path)
        (tmp_path / name).chmod(0o600)
    return tmp_path


def test_results():
    run = read(RUN)
    assert run.header["suite"]["version"] == "1.0.0"
    assert run.summary.counts == {Verdict.PASS: 3, Verdict.FAIL: 2}
    assert run.summary.status == 1
    (defect,) = run.violations.defects
    assert DEFECT in defect.fingerprints
    assert CASE not in defect.cases


def test_points_of_a_sweep():
    records = [record for record in read(RUN).results if record["points_file"]]
    (swept,) = records
    points = read_points(RUN, swept)
    assert points is not None
    assert sum(points.counts()) == sum(swept["points"].values())


def test_a_summary_has_the_keys_that_version_1_0_wrote():
    written = json.loads((RUN / "summary.json").read_text())
    now = json.loads(str(summary.render([read(RUN)])))
    assert now["schema"] == written["schema"] == "rdma-cts-summary/1"
    assert written.keys() <= now.keys()
    assert now["standings"] == written["standings"]
    assert now["exit_status"] == written["exit_status"] == 1


def test_waivers():
    waivers = read_waivers(OF_1_0 / "waivers.yaml", load_suite(), date(2026, 12, 1))
    (waiver,) = waivers.defects
    assert waiver.owner == "RDMA team"
    assert DEFECT in (waiver.defect, *waiver.also)


def test_plans(private):
    plan, lab = read_plan(private), read_lab_plan(private)
    assert isinstance(plan, Plan)
    assert plan.argv == ("--device", "rxe0")
    assert CASE in plan.planned
    assert lab == LabPlan(("--lab", "lab.yaml"), "/tmp", "/tmp/lab.yaml")


def test_a_bundle(tmp_path):
    manifest, _ = unpack(OF_1_0 / "run.bundle", tmp_path)
    assert manifest.about["words"].startswith("0 of 5 documented rules verified")
    assert compare(read(RUN), read(tmp_path)).changes == ()


def test_a_history_of_nights():
    history = read_history(OF_1_0 / "history", "")
    (cell,) = history.cells
    assert (cell.night, cell.name, cell.outcome.outcome) == (
        "20261128T031700Z",
        "forky",
        "baseline",
    )
    assert cell.facts is not None
    assert DEFECT in cell.facts.defects[0].fingerprints
    assert history.problems == ()


def test_durations():
    assert list(Durations(OF_1_0 / "durations.json").read().values()) == [1.5]


def test_a_profile_and_tables_of_a_user():
    read_profile(OF_1_0 / "profile.yaml")
    suite = load_suite([OF_1_0 / "tables"])
    assert suite.find("dealloc_mw/mine/done") is not None
    assert "MINE-01" in suite.registry


# The keys of the formats that the suite only writes, as version 1.0.0 wrote them.
COMPARISON = """schema old new exit_status conclusion cases_compared cases_untried sweeps_without_points stack defects
changed_defects changes"""
CHANGE = "kind case old new points examples rules reason repro"
FLEET = "schema headline exit_status groups missing"


def test_a_comparison_has_the_keys_that_version_1_0_wrote():
    run = read(RUN)
    worse = replace(
        run, results=tuple({**record, "effective": Verdict.FAIL} for record in run.results)
    )
    data = json.loads(as_json(compare(run, worse)))
    assert data["schema"] == "rdma-cts-comparison/1"
    assert data.keys() >= set(COMPARISON.split())
    assert data["changes"]
    assert all(change.keys() >= set(CHANGE.split()) for change in data["changes"])


def test_the_data_of_nodes_have_the_keys_that_version_1_0_wrote(tmp_path, capsys):
    for name in ("one", "two"):
        shutil.copytree(RUN, tmp_path / "nodes" / name)
    main(["compare", "--nodes", str(tmp_path / "nodes"), "--out", str(tmp_path / "page")])
    assert "fleet.json" in capsys.readouterr().out
    data = json.loads((tmp_path / "page/fleet.json").read_text())
    assert data["schema"] == "rdma-cts-fleet/1"
    assert data.keys() >= set(FLEET.split())
    assert data["groups"][0].keys() >= {"name", "nodes", "differences", "rules"}


def test_each_recorded_format_of_the_page_has_a_file():
    page = (ROOT / "docs" / "stability.md").read_text()
    written = {
        match
        for path in OF_1_0.rglob("*.json*")
        for match in re.findall(r"\"(rdma-cts(?:-\w+)?/\d)\"", path.read_text())
    }
    only_written = {"rdma-cts-comparison/1", "rdma-cts-fleet/1", "rdma-cts-site/1"}
    in_archive = {"rdma-cts-bundle/1"}
    named = set(re.findall(r"`(rdma-cts(?:-\w+)?/\d)`", page))
    assert named == (written - {"rdma-cts-durations/2"}) | only_written | in_archive
