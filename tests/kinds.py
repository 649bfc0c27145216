"""Short names for the types of pytest's fixtures that many tests take."""

import pytest

Folders = pytest.TempPathFactory
Patch = pytest.MonkeyPatch
Says = pytest.CaptureFixture[str]
