"""Names that many tests use: the types of fixtures, functions that read words and rows, and the kernel reports."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pytest

if TYPE_CHECKING or hasattr(pytest, "StashKey"):
    Folders = pytest.TempPathFactory
    Patch = pytest.MonkeyPatch
    Says = pytest.CaptureFixture[str]
else:  # pytest 6 does not export these types
    Folders = Patch = Says = object


class Said(NamedTuple):
    """The output of a command."""

    out: str
    err: str


class Cli(Protocol):
    """The fixture `cli` of conftest.py."""

    def __call__(self, status: int, *arguments: object) -> Said: ...


def words(text: str) -> list[str]:
    return text.split()


def rows(name: str) -> list[tuple[str, str]]:
    """Returns the rows `input => expected` of a file in tests/rows; `#` begins a comment."""
    lines = (Path(__file__).parent / "rows" / f"{name}.txt").read_text().splitlines()
    pairs = []
    for line in lines:
        if line[0] != "#":
            arguments, _, said = line.partition(" =>")
            pairs.append((arguments, said.strip()))
    return pairs


# For each report in kernel_reports.txt, its lines and the text that must be derived from them.
_BLOCK = re.compile(r"^=== (\w+)\n# expect ?(.*)\n((?:(?!=== ).*\n)*)", re.MULTILINE)
_BLOCKS = _BLOCK.findall(Path(__file__).with_name("kernel_reports.txt").read_text())
REPORTS = {name: (report.splitlines(), place) for name, place, report in _BLOCKS}
