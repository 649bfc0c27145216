"""The output of a comparison: for people, for programs and for CI systems."""

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lxml import etree

from conformance.tables.suite import ROOT
from made_history import run_of
from reports.compared.changes import FAIL_ON, FAILING, NEW, UNKNOWN
from reports.compared.comparison import Comparison, compare
from reports.digest import read
from samples import numbered, result, written
from test_comparison import run, two_runs

SUITE = numbered(4)


def comparison_of(paths: Sequence[Path]) -> Comparison:
    old, new = map(read, paths)
    return compare(old, new)


def test_the_command_names_what_regressed_and_how_to_see_it(tmp_path, cli):
    old = run(tmp_path / "old", [result(SUITE.cases[0])])
    new = run(tmp_path / "new", [result(SUITE.cases[0], "FAIL", "it\x1b[31m should not")])
    said = cli(1, "compare", old, new).out
    assert "./rdma-cts run --only reg_mr/sample/c0" in said
    assert "\x1b" not in said
    data = json.loads(cli(1, "compare", old, new, "--format", "json").out)
    (rule,) = data["rules"]
    assert "  {kind}  {old} -> {new}  {rule}  {statement}".format(**rule) in said.splitlines()
    (change,) = data["changes"]
    (defect,) = change["defects"]
    assert defect == data["defects"]["new"][0]["fingerprint"]
    assert f"  PASS -> FAIL  REG-01  reg_mr/sample/c0 (defect {defect})" in said.splitlines()
    first, *_, program, waivers = said.splitlines()
    command = f"./rdma-cts reproducer {defect} --run {new} --mail --others {old}"
    assert program == f"report the worst new defect: {command}"
    command = f"./rdma-cts waivers --run {new} --defect {defect}"
    terms = "--owner NAME --issue ADDRESS --expires DATE"
    assert waivers == f"waive all new defects: {command} {terms}"
    assert first == "something has regressed: 1 new defect, the worst: wrong report (exit status 1)"


def test_a_known_defect_of_newly_wrong_cases_is_not_called_new(tmp_path, cli):
    old, new = (
        written(run_of(dict.fromkeys(cases, "FAIL")), tmp_path / name)
        for name, cases in (("old", (1,)), ("new", (1, 2)))
    )
    *_, report, waivers = cli(1, "compare", old, new).out.splitlines()
    assert report.startswith("report the worst defect of the newly wrong cases: ./rdma-cts repro")
    assert waivers.startswith("waive 1 known defect of newly wrong cases: ./rdma-cts waivers")


def test_a_comparison_for_programs_has_numbers_and_every_change(tmp_path, cli):
    data = json.loads(cli(1, "compare", *two_runs(tmp_path), "--format", "json").out)
    assert (data["schema"], data["exit_status"], data["cases_compared"]) == (
        "rdma-cts-comparison/1",
        1,
        4,
    )
    assert [change["kind"] for change in data["changes"]] == [
        "regressed",
        "newly supported, and wrong",
        "no longer decided",
        "fixed",
    ]
    counts = {kind: len(defects) for kind, defects in data["defects"].items()}
    assert counts == {
        "new": 2,
        "newly supported, and wrong": 1,
        "regressed or newly supported": 0,
        "newly judged, and wrong": 0,
        "newly required by the profile": 0,
        "hit only now": 0,
        "gone": 1,
        "in both": 0,
        "not decided": 0,
        "not tried by the old run": 0,
    }


def test_the_layer_that_answers_a_defect_is_in_each_format(cli):
    paths = [ROOT / f"docs/runs/{stack}.jsonl.xz" for stack in ("trixie", "rxe")]
    data = json.loads(cli(1, "compare", *paths, "--format", "json").out)
    of_layers = {layer: number for layer, number in data["regressed_by_layer"].items() if number}
    assert of_layers == {"device": len(comparison_of(paths).defects.by_kind[NEW])}
    layers = {defect["fingerprint"]: defect["answered_by"] for defect in data["defects"]["gone"]}
    assert (layers["40d0db806016"], layers["f99fdbf7cfd9"]) == ("provider", "device")
    said = cli(1, "compare", *paths).out
    page = cli(1, "compare", *paths, "--format", "markdown").out
    for name, layer in layers.items():
        assert f"  {name}  answered by {layer}  " in said
        assert f"| `{name}` | {layer} | " in page
    line = "regressed by layer: device 4, provider 0, libibverbs 0, kernel core 0, program 0, not known 0"
    assert f"\n  {line}\n" in said
    assert f"\n{line}\n" in page


GATE = {
    "regressed": ("PASS", "FAIL", 1, 1),
    "newly supported": ("UNSUPPORTED", "FAIL", 1, 0),
    "newly judged": ("UNREACHABLE", "FAIL", 1, 0),
    "no longer decided": ("PASS", "BROKEN", 3, 3),
}


@pytest.mark.parametrize("old, new, status, of_gate", GATE.values(), ids=GATE)
def test_a_gate_can_fail_only_for_what_has_regressed(old, new, status, of_gate, tmp_path, cli):
    paths = [
        run(tmp_path / name, [result(SUITE.cases[0], verdict)])
        for name, verdict in (("old", old), ("new", new))
    ]
    cli(status, "compare", *paths)
    gate = ("--fail-on", "regressed")
    first = cli(of_gate, "compare", *paths, *gate).out.partition("\n")[0]
    assert first.endswith(f"(exit status {of_gate})")
    assert ("; a failure is only what has regressed" in first) == (status != of_gate)
    data = json.loads(cli(of_gate, "compare", *paths, *gate, "--format", "json").out)
    assert data["exit_status"] == of_gate
    junit = cli(of_gate, "compare", *paths, *gate, "--format", "junit").out
    assert f'failures="{int(of_gate == 1)}"' in junit


def test_a_gate_cannot_tell_whether_points_have_regressed_that_the_old_run_did_not_record():
    comparison = comparison_of([ROOT / f"docs/runs/{name}.jsonl.xz" for name in ("trixie", "rxe")])
    unknown = replace(
        comparison, changes=tuple(comparison.of(UNKNOWN)), fail_on=FAIL_ON["regressed"]
    )
    assert (unknown.status, replace(unknown, fail_on=FAILING).status) == (3, 1)


def test_the_keys_for_programs_are_documented(tmp_path, cli):
    old = run(tmp_path / "old", [result(SUITE.cases[0])])
    new = run(tmp_path / "new", [result(SUITE.cases[0], "FAIL", "it should not")])
    data = json.loads(cli(1, "compare", old, new, "--format", "json").out)
    page = (ROOT / "docs/reports.md").read_text().partition("The keys of the JSON are:\n")[2]
    section = " ".join(page.partition("\n[")[0].split())
    of_key = {text.partition("`")[0]: text for text in section.split(" - `")}
    of_defects = {**data["defects"], **data["defects"]["new"][0]}
    examples = {"defects": of_defects, "rules": data["rules"][0], "changes": data["changes"][0]}
    for key, example in examples.items():
        assert not [name for name in example if f"`{name}`" not in of_key[key]]
    assert not [name for name in data if f"`{name}`" not in section]


def test_a_comparison_for_ci_systems_conforms_to_the_schema(tmp_path, cli):
    schema = etree.XMLSchema(etree.parse(Path(__file__).with_name("junit.xsd")))
    paths = two_runs(tmp_path)
    document = etree.fromstring(cli(1, "compare", *paths, "--format", "junit").out.encode())
    schema.assertValid(document)
    assert [document[0].get(name) for name in ("tests", "failures", "errors", "skipped")] == [
        "4",
        "2",
        "1",
        "0",
    ]
    (passed,) = document.iter("system-out")
    assert passed.text.startswith("fixed: FAIL -> PASS: REG-01 (defect ")
    again = shutil.copytree(paths[0], tmp_path / "again")
    document = etree.fromstring(
        cli(0, "compare", paths[0], again, "--format", "junit").out.encode()
    )
    schema.assertValid(document)
    assert document[0].get("tests") == "1"


def test_a_comparison_in_markdown_has_no_markup_from_the_runs(tmp_path, cli):
    said = cli(1, "compare", *two_runs(tmp_path), "--format", "markdown").out
    assert said.startswith("## ❌ rdma-cts compare: something has regressed")
    assert "### newly supported, and wrong: 1 case" in said
    assert "<b>" not in said
    assert "`reg_mr/sample/c2`" in said
