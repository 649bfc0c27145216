"""Follows the examples of docs/extending.md literally in a copy of the tree, to check that its steps suffice."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT

PAGE = (ROOT / "docs" / "extending.md").read_text()
EDIT = re.compile(
    r"(?P<new>New, )?`(?P<file>[\w./]+)`"
    r"(?:,\s+(?P<how>after every|after|before|in place of)\s+`(?P<at>[^`]+)`|,\s+(?P<end>at the end))?:\n\n"
    r"(?P<indent> *)```\w+\n(?P<block>.*?)\n *```",
    re.DOTALL,
)
GENERATED = re.findall(
    r"^    (\./rdma-cts list schema \w+ > docs/\S+|python3 docs/\S+)$",
    PAGE,
    re.MULTILINE,
)
LEFT_OUT = ("*.git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def followed(tree: Path, text: str) -> set[str]:
    """Makes the edits of a section of the page in a tree; returns the changed files."""
    edits = list(EDIT.finditer(text))
    assert len(edits) == text.count("```") // 2, "a block that is not an edit"
    for edit in edits:
        path, block = tree / edit["file"], edit["block"]
        # A block has the indentation of its list item.
        block = block.replace(f"\n{edit['indent']}", "\n").removeprefix(edit["indent"]) + "\n"
        if edit["new"]:
            assert not path.exists(), path
            path.parent.mkdir(exist_ok=True)
            path.write_text(block)
            continue
        lines = path.read_text().splitlines(keepends=True)
        if edit["end"]:
            path.write_text("".join(lines) + block)
            continue
        places = [number for number, line in enumerate(lines) if edit["at"] in line]
        assert len(places) == 1 or (places and "every" in edit["how"]), (path, edit["at"])
        for at in reversed(places):
            after, gone = edit["how"].startswith("after"), edit["how"] == "in place of"
            lines[at + after : at + after + gone] = [block]
        path.write_text("".join(lines))
    return {edit["file"] for edit in edits}


def run(tree: Path, command: str) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return Path(
        shutil.copytree(
            ROOT,
            tmp_path / "tree",
            symlinks=True,
            ignore=shutil.ignore_patterns(*LEFT_OUT),
        ),
    )


@pytest.mark.parametrize(
    "heading, files, cases, rule",
    [("An access flag", 7, -4, "REG-99"), ("A verb", 7, 2, "PROBE-01")],
)
@pytest.mark.nightly
def test_the_steps_of_the_page_suffice(heading, files, cases, rule, tree):
    before = counted(tree)
    assert len(followed(tree, section(heading))) == files
    assert counted(tree) - before == cases
    for command in GENERATED:
        run(tree, command)
    tests = " ".join(f"tests/test_{name}.py" for name in ("extending", "schema", "verbs", "tables"))
    run(tree, f"{sys.executable} -P -m pytest -q -x -p no:cacheprovider {tests}")
    run(tree, f"./rdma-cts trial reference --rule {rule} --jobs 1")


def counted(tree: Path) -> int:
    match = re.search(r"^(\d+) cases", run(tree, "./rdma-cts list"), re.MULTILINE)
    assert match
    return int(match[1])
