"""Tests of the findings for mailing lists and for KCIDB."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main
from kinds import Cli

RUNS = Path(__file__).with_name("recorded_violations")
TWO = [str(RUNS / f"{stack}.jsonl") for stack in ("forky", "trixie")]


# The keys that KCIDB's schema 5.3 requires for each kind of object.
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
    assert (
        main(["findings", *TWO, "--format", "kcidb", "--origin", "my_ci", "--out", str(out)]) == 0
    )
    data: dict[str, Any] = json.loads((out / "kcidb.json").read_text())
    return data


def test_the_objects_have_what_the_schema_requires_and_refer_to_each_other(
    kcidb: dict[str, Any],
) -> None:
    assert kcidb["version"] == {"major": 5, "minor": 3}
    assert {key for key in kcidb if key != "version"} == set(REQUIRED)
    ids = {}
    for kind in REQUIRED:
        ids[kind] = [entry["id"] for entry in kcidb[kind]]
    for kind, keys in REQUIRED.items():
        assert kcidb[kind], kind
        assert len(set(ids[kind])) == len(ids[kind]), kind
        for item in kcidb[kind]:
            assert keys <= set(item)
            assert re.match(r"my_ci:[^\0]+\Z", item["id"])
    for kind, key, of in (
        ("builds", "checkout_id", "checkouts"),
        ("tests", "build_id", "builds"),
        ("incidents", "test_id", "tests"),
        ("incidents", "issue_id", "issues"),
    ):
        assert {entry[key] for entry in kcidb[kind]} <= set(ids[of])
    assert all(
        re.match(r"rdma_cts(\.[a-zA-Z0-9_-]+)+\Z", entry["path"]) for entry in kcidb["tests"]
    )


def test_an_issue_has_severity_stacks_rules_and_its_program(kcidb: dict[str, Any]) -> None:
    (issue,) = [issue for issue in kcidb["issues"] if issue["id"] == "my_ci:85c569cb8aca"]
    assert issue["misc"]["severity"] == "memory safety"
    assert list(issue["misc"]["rules"]) == ["BIND-10"]
    assert set(issue["misc"]["stacks"].values()) == {"seen"}
    assert len(issue["misc"]["stacks"]) == len(TWO)
    assert "#include <infiniband/verbs.h>" in issue["misc"]["program"]


def test_the_text_about_a_defect_names_the_stacks_that_have_it(tmp_path: Path, cli: Cli) -> None:
    said = cli(0, "findings", *TWO, "--format", "mail", "--out", tmp_path).out
    texts = sorted((tmp_path / "findings").glob("*.txt"))
    assert f"{tmp_path}/findings: {len(texts)} texts" in said
    assert len(texts) > 5
    for text in map(Path.read_text, texts):
        assert text.startswith("Subject: ")
        assert "\nStacks:\n" in text
        assert ("#include <infiniband/verbs.h>" in text) != ("There is no C program" in text)
    assert not (tmp_path / "findings.md").exists()
