"""Short names that many tests need: the types of pytest's fixtures, and lists of words."""

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
