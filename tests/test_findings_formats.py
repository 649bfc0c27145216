"""Findings as texts for a mailing list and as objects of KCIDB."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main

RECORDED = Path(__file__).with_name("recorded_violations")
RUNS = [str(RECORDED / f"{stack}.jsonl") for stack in ("forky", "trixie")]
# The keys that schema 5.3 requires for each kind of object.
REQUIRED = {
    "checkouts": {"id", "origin"},
    "builds": {"id", "origin", "checkout_id"},
    "tests": {"id", "origin", "build_id"},
    "issues": {"id", "origin", "version"},
    "incidents": {"id", "origin", "issue_id", "issue_version"},
}


@pytest.fixture(scope="module")
def kcidb(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("kcidb")
    assert main(["findings", *RUNS, "--format", "kcidb", "--origin", "my_ci", "--out", str(out)]) == 0
    found: dict[str, Any] = json.loads((out / "kcidb.json").read_text())
    return found


def test_the_objects_have_what_the_schema_requires_and_refer_to_each_other(kcidb: dict[str, Any]) -> None:
    assert kcidb["version"] == {"major": 5, "minor": 3}
    assert {key for key in kcidb if key != "version"} == set(REQUIRED)
    ids = {kind: [each["id"] for each in kcidb[kind]] for kind in REQUIRED}
    for kind, keys in REQUIRED.items():
        assert kcidb[kind], kind
        assert len(set(ids[kind])) == len(ids[kind]), kind
        for each in kcidb[kind]:
            assert keys <= set(each)
            assert re.match(r"my_ci:[^\0]+\Z", each["id"])
    for kind, key, of in (
        ("builds", "checkout_id", "checkouts"),
        ("tests", "build_id", "builds"),
        ("incidents", "test_id", "tests"),
        ("incidents", "issue_id", "issues"),
    ):
        assert {each[key] for each in kcidb[kind]} <= set(ids[of])
    assert all(re.match(r"rdma_cts(\.[a-zA-Z0-9_-]+)+\Z", each["path"]) for each in kcidb["tests"])


def test_an_issue_has_severity_stacks_rules_and_its_program(kcidb: dict[str, Any]) -> None:
    (issue,) = [each for each in kcidb["issues"] if each["id"] == "my_ci:85c569cb8aca"]
    assert issue["misc"]["severity"] == "memory safety"
    assert list(issue["misc"]["rules"]) == ["BIND-10"]
    assert set(issue["misc"]["stacks"].values()) == {"seen"}
    assert len(issue["misc"]["stacks"]) == len(RUNS)
    assert "#include <infiniband/verbs.h>" in issue["misc"]["program"]


def test_the_name_of_a_ci_system_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", *RUNS, "--format", "kcidb", "--origin", "My CI", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "rdma-cts: --origin 'My CI': a-z, 0-9 and _ make the name of a CI system\n"


def test_a_text_for_each_defect_says_which_stacks_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["findings", *RUNS, "--format", "mail", "--out", str(tmp_path)]) == 0
    texts = sorted((tmp_path / "findings").glob("*.txt"))
    assert f"{tmp_path}/findings: {len(texts)} texts of " in capsys.readouterr().out
    assert len(texts) > 5
    for text in map(Path.read_text, texts):
        assert text.startswith("Subject: ")
        assert "\nStacks:\n" in text
        assert "#include <infiniband/verbs.h>" in text
    assert not (tmp_path / "findings.md").exists()
