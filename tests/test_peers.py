"""The page on rdma-core's tests names cases that exist, and says something of each method."""

from __future__ import annotations

import itertools
import re
from fnmatch import fnmatchcase

from conformance.tables.suite import ROOT, load_suite

PAGE = (ROOT / "docs" / "peers.md").read_text()


def alternatives(pattern: str) -> list[str]:
    """The patterns that one with `{a,b}` stands for."""
    parts = [each.split(",") for each in re.split(r"[{}]", pattern)]
    return ["".join(each) for each in itertools.product(*parts)]


def test_every_case_that_is_named_exists() -> None:
    ids = [case.id for case in load_suite().cases]
    named = [each for each in re.findall(r"`([^`]+)`", PAGE) if re.match(r"\w+/\w+/", each) and "tests/" not in each]
    assert len(named) > 60
    assert [p for each in named for p in alternatives(each) if not any(fnmatchcase(i, p) for i in ids)] == []


def test_each_method_has_one_row_and_an_answer() -> None:
    rows = re.findall(r"^\| (`test_.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    methods = [method for names, _ in rows for method in re.findall(r"`(\w+)`", names)]
    assert len(methods) > 90
    assert len(set(methods)) == len(methods)
    assert all(answer for _, answer in rows)
