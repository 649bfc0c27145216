"""Short names that many tests need: the types of pytest's fixtures, lists of words, and rows of text files."""

from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

Folders = pytest.TempPathFactory
Patch = pytest.MonkeyPatch
Says = pytest.CaptureFixture[str]


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
    """The rows of a text file next to this one, `input => expected`; `#` begins a comment."""
    lines = Path(__file__).with_name(name).read_text().splitlines()
    return [(given, said.strip()) for given, _, said in (line.partition(" =>") for line in lines if line[0] != "#")]
