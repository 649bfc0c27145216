"""Short names that many tests need: the types of pytest's fixtures, and lists of words."""

import pytest

Folders = pytest.TempPathFactory
Patch = pytest.MonkeyPatch
Says = pytest.CaptureFixture[str]


def words(text: str) -> list[str]:
    return text.split()
