"""Tests of the examples, links and lists in the pages, and of the hook that checks commit messages."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.model import memory_kinds, vocabulary
from conformance.tables.loader import parse_table
from conformance.tables.suite import ROOT
from conformance.yamldoc.parsing import read_bytes
from samples import registry

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])


def test_the_table_in_the_page_of_tables_has_no_mistake():
    page = (ROOT / "docs" / "tables.md").read_text()
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    table, mistakes = parse_table(
        read_bytes(example.encode(), "example"),
        Path("reg_mr/example.yaml"),
        registry(),
    )
    assert mistakes == []
    assert table is not None


def test_every_kind_of_memory_and_every_call_that_is_not_a_verb_is_documented():
    page = (ROOT / "docs" / "tables.md").read_text()
    calls = [call for call in vocabulary.CALLS if not call.startswith("ibv_")]
    missing = [
        word
        for word in (*memory_kinds.MEMORY_KINDS, *memory_kinds.DMABUF_KINDS, *calls)
        if f"`{word}`" not in page
    ]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_have_targets(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


# Modules of other projects, of examples, and of earlier versions.
_NOT_HERE = re.compile(
    r"cases/probe_mr/.*|repro\.py|run_tests\.py|test_(?:cuda|mlx5)_\w+\.py|benchmarks/sweeps\.py"
)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_each_module_that_a_page_names_exists(page):
    """A name is a path from the root, from conformance/ or, of a test, from tests/."""
    names = re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", page.read_text())
    folders = [ROOT, ROOT / "conformance", ROOT / "tests"]
    for name in names:
        if not _NOT_HERE.fullmatch(name):
            assert any((folder / name).is_file() for folder in folders), name


@pytest.mark.nightly
def test_web_pages_are_made_of_all_pages_without_a_warning(tmp_path):
    pytest.importorskip("myst_parser", reason="needs Debian's python3-myst-parser")
    words = [sys.executable, "-m", "sphinx", "-q", "-W", "docs", str(tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.stem for path in tmp_path.glob("*.html")} >= {page.stem for page in PAGES[1:]}
    assert "--tier {health,smoke,default,exhaustive}" in (tmp_path / "commands.html").read_text()


def test_the_page_of_tests_lists_the_files_with_nightly_tests():
    rows = re.findall(r"^\| (.*?) \|", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE)
    listed = set(re.findall(r"test_\w+\.py", " ".join(rows)))
    marked = {
        path.name
        for path in (ROOT / "tests").glob("test_*.py")
        if "mark.nightly" in path.read_text()
    }
    assert listed == marked


HOOK = ROOT / "ci" / "hooks" / "commit-msg"


@pytest.mark.parametrize(
    "message, complaint",
    [
        ("rxe: check the rkey's low byte\n\nA stale key opened the region.\n", ""),
        ("# a comment\nrxe: check the rkey\n# another\n\nWhy.\n", ""),
        ("x" * 72 + "\n\nWhy.\n", ""),
        ("Merge branch 'other'\n", ""),
        ("x" * 73 + "\n\nWhy.\n", "the subject has 73 characters"),
        ("\n\nWhy.\n", "the subject has 0 characters"),
        ("rxe: check the rkey\n", "a body with the reason"),
        ("rxe: check the rkey\nWhy.\n", "a blank line"),
    ],
)
def test_a_commit_message_has_a_subject_a_blank_line_and_a_body(message, complaint, tmp_path):
    path = tmp_path / "message"
    path.write_text(message)
    done = subprocess.run([HOOK, path], capture_output=True, text=True, check=False)
    assert done.returncode == bool(complaint)
    assert complaint in done.stderr
